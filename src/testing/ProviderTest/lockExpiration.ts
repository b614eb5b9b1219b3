/**
 * Locks expire, are released by an abandonment, or are extended by renewals.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import {
  abandon,
  abandonWork,
  ack,
  ackWork,
  activityCompleted,
  claimActivity,
  claimInstance,
  claimWork,
  create,
  elapse,
  elapseLockTimeout,
  enqueueActivity,
  enqueueStart,
  expectNoOrchestration,
  expectNoWork,
  fails,
  fetchOrchestration,
  lockTimeout,
  parallel,
  poke,
  renew,
  renewWork,
  schedule,
  Settings,
  started,
  topic
} from "./harness.ts"

export const lockExpiration = topic("lock_expiration", {
  test_lock_expires_after_timeout: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    const first = yield* claimInstance("i", { lockTimeout: LT })
    yield* expectNoOrchestration({ lockTimeout: LT })
    yield* elapseLockTimeout
    const second = yield* claimInstance("i", { lockTimeout: LT })
    assert.notStrictEqual(second.lockToken, first.lockToken)
    yield* fails(ack(first, { events: [started()] }), /Invalid lock token/)
  }),

  test_abandon_releases_lock_immediately: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    const { lockToken } = yield* claimInstance("i", { lockTimeout: LT })
    yield* expectNoOrchestration({ lockTimeout: LT })
    yield* abandon(lockToken)
    yield* claimInstance("i", { lockTimeout: LT })
  }),

  test_lock_renewal_on_ack: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    const claimed = yield* claimInstance("i", { lockTimeout: LT })
    yield* expectNoOrchestration({ lockTimeout: LT })
    yield* enqueueStart("i")
    yield* expectNoOrchestration({ lockTimeout: LT })
    yield* ack(claimed, { events: [started()] })
    yield* claimInstance("i", { lockTimeout: LT })
  }),

  test_concurrent_lock_attempts_respect_expiration: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    yield* claimInstance("i", { lockTimeout: LT })
    const found = yield* parallel(
      [0, 50, 100, 150, 200].map((delay) => Effect.andThen(elapse(delay), fetchOrchestration({ lockTimeout: LT })))
    )
    assert.isTrue(found.every(Option.isNone))
    yield* elapse(Duration.toMillis(LT) - 100)
    yield* claimInstance("i", { lockTimeout: LT })
  }),

  test_worker_lock_renewal_success: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueActivity("i", 1)
    const { lockToken } = yield* claimWork({ lockTimeout: LT })
    yield* expectNoWork()
    yield* elapse(100)
    yield* renewWork(lockToken, LT)
    yield* expectNoWork()
  }),

  test_worker_lock_renewal_invalid_token: fails(renewWork("invalid-token-123", "30 seconds")),

  test_worker_lock_renewal_after_expiration: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    // Lost as soon as another worker takes over; see `renewal_revives_a_lock_that_no_other_took`.
    const { lockToken } = yield* claimWork({ lockTimeout: "1 second" })
    yield* elapseLockTimeout
    yield* claimWork()
    yield* fails(renewWork(lockToken, "30 seconds"))
  }),

  test_worker_lock_renewal_extends_timeout: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* schedule("i", [1])
    const { lockToken } = yield* claimWork({ lockTimeout: LT })
    yield* elapse(yield* lockTimeout(0.6))
    yield* renewWork(lockToken, LT)
    yield* elapse(yield* lockTimeout(0.4))
    yield* expectNoWork({ lockTimeout: LT })
  }),

  test_worker_lock_renewal_after_ack: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    const { lockToken } = yield* claimWork({ lockTimeout: yield* lockTimeout() })
    yield* ackWork(lockToken, activityCompleted("i", 1))
    yield* fails(renewWork(lockToken, "30 seconds"))
  }),

  test_abandon_work_item_releases_lock: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueActivity("i", 1)
    const first = yield* claimWork({ lockTimeout: LT })
    yield* expectNoWork({ lockTimeout: LT })
    yield* abandonWork(first.lockToken)
    const second = yield* claimWork({ lockTimeout: LT })
    assert.notStrictEqual(second.lockToken, first.lockToken)
    yield* ackWork(second.lockToken, activityCompleted("i", 1))
  }),

  test_abandon_work_item_with_delay: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    const { lockToken } = yield* claimWork({ lockTimeout: yield* lockTimeout() })
    yield* abandonWork(lockToken, { delay: 1000 })
    yield* expectNoWork()
    yield* elapse(1100)
    yield* claimActivity(1)
  }),

  test_worker_ack_fails_after_lock_expiry: Effect.gen(function*() {
    yield* enqueueActivity("i", 1)
    const { lockToken } = yield* claimWork({ lockTimeout: "1 second" })
    yield* elapse(1200)
    yield* fails(ackWork(lockToken, activityCompleted("i", 1)))
    yield* claimActivity(1, { lockTimeout: "5 seconds" })
  }),

  test_orchestration_lock_renewal_after_expiration: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    const { lockToken } = yield* claimInstance("i", { lockTimeout: LT })
    yield* elapseLockTimeout
    yield* claimInstance("i")
    yield* fails(renew(lockToken, LT))
  }),

  // -- ours ------------------------------------------------------------------------------------

  renewal_revives_a_lock_that_no_other_took: Effect.gen(function*() {
    // An outage of the store alone does not take work from the process that holds it.
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    yield* enqueueActivity("other", 1)
    const claimed = yield* claimInstance("i", { lockTimeout: LT })
    const work = yield* claimWork({ lockTimeout: LT })
    yield* elapseLockTimeout
    yield* renew(claimed.lockToken, "30 seconds")
    yield* renewWork(work.lockToken, "30 seconds")
    yield* expectNoOrchestration()
    yield* expectNoWork()
    yield* ack(claimed, { events: [started()] })
    yield* ackWork(work.lockToken, activityCompleted("other", 1))
  }),

  orchestration_lock_renewal_success: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    const claimed = yield* claimInstance("i", { lockTimeout: LT })
    yield* elapse(yield* lockTimeout(0.6))
    yield* renew(claimed.lockToken, LT)
    yield* elapse(yield* lockTimeout(0.6))
    yield* expectNoOrchestration()
    yield* ack(claimed, { events: [started()] })
  }),

  renewals_count_milliseconds: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* enqueueActivity("i", 1)
    const orchestration = yield* claimInstance("i")
    const work = yield* claimWork()
    yield* renew(orchestration.lockToken, 900)
    yield* renewWork(work.lockToken, 900)
    yield* expectNoOrchestration()
    yield* expectNoWork()
    yield* elapse(1000)
    yield* claimInstance("i")
    yield* claimActivity(1)
  }),

  a_lock_ends_exactly_at_its_time: Effect.gen(function*() {
    yield* enqueueStart("i")
    yield* enqueueActivity("i", 1)
    const orchestration = yield* claimInstance("i", { lockTimeout: 1000 })
    const work = yield* claimWork({ lockTimeout: 1000 })
    const { time } = yield* Settings
    if (time === "virtual") {
      // Only virtual time can stop right before it.
      yield* TestClock.adjust(999)
      yield* expectNoOrchestration()
      yield* expectNoWork()
      yield* TestClock.adjust(1)
    } else yield* elapse(1000)
    yield* fails(ack(orchestration), /Invalid lock token/)
    yield* fails(ackWork(work.lockToken))
    yield* claimInstance("i")
    yield* claimActivity(1)
  }),

  an_expired_lock_can_be_given_back: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    yield* enqueueActivity("i", 1)
    const orchestration = yield* claimInstance("i", { lockTimeout: LT })
    const work = yield* claimWork({ lockTimeout: LT })
    yield* elapseLockTimeout
    yield* abandon(orchestration.lockToken, { ignoreAttempt: true })
    yield* abandonWork(work.lockToken, { ignoreAttempt: true })
    assert.strictEqual((yield* claimInstance("i")).attemptCount, 1)
    assert.strictEqual((yield* claimWork()).attemptCount, 1)
    yield* fails(abandon(orchestration.lockToken), /Invalid lock token/)
    yield* fails(abandonWork(work.lockToken))
  }),

  abandon_with_delay_keeps_order_and_attempts: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i", "first")
    const claimed = yield* claimInstance("i")
    yield* poke("i", "second")
    yield* abandon(claimed.lockToken, { delay: 500 })
    // The instance is paused: messages that arrive meanwhile wait behind the batch.
    yield* expectNoOrchestration()
    yield* elapse(600)
    const { attemptCount, item } = yield* claimInstance("i")
    assert.deepStrictEqual(item.messages.map((message) => "name" in message && message.name), ["first", "second"])
    assert.strictEqual(attemptCount, 2)
  })
})
