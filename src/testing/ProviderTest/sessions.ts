/**
 * Sessions: the activities of a session run on one worker as long as it renews the session's lock.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Provider } from "../../provider/Provider.ts"
import {
  abandonWork,
  ackWork,
  activityCompleted,
  claimActivity,
  claimWork,
  elapse,
  elapseLockTimeout,
  enqueueActivity,
  expectNoWork,
  fetchWork,
  lockTimeout,
  parallel,
  renewWork,
  some,
  topic
} from "./harness.ts"
import type { FetchWork } from "./harness.ts"

/** The session options of worker `workerId`. */
const as = (
  workerId: string,
  session: Duration.Input = "30 seconds",
  lockTimeout: Duration.Input = "5 seconds"
): FetchWork => ({ lockTimeout, session: { workerId, lockTimeout: session } })

const enqueue = (id: number, sessionId = "s1") => enqueueActivity("i", id, { sessionId })
const enqueuePlain = (id: number) => enqueueActivity("i", id)

/** Claims activity `id` and acks it. */
const run = (id: number, options: FetchWork) =>
  Effect.flatMap(claimActivity(id, options), ({ lockToken }) => ackWork(lockToken))

const renewSessions = (
  workerIds: ReadonlyArray<string>,
  idleTimeout: Duration.Input = "300 seconds",
  extendFor: Duration.Input = "30 seconds"
) =>
  Effect.flatMap(Provider, (provider) =>
    provider.renewSessionLock({
      workerIds,
      extendFor: Duration.fromInputUnsafe(extendFor),
      idleTimeout: Duration.fromInputUnsafe(idleTimeout)
    }))

const expectRenewed = (count: number, ...options: Parameters<typeof renewSessions>) =>
  Effect.map(renewSessions(...options), (renewed) => assert.strictEqual(renewed, count))

const expectCleaned = (count: number) =>
  Effect.flatMap(
    Provider,
    (provider) => Effect.map(provider.cleanupOrphanedSessions, (cleaned) => assert.strictEqual(cleaned, count))
  )

export const sessions = topic("sessions", {
  test_non_session_items_fetchable_by_any_worker: Effect.gen(function*() {
    yield* enqueuePlain(1)
    const { item } = yield* claimActivity(1, as("A"))
    assert.isUndefined(item.sessionId)
  }),

  test_session_item_claimable_when_no_session: Effect.gen(function*() {
    yield* enqueue(1)
    const { item } = yield* claimActivity(1, as("A"))
    assert.strictEqual(item.sessionId, "s1")
  }),

  test_session_affinity_same_worker: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A"))
    yield* enqueue(2)
    yield* run(2, as("A"))
  }),

  test_session_affinity_blocks_other_worker: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A"))
    yield* enqueue(2)
    yield* expectNoWork(as("B"))
  }),

  test_different_sessions_different_workers: Effect.gen(function*() {
    yield* enqueue(1, "s1")
    yield* run(1, as("A"))
    yield* enqueue(2, "s2")
    yield* run(2, as("B"))
    yield* enqueue(3, "s2")
    yield* enqueue(4, "s1")
    yield* run(4, as("A"))
    yield* run(3, as("B"))
  }),

  test_mixed_session_and_non_session_items: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A"))
    yield* enqueue(2)
    yield* enqueuePlain(3)
    yield* run(3, as("B"))
  }),

  test_session_claimable_after_lock_expiry: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", "50 millis"))
    yield* elapse("100 millis")
    yield* enqueue(2)
    yield* run(2, as("B"))
  }),

  test_none_session_skips_session_items: Effect.gen(function*() {
    yield* enqueue(1)
    yield* enqueuePlain(2)
    yield* run(2, { lockTimeout: "5 seconds" })
    yield* expectNoWork({ lockTimeout: "5 seconds" })
    yield* run(1, as("A"))
  }),

  test_some_session_returns_all_items: Effect.gen(function*() {
    yield* enqueue(1, "s1")
    yield* enqueue(2, "s2")
    yield* enqueue(3, "s3")
    yield* enqueuePlain(4)
    for (const id of [1, 2, 3, 4]) yield* run(id, as("shared-proc"))
    yield* expectNoWork(as("shared-proc"))
  }),

  test_renew_session_lock_active: Effect.gen(function*() {
    yield* enqueue(1, "s1")
    yield* run(1, as("A", "5 seconds"))
    yield* expectRenewed(1, ["A"])
    yield* enqueue(2, "s2")
    yield* run(2, as("A", "5 seconds"))
    yield* expectRenewed(2, ["A"])
  }),

  test_renew_session_lock_skips_idle: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A"))
    yield* expectRenewed(0, ["A"], 0)
  }),

  test_renew_session_lock_no_sessions: expectRenewed(0, ["A"]),

  test_cleanup_removes_expired_no_items: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", "50 millis"))
    yield* elapse("100 millis")
    yield* expectCleaned(1)
  }),

  test_cleanup_keeps_sessions_with_pending_items: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", "50 millis"))
    yield* enqueue(2)
    yield* elapse("100 millis")
    yield* expectCleaned(0)
  }),

  test_cleanup_keeps_active_sessions: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", "300 seconds"))
    yield* expectCleaned(0)
  }),

  test_ack_updates_session_last_activity: Effect.gen(function*() {
    yield* enqueue(1)
    const { lockToken } = yield* claimActivity(1, as("A"))
    yield* elapse("1 second")
    yield* ackWork(lockToken, activityCompleted("i", 1))
    yield* expectRenewed(1, ["A"], "900 millis")
  }),

  test_renew_work_item_updates_session_last_activity: Effect.gen(function*() {
    yield* enqueue(1)
    const { lockToken } = yield* claimActivity(1, as("A"))
    yield* elapse("3 seconds")
    yield* renewWork(lockToken, "30 seconds")
    yield* expectRenewed(1, ["A"], "2900 millis")
  }),

  test_session_items_processed_in_order: Effect.gen(function*() {
    for (const id of [1, 2, 3]) yield* enqueue(id)
    for (const id of [1, 2, 3]) yield* run(id, as("A"))
  }),

  test_non_session_items_returned_with_session_config: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A"))
    yield* enqueuePlain(2)
    yield* run(2, as("A"))
  }),

  test_shared_worker_id_any_caller_can_fetch_owned_session: Effect.gen(function*() {
    yield* enqueue(1)
    yield* enqueue(2)
    yield* run(1, as("process-1"))
    yield* run(2, as("process-1"))
    yield* enqueue(3)
    yield* expectNoWork(as("process-2"))
  }),

  test_concurrent_session_claim_only_one_wins: Effect.gen(function*() {
    yield* enqueue(1)
    yield* enqueue(2)
    const { lockToken } = yield* claimActivity(1, as("A"))
    yield* expectNoWork(as("B"))
    yield* ackWork(lockToken)
  }),

  test_session_takeover_after_lock_expiry: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", "50 millis"))
    yield* enqueue(2)
    yield* elapse("100 millis")
    yield* run(2, as("B"))
  }),

  test_cleanup_then_new_item_recreates_session: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", "50 millis"))
    yield* elapse("100 millis")
    yield* expectCleaned(1)
    yield* enqueue(2)
    yield* run(2, as("B"))
  }),

  test_abandoned_session_item_retryable: Effect.gen(function*() {
    yield* enqueue(1)
    const first = yield* claimActivity(1, as("A"))
    assert.strictEqual(first.attemptCount, 1)
    yield* abandonWork(first.lockToken)
    const second = yield* claimActivity(1, as("A"))
    assert.strictEqual(second.attemptCount, 2)
    yield* ackWork(second.lockToken)
    yield* expectNoWork(as("A"))
  }),

  test_abandoned_session_item_ignore_attempt: Effect.gen(function*() {
    yield* enqueue(1)
    const first = yield* claimActivity(1, as("A"))
    assert.strictEqual(first.attemptCount, 1)
    yield* abandonWork(first.lockToken, { delay: "1 millis", ignoreAttempt: true })
    yield* elapse("10 millis")
    const second = yield* claimActivity(1, as("A"))
    assert.strictEqual(second.attemptCount, 1)
  }),

  test_renew_session_lock_after_expiry_returns_zero: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", "50 millis"))
    yield* elapse("100 millis")
    yield* expectRenewed(0, ["A"])
  }),

  test_original_worker_reclaims_expired_session: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", "50 millis"))
    yield* enqueue(2)
    yield* elapse("100 millis")
    yield* run(2, as("A"))
  }),

  test_activity_lock_expires_session_lock_valid_same_worker_refetches: Effect.gen(function*() {
    yield* enqueue(1)
    yield* claimActivity(1, as("A", "30 seconds", "500 millis"))
    yield* elapse("600 millis")
    yield* expectNoWork(as("B"))
    const again = yield* claimActivity(1, as("A"))
    assert.strictEqual(again.attemptCount, 2)
  }),

  test_session_lock_expires_new_owner_gets_redelivery: Effect.gen(function*() {
    yield* enqueue(1)
    const first = yield* claimActivity(1, as("A", "200 millis"))
    yield* elapse("300 millis")
    yield* enqueue(2)
    yield* run(2, as("B"))
    yield* abandonWork(first.lockToken)
    const again = yield* claimActivity(1, as("B"))
    assert.strictEqual(again.attemptCount, 2)
  }),

  test_session_lock_expires_same_worker_reacquires: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", "200 millis"))
    yield* elapse("300 millis")
    yield* enqueue(2)
    yield* run(2, as("A"))
  }),

  test_both_locks_expire_different_worker_claims: Effect.gen(function*() {
    yield* enqueue(1)
    yield* claimActivity(1, as("A", "200 millis", "200 millis"))
    yield* elapse("400 millis")
    const again = yield* claimActivity(1, as("B"))
    assert.strictEqual(again.attemptCount, 2)
  }),

  test_session_lock_expires_activity_lock_valid_ack_succeeds: Effect.gen(function*() {
    yield* enqueue(1)
    const { lockToken } = yield* claimActivity(1, as("A", "200 millis", "30 seconds"))
    yield* elapse("300 millis")
    yield* ackWork(lockToken, activityCompleted("i", 1))
    yield* expectNoWork(as("A"))
  }),

  test_session_lock_renewal_extends_past_original_timeout: Effect.gen(function*() {
    yield* enqueue(1)
    const LT = yield* lockTimeout()
    yield* run(1, as("A", LT))
    yield* elapse(yield* lockTimeout(0.6))
    yield* expectRenewed(1, ["A"], "300 seconds", LT)
    yield* elapse(yield* lockTimeout(0.4))
    yield* enqueue(2)
    yield* expectNoWork(as("B"))
    yield* run(2, as("A"))
  }),

  session_claim_race_continues: Effect.gen(function*() {
    // A fetch that loses a session to another worker claims the next activity instead of returning nothing.
    for (let round = 1; round <= 5; round++) {
      yield* enqueue(3 * round, `s${round}`)
      yield* enqueue(3 * round + 1, `s${round}`)
      yield* enqueuePlain(3 * round + 2)
      const [a, b] = yield* parallel([fetchWork(as("A")), fetchWork(as("B"))])
      const taken = [some(a!, "work for A"), some(b!, "work for B")]
      for (const { lockToken } of taken) yield* ackWork(lockToken)
      const [ofSession, plain] = taken[0]!.item.sessionId === undefined
        ? [taken[1]!, taken[0]!]
        : [taken[0]!, taken[1]!]
      assert.strictEqual(ofSession.item.sessionId, `s${round}`)
      assert.strictEqual(plain.item.id, 3 * round + 2)
      const [owner, other] = ofSession === taken[0] ? ["A", "B"] as const : ["B", "A"] as const
      yield* expectNoWork(as(other))
      yield* run(ofSession.item.id === 3 * round ? 3 * round + 1 : 3 * round, as(owner))
    }
  }),

  lost_session_does_not_count_an_attempt: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", yield* lockTimeout()))
    yield* enqueue(2)
    yield* expectNoWork(as("B"))
    yield* elapseLockTimeout
    const { attemptCount } = yield* claimActivity(2, as("B"))
    assert.strictEqual(attemptCount, 1)
  }),

  session_lock_ends_exactly_at_its_time: Effect.gen(function*() {
    yield* enqueue(1)
    yield* run(1, as("A", "1 second"))
    yield* enqueue(2)
    yield* elapse("1 second")
    yield* run(2, as("B"))
  }),

  session_renewal_is_for_the_named_owners: Effect.gen(function*() {
    yield* enqueue(1, "s1")
    yield* run(1, as("A"))
    yield* enqueue(2, "s2")
    yield* run(2, as("B"))
    yield* expectRenewed(0, [])
    yield* expectRenewed(0, ["C"])
    yield* expectRenewed(1, ["B", "C"])
    yield* expectRenewed(2, ["A", "B", "B"])
  }),

  cleanup_keeps_sessions_of_claimed_items: Effect.gen(function*() {
    yield* enqueue(1)
    const { lockToken } = yield* claimActivity(1, as("A", "50 millis"))
    yield* elapse("100 millis")
    yield* expectCleaned(0)
    yield* ackWork(lockToken)
    yield* expectCleaned(1)
  }),

  sessions_and_tags_are_both_required: Effect.gen(function*() {
    yield* enqueueActivity("i", 1, { sessionId: "s1", tag: "gpu" })
    yield* expectNoWork(as("A"))
    yield* expectNoWork({ tags: { _tag: "Tags", tags: ["gpu"] } })
    const { item } = yield* claimWork({ ...as("A"), tags: { _tag: "Tags", tags: ["gpu"] } })
    assert.deepStrictEqual([item.id, Option.fromUndefinedOr(item.sessionId)], [1, Option.some("s1")])
  })
})
