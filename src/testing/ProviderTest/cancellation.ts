/**
 * An activity is cancelled by deleting it: its worker learns of it at the next renewal or ack. An activity whose row
 * exists is delivered, whatever the state of its orchestration.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { application } from "../../model/ErrorDetails.ts"
import { Admin } from "../../provider/Admin.ts"
import type { ExecutionMetadata } from "../../provider/Provider.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  abandonWork,
  ack,
  ackWork,
  activityCompleted,
  activityItem,
  claimActivity,
  claimInstance,
  claimOrchestration,
  claimWork,
  completed,
  enqueueActivity,
  enqueueStart,
  expectGone,
  expectNoOrchestration,
  expectNoWork,
  fails,
  fetchWork,
  named,
  poke,
  renewWork,
  schedule,
  started,
  topic,
  turn
} from "./harness.ts"
import type { EventInput } from "./harness.ts"

/** An activity whose orchestration ends in the turn that schedules it can be claimed nevertheless. */
const scheduledByLastTurn = (last: EventInput, metadata: ExecutionMetadata) =>
  Effect.gen(function*() {
    yield* schedule("i", [1], { events: [started(), last], metadata: { orchestrationName: "TestOrch", ...metadata } })
    yield* claimActivity(1)
  })

const cancelled = (...ids: ReadonlyArray<number>) =>
  ids.map((activityId) => ({ instanceId: "i", executionId: 1, activityId }))

export const cancellation = topic("cancellation", {
  test_fetch_returns_running_state_for_active_orchestration: Effect.gen(function*() {
    yield* schedule("i", [1])
    yield* claimActivity(1)
  }),

  test_fetch_returns_terminal_state_when_orchestration_completed: scheduledByLastTurn(completed(2), {
    status: "Completed",
    output: "done"
  }),

  test_fetch_returns_terminal_state_when_orchestration_failed: scheduledByLastTurn(
    { _tag: "OrchestrationFailed", eventId: 2, details: application("OrchestrationFailed", "boom") },
    { status: "Failed", output: "boom" }
  ),

  test_fetch_returns_terminal_state_when_orchestration_continued_as_new: scheduledByLastTurn(
    { _tag: "OrchestrationContinuedAsNew", eventId: 2, input: "new-input" },
    { status: "ContinuedAsNew", output: "new-input" }
  ),

  test_fetch_returns_missing_state_when_instance_deleted: Effect.gen(function*() {
    yield* enqueueActivity("never-existed", 1)
    yield* claimActivity(1)
  }),

  test_renew_returns_running_when_orchestration_active: Effect.gen(function*() {
    yield* schedule("i", [1])
    const { lockToken } = yield* claimActivity(1)
    yield* renewWork(lockToken, "30 seconds")
  }),

  test_renew_returns_terminal_when_orchestration_completed: Effect.gen(function*() {
    yield* schedule("i", [1])
    const { lockToken } = yield* claimActivity(1)
    yield* turn("i", {
      executionId: 1,
      events: [completed(2)],
      metadata: { orchestrationName: "TestOrch", status: "Completed", output: "done" }
    })
    yield* renewWork(lockToken, "30 seconds")
    yield* expectNoWork()
  }),

  test_renew_returns_missing_when_instance_deleted: Effect.gen(function*() {
    yield* enqueueActivity("never-existed", 1)
    const { lockToken } = yield* claimActivity(1)
    yield* renewWork(lockToken, "30 seconds")
    yield* expectNoWork()
  }),

  test_ack_work_item_none_deletes_without_enqueue: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    yield* ackWork((yield* claimWork()).lockToken)
    yield* expectNoWork()
    yield* expectNoOrchestration()
  }),

  test_cancelled_activities_deleted_from_worker_queue: Effect.gen(function*() {
    yield* schedule("i", [1, 2, 3])
    yield* abandonWork((yield* claimWork()).lockToken)
    yield* turn("i", { executionId: 1, cancelled: cancelled(1, 2) })
    yield* claimActivity(3)
    yield* expectNoWork()
  }),

  test_ack_work_item_fails_when_entry_deleted: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    const { lockToken } = yield* claimWork()
    yield* ackWork(lockToken)
    yield* fails(ackWork(lockToken, activityCompleted("i", 1)))
  }),

  test_renew_fails_when_entry_deleted: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    const { lockToken } = yield* claimWork()
    yield* ackWork(lockToken)
    yield* fails(renewWork(lockToken, "30 seconds"))
  }),

  test_cancelling_nonexistent_activities_is_idempotent: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(yield* claimOrchestration(), {
      executionId: 1,
      events: [started()],
      metadata: { orchestrationName: "TestOrch" },
      cancelled: cancelled(999, 1)
    })
    assert.lengthOf(yield* (yield* Provider).read("i"), 1)
  }),

  test_batch_cancellation_deletes_multiple_activities: Effect.gen(function*() {
    yield* schedule("i", [1, 2, 3, 4, 5])
    yield* turn("i", { executionId: 1, cancelled: cancelled(1, 2, 3, 4, 5) })
    yield* expectNoWork()
  }),

  test_same_activity_in_worker_items_and_cancelled_is_noop: Effect.gen(function*() {
    yield* schedule("i", [], {
      workers: [activityItem("i", 2, { name: "DroppedActivity" }), activityItem("i", 3, { name: "NormalActivity" })],
      cancelled: cancelled(2)
    })
    yield* ackWork((yield* claimActivity(3)).lockToken)
    yield* expectNoWork()
  }),

  test_orphan_activity_after_instance_force_deletion: Effect.gen(function*() {
    yield* schedule("i", [1], { metadata: named({ status: "Running" }) })
    const { instancesDeleted } = yield* (yield* Admin).deleteInstance("i", { force: true })
    assert.isAtLeast(instancesDeleted, 1)
    yield* expectGone("i")
    const left = yield* fetchWork({ lockTimeout: "5 seconds" })
    if (Option.isSome(left)) yield* ackWork(left.value.lockToken, activityCompleted("i", 1))
  }),

  // -- ours ------------------------------------------------------------------------------------

  a_running_activity_learns_of_its_cancellation: Effect.gen(function*() {
    yield* schedule("i", [1, 2])
    const first = yield* claimActivity(1)
    const second = yield* claimActivity(2)
    yield* turn("i", { executionId: 1, cancelled: cancelled(1) })
    yield* fails(renewWork(first.lockToken, "30 seconds"))
    yield* fails(ackWork(first.lockToken, activityCompleted("i", 1)))
    yield* fails(abandonWork(first.lockToken))
    yield* ackWork(second.lockToken, activityCompleted("i", 2))
    const { item } = yield* claimInstance("i")
    assert.deepStrictEqual(item.messages, [activityCompleted("i", 2)])
  }),

  cancellation_reaches_other_executions_only_when_named: Effect.gen(function*() {
    yield* schedule("i", [1])
    yield* enqueueActivity("i", 1, { executionId: 2 })
    yield* enqueueActivity("other", 1)
    yield* turn("i", { executionId: 2, cancelled: cancelled(1) })
    assert.strictEqual((yield* claimWork()).item.executionId, 2)
    assert.strictEqual((yield* claimWork()).item.instance, "other")
    yield* expectNoWork()
  }),

  nothing_is_cancelled_by_a_refused_turn: Effect.gen(function*() {
    yield* schedule("i", [1])
    yield* poke("i")
    const claimed = yield* claimInstance("i")
    yield* fails(ack(claimed, { executionId: 1, events: [started()], cancelled: cancelled(1) }))
    yield* claimActivity(1)
  })
})
