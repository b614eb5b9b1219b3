/**
 * Deliveries are counted per message, so that a runtime can find the message that kills it.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import {
  abandon,
  abandonWork,
  ack,
  ackWork,
  activityCompleted,
  claimInstance,
  claimWork,
  elapse,
  elapseLockTimeout,
  enqueueActivity,
  enqueueStart,
  lockTimeout,
  send,
  topic
} from "./harness.ts"
import type { ClaimedOrchestration, ClaimedWork } from "./harness.ts"

const expectAttempt = <A extends ClaimedOrchestration | ClaimedWork>(claimed: A, attemptCount: number) => {
  assert.strictEqual(claimed.attemptCount, attemptCount)
  return claimed
}

const claimAttempt = (attemptCount: number) =>
  Effect.map(claimInstance("i"), (claimed) => expectAttempt(claimed, attemptCount))

const claimWorkAttempt = (attemptCount: number) =>
  Effect.map(claimWork(), (claimed) => expectAttempt(claimed, attemptCount))

export const poisonMessage = topic("poison_message", {
  orchestration_attempt_count_starts_at_one: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* ack(expectAttempt(yield* claimInstance("i", { lockTimeout: yield* lockTimeout() }), 1))
  }),

  orchestration_attempt_count_increments_on_refetch: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* abandon((yield* claimAttempt(1)).lockToken)
    yield* abandon((yield* claimAttempt(2)).lockToken)
    yield* ack(yield* claimAttempt(3))
  }),

  worker_attempt_count_starts_at_one: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    const claimed = expectAttempt(yield* claimWork({ lockTimeout: yield* lockTimeout() }), 1)
    yield* ackWork(claimed.lockToken, activityCompleted("i", 1))
  }),

  worker_attempt_count_increments_on_lock_expiry: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    expectAttempt(yield* claimWork({ lockTimeout: "1 second" }), 1)
    yield* elapse(1100)
    const second = expectAttempt(yield* claimWork({ lockTimeout: "1 second" }), 2)
    yield* ackWork(second.lockToken, activityCompleted("i", 1))
  }),

  attempt_count_is_per_message: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    yield* enqueueActivity("i", 2)
    const first = yield* claimWorkAttempt(1)
    const second = yield* claimWorkAttempt(1)
    assert.notStrictEqual(first.item.id, second.item.id)
    yield* ackWork(first.lockToken, activityCompleted("i", 1))
    yield* ackWork(second.lockToken, activityCompleted("i", 2))
  }),

  abandon_work_item_ignore_attempt_decrements: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    yield* abandonWork((yield* claimWorkAttempt(1)).lockToken)
    yield* abandonWork((yield* claimWorkAttempt(2)).lockToken, { ignoreAttempt: true })
    yield* ackWork((yield* claimWorkAttempt(2)).lockToken, activityCompleted("i", 1))
  }),

  abandon_orchestration_item_ignore_attempt_decrements: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* abandon((yield* claimAttempt(1)).lockToken)
    yield* abandon((yield* claimAttempt(2)).lockToken, { ignoreAttempt: true })
    yield* ack(yield* claimAttempt(2))
  }),

  ignore_attempt_never_goes_negative: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    yield* abandonWork((yield* claimWorkAttempt(1)).lockToken, { ignoreAttempt: true })
    yield* abandonWork((yield* claimWorkAttempt(1)).lockToken, { ignoreAttempt: true })
    yield* ackWork((yield* claimWorkAttempt(1)).lockToken, activityCompleted("i", 1))
  }),

  max_attempt_count_across_message_batch: Effect.gen(function*() {
    yield* enqueueStart("i")
    const first = yield* claimAttempt(1)
    assert.lengthOf(first.item.messages, 1)
    yield* abandon(first.lockToken)
    const second = yield* claimAttempt(2)
    yield* send(activityCompleted("i", 1))
    yield* abandon(second.lockToken)
    const third = yield* claimAttempt(3)
    assert.lengthOf(third.item.messages, 2)
    yield* ack(third)
  }),

  // -- ours ------------------------------------------------------------------------------------

  orchestration_attempt_count_increments_on_lock_expiry: Effect.gen(function*() {
    yield* enqueueStart("i")
    expectAttempt(yield* claimInstance("i", { lockTimeout: yield* lockTimeout() }), 1)
    yield* elapseLockTimeout
    yield* ack(yield* claimAttempt(2))
  }),

  messages_that_arrive_later_count_from_one: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* abandon((yield* claimAttempt(1)).lockToken)
    const second = yield* claimAttempt(2)
    yield* send(activityCompleted("i", 1))
    yield* ack(second, { metadata: { orchestrationName: "TestOrch", orchestrationVersion: "1.0.0" } })
    assert.lengthOf((yield* claimAttempt(1)).item.messages, 1)
  })
})
