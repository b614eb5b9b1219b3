import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Test from "../utils/driver.ts"

const opened = Test.opener()
const open = opened({ clock: "effect" })

describe("ackOrchestrationItems, in sets:", () => {
  it.effect("in a set of twenty, one lost lock and one duplicate fail without the others", () =>
    Effect.gen(function*() {
      const { driver, sql, statements } = yield* open
      const ids = Array.from({ length: 20 }, (_, i) => `instance-${i}`)
      yield* driver.enqueueForOrchestrator(ids.map((id) => Test.message(id)))
      const claimed = yield* Test.claim(driver, 20)
      yield* sql("INSERT INTO history VALUES ('instance-7', 1, 1, 'Event', '{}', now())")
      yield* sql("UPDATE instance_locks SET lock_token = 'superseded' WHERE instance_id = 'instance-13'")
      const before = yield* statements
      // In reverse, so that the outcomes cannot be right only by the order of the rows.
      const answers = yield* driver.ackOrchestrationItems(
        claimed.toReversed().map(({ instanceId, lockToken }) =>
          Test.turn(lockToken, {
            ...Test.named,
            history: Test.events(1, 2),
            workerItems: [Test.activity({ instanceId })],
            orchestratorItems: [Test.message(`${instanceId}-child`)]
          })
        )
      )
      assert.strictEqual(yield* statements, before + 1)
      assert.deepStrictEqual(
        answers,
        ids.toReversed().map((id) =>
          id === "instance-7" ? "DuplicateEvent" : id === "instance-13" ? "LockLost" : "Done"
        )
      )
      for (const [table, rows] of [["instances", 18], ["worker_queue", 18], ["history", 37], ["instance_locks", 2]]) {
        assert.lengthOf(yield* sql(`SELECT FROM ${table}`), Number(rows), String(table))
      }
      assert.lengthOf(yield* sql("SELECT FROM orchestrator_queue WHERE lock_token IS NOT NULL"), 2)
    }))

  it.effect("of two acks with one token in one set only the first is done", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      const { lockToken } = yield* Test.claimed(driver, "a")
      const ack = (activityId: number) => Test.turn(lockToken, { workerItems: [Test.activity({ activityId })] })
      assert.deepStrictEqual(yield* driver.ackOrchestrationItems([ack(1), ack(2)]), ["Done", "LockLost"])
      assert.deepStrictEqual(yield* sql("SELECT activity_id FROM worker_queue"), [{ activity_id: "1" }])
    }))

  it.effect("stores turns of instances that schedule and message each other", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForOrchestrator([Test.message("a"), Test.message("b")])
      const [a, b] = yield* Test.claim(driver)
      const answers = yield* driver.ackOrchestrationItems([
        Test.turn(b!.lockToken, {
          ...Test.named,
          parentInstanceId: "a",
          orchestratorItems: [Test.message("a", "from b")]
        }),
        Test.turn(a!.lockToken, {
          ...Test.named,
          parentInstanceId: "b",
          orchestratorItems: [Test.message("b", "from a")]
        })
      ])
      assert.deepStrictEqual(answers, ["Done", "Done"])
      assert.deepStrictEqual(yield* sql("SELECT instance_id, work_item FROM orchestrator_queue ORDER BY id"), [
        { instance_id: "a", work_item: "from b" },
        { instance_id: "b", work_item: "from a" }
      ])
    }))
})
