import { assert, describe, it } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import * as Test from "../utils/driver.ts"

const startedAt = 1_800_000_000_000

const opened = Test.opener()

/** A driver with a clock that the test controls, starting at a round time. */
const open = Effect.andThen(TestClock.setTime(startedAt), opened({ clock: "effect" }))

const milliseconds = (column: string) => `(extract(epoch FROM ${column}) * 1000)::float8`

describe("ackOrchestrationItems:", () => {
  it.live("cancels thousands of timers in linear time", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* opened()
      const timer = (instance: string, id: number) => JSON.stringify({ TimerFired: { instance, id, fire_at_ms: 1 } })
      const timed = <A, E>(effect: Effect.Effect<A, E>) =>
        Effect.map(Effect.timed(effect), ([took]) => Duration.toMillis(took))
      const cancelling: Array<number> = []
      const deleting: Array<number> = []
      // 6 to 10 times as long, including the round trip; more than 100 times if each is compared with each.
      const isLinear = () => Math.min(...cancelling) < 40 * Math.min(...deleting)
      // On a starved machine it takes some rounds until neither is interrupted.
      for (let round = 1; round <= 3 || (round <= 15 && !isLinear()); round++) {
        const instanceId = `round ${round}`
        const { lockToken } = yield* Test.claimed(driver, instanceId)
        const timers = Array.from({ length: 10_000 }, (_, id) => timer(instanceId, id))
        yield* driver.enqueueForOrchestrator(timers.map((workItem) => ({
          instanceId,
          workItem,
          visibleAtMs: null,
          delayMs: 60_000
        })))
        const cancelledTimers = timers.filter((_, id) => id % 2 === 0)
        cancelling.push(yield* timed(driver.ackOrchestrationItems([Test.turn(lockToken, { cancelledTimers })])))
        const left = sql("SELECT FROM orchestrator_queue WHERE instance_id = $1", [instanceId])
        assert.lengthOf(yield* left, 5000)
        deleting.push(yield* timed(sql("DELETE FROM orchestrator_queue WHERE instance_id = $1", [instanceId])))
      }
      assert.isTrue(isLinear(), JSON.stringify({ cancelling, deleting }))
    }))

  it.effect("leaves messages after the start of the next execution, for the processes that serve it", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForOrchestrator([1, 2, 3].map((n) => Test.message("a", `{"QueueMessage":{"n":${n}}}`)))
      yield* TestClock.adjust(1000)
      const { lockToken, messages } = yield* Test.claimOne(driver)
      const next = `{"ContinueAsNew":{"instance":"a"}}`
      const ack = Test.turn(lockToken, {
        ...Test.named,
        status: "ContinuedAsNew",
        nextVersion: "2.0.0",
        orchestratorItems: [Test.message("a", next)],
        left: messages.slice(1).map(({ id }) => id)
      })
      assert.deepStrictEqual(yield* driver.ackOrchestrationItems([ack]), ["Done"])
      assert.deepStrictEqual(
        yield* sql("SELECT count(*)::int AS messages, min(route) = max(route) AS alike FROM orchestrator_queue"),
        [{ messages: 3, alike: true }]
      )
      const first = yield* driver.fetchOrchestrationItems({
        limit: 1,
        lockTimeoutMs: 30_000,
        versions: null,
        serves: [{ name: Test.named.orchestrationName, versions: ["2.0.0"] }],
        maxBytes: 1
      })
      assert.deepStrictEqual(first.map(({ messages }) => messages.map(({ workItem }) => workItem)), [[next]])
    }))

  it.effect("stores a turn, deletes its batch and ends the lock", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const { lockToken } = yield* Test.claimed(driver, "a")
      yield* driver.enqueueForOrchestrator([Test.message("a", "arrived meanwhile")])
      yield* TestClock.adjust(5)
      const answers = yield* driver.ackOrchestrationItems([
        Test.turn(lockToken, {
          ...Test.named,
          history: [
            { eventId: 1, eventType: "ActivityScheduled", eventData: "{\"text\": \"as it is\\u0000\"}" },
            { eventId: 2, eventType: "TimerCreated", eventData: "no json" }
          ],
          parentInstanceId: "parent",
          pinnedVersion: { major: 1000, minor: 2, patch: 3 },
          workerItems: [
            Test.activity({
              workItem: "{\"b\":1,  \"a\":2}",
              instanceId: "a",
              activityId: 7,
              sessionId: "s",
              tag: "t"
            }),
            Test.activity({ instanceId: null, executionId: null, activityId: null })
          ],
          orchestratorItems: [
            Test.message("b"),
            { ...Test.message("a", "timer"), visibleAtMs: startedAt + 60_000 },
            { ...Test.message("a", "late timer"), visibleAtMs: startedAt - 60_000 }
          ]
        })
      ])
      assert.deepStrictEqual(answers, ["Done"])
      assert.deepStrictEqual(
        yield* sql(`SELECT *, ${milliseconds("created_at")} AS created_at, ${milliseconds("updated_at")} AS updated_at
          FROM instances`),
        [{
          instance_id: "a",
          orchestration_name: "Orchestration",
          orchestration_version: "1.0.0",
          current_execution_id: "1",
          created_at: startedAt + 5,
          updated_at: startedAt + 5,
          parent_instance_id: "parent",
          custom_status: null,
          custom_status_version: 0,
          route: "1000.2.3 =1.0.0 Orchestration",
          status: "Running",
          limit_name: null,
          limit_key: null,
          limit_route: null,
          limit_place: null
        }]
      )
      assert.deepStrictEqual(
        yield* sql(`SELECT *, ${milliseconds("started_at")} AS started_at FROM executions`),
        [{
          instance_id: "a",
          execution_id: "1",
          status: "Running",
          output: null,
          started_at: startedAt + 5,
          completed_at: null,
          duroxide_version_major: 1000,
          duroxide_version_minor: 2,
          duroxide_version_patch: 3
        }]
      )
      assert.deepStrictEqual(
        yield* sql("SELECT execution_id, event_id, event_type, event_data FROM history ORDER BY event_id"),
        [
          {
            execution_id: "1",
            event_id: "1",
            event_type: "ActivityScheduled",
            event_data: "{\"text\": \"as it is\\u0000\"}"
          },
          { execution_id: "1", event_id: "2", event_type: "TimerCreated", event_data: "no json" }
        ]
      )
      assert.deepStrictEqual(
        yield* sql(
          `SELECT work_item, instance_id, execution_id, activity_id, session_id, tag, attempt_count, lock_token,
             ${milliseconds("visible_at")} AS visible_at
           FROM worker_queue ORDER BY id`
        ),
        [
          {
            work_item: "{\"b\":1,  \"a\":2}",
            instance_id: "a",
            execution_id: "1",
            activity_id: "7",
            session_id: "s",
            tag: "t",
            attempt_count: 0,
            lock_token: null,
            visible_at: startedAt + 5
          },
          {
            work_item: "{\"ActivityExecute\":{}}",
            instance_id: null,
            execution_id: null,
            activity_id: null,
            session_id: null,
            tag: null,
            attempt_count: 0,
            lock_token: null,
            visible_at: startedAt + 5
          }
        ]
      )
      assert.deepStrictEqual(
        yield* sql(
          `SELECT instance_id, work_item, ${
            milliseconds("visible_at")
          } AS visible_at FROM orchestrator_queue ORDER BY id`
        ),
        [
          { instance_id: "a", work_item: "arrived meanwhile", visible_at: startedAt },
          { instance_id: "b", work_item: Test.message("b").workItem, visible_at: startedAt + 5 },
          { instance_id: "a", work_item: "timer", visible_at: startedAt + 60_000 },
          { instance_id: "a", work_item: "late timer", visible_at: startedAt - 60_000 }
        ]
      )
      assert.lengthOf(yield* sql("SELECT FROM instance_locks"), 0)
    }))

  it.effect("without an execution id deletes the batch and ends the lock, nothing else", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const { lockToken } = yield* Test.claimed(driver, "a")
      const answers = yield* driver.ackOrchestrationItems([
        Test.turn(lockToken, { ...Test.named, executionId: null, status: "Completed", history: Test.events(1) })
      ])
      assert.deepStrictEqual(answers, ["Done"])
      for (const table of ["instances", "executions", "history", "orchestrator_queue", "instance_locks"]) {
        assert.lengthOf(yield* sql(`SELECT FROM ${table}`), 0, table)
      }
    }))

  it.effect("writes the instance row only when name and version are both given, the execution row always", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const ack = (changes: object) =>
        Effect.flatMap(
          Test.claimed(driver, "a"),
          ({ lockToken }) => driver.ackOrchestrationItems([Test.turn(lockToken, changes)])
        )
      yield* ack({ orchestrationName: "O", customStatus: { value: "lost" } })
      yield* ack({ orchestrationVersion: "1.0.0" })
      assert.lengthOf(yield* sql("SELECT FROM instances"), 0)
      assert.lengthOf(yield* sql("SELECT FROM executions"), 1)
      yield* ack({ executionId: 2, orchestrationName: "O", orchestrationVersion: "1.0.0" })
      yield* ack({ executionId: 1 })
      assert.deepStrictEqual(yield* sql("SELECT orchestration_name, current_execution_id FROM instances"), [
        { orchestration_name: "O", current_execution_id: "2" }
      ])
      yield* ack({ executionId: 3 })
      assert.deepStrictEqual(yield* sql("SELECT current_execution_id FROM instances"), [{ current_execution_id: "3" }])
      assert.deepStrictEqual(yield* sql("SELECT execution_id, status FROM executions ORDER BY 1"), [
        { execution_id: "1", status: "Running" },
        { execution_id: "2", status: "Running" },
        { execution_id: "3", status: "Running" }
      ])
    }))

  it.effect("writes the parent once; a later name and version replace the earlier", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const ack = (orchestrationVersion: string, parentInstanceId: string | null) =>
        Effect.flatMap(Test.claimed(driver, "a"), ({ lockToken }) =>
          driver.ackOrchestrationItems([
            Test.turn(lockToken, { orchestrationName: "O", orchestrationVersion, parentInstanceId })
          ]))
      const rows = sql("SELECT orchestration_version AS version, parent_instance_id AS parent FROM instances")
      yield* ack("1.0.0", null)
      assert.deepStrictEqual(yield* rows, [{ version: "1.0.0", parent: null }])
      yield* ack("2.0.0", "first")
      yield* ack("2.0.1", "second")
      assert.deepStrictEqual(yield* rows, [{ version: "2.0.1", parent: "first" }])
    }))

  for (const status of ["Completed", "Failed", "ContinuedAsNew"] as const) {
    it.effect(`${status} sets status, output and end; Running clears the end; no status changes none of them`, () =>
      Effect.gen(function*() {
        const { driver, sql } = yield* open
        const ack = (changes: object) =>
          Effect.flatMap(
            Test.claimed(driver, "a"),
            ({ lockToken }) => driver.ackOrchestrationItems([Test.turn(lockToken, changes)])
          )
        const row = Effect.map(
          sql(`SELECT status, output, ${milliseconds("completed_at")} AS ended FROM executions`),
          (rows) => rows[0]
        )
        yield* ack({ status, output: "out" })
        assert.deepStrictEqual(yield* row, { status, output: "out", ended: startedAt })
        yield* TestClock.adjust(10)
        yield* ack({})
        assert.deepStrictEqual(yield* row, { status, output: "out", ended: startedAt })
        yield* ack({ status: "Running" })
        assert.deepStrictEqual(yield* row, { status: "Running", output: null, ended: null })
      }))
  }

  it.effect("the end of an execution deletes its remaining timers, and no other delayed message", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const timer = (instanceId: string) => ({
        ...Test.message(instanceId, `{"TimerFired":{"instance":"${instanceId}"}}`),
        visibleAtMs: startedAt + 60_000
      })
      const signal = { ...Test.message("a", `{"ExternalRaised":{"data":"{\\"TimerFired\\"}"}}`), delayMs: 60_000 }
      for (const status of ["Completed", "Failed", "ContinuedAsNew"] as const) {
        const { lockToken } = yield* Test.claimed(driver, "a")
        yield* driver.enqueueForOrchestrator([timer("a"), timer("b"), signal])
        yield* driver.ackOrchestrationItems([Test.turn(lockToken, { status })])
        assert.deepStrictEqual(
          yield* sql(`DELETE FROM orchestrator_queue RETURNING instance_id, work_item LIKE '{"Timer%' AS timer`),
          [{ instance_id: "b", timer: true }, { instance_id: "a", timer: false }]
        )
      }
      const { lockToken } = yield* Test.claimed(driver, "a")
      yield* driver.enqueueForOrchestrator([timer("a")])
      yield* driver.ackOrchestrationItems([Test.turn(lockToken, { status: "Running" })])
      assert.strictEqual((yield* sql(`SELECT FROM orchestrator_queue`)).length, 1)
    }))

  it.effect("pins a version if given, else keeps it", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const ack = (pinnedVersion: { major: number; minor: number; patch: number } | null) =>
        Effect.flatMap(Test.claimed(driver, "a"), ({ lockToken }) =>
          driver.ackOrchestrationItems([Test.turn(lockToken, { pinnedVersion })]))
      const pinned = sql(
        "SELECT duroxide_version_major AS x, duroxide_version_minor AS y, duroxide_version_patch AS z FROM executions"
      )
      yield* ack(null)
      assert.deepStrictEqual(yield* pinned, [{ x: null, y: null, z: null }])
      yield* ack({ major: 1, minor: 0, patch: 30 })
      yield* ack(null)
      assert.deepStrictEqual(yield* pinned, [{ x: 1, y: 0, z: 30 }])
      yield* ack({ major: 2, minor: 0, patch: 0 })
      assert.deepStrictEqual(yield* pinned, [{ x: 2, y: 0, z: 0 }])
    }))

  it.effect("counts the version of the custom status once per turn that sets or clears it", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const ack = (changes: object) =>
        Effect.gen(function*() {
          const { lockToken } = yield* Test.claimed(driver, "a")
          yield* driver.ackOrchestrationItems([Test.turn(lockToken, changes)])
          const [state] = yield* driver.readInstances(["a"])
          return [state!.customStatus, state!.customStatusVersion]
        })
      assert.deepStrictEqual(yield* ack({ ...Test.named, customStatus: { value: "half way" } }), ["half way", 1])
      assert.deepStrictEqual(yield* ack({ customStatus: null }), ["half way", 1])
      assert.deepStrictEqual(yield* ack({ ...Test.named, customStatus: { value: "" } }), ["", 2])
      assert.deepStrictEqual(yield* ack({ customStatus: { value: null } }), [null, 3])
    }))

  it.effect("cancels activities after scheduling: claimed or not, of any instance, missing ones are fine", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForWorker([
        Test.activity({ instanceId: "a", activityId: 1 }),
        Test.activity({ instanceId: "a", activityId: 2 }),
        Test.activity({ instanceId: "b", activityId: 1 }),
        Test.activity({ instanceId: "a", executionId: 2, activityId: 1 })
      ])
      const running = yield* Test.take(driver, { limit: 1 })
      const { lockToken } = yield* Test.claimed(driver, "a")
      const key = (instanceId: string, executionId: number, activityId: number) => ({
        instanceId,
        executionId,
        activityId
      })
      yield* driver.ackOrchestrationItems([
        Test.turn(lockToken, {
          workerItems: [
            Test.activity({ instanceId: "a", activityId: 3 }),
            Test.activity({ instanceId: "a", activityId: 4 })
          ],
          cancelledActivities: [key("a", 1, 1), key("b", 1, 1), key("a", 1, 3), key("a", 1, 99)]
        })
      ])
      assert.deepStrictEqual(yield* sql("SELECT execution_id, activity_id FROM worker_queue ORDER BY id"), [
        { execution_id: "1", activity_id: "2" },
        { execution_id: "2", activity_id: "1" },
        { execution_id: "1", activity_id: "4" }
      ])
      // A running activity learns of it by losing its lock.
      const [activity] = running
      const renewal = [{ lockToken: activity!.lockToken, extendForMs: 1000 }]
      assert.deepStrictEqual(yield* driver.renewWorkItemLocks(renewal), ["LockLost"])
      const ack = [{ lockToken: activity!.lockToken, completion: { instanceId: "a", workItem: "{}" } }]
      assert.deepStrictEqual(yield* driver.ackWorkItems(ack), ["LockLost"])
    }))

  it.effect("refuses an expired lock exactly at its end, and changes nothing", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const { lockToken } = yield* Test.claimed(driver, "a", 1000)
      yield* TestClock.adjust(1000)
      const ack = [Test.turn(lockToken, { ...Test.named, history: Test.events(1), workerItems: [Test.activity()] })]
      assert.deepStrictEqual(yield* driver.ackOrchestrationItems(ack), ["LockLost"])
      for (const table of ["instances", "executions", "history", "worker_queue"]) {
        assert.lengthOf(yield* sql(`SELECT FROM ${table}`), 0, table)
      }
      assert.lengthOf(yield* sql("SELECT FROM orchestrator_queue WHERE lock_token IS NOT NULL"), 1)
    }))

  it.effect("refuses a superseded token; the newer lock is untouched", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      const first = yield* Test.claimed(driver, "a", 1000)
      yield* TestClock.adjust(1000)
      const second = yield* Test.claimOne(driver, 1000)
      assert.deepStrictEqual(
        yield* driver.ackOrchestrationItems([Test.turn(first.lockToken), Test.turn(second.lockToken)]),
        ["LockLost", "Done"]
      )
    }))

  it.effect("a duplicate event refuses the whole turn and keeps the lock", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const { lockToken } = yield* Test.claimed(driver, "a")
      yield* sql("INSERT INTO history VALUES ('a', 1, 2, 'Event', '{}', now())")
      const ack = (...ids: ReadonlyArray<number>) =>
        driver.ackOrchestrationItems([
          Test.turn(lockToken, { ...Test.named, history: Test.events(...ids), workerItems: [Test.activity()] })
        ])
      assert.deepStrictEqual(yield* ack(1, 2), ["DuplicateEvent"])
      assert.deepStrictEqual(yield* ack(3, 4, 3), ["DuplicateEvent"])
      for (const [table, rows] of [["instances", 0], ["executions", 0], ["worker_queue", 0], ["history", 1]] as const) {
        assert.lengthOf(yield* sql(`SELECT FROM ${table}`), rows, table)
      }
      assert.deepStrictEqual(yield* ack(1, 3), ["Done"])
    }))

  it.effect("the events of another execution are not duplicates", () =>
    Effect.gen(function*() {
      const { driver } = yield* open
      for (const executionId of [1, 2]) {
        const { lockToken } = yield* Test.claimed(driver, "a")
        const ack = [Test.turn(lockToken, { ...Test.named, executionId, history: Test.events(1, 2) })]
        assert.deepStrictEqual(yield* driver.ackOrchestrationItems(ack), ["Done"])
      }
      assert.lengthOf(yield* driver.readHistory({ instanceId: "a", executionId: 1 }), 2)
    }))
})
