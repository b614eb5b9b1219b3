import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as TestClock from "effect/testing/TestClock"
import * as Test from "../utils/driver.ts"

const opened = Test.opener()
const open = opened({ clock: "effect" })

describe("startOrchestrations:", () => {
  it.effect("creates instance, pinned execution and start message together", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* TestClock.setTime(3000)
      const start = Test.start("a", { pinnedVersion: { major: 1000, minor: 2, patch: 3 } })
      assert.deepStrictEqual(yield* driver.startOrchestrations([start]), ["Started"])
      assert.deepStrictEqual(yield* driver.readInstances(["a"]), [{
        instanceId: "a",
        orchestrationName: "Orchestration",
        orchestrationVersion: null,
        parentInstanceId: null,
        executionId: 1,
        status: "Running",
        output: null,
        failure: null,
        customStatus: null,
        customStatusVersion: 0,
        block: null,
        pause: null,
        startsAtMs: null,
        createdAtMs: 3000,
        updatedAtMs: 3000
      }])
      assert.deepStrictEqual(
        yield* sql(
          `SELECT extract(epoch FROM started_at)::float8 AS at, duroxide_version_major AS x, duroxide_version_minor AS y,
             duroxide_version_patch AS z FROM executions`
        ),
        [{ at: 3, x: 1000, y: 2, z: 3 }]
      )
      assert.deepStrictEqual((yield* Test.claimOne(driver)).messages.map(({ workItem }) => workItem), [start.workItem])
    }))

  it.effect("a delayed start is known at once and delivered later", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      yield* driver.startOrchestrations([Test.start("a", { delayMs: 1000 })])
      assert.lengthOf(yield* driver.readInstances(["a"]), 1)
      yield* TestClock.adjust(999)
      assert.deepStrictEqual(yield* Test.claim(driver), [])
      yield* TestClock.adjust(1)
      assert.lengthOf(yield* Test.claim(driver), 1)
    }))

  it.effect("an id with an instance row, an execution row or a queued start is taken", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* sql("INSERT INTO instances VALUES ('instance', 'O', null, 1, now(), now())")
      yield* sql("INSERT INTO executions VALUES ('execution', 1, 'Completed', null, now())")
      yield* driver.enqueueForOrchestrator([
        Test.message("queued", "{\"StartOrchestration\":{\"instance\":\"queued\"}}"),
        Test.message("queued as jsonb", "{\"StartOrchestration\": {\"instance\": \"x\"}}"),
        Test.message("other message", "{\"QueueMessage\":{\"data\":\"StartOrchestration\"}}")
      ])
      assert.deepStrictEqual(
        yield* driver.startOrchestrations(
          ["free", "instance", "execution", "queued", "queued as jsonb", "other message", "free"].map((id) =>
            Test.start(id)
          )
        ),
        ["Started", "AlreadyExists", "AlreadyExists", "AlreadyExists", "AlreadyExists", "Started", "AlreadyExists"]
      )
      assert.lengthOf(yield* sql("SELECT FROM orchestrator_queue WHERE instance_id = 'free'"), 1)
      assert.deepStrictEqual(yield* driver.startOrchestrations([Test.start("free")]), ["AlreadyExists"])
    }))

  it.effect("the first turn names the version and keeps what the start wrote", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.startOrchestrations([Test.start("a")])
      yield* TestClock.adjust(1000)
      const { lockToken } = yield* Test.claimOne(driver)
      yield* driver.ackOrchestrationItems([
        Test.turn(lockToken, { ...Test.named, history: Test.events(1), status: "Running" })
      ])
      const [state] = yield* driver.readInstances(["a"])
      assert.deepStrictEqual(
        [state!.orchestrationVersion, state!.createdAtMs, state!.updatedAtMs],
        ["1.0.0", 0, 1000]
      )
      assert.deepStrictEqual(yield* sql("SELECT duroxide_version_major AS x FROM executions"), [{ x: 1000 }])
    }))
})

describe("enqueueForOrchestrator:", () => {
  it.effect("is visible at the later of the given time and now plus the delay", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* TestClock.setTime(10_000)
      const at = (visibleAtMs: number | null, delayMs: number | null) => ({
        ...Test.message("a"),
        visibleAtMs,
        delayMs
      })
      yield* driver.enqueueForOrchestrator([
        at(null, null),
        at(null, 500),
        at(5000, null),
        at(20_000, null),
        at(20_000, 500),
        at(10_100, 500)
      ])
      assert.deepStrictEqual(
        yield* sql("SELECT (extract(epoch FROM visible_at) * 1000)::int AS at FROM orchestrator_queue ORDER BY id"),
        [10_000, 10_500, 10_000, 20_000, 20_000, 10_500].map((at) => ({ at }))
      )
    }))

  it.effect("is visible at the end of the year 9999 at the latest, the limit of dates clients read", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const latest = Number.MAX_SAFE_INTEGER
      yield* driver.enqueueForOrchestrator([
        { ...Test.message("a"), visibleAtMs: latest },
        { ...Test.message("a"), delayMs: latest }
      ])
      const { lockToken } = yield* Test.claimed(driver, "b")
      yield* driver.ackOrchestrationItems([
        Test.turn(lockToken, { orchestratorItems: [{ ...Test.message("a"), visibleAtMs: latest }] })
      ])
      assert.deepStrictEqual(
        yield* sql("SELECT date_trunc('second', visible_at AT TIME ZONE 'UTC')::text AS at FROM orchestrator_queue"),
        [1, 2, 3].map(() => ({ at: "9999-12-31 23:59:59" }))
      )
    }))

  it.effect("keeps the order and duplicates, and creates no instance", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const texts = ["3", "1", "2", "2"]
      yield* driver.enqueueForOrchestrator(texts.map((text) => Test.message("a", text)))
      assert.lengthOf(yield* sql("SELECT FROM instances"), 0)
      const { messages } = yield* Test.claimOne(driver)
      assert.deepStrictEqual(messages.map(({ workItem }) => workItem), texts)
    }))

  for (const [name, text] of [["NUL", "a\0b"], ["a lone surrogate", "a\ud800b"]] as const) {
    it.effect(`${name} is refused, and no start of the set is stored`, () =>
      Effect.gen(function*() {
        const { driver, sql } = yield* open
        const error = yield* Effect.flip(
          driver.enqueueForOrchestrator([Test.message("a"), Test.message("b", text), Test.message("c")])
        )
        assert.strictEqual(error.operation, "enqueueForOrchestrator")
        assert.strictEqual(error.reason._tag, "DataRefused")
        assert.isFalse(error.isRetryable)
        assert.lengthOf(yield* sql("SELECT FROM orchestrator_queue"), 0)
      }))
  }
})

describe("history:", () => {
  it.effect("readHistory: one execution by event id; without a number the highest; unknown is empty", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.appendHistory({ instanceId: "a", executionId: 1, history: Test.events(2, 10, 1) })
      yield* driver.appendHistory({ instanceId: "a", executionId: 2, history: Test.events(7) })
      const read = (executionId: number | null) => driver.readHistory({ instanceId: "a", executionId })
      assert.deepStrictEqual(yield* read(1), Test.events(1, 2, 10).map(({ eventData }) => eventData))
      assert.deepStrictEqual(yield* read(null), Test.events(1, 2, 10).map(({ eventData }) => eventData))
      yield* sql("INSERT INTO executions VALUES ('a', 1, 'Running', null, now()), ('a', 2, 'Running', null, now())")
      assert.deepStrictEqual(yield* read(null), Test.events(7).map(({ eventData }) => eventData))
      assert.deepStrictEqual(yield* read(3), [])
      assert.deepStrictEqual(yield* driver.readHistory({ instanceId: "b", executionId: null }), [])
    }))

  it.effect("appendHistory: a taken id fails with DuplicateEvent and writes nothing", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const append = (...ids: ReadonlyArray<number>) =>
        driver.appendHistory({ instanceId: "a \"b\"", executionId: 4, history: Test.events(...ids) })
      yield* append(1, 2)
      for (const ids of [[3, 2], [4, 4]]) {
        const error = yield* Effect.flip(append(...ids))
        assert.strictEqual(error.operation, "appendHistory")
        assert.deepInclude(error.reason, { _tag: "DuplicateEvent", instanceId: "a \"b\"", executionId: 4 })
      }
      assert.lengthOf(yield* driver.readHistory({ instanceId: "a \"b\"", executionId: 4 }), 2)
    }))
})

describe("readInstances:", () => {
  it.effect("answers for known ids, each once, in one statement", () =>
    Effect.gen(function*() {
      const { driver, statements } = yield* open
      yield* driver.startOrchestrations([Test.start("a"), Test.start("b")])
      const before = yield* statements
      const states = yield* driver.readInstances(["b", "unknown", "a", "b"])
      assert.sameMembers(states.map(({ instanceId }) => instanceId), ["a", "b"])
      assert.strictEqual(yield* statements, before + 1)
    }))

  it.effect("shows the current execution, and of a failed one the OrchestrationFailed event that ended it", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const failed = (text: string) => `{"event_id":9,"type":"OrchestrationFailed","details":"${text}"}`
      const decoy = (type: string) =>
        JSON.stringify({ type, result: JSON.stringify({ type: "OrchestrationFailed" }), reason: failed("decoy") })
      yield* sql("INSERT INTO instances VALUES ('a', 'O', '1.0.0', 2, now(), now(), 'parent')")
      yield* sql(
        "INSERT INTO executions VALUES ('a', 1, 'ContinuedAsNew', 'in', now()), ('a', 2, 'Failed', 'out', now())"
      )
      yield* driver.appendHistory({
        instanceId: "a",
        executionId: 2,
        history: [
          failed("first"),
          decoy("ActivityCompleted"),
          failed("last"),
          // One for each activity and child that was open then.
          ...Array.from(
            { length: 20 },
            (_, i) => decoy(i % 2 === 0 ? "ActivityCancelRequested" : "SubOrchestrationCancelRequested")
          )
        ].map((eventData, i) => ({
          eventId: i + 1,
          eventType: "OrchestrationFailed",
          eventData
        }))
      })
      const [state] = yield* driver.readInstances(["a"])
      assert.deepInclude(state, {
        executionId: 2,
        status: "Failed",
        output: "out",
        failure: failed("last"),
        parentInstanceId: "parent"
      })
      assert.deepStrictEqual(yield* driver.readEnds(["a"]), [
        { instanceId: "a", status: "Failed", output: "out", failure: failed("last") }
      ])
      yield* sql("UPDATE executions SET status = 'Completed' WHERE execution_id = 2")
      assert.isNull((yield* driver.readInstances(["a"]))[0]!.failure)
      yield* sql("DELETE FROM executions")
      assert.deepInclude((yield* driver.readInstances(["a"]))[0], { status: "Running", output: null, failure: null })
    }))

  it.effect("a number beyond the range of JavaScript is refused, not rounded", () =>
    Effect.gen(function*() {
      const { admin, driver, sql } = yield* open
      yield* sql(`INSERT INTO instances VALUES ('a', 'O', null, ${2n ** 53n}, now(), now())`)
      yield* driver.enqueueForOrchestrator([Test.message("a")])
      const read = yield* Effect.flip(driver.readInstances(["a"]))
      assert.strictEqual(read.reason._tag, "DataCorrupted")
      assert.include(read.message, "2^53 - 1")
      assert.isTrue(Exit.isFailure(yield* Effect.exit(Test.claim(driver))))
      yield* sql(`INSERT INTO executions VALUES ('a', ${2n ** 53n}, 'Running', null, now(), null)`)
      assert.strictEqual((yield* Effect.flip(admin.listExecutions("a"))).reason._tag, "DataCorrupted")
      yield* sql(`UPDATE instances SET current_execution_id = ${2n ** 53n - 1n}`)
      assert.strictEqual((yield* driver.readInstances(["a"]))[0]!.executionId, Number.MAX_SAFE_INTEGER)
    }))
})

describe("readEnds:", () => {
  it.effect("answers for those that have ended, each once, and reads no output that was not asked for", () =>
    Effect.gen(function*() {
      const { driver, sql, statements } = yield* open
      yield* driver.startOrchestrations(["a", "b", "c", "d", "e"].map((id) => Test.start(id)))
      yield* sql("UPDATE executions SET status = 'Completed', output = instance_id WHERE instance_id IN ('a', 'b')")
      // The execution that follows has not begun, so it has no row.
      yield* sql("UPDATE executions SET status = 'Completed' WHERE instance_id = 'c'")
      yield* sql("UPDATE instances SET current_execution_id = 2 WHERE instance_id = 'c'")
      yield* sql("UPDATE executions SET status = 'ContinuedAsNew' WHERE instance_id = 'd'")
      const before = yield* statements
      assert.deepStrictEqual(yield* driver.readEnds(["b", "unknown", "c", "d", "e", "b"]), [
        { instanceId: "b", status: "Completed", output: "b", failure: null }
      ])
      assert.strictEqual(yield* statements, before + 1)
      assert.deepStrictEqual(yield* driver.readEnds([]), [])
    }))

  it.effect("outputs of more than 16 MiB in all come in several statements, one at a time if need be", () =>
    Effect.gen(function*() {
      const { driver, sql, statements } = yield* open
      const ids = ["a", "b", "c", "d"]
      yield* driver.startOrchestrations(ids.map((id) => Test.start(id)))
      const mebibytes = { a: 20, b: 9, c: 9, d: 1 }
      for (const [id, size] of Object.entries(mebibytes)) {
        yield* sql("UPDATE executions SET status = 'Completed', output = repeat('x', $2) WHERE instance_id = $1", [
          id,
          size * 1024 * 1024
        ])
      }
      const before = yield* statements
      const ended = yield* driver.readEnds(ids)
      assert.deepStrictEqual(
        ended.map(({ instanceId, output }) => [instanceId, output!.length / 1024 / 1024]),
        Object.entries(mebibytes)
      )
      assert.strictEqual(yield* statements, before + 3)
    }))
})

describe("readProgress:", () => {
  const ask = (instanceId: string, executionId = 1, lastEventId = 0, key: string | null = null) => ({
    instanceId,
    key,
    executionId,
    lastEventId
  })

  it.effect("answers in order for instances that have ended or moved, with what readers see of them", () =>
    Effect.gen(function*() {
      const { driver, sql, statements } = yield* open
      yield* driver.startOrchestrations(["a", "b", "c", "d"].map((id) => Test.start(id)))
      yield* sql("INSERT INTO history SELECT 'a', 1, i, 'Event', '{}', now() FROM generate_series(1, 3) AS i")
      yield* sql("INSERT INTO kv_store VALUES ('a', 'k', 'old', 1), ('a', 'l', 'left', 1), ('a', 'm', 'gone', 1)")
      yield* sql("INSERT INTO kv_delta VALUES ('a', 'k', 'new', 1), ('a', 'm', NULL, 1)")
      yield* sql("UPDATE instances SET custom_status = 'busy', custom_status_version = 7 WHERE instance_id = 'a'")
      yield* sql("UPDATE executions SET status = 'Failed' WHERE instance_id = 'b'")
      // The execution that follows has not begun, so it has no row.
      yield* sql("UPDATE instances SET current_execution_id = 2 WHERE instance_id = 'c'")
      yield* sql("UPDATE executions SET duroxide_version_major = NULL WHERE instance_id = 'd'")
      const progress = {
        executionId: 1,
        lastEventId: 0,
        customStatus: null,
        customStatusVersion: 0,
        value: null,
        hasEnded: false,
        isOfRust: false
      }
      const a = { ...progress, lastEventId: 3, customStatus: "busy", customStatusVersion: 7 }
      const before = yield* statements
      assert.deepStrictEqual(
        yield* driver.readProgress([
          ask("unknown"),
          ask("b"),
          ask("a", 1, 2, "k"),
          ask("a", 1, 3, "k"),
          ask("a", 1, 4, "l"),
          ask("a", 2, 3, "m"),
          ask("c"),
          ask("d"),
          ask("d", 0)
        ]),
        [
          null,
          { ...progress, hasEnded: true },
          { ...a, value: "new" },
          null,
          { ...a, value: "left" },
          a,
          { ...progress, executionId: 2 },
          null,
          { ...progress, isOfRust: true }
        ]
      )
      assert.strictEqual(yield* statements, before + 1)
      assert.deepStrictEqual(yield* driver.readProgress([]), [])
      assert.strictEqual(yield* statements, before + 1)
    }))

  it.effect("texts of more than 16 MiB in all come in several statements", () =>
    Effect.gen(function*() {
      const { driver, sql, statements } = yield* open
      const ids = ["d", "c", "unknown", "b", "a"]
      yield* driver.startOrchestrations(ids.filter((id) => id !== "unknown").map((id) => Test.start(id)))
      yield* sql("UPDATE instances SET custom_status = repeat('x', 9 * 1024 * 1024)")
      const before = yield* statements
      const found = yield* driver.readProgress(ids.map((id) => ask(id, 0)))
      assert.deepStrictEqual(
        found.map((progress) => progress && progress.customStatus!.length / 1024 / 1024),
        [9, 9, null, 9, 9]
      )
      assert.strictEqual(yield* statements, before + 2)
    }))
})
