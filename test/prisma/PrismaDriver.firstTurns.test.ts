import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"
import type { HandOver, UnclaimedTurn } from "../../src/provider/ProviderDriver.ts"
import * as Test from "../utils/driver.ts"
import { session } from "../utils/session.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

const opened = Test.opener()
const open = opened({ clock: "effect" })

const all: HandOver = { limit: 10, spare: 0, lockTimeoutMs: 5000, activities: ["Activity"], tags: { _tag: "Any" } }

/** A start with a first turn that stores two events and an activity. */
const begin = (
  instanceId: string,
  changes: Partial<UnclaimedTurn> = {},
  start: Parameters<typeof Test.start>[1] = {}
) =>
  Test.start(instanceId, {
    ...start,
    firstTurn: {
      turn: Test.unclaimedTurn(0, {
        ...Test.named,
        history: Test.events(1, 2),
        status: "Running",
        workerItems: [Test.activity({ instanceId })],
        ...changes
      }),
      handOver: all
    }
  })

const tags = (answers: ReadonlyArray<string | { readonly _tag: string }>) =>
  answers.map((answer) => typeof answer === "string" ? answer : answer._tag)

const child = (instanceId: string) => ({
  ...Test.message(instanceId, "{\"StartOrchestration\":{}}"),
  start: {
    orchestrationName: "Child",
    orchestrationVersion: null,
    parentInstanceId: "parent",
    pinnedVersion: { major: 1000, minor: 0, patch: 0 }
  }
})

describe("startOrchestrations with a first turn:", () => {
  it.effect("leaves the rows that a start and a claimed turn leave, without a message", () =>
    Effect.gen(function*() {
      const { driver, sql, statements } = yield* open
      const rows = (instanceId: string) =>
        Effect.all([
          sql("SELECT * FROM instances WHERE instance_id = $1", [instanceId]),
          sql("SELECT * FROM executions WHERE instance_id = $1", [instanceId]),
          sql("SELECT * FROM history WHERE instance_id = $1 ORDER BY event_id", [instanceId]),
          sql("SELECT key, value FROM kv_delta WHERE instance_id = $1", [instanceId]),
          sql("SELECT route, tag, attempt_count FROM worker_queue WHERE instance_id = $1", [instanceId]),
          sql("SELECT work_item, route FROM orchestrator_queue WHERE instance_id = $1", [instanceId])
        ])
      const changes: Partial<UnclaimedTurn> = {
        customStatus: { value: "begun" },
        pinnedVersion: { major: 1000, minor: 2, patch: 3 },
        keyValues: [{ action: "set", key: "k", value: "v", lastUpdatedAtMs: 7 }],
        orchestratorItems: [{ ...Test.message("a", "{\"TimerFired\":{}}"), visibleAtMs: 9000 }]
      }
      const turn = begin("a", changes).firstTurn!.turn
      for (
        const end of [{}, { status: "Completed", output: "o" }, { status: "ContinuedAsNew", output: "o" }] as const
      ) {
        yield* driver.startOrchestrations([Test.start("a")])
        const { lockToken } = yield* Test.claimOne(driver)
        yield* driver.ackOrchestrationItems([{ ...turn, ...end, lockToken }])
        yield* Test.take(driver)
        const expected = yield* rows("a")
        for (
          const table of [
            "instances",
            "executions",
            "history",
            "kv_delta",
            "kv_store",
            "worker_queue",
            "orchestrator_queue"
          ]
        ) {
          yield* sql(`DELETE FROM ${table}`)
        }
        const before = yield* statements
        const [answer] = yield* driver.startOrchestrations([begin("a", { ...changes, ...end })])
        assert.strictEqual(yield* statements, before + 1)
        assert(typeof answer === "object" && answer._tag === "Begun")
        assert.include(answer, { _tag: "Begun", nowMs: 0 })
        assert.deepStrictEqual(answer.handedOver.map(({ index }) => index), [0])
        assert.deepStrictEqual(yield* rows("a"), expected)
        for (
          const table of [
            "instances",
            "executions",
            "history",
            "kv_delta",
            "kv_store",
            "worker_queue",
            "orchestrator_queue"
          ]
        ) {
          yield* sql(`DELETE FROM ${table}`)
        }
      }
    }))

  it.effect("stores the start alone if the time of its turn is not the store's, and says the store's", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* TestClock.adjust(60_000)
      const started = { _tag: "Started", nowMs: 60_000 } as const
      assert.deepStrictEqual(yield* driver.startOrchestrations([begin("alone", { clockMs: () => 57_999 })]), [started])
      const answers = yield* driver.startOrchestrations([
        begin("early", { clockMs: () => 57_999 }),
        begin("in time", { clockMs: () => 58_000 }),
        begin("late", { clockMs: () => 62_001 })
      ])
      assert.deepStrictEqual([answers[0], answers[2]], [started, started])
      assert.deepStrictEqual(tags(answers), ["Started", "Begun", "Started"])
      assert.deepStrictEqual(yield* sql("SELECT instance_id FROM orchestrator_queue ORDER BY id"), [
        { instance_id: "alone" },
        { instance_id: "early" },
        { instance_id: "late" }
      ])
      assert.deepStrictEqual(yield* sql("SELECT DISTINCT instance_id FROM history"), [{ instance_id: "in time" }])
    }))

  it.effect("writes one version of each row", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* Test.open({ clock: "effect" })
      yield* driver.startOrchestrations([begin("a", { status: "Completed", output: "o" })])
      // In new tables. A row that was updated by its own transaction lies at a later place of its page.
      assert.deepStrictEqual(
        yield* sql(
          "SELECT ctid::text FROM instances UNION ALL SELECT ctid::text FROM executions UNION ALL SELECT ctid::text FROM worker_queue"
        ),
        [{ ctid: "(0,1)" }, { ctid: "(0,1)" }, { ctid: "(0,1)" }]
      )
    }))

  it.effect("creates children in the order of all ids; a start of the set comes before a child of the same id", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const answers = yield* driver.startOrchestrations([
        begin("parent", { orchestratorItems: [child("a"), child("z"), child("own")] }),
        Test.start("own")
      ])
      assert.deepStrictEqual(tags(answers), ["Begun", "Started"])
      const states = yield* driver.readInstances(["a", "z", "own"])
      assert.sameDeepMembers(
        states.map(({ instanceId, orchestrationName, parentInstanceId }) => [
          instanceId,
          orchestrationName,
          parentInstanceId
        ]),
        [["a", "Child", "parent"], ["own", "Orchestration", null], ["z", "Child", "parent"]]
      )
      assert.lengthOf(yield* Test.claim(driver), 3)
    }))

  it.effect("a first turn stands beside plain starts; of two starts of one id the first counts", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const answers = yield* driver.startOrchestrations([
        Test.start("a"),
        begin("a"),
        begin("b"),
        begin("b", { history: Test.events(1, 2, 3) }),
        Test.start("b")
      ])
      assert.deepStrictEqual(tags(answers), ["Started", "AlreadyExists", "Begun", "AlreadyExists", "AlreadyExists"])
      assert.deepStrictEqual(yield* sql("SELECT instance_id, count(*)::int FROM history GROUP BY 1"), [
        { instance_id: "b", count: 2 }
      ])
      assert.deepStrictEqual(yield* sql("SELECT instance_id FROM orchestrator_queue"), [{ instance_id: "a" }])
    }))

  it.effect("an id that is taken", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.startOrchestrations([Test.start("instance")])
      yield* sql("INSERT INTO executions VALUES ('execution', 1, 'Running', null, now())")
      yield* sql(
        `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
         VALUES ('start', '{"StartOrchestration":{}}', now(), now())`
      )
      const answers = yield* driver.startOrchestrations(
        ["instance", "execution", "start"].map((id) => begin(id, { orchestratorItems: [child(`${id}-child`)] }))
      )
      assert.deepStrictEqual(answers, ["AlreadyExists", "AlreadyExists", "AlreadyExists"])
      assert.lengthOf(yield* sql("SELECT FROM instances"), 1)
      assert.lengthOf(yield* sql("SELECT FROM history"), 0)
    }))

  const fallbacks: Readonly<Record<string, (test: Test.Opened) => Effect.Effect<unknown, unknown>>> = {
    "a message came before": ({ driver }) => driver.enqueueForOrchestrator([Test.message("a")]),
    "a message came before and is not due yet": ({ driver }) =>
      driver.enqueueForOrchestrator([{ ...Test.message("a"), delayMs: 9000 }]),
    "its id has a lock": ({ sql }) => sql("INSERT INTO instance_locks VALUES ('a', 'gone', 0, 0)"),
    "its id has a history": ({ sql }) => sql("INSERT INTO history VALUES ('a', 9, 9, 'TimerFired', '{}', now())")
  }
  for (const [reason, before] of Object.entries(fallbacks)) {
    it.effect(`is a plain start when ${reason}`, () =>
      Effect.gen(function*() {
        const test = yield* open
        const { driver, sql } = test
        yield* before(test)
        const events = (yield* sql("SELECT FROM history")).length
        assert.deepStrictEqual(yield* driver.startOrchestrations([begin("a", { orchestratorItems: [child("c")] })]), [
          "Started"
        ])
        assert.lengthOf(yield* sql("SELECT FROM history"), events)
        assert.lengthOf(yield* sql("SELECT FROM worker_queue"), 0)
        assert.lengthOf(yield* sql("SELECT FROM instances"), 1)
        yield* TestClock.adjust(10_000)
        const { messages } = yield* Test.claimOne(driver)
        assert.include(messages.map(({ workItem }) => workItem), Test.start("a").workItem)
      }))
  }

  it.effect("is a plain start when it is delayed, or gives an event id twice", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const answers = yield* driver.startOrchestrations([
        begin("a", {}, { delayMs: 1000 }),
        begin("b", { history: Test.events(1, 1) })
      ])
      assert.deepStrictEqual(answers, ["Started", "Started"])
    }))

  it.live("is a plain start while another transaction claims the id", () =>
    Effect.gen(function*() {
      const test = yield* opened()
      const other = yield* session(test)
      yield* other("SELECT pg_advisory_xact_lock(hashtext('a'))")
      assert.deepStrictEqual(yield* test.driver.startOrchestrations([begin("a")]), ["Started"])
    }))

  it.live("of two starts of one id at the same time one creates it; the other leaves nothing, also of its children", () =>
    Effect.gen(function*() {
      for (const end of ["COMMIT", "ROLLBACK"]) {
        const test = yield* Test.open({ patient: true })
        const other = yield* session(test)
        yield* other("INSERT INTO instances VALUES ('m', 'O', null, 1, now(), now())")
        const waiting = yield* Effect.forkChild(
          test.driver.startOrchestrations([begin("m", { orchestratorItems: [child("a"), child("z")] }), begin("well")])
        )
        yield* waitForStatement(test, "dx_start_orchestrations", "Lock")
        yield* other(end)
        const answers = yield* Fiber.join(waiting)
        assert.deepStrictEqual(tags(answers), [end === "COMMIT" ? "AlreadyExists" : "Begun", "Begun"])
        assert.deepStrictEqual(
          yield* test.sql("SELECT instance_id FROM instances ORDER BY 1"),
          (end === "COMMIT" ? ["m", "well"] : ["a", "m", "well", "z"]).map((instance_id) => ({ instance_id }))
        )
        assert.deepStrictEqual(
          yield* test.sql("SELECT instance_id FROM executions ORDER BY 1"),
          (end === "COMMIT" ? ["well"] : ["a", "m", "well", "z"]).map((instance_id) => ({ instance_id }))
        )
        assert.lengthOf(yield* test.sql("SELECT FROM orchestrator_queue"), end === "COMMIT" ? 0 : 2)
        assert.lengthOf(yield* test.sql("SELECT FROM worker_queue"), end === "COMMIT" ? 1 : 2)
      }
    }))
})
