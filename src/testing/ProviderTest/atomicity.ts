/**
 * A turn is stored completely or not at all, once, and only by the holder of the lock.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { Provider } from "../../provider/Provider.ts"
import {
  ack,
  activityItem,
  activityScheduled,
  claimInstance,
  claimOrchestration,
  claimWork,
  elapseLockTimeout,
  enqueueStart,
  expectNoOrchestration,
  expectNoWork,
  externalRaised,
  fails,
  lockTimeout,
  named,
  parallel,
  started,
  timerFired,
  topic
} from "./harness.ts"

export const atomicity = topic("atomicity", {
  test_atomicity_failure_rollback: Effect.gen(function*() {
    const provider = yield* Provider
    yield* enqueueStart("i")
    yield* ack(yield* claimOrchestration(), { events: [started()] })
    assert.lengthOf(yield* provider.read("i"), 1)
    yield* enqueueStart("i")
    yield* fails(ack(yield* claimOrchestration(), { events: [activityScheduled(2), started()] }))
    assert.lengthOf(yield* provider.read("i"), 1)
    yield* expectNoOrchestration()
  }),

  test_multi_operation_atomic_ack: Effect.gen(function*() {
    const provider = yield* Provider
    yield* enqueueStart("i")
    const fireAtMs = 1_234_567_890
    yield* ack(yield* claimOrchestration(), {
      executionId: 1,
      events: [
        started(),
        activityScheduled(2),
        activityScheduled(3),
        activityScheduled(4),
        { _tag: "TimerCreated", eventId: 5, fireAtMs }
      ],
      workers: [1, 2, 3].map((id) => activityItem("i", id)),
      items: [timerFired("i", 1, fireAtMs), externalRaised("i", "event", "data")]
    })
    assert.lengthOf(yield* provider.read("i"), 5)
    for (let count = 0; count < 3; count++) yield* claimWork()
    yield* expectNoWork()
    const { item } = yield* claimInstance("i")
    assert.deepStrictEqual(item.messages.map(({ _tag }) => _tag), ["TimerFired", "ExternalRaised"])
  }),

  test_lock_released_only_on_successful_ack: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    const claimed = yield* claimInstance("i", { lockTimeout: LT })
    yield* expectNoOrchestration({ lockTimeout: LT })
    yield* fails(ack({ ...claimed, lockToken: "invalid-lock-token" }))
    yield* expectNoOrchestration({ lockTimeout: LT })
    yield* elapseLockTimeout
    yield* claimInstance("i", { lockTimeout: LT })
  }),

  test_concurrent_ack_prevention: Effect.gen(function*() {
    const provider = yield* Provider
    yield* enqueueStart("i")
    const claimed = yield* claimOrchestration()
    const twice = Effect.exit(ack(claimed, { executionId: 1, events: [started()] }))
    const exits = yield* parallel([twice, twice])
    assert.lengthOf(exits.filter(Exit.isSuccess), 1)
    assert.lengthOf(yield* provider.read("i"), 1)
  }),

  concurrent_ack_without_events: Effect.gen(function*() {
    yield* enqueueStart("i")
    const claimed = yield* claimOrchestration()
    const twice = Effect.exit(ack(claimed, { workers: [activityItem("i", 1)], metadata: named() }))
    const exits = yield* parallel([twice, twice])
    assert.lengthOf(exits.filter(Exit.isSuccess), 1)
    yield* claimWork()
    yield* expectNoWork()
  }),

  ack_after_takeover_changes_nothing: Effect.gen(function*() {
    const provider = yield* Provider
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    const late = yield* claimInstance("i", { lockTimeout: LT })
    yield* elapseLockTimeout
    const holder = yield* claimInstance("i")
    yield* fails(ack(late, { events: [started()], workers: [activityItem("i", 1)] }), /Invalid lock token/)
    assert.lengthOf(yield* provider.read("i"), 0)
    yield* expectNoWork()
    yield* ack(holder, { events: [started()] })
    assert.lengthOf(yield* provider.read("i"), 1)
  })
})
