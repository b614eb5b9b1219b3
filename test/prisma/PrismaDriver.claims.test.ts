import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import type { VersionRange } from "../../src/model/Instance.ts"
import * as Test from "../utils/driver.ts"

const opened = Test.opener()

const version = (major: number, minor = 0, patch = 0) => ({ major, minor, patch })

describe("fetchOrchestrationItems:", () => {
  it.live("returns everything a turn reads", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* opened()
      yield* driver.startOrchestrations([Test.start("a")])
      const first = yield* Test.claimOne(driver)
      assert.deepStrictEqual(first, {
        instanceId: "a",
        lockToken: first.lockToken,
        nowMs: first.nowMs,
        instance: { orchestrationName: "Orchestration", orchestrationVersion: null },
        executionId: 1,
        history: [],
        messages: [{ ...first.messages[0]!, workItem: Test.start("a").workItem }],
        isWholeHistory: true,
        keyValues: []
      })
      yield* driver.ackOrchestrationItems([
        Test.turn(first.lockToken, { ...Test.named, history: Test.events(1, 2, 3), status: "ContinuedAsNew" })
      ])
      yield* sql(`INSERT INTO kv_store VALUES ('a', 'key "1"', 'välue\n', 1, 7), ('b', 'other', 'x', 1, 1)`)
      yield* driver.enqueueForOrchestrator([Test.message("a", "{\"One\":{}}"), Test.message("a", "{\"Two\":{}}")])
      const second = yield* Test.claimOne(driver)
      assert.deepStrictEqual(second.instance, { orchestrationName: "Orchestration", orchestrationVersion: "1.0.0" })
      assert.deepStrictEqual(second.history, Test.events(1, 2, 3).map(({ eventData }) => eventData))
      assert.deepStrictEqual(second.messages.map(({ workItem }) => workItem), ["{\"One\":{}}", "{\"Two\":{}}"])
      assert.deepStrictEqual(second.keyValues, [{ key: "key \"1\"", value: "välue\n", lastUpdatedAtMs: 7 }])
      assert.notStrictEqual(second.lockToken, first.lockToken)
    }))

  it.live("returns nothing and sends one statement when there is nothing", () =>
    Effect.gen(function*() {
      const { driver, statements } = yield* opened()
      assert.deepStrictEqual(yield* Test.claim(driver), [])
      assert.strictEqual(yield* statements, 1)
    }))

  it.live("claims up to the limit, the instance with the oldest visible message first", () =>
    Effect.gen(function*() {
      const { driver } = yield* opened()
      const at = (instanceId: string, visibleAtMs: number) => ({ ...Test.message(instanceId), visibleAtMs })
      const now = Date.now()
      yield* driver.enqueueForOrchestrator([Test.message("warm-up")])
      const { lockToken } = yield* Test.claimOne(driver)
      // Messages of an ack may lie in the past; their order is by time, not by id.
      yield* driver.ackOrchestrationItems([
        Test.turn(lockToken, {
          orchestratorItems: [at("c", now - 1000), at("a", now - 3000), at("d", now - 500), at("b", now - 2000)]
        })
      ])
      const claimed = yield* Test.claim(driver, 3)
      assert.deepStrictEqual(claimed.map(({ instanceId }) => instanceId), ["a", "b", "c"])
      assert.deepStrictEqual((yield* Test.claim(driver, 3)).map(({ instanceId }) => instanceId), ["d"])
    }))

  it.live("orders a batch by row id, whatever the times of visibility", () =>
    Effect.gen(function*() {
      const { driver } = yield* opened()
      const { lockToken } = yield* Test.claimed(driver, "other")
      const now = Date.now()
      const at = (workItem: string, visibleAtMs: number) => ({ ...Test.message("a", workItem), visibleAtMs })
      yield* driver.ackOrchestrationItems([
        Test.turn(lockToken, { orchestratorItems: [at("1", now - 10), at("2", now - 5000), at("3", now - 1000)] })
      ])
      const { messages } = yield* Test.claimOne(driver)
      assert.deepStrictEqual(messages.map(({ workItem }) => workItem), ["1", "2", "3"])
    }))

  it.effect("says when each message of the batch was enqueued", () =>
    Effect.gen(function*() {
      const { driver } = yield* opened({ clock: "effect" })
      for (const atMs of [1000, 2345, 5000]) {
        yield* TestClock.setTime(atMs)
        yield* driver.enqueueForOrchestrator([{ ...Test.message("a"), visibleAtMs: atMs === 5000 ? 9000 : null }])
      }
      const { messages, nowMs } = yield* Test.claimOne(driver)
      assert.deepStrictEqual(messages.map(({ enqueuedAtMs }) => enqueuedAtMs), [1000, 2345])
      assert.strictEqual(nowMs, 5000)
    }))

  it.effect("leaves out messages that are not visible yet; messages that arrive during a turn are the next batch", () =>
    Effect.gen(function*() {
      const { driver } = yield* opened({ clock: "effect" })
      yield* driver.enqueueForOrchestrator([
        Test.message("a", "now"),
        { ...Test.message("a", "later"), delayMs: 1000 },
        { ...Test.message("a", "at 1500"), visibleAtMs: 1500 },
        { ...Test.message("b", "later"), delayMs: 1000 }
      ])
      const first = yield* Test.claimOne(driver, 5000)
      assert.deepStrictEqual(first.messages.map(({ workItem }) => workItem), ["now"])
      yield* driver.enqueueForOrchestrator([Test.message("a", "meanwhile")])
      yield* TestClock.adjust(999)
      assert.deepStrictEqual(yield* Test.claim(driver), [])
      yield* driver.ackOrchestrationItems([Test.turn(first.lockToken)])
      yield* TestClock.adjust(1)
      const claimed = yield* Test.claim(driver)
      assert.deepStrictEqual(
        claimed.map(({ instanceId, messages, nowMs }) => ({
          instanceId,
          nowMs,
          messages: messages.map(({ workItem }) => workItem)
        })),
        [
          { instanceId: "a", nowMs: 1000, messages: ["later", "meanwhile"] },
          { instanceId: "b", nowMs: 1000, messages: ["later"] }
        ]
      )
    }))

  it.effect("takes over an expired lock exactly at its end, and counts the delivery", () =>
    Effect.gen(function*() {
      const { driver } = yield* opened({ clock: "effect" })
      const first = yield* Test.claimed(driver, "a", 1000)
      yield* TestClock.adjust(999)
      assert.deepStrictEqual(yield* Test.claim(driver), [])
      yield* TestClock.adjust(1)
      const second = yield* Test.claimOne(driver)
      assert.strictEqual(Test.attempts(second), 2)
      assert.notStrictEqual(second.lockToken, first.lockToken)
      assert.deepStrictEqual(second.messages, first.messages.map((message) => ({ ...message, attemptCount: 2 })))
    }))

  it.live("reports the highest delivery count of the batch", () =>
    Effect.gen(function*() {
      const { driver } = yield* opened()
      for (const expected of [1, 2, 3]) {
        const claim = yield* expected === 1 ? Test.claimed(driver, "a") : Test.claimOne(driver)
        const { lockToken } = claim
        assert.strictEqual(Test.attempts(claim), expected)
        yield* driver.enqueueForOrchestrator([Test.message("a", "fresh")])
        yield* driver.abandonOrchestrationItems([{ lockToken, delayMs: null, ignoreAttempt: false }])
      }
    }))

  it.live("works without an instance row: the highest execution counts, else the first", () =>
    Effect.gen(function*() {
      const { driver } = yield* opened()
      const first = yield* Test.claimed(driver, "a")
      assert.isNull(first.instance)
      assert.strictEqual(first.executionId, 1)
      yield* driver.ackOrchestrationItems([Test.turn(first.lockToken, { executionId: 3, history: Test.events(1) })])
      const second = yield* Test.claimed(driver, "a")
      assert.isNull(second.instance)
      assert.strictEqual(second.executionId, 3)
      assert.lengthOf(second.history, 1)
    }))

  it.live("returns texts that are not JSON as stored", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* opened()
      const texts = ["no json", "{\"a\": \"\\u0000\"}", "\"\\ud800\"", "", "line\nbreak\ttab \u001f \\ \" 😀"]
      yield* sql("INSERT INTO instances VALUES ('a', 'O', '1.0.0', 1, now(), now())")
      for (const [i, text] of texts.entries()) {
        yield* sql("INSERT INTO history VALUES ('a', 1, $1, 'Event', $2, now())", [i + 1, text])
        yield* sql(
          "INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at) VALUES ('a', $1, now(), now())",
          [text]
        )
      }
      const { history, messages } = yield* Test.claimOne(driver)
      assert.deepStrictEqual(history, texts)
      assert.deepStrictEqual(messages.map(({ workItem }) => workItem), texts)
    }))

  it.live("claims one instance once for all its messages, and others behind it in the same call", () =>
    Effect.gen(function*() {
      const { driver } = yield* opened()
      yield* driver.enqueueForOrchestrator([
        ...Array.from({ length: 2500 }, (_, i) => Test.message("hot", String(i))),
        Test.message("b"),
        Test.message("c")
      ])
      const claimed = yield* Test.claim(driver, 3)
      assert.deepStrictEqual(claimed.map(({ instanceId }) => instanceId), ["hot", "b", "c"])
      assert.deepStrictEqual(claimed[0]!.messages.map(({ workItem }) => Number(workItem)), [...Array(2500).keys()])
      yield* driver.enqueueForOrchestrator([...Array(2500).keys()].map(() => Test.message("hot")))
      yield* driver.enqueueForOrchestrator([Test.message("d")])
      assert.deepStrictEqual((yield* Test.claim(driver, 1)).map(({ instanceId }) => instanceId), ["d"])
    }))

  describe("with a version range:", () => {
    const claimIn = (driver: Test.Driver, versions: VersionRange | null, limit = 10) =>
      Effect.map(
        driver.fetchOrchestrationItems({ limit, lockTimeoutMs: 30_000, versions, orphans: true }),
        (claimed) => claimed.map(({ instanceId }) => instanceId)
      )

    it.live("both ends are included and compared as tuples", () =>
      Effect.gen(function*() {
        const { driver } = yield* opened()
        const pinned = [[1, 2, 3], [1, 2, 4], [1, 10, 0], [2, 0, 0], [2, 0, 1]] as const
        yield* driver.startOrchestrations(
          pinned.map(([major, minor, patch]) =>
            Test.start(`${major}.${minor}.${patch}`, { pinnedVersion: version(major, minor, patch) })
          )
        )
        const inside = yield* claimIn(driver, { min: version(1, 2, 4), max: version(2, 0, 0) })
        assert.sameMembers(inside, ["1.2.4", "1.10.0", "2.0.0"])
        assert.sameMembers(yield* claimIn(driver, null), ["1.2.3", "2.0.1"])
      }))

    it.live("an execution without a pinned version passes every range, and so does a missing row", () =>
      Effect.gen(function*() {
        const { driver, sql } = yield* opened()
        const { lockToken } = yield* Test.claimed(driver, "unpinned")
        yield* driver.ackOrchestrationItems([Test.turn(lockToken, Test.named)])
        yield* sql("INSERT INTO instances VALUES ('no execution', 'Orchestration', '1.0.0', 1, now(), now())")
        yield* driver.enqueueForOrchestrator([
          Test.message("unpinned"),
          Test.message("no execution"),
          Test.message("no instance")
        ])
        assert.sameMembers(yield* claimIn(driver, { min: version(1), max: version(2) }), [
          "unpinned",
          "no execution",
          "no instance"
        ])
      }))

    it.live("the version of the current execution decides", () =>
      Effect.gen(function*() {
        const { driver } = yield* opened()
        yield* driver.startOrchestrations([Test.start("a", { pinnedVersion: version(1) })])
        const { lockToken } = yield* Test.claimOne(driver)
        yield* driver.ackOrchestrationItems([
          Test.turn(lockToken, { executionId: 2, pinnedVersion: version(2), orchestratorItems: [Test.message("a")] })
        ])
        assert.deepStrictEqual(yield* claimIn(driver, { min: version(1), max: version(1) }), [])
        assert.deepStrictEqual(yield* claimIn(driver, { min: version(2), max: version(2) }), ["a"])
      }))

    it.live("a rejected instance is neither locked nor counted, and does not hide those behind it", () =>
      Effect.gen(function*() {
        const { driver, sql } = yield* opened()
        yield* driver.startOrchestrations(
          Array.from({ length: 300 }, (_, i) => Test.start(`theirs-${i}`, { pinnedVersion: version(1) }))
        )
        yield* driver.startOrchestrations([Test.start("ours", { pinnedVersion: version(1000) })])
        assert.deepStrictEqual(yield* claimIn(driver, { min: version(1000), max: version(1000) }, 1), ["ours"])
        assert.deepStrictEqual(yield* claimIn(driver, { min: version(1000), max: version(1000) }, 1), [])
        assert.deepStrictEqual(
          yield* sql("SELECT max(attempt_count) AS most FROM orchestrator_queue WHERE instance_id <> 'ours'"),
          [{ most: 0 }]
        )
        assert.lengthOf(yield* sql("SELECT FROM instance_locks"), 1)
      }))
  })
})
