import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import type { HandOver, OptimisticAnswer, OptimisticTurn } from "../../src/provider/ProviderDriver.ts"
import * as Test from "../utils/driver.ts"
import { session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const opened = Test.opener()
const open = opened({ clock: "effect" })

const advance = (driver: Test.Driver, ...turns: ReadonlyArray<OptimisticTurn>) => driver.advanceOrchestrations!(turns)

const queued = (...results: ReadonlyArray<"Done" | "LockLost">): OptimisticAnswer => ({ _tag: "Queued", results })

describe("advanceOrchestrations:", () => {
  it.effect("stores results and turn in one statement, without a message and without a lock", () =>
    Effect.gen(function*() {
      const { driver, sql, statements } = yield* open
      const { a } = yield* Test.waiting(driver, ["a"], 2)
      yield* TestClock.adjust(1000)
      const before = yield* statements
      const answers = yield* advance(
        driver,
        Test.optimistic("a", [a![0]!], {
          history: Test.events(3, 4),
          customStatus: { value: "half" },
          keyValues: [{ action: "set", key: "k", value: "v", lastUpdatedAtMs: 7 }],
          workerItems: [Test.activity({ instanceId: "a", activityId: 4 })],
          orchestratorItems: [Test.message("b"), { ...Test.message("a", "{\"TimerFired\":{}}"), visibleAtMs: 5000 }]
        })
      )
      assert.strictEqual(yield* statements, before + 1)
      assert.deepStrictEqual(answers, [{ _tag: "Advanced", nowMs: 1000, handedOver: [] }])
      assert.deepStrictEqual(yield* sql("SELECT event_id::int FROM history ORDER BY 1"), [
        { event_id: 1 },
        { event_id: 2 },
        { event_id: 3 },
        { event_id: 4 }
      ])
      assert.deepStrictEqual(
        yield* sql("SELECT activity_id::int, lock_token IS NULL AS free, attempt_count FROM worker_queue ORDER BY 1"),
        [{ activity_id: 3, free: false, attempt_count: 1 }, { activity_id: 4, free: true, attempt_count: 0 }]
      )
      assert.deepStrictEqual(yield* sql("SELECT instance_id, work_item FROM orchestrator_queue ORDER BY id"), [
        { instance_id: "b", work_item: "{\"CancelInstance\":{}}" },
        { instance_id: "a", work_item: "{\"TimerFired\":{}}" }
      ])
      assert.deepStrictEqual(yield* sql("SELECT FROM instance_locks"), [])
      assert.deepStrictEqual(yield* driver.readKeyValues({ instanceId: "a", key: null }), [{ key: "k", value: "v" }])
      const [state] = yield* driver.readInstances(["a"])
      assert.include(state, { status: "Running", customStatus: "half", customStatusVersion: 1, updatedAtMs: 1000 })
      // A second result of the same time is a message of the next turn.
      assert.deepStrictEqual(
        yield* advance(driver, Test.optimistic("a", [a![1]!], { lastEventId: 4 })),
        [{ _tag: "Advanced", nowMs: 1000, handedOver: [] }]
      )
    }))

  it.effect("the text of the last event is compared, whatever it holds", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const texts = ["{}", "{\"a\":\"é 😀 \\u0001 \\\\ \\\"\"}", `{"long":"${"0123456789".repeat(10_000)}"}`]
      const instances = texts.flatMap((text, i) =>
        ["alone", "together"].flatMap((sent) => [
          { instanceId: `${sent} ${i}`, sent, stored: text, believed: text },
          { instanceId: `other, ${sent} ${i}`, sent, stored: text, believed: `${text} ` }
        ])
      )
      const waiting = yield* Test.waiting(driver, instances.map(({ instanceId }) => instanceId))
      for (const { instanceId, stored } of instances) {
        const history = [{ eventId: 3, eventType: "TimerFired", eventData: stored }]
        yield* driver.appendHistory({ instanceId, executionId: 1, history })
      }
      const turns = (sent: string) =>
        instances.filter((one) => one.sent === sent).map(({ believed, instanceId }) =>
          Test.optimistic(instanceId, waiting[instanceId]!, { lastEventId: 3, lastEvent: believed })
        )
      const alone = yield* Effect.forEach(turns("alone"), (turn) => advance(driver, turn))
      for (const answers of [alone.flat(), yield* advance(driver, ...turns("together"))]) {
        assert.deepStrictEqual(answers.map(({ _tag }) => _tag), texts.flatMap(() => ["Advanced", "Queued"]))
      }
    }))

  it.effect("ends the execution as an ack does: status, values, remaining timers, message to the parent", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const { a } = yield* Test.waiting(driver, ["a", "parent"], 2)
      yield* advance(
        driver,
        Test.optimistic("a", [a![0]!], {
          keyValues: [{ action: "set", key: "k", value: "v", lastUpdatedAtMs: 7 }],
          orchestratorItems: [{ ...Test.message("a", "{\"TimerFired\":{}}"), visibleAtMs: 5000 }]
        })
      )
      const answers = yield* advance(
        driver,
        Test.optimistic("a", [a![1]!], {
          lastEventId: 3,
          status: "Completed",
          output: "done",
          orchestratorItems: [Test.message("parent", "{\"SubOrchCompleted\":{}}")]
        })
      )
      assert.deepStrictEqual(answers, [{ _tag: "Advanced", nowMs: 0, handedOver: [] }])
      assert.deepStrictEqual(yield* sql("SELECT instance_id, work_item FROM orchestrator_queue"), [
        { instance_id: "parent", work_item: "{\"SubOrchCompleted\":{}}" }
      ])
      assert.include((yield* driver.readInstances(["a"]))[0], { status: "Completed", output: "done" })
      assert.deepStrictEqual(yield* sql("SELECT key, value FROM kv_store"), [{ key: "k", value: "v" }])
      assert.deepStrictEqual(yield* sql("SELECT FROM kv_delta"), [])
    }))

  it.effect("continues as new: the next execution is routed, recorded messages come first", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const { a } = yield* Test.waiting(driver, ["a"])
      const signal = {
        eventId: 3,
        eventType: "ExternalEventPersistent",
        eventData: `{"type":"ExternalEventPersistent","name":"n","data":"d"}`
      }
      yield* driver.enqueueForOrchestrator([{ ...Test.message("a", "{\"ExternalRaised\":{}}"), delayMs: 10_000 }])
      const answers = yield* advance(
        driver,
        Test.optimistic("a", a!, {
          history: [signal, ...Test.events(4)],
          status: "ContinuedAsNew",
          nextVersion: "2.0.0",
          requeued: [3],
          orchestratorItems: [Test.message("a", "{\"ContinueAsNew\":{}}")]
        })
      )
      assert.deepStrictEqual(answers, [{ _tag: "Advanced", nowMs: 0, handedOver: [] }])
      assert.deepStrictEqual(
        yield* sql("SELECT route, work_item FROM orchestrator_queue ORDER BY id"),
        [
          "{\"ContinueAsNew\":{}}",
          "{\"QueueMessage\":{\"instance\":\"a\",\"name\":\"n\",\"data\":\"d\"}}",
          "{\"ExternalRaised\":{}}"
        ].map((work_item) => ({ route: "1000.0.0 =2.0.0 Orchestration", work_item }))
      )
    }))

  it.effect("creates children, cancels activities and timers", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const { a } = yield* Test.waiting(driver, ["a"], 2)
      const timer = { ...Test.message("a", "{\"TimerFired\":{\"n\":1}}"), visibleAtMs: 5000 }
      yield* driver.enqueueForOrchestrator([timer])
      yield* advance(
        driver,
        Test.optimistic("a", [a![0]!], {
          cancelledActivities: [{ instanceId: "a", executionId: 1, activityId: 3 }],
          cancelledTimers: [timer.workItem],
          orchestratorItems: [{
            ...Test.message("child", "{\"StartOrchestration\":{}}"),
            start: {
              orchestrationName: "Child",
              orchestrationVersion: null,
              parentInstanceId: "a",
              pinnedVersion: { major: 1000, minor: 0, patch: 0 }
            }
          }]
        })
      )
      assert.deepStrictEqual(yield* sql("SELECT FROM worker_queue"), [])
      assert.deepStrictEqual(yield* sql("SELECT instance_id, route FROM orchestrator_queue"), [
        { instance_id: "child", route: "1000.0.0 * Child" }
      ])
      assert.include((yield* driver.readInstances(["child"]))[0], { orchestrationName: "Child", parentInstanceId: "a" })
    }))
})

describe("advanceOrchestrations stores only results", () => {
  type Spoil = (test: Test.Opened) => Effect.Effect<unknown, unknown, never>
  const reasons: Readonly<Record<string, Spoil>> = {
    "when a message is visible": ({ driver }) => driver.enqueueForOrchestrator([Test.message("a", "first")]),
    "when a lock is live": ({ driver, sql }) =>
      Effect.andThen(
        driver.enqueueForOrchestrator([Test.message("a", "first")]),
        Effect.andThen(Test.claim(driver), sql("DELETE FROM orchestrator_queue"))
      ),
    "when a lock has expired": ({ sql }) => sql("INSERT INTO instance_locks VALUES ('a', 'gone', 0, 0)"),
    "when another turn has been stored": ({ sql }) =>
      sql("INSERT INTO history VALUES ('a', 1, 3, 'TimerFired', '{}', now())"),
    "when another execution is the current one": ({ sql }) =>
      Effect.andThen(
        sql("UPDATE instances SET current_execution_id = 2"),
        sql("INSERT INTO executions VALUES ('a', 2, 'Running', null, now())")
      ),
    "when the execution has ended": ({ sql }) => sql("UPDATE executions SET status = 'Completed'"),
    "when the instance has been deleted": ({ sql }) => sql("DELETE FROM instances")
  }
  // A turn with one result alone, and nothing but events and activities, is stored by a function of its own.
  const sizes = { ", one result": 1, ", two results": 2 }
  const all = Object.entries(reasons).flatMap(([reason, spoil]) =>
    Object.entries(sizes).map(([size, results]) => [reason + size, spoil, results] as const)
  )
  for (const [name, spoil, results] of all) {
    it.effect(name, () =>
      Effect.gen(function*() {
        const test = yield* open
        const { driver, sql } = test
        const { a } = yield* Test.waiting(driver, ["a"], results)
        yield* spoil(test)
        const rows =
          "SELECT (SELECT count(*) FROM history)::int AS events, (SELECT count(*) FROM instance_locks)::int AS locks"
        const before = yield* sql(rows)
        const answers = yield* advance(
          driver,
          Test.optimistic("a", a!, {
            workerItems: [Test.activity()],
            orchestratorItems: results === 1 ? [] : [Test.message("b")]
          })
        )
        assert.deepStrictEqual(answers, [queued(...a!.map(() => "Done" as const))])
        assert.deepStrictEqual(yield* sql(rows), before)
        assert.deepStrictEqual(yield* sql("SELECT FROM worker_queue"), [])
        assert.deepStrictEqual(
          yield* sql("SELECT instance_id, work_item FROM orchestrator_queue WHERE work_item <> 'first' ORDER BY id"),
          a!.map((token) => ({ instance_id: "a", work_item: `{"ActivityCompleted":{"of":"${token}"}}` }))
        )
      }))
  }

  it.effect("when an event id is given twice or taken", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const waiting = yield* Test.waiting(driver, ["a", "b"])
      const answers = yield* advance(
        driver,
        Test.optimistic("a", waiting.a!, { history: Test.events(3, 3) }),
        Test.optimistic("b", waiting.b!, { history: Test.events(2, 3) })
      )
      assert.deepStrictEqual(answers, [queued("Done"), queued("Done")])
      assert.lengthOf(yield* driver.readHistory({ instanceId: "a", executionId: 1 }), 2)
    }))

  it.effect("when an activity was cancelled, expired, taken over or is given twice; its neighbours are stored", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const ids = ["cancelled", "expired", "taken", "twice", "well"]
      const waiting = yield* Test.waiting(driver, ids, 2)
      const first = (id: string) => waiting[id]![0]!.split(".")[0]
      yield* sql(`DELETE FROM worker_queue WHERE id = ${first("cancelled")}`)
      yield* sql(`UPDATE worker_queue SET locked_until = 0 WHERE id = ${first("expired")}`)
      yield* sql(`UPDATE worker_queue SET lock_token = 'another' WHERE id = ${first("taken")}`)
      const answers = yield* advance(
        driver,
        ...ids.map((id) => Test.optimistic(id, id === "twice" ? [waiting[id]![0]!, waiting[id]![0]!] : waiting[id]!))
      )
      assert.deepStrictEqual(answers, [
        queued("LockLost", "Done"),
        queued("LockLost", "Done"),
        queued("LockLost", "Done"),
        queued("Done", "LockLost"),
        { _tag: "Advanced", nowMs: 0, handedOver: [] }
      ])
      assert.deepStrictEqual(
        yield* sql("SELECT instance_id FROM orchestrator_queue ORDER BY id"),
        ["cancelled", "expired", "taken", "twice"].map((instance_id) => ({ instance_id }))
      )
      assert.lengthOf(yield* driver.readHistory({ instanceId: "well", executionId: 1 }), 3)
    }))

  it.effect("of the second of two turns of one instance", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const { a } = yield* Test.waiting(driver, ["a"], 2)
      const answers = yield* advance(driver, Test.optimistic("a", [a![1]!]), Test.optimistic("a", [a![0]!]))
      assert.deepStrictEqual(answers, [{ _tag: "Advanced", nowMs: 0, handedOver: [] }, queued("Done")])
    }))

  it.live("while another transaction claims the instance", () =>
    Effect.gen(function*() {
      const test = yield* opened()
      const { a } = yield* Test.waiting(test.driver, ["a"])
      const other = yield* session(test)
      yield* other("SELECT pg_advisory_xact_lock(hashtext('a'))")
      assert.deepStrictEqual(yield* advance(test.driver, Test.optimistic("a", a!)), [queued("Done")])
    }))

  it.live("while another transaction has locked an activity that it cancels", () =>
    Effect.gen(function*() {
      const test = yield* opened()
      const { a } = yield* Test.waiting(test.driver, ["a"], 2)
      const other = yield* session(test)
      yield* other("SELECT FROM worker_queue WHERE activity_id = 3 FOR UPDATE")
      const cancelledActivities = [{ instanceId: "a", executionId: 1, activityId: 3 }]
      assert.deepStrictEqual(
        yield* advance(test.driver, Test.optimistic("a", [a![0]!], { cancelledActivities })),
        [queued("Done")]
      )
    }))
})

describe("advanceOrchestrations and transactions of others:", () => {
  it.live("a set does not wait for an activity that another one has locked, and stores nothing", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const waiting = yield* Test.waiting(test.driver, ["a", "b"])
      const other = yield* session(test)
      yield* other("SELECT FROM worker_queue WHERE instance_id = 'a' FOR UPDATE")
      const turns = ["a", "b"].map((id) => Test.optimistic(id, waiting[id]!))
      const error = yield* Effect.flip(advance(test.driver, ...turns))
      assert.include(error.reason, { _tag: "Contention", sqlState: "55P03" })
      assert.lengthOf(yield* test.driver.readHistory({ instanceId: "b", executionId: 1 }), 2)
      assert.lengthOf(yield* test.sql("SELECT FROM worker_queue"), 2)
      yield* other("COMMIT")
      // The server reports an error before it has rolled back.
      const locks = `SELECT FROM pg_locks JOIN pg_database AS d ON d.oid = database
        WHERE locktype = 'advisory' AND datname = current_database()`
      yield* waitUntil(Effect.map(test.sql(locks), (held) => held.length === 0))
      assert.deepStrictEqual(
        (yield* advance(test.driver, ...turns)).map(({ _tag }) => _tag),
        ["Advanced", "Advanced"]
      )
    }))
})

describe("handover:", () => {
  const all: HandOver = {
    limit: 10,
    spare: 0,
    lockTimeoutMs: 5000,
    activities: ["Activity", "Other"],
    tags: { _tag: "Any" }
  }
  const items = (...changes: ReadonlyArray<Parameters<typeof Test.activity>[0]>) =>
    changes.map((change, i) => Test.activity({ instanceId: "a", activityId: 10 + i, ...change }))
  const indexes = (answers: ReadonlyArray<OptimisticAnswer>) =>
    answers.map((answer) => answer._tag === "Advanced" ? answer.handedOver.map(({ index }) => index) : answer._tag)

  const cases: Readonly<Record<string, readonly [HandOver, ReturnType<typeof items>, ReadonlyArray<number>]>> = {
    "no more than the limit": [{ ...all, limit: 2 }, items({}, {}, {}), [0, 1]],
    "only those with a name that is served": [
      { ...all, limit: 2 },
      items({ name: "Mine" }, {}, { name: "Other" }, {}),
      [1, 2]
    ],
    "none with a session": [all, items({ sessionId: "s" }, {}), [1]],
    "none that processes of Rust run": [all, items({ servedBy: "rust" }, {}), [1]],
    "those of any tag": [all, items({ tag: "x" }, {}), [0, 1]],
    "those without a tag": [{ ...all, tags: { _tag: "DefaultOnly" } }, items({ tag: "x" }, {}), [1]],
    "those of a tag": [{ ...all, tags: { _tag: "Tags", tags: ["x"] } }, items({ tag: "x" }, {}, { tag: "y" }), [0]],
    "those of a tag or without": [
      { ...all, tags: { _tag: "DefaultAnd", tags: ["x"] } },
      items({ tag: "y" }, {}, { tag: "x" }),
      [1, 2]
    ],
    "none without tags": [{ ...all, tags: { _tag: "None" } }, items({}), []]
  }
  for (const [name, [handOver, workerItems, expected]] of Object.entries(cases)) {
    it.effect(name, () =>
      Effect.gen(function*() {
        const { driver, sql } = yield* open
        const { a } = yield* Test.waiting(driver, ["a"])
        yield* TestClock.adjust(1000)
        const [answer] = yield* advance(driver, Test.optimistic("a", a!, { workerItems, handOver }))
        assert(answer?._tag === "Advanced")
        assert.deepStrictEqual(answer.handedOver.map(({ index }) => index), expected)
        const rows = yield* sql<Record<string, unknown>>(
          `SELECT (activity_id - 10)::int AS index, id || '.' || lock_token AS "lockToken", locked_until::int, attempt_count
           FROM worker_queue WHERE lock_token IS NOT NULL ORDER BY id`
        )
        assert.deepStrictEqual(
          rows,
          answer.handedOver.map((one) => ({ ...one, locked_until: 6000, attempt_count: 1 }))
        )
      }))
  }

  it.effect("what was handed over is settled like a claim, and claimed by others once its lock has expired", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const { a } = yield* Test.waiting(driver, ["a"])
      const [answer] = yield* advance(driver, Test.optimistic("a", a!, { workerItems: items({}, {}), handOver: all }))
      assert(answer?._tag === "Advanced")
      const [first, second] = answer.handedOver
      assert.deepStrictEqual(yield* Test.take(driver), [])
      assert.deepStrictEqual(
        yield* advance(driver, Test.optimistic("a", [first!.lockToken], { lastEventId: 3 })),
        [{ _tag: "Advanced", nowMs: 0, handedOver: [] }]
      )
      yield* TestClock.adjust(5000)
      const [taken] = yield* Test.take(driver)
      assert.strictEqual(taken?.attemptCount, 2)
      assert.strictEqual(taken?.lockToken.split(".")[0], second!.lockToken.split(".")[0])
    }))

  it.effect("none while an activity that the worker serves waits, also one whose lock has expired", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const waiting = yield* Test.waiting(driver, ["a", "b", "c", "d"])
      const next = (id: string, handOver = all) =>
        Effect.map(advance(driver, Test.optimistic(id, waiting[id]!, { workerItems: items({}), handOver })), indexes)
      // Of another name, of another tag, with a session, not visible yet.
      yield* driver.enqueueForWorker([
        Test.activity({ name: "Mine" }),
        Test.activity({ name: "Activity", tag: "x" }),
        Test.activity({ sessionId: "s" }),
        Test.activity({ name: "Other" })
      ])
      yield* sql("UPDATE worker_queue SET visible_at = to_timestamp(60) WHERE route = 'Other'")
      assert.deepStrictEqual(yield* next("a", { ...all, tags: { _tag: "DefaultOnly" } }), [[0]])
      assert.deepStrictEqual(yield* next("b"), [[]])
      yield* sql(
        "DELETE FROM worker_queue WHERE tag = 'x' OR lock_token IS NULL AND route = 'Activity' AND session_id IS NULL"
      )
      assert.deepStrictEqual(yield* next("c"), [[0]])
      yield* TestClock.adjust(5000)
      assert.deepStrictEqual(yield* next("d"), [[]])
    }))

  it.effect("also behind 990 activities under way, and none behind 1,100", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const waiting = yield* Test.waiting(driver, ["a", "b"])
      const next = (id: string) =>
        Effect.map(
          advance(driver, Test.optimistic(id, waiting[id]!, { workerItems: items({}), handOver: all })),
          indexes
        )
      yield* driver.enqueueForWorker(Array.from({ length: 990 }, () => Test.activity()))
      yield* Test.take(driver, { limit: 990 })
      assert.deepStrictEqual(yield* next("a"), [[0]])
      yield* driver.enqueueForWorker(Array.from({ length: 100 }, () => Test.activity()))
      yield* Test.take(driver, { limit: 100 })
      assert.deepStrictEqual(yield* next("b"), [[]])
    }))

  it.effect("each turn of a set has its own worker and its own limit", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const waiting = yield* Test.waiting(driver, ["a", "b", "c"])
      const answers = yield* advance(
        driver,
        Test.optimistic("a", waiting.a!, { workerItems: items({}, {}), handOver: { ...all, limit: 1 } }),
        Test.optimistic("b", waiting.b!, {
          workerItems: items({}, { name: "Other" }),
          handOver: { ...all, activities: ["Other"] }
        }),
        Test.optimistic("c", waiting.c!, { workerItems: items({}) })
      )
      assert.deepStrictEqual(indexes(answers), [[0], [1], []])
    }))

  it.effect("none that the set also cancels", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const { a } = yield* Test.waiting(driver, ["a"])
      const answers = yield* advance(
        driver,
        Test.optimistic("a", a!, {
          workerItems: items({}, {}),
          cancelledActivities: [{ instanceId: "a", executionId: 1, activityId: 10 }],
          handOver: all
        })
      )
      assert.deepStrictEqual(indexes(answers), [[1]])
    }))
})
