/**
 * One holder per instance, however many fetch; messages that arrive meanwhile wait for the next turn.
 */
import { assert } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import {
  abandon,
  ack,
  activityCompleted,
  claimInstance,
  claimOrchestration,
  create,
  elapse,
  elapseLockTimeout,
  enqueueStart,
  expectNoOrchestration,
  fails,
  fetchOrchestration,
  lockTimeout,
  named,
  parallel,
  send,
  topic
} from "./harness.ts"
import type { ClaimedOrchestration } from "./harness.ts"

const completionIds = ({ item }: ClaimedOrchestration) =>
  item.messages.flatMap((message) => message._tag === "ActivityCompleted" ? [message.id] : [])

const instances = (count: number) => Array.from({ length: count }, (_, index) => `instance-${index}`)

const distinct = (values: ReadonlyArray<string>) => new Set(values).size

/** Concurrent fetches, the nth after its delay; returns what they found. */
const fetchers = <E, R>(
  count: number,
  delayMs: (index: number) => number,
  fetch: Effect.Effect<Option.Option<ClaimedOrchestration>, E, R>
) =>
  Effect.map(
    parallel(Array.from({ length: count }, (_, index) => Effect.andThen(elapse(delayMs(index)), fetch))),
    (found) => found.flatMap(Option.toArray)
  )

export const instanceLocking = topic("instance_locking", {
  test_exclusive_instance_lock: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    const first = yield* claimInstance("i", { lockTimeout: LT })
    yield* expectNoOrchestration({ lockTimeout: LT })
    yield* elapseLockTimeout
    assert.notStrictEqual((yield* claimInstance("i", { lockTimeout: LT })).lockToken, first.lockToken)
  }),

  test_lock_token_uniqueness: Effect.gen(function*() {
    yield* Effect.forEach(instances(5), (instance) => enqueueStart(instance))
    const claimed = yield* Effect.forEach(instances(5), () => claimOrchestration())
    assert.strictEqual(distinct(claimed.map(({ lockToken }) => lockToken)), 5)
  }),

  test_invalid_lock_token_rejection: Effect.gen(function*() {
    yield* enqueueStart("i")
    const claimed = yield* claimInstance("i")
    yield* fails(ack({ ...claimed, lockToken: "invalid-token" }), /Invalid lock token/)
    yield* fails(abandon("invalid-token"), /Invalid lock token/)
    yield* expectNoOrchestration()
  }),

  test_concurrent_instance_fetching: Effect.gen(function*() {
    yield* Effect.forEach(instances(10), (instance) => enqueueStart(instance))
    const found = yield* fetchers(10, (index) => 30 * index, fetchOrchestration())
    assert.lengthOf(found, 10)
    assert.strictEqual(distinct(found.map(({ item }) => item.instanceId)), 10)
  }),

  test_completions_arriving_during_lock_blocked: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    yield* claimInstance("i", { lockTimeout: LT })
    yield* Effect.forEach([1, 2, 3], (id) => send(activityCompleted("i", id)))
    yield* expectNoOrchestration({ lockTimeout: LT })
    yield* elapseLockTimeout
    const claimed = yield* claimInstance("i", { lockTimeout: LT })
    assert.lengthOf(claimed.item.messages, 4)
    assert.deepStrictEqual(completionIds(claimed), [1, 2, 3])
  }),

  test_cross_instance_lock_isolation: Effect.gen(function*() {
    yield* create("a")
    yield* create("b")
    yield* enqueueStart("a")
    yield* enqueueStart("b")
    yield* claimInstance("a")
    yield* ack(yield* claimInstance("b"), { metadata: named() })
    yield* send(activityCompleted("b", 1))
    assert.deepStrictEqual(completionIds(yield* claimInstance("b")), [1])
  }),

  test_message_tagging_during_lock: Effect.gen(function*() {
    yield* create("i")
    yield* send(activityCompleted("i", 1))
    yield* send(activityCompleted("i", 2))
    const first = yield* claimInstance("i")
    assert.deepStrictEqual(completionIds(first), [1, 2])
    yield* send(activityCompleted("i", 3))
    yield* ack(first)
    const second = yield* claimInstance("i")
    assert.lengthOf(second.item.messages, 1)
    assert.deepStrictEqual(completionIds(second), [3])
  }),

  test_ack_only_affects_locked_messages: Effect.gen(function*() {
    yield* create("i")
    yield* send(activityCompleted("i", 1))
    const first = yield* claimInstance("i")
    assert.lengthOf(first.item.messages, 1)
    yield* send(activityCompleted("i", 2))
    yield* send(activityCompleted("i", 3))
    yield* expectNoOrchestration()
    yield* ack(first)
    const second = yield* claimInstance("i")
    assert.lengthOf(second.item.messages, 2)
    assert.deepStrictEqual(completionIds(second), [2, 3])
  }),

  test_multi_threaded_lock_contention: Effect.gen(function*() {
    yield* enqueueStart("i")
    const found = yield* fetchers(10, (index) => 5 * index, fetchOrchestration())
    assert.lengthOf(found, 1)
    yield* expectNoOrchestration()
  }),

  test_multi_threaded_no_duplicate_processing: Effect.gen(function*() {
    yield* Effect.forEach(instances(20), (instance) => enqueueStart(instance))
    const found = yield* fetchers(
      40,
      (index) => (3 * index) % 50,
      fetchOrchestration().pipe(
        Effect.retry({ times: 2, schedule: Schedule.spaced("10 millis"), while: (error) => error.isRetryable })
      )
    )
    assert.isAtMost(found.length, 20)
    assert.isAtLeast(found.length, 1)
    assert.strictEqual(distinct(found.map(({ item }) => item.instanceId)), found.length)
  }),

  test_multi_threaded_lock_expiration_recovery: Effect.gen(function*() {
    const LT = yield* lockTimeout()
    yield* enqueueStart("i")
    const fetch = fetchOrchestration({ lockTimeout: LT })
    const held = yield* Deferred.make<void>()
    const [holder, early, late] = yield* parallel([
      fetch.pipe(
        Effect.tap(() => Deferred.succeed(held, undefined)),
        Effect.tap(() => Effect.andThen(elapse(LT), elapse(200)))
      ),
      Effect.andThen(Deferred.await(held), Effect.andThen(elapse(200), fetch)),
      Effect.andThen(Deferred.await(held), Effect.andThen(Effect.andThen(elapse(LT), elapse(100)), fetch))
    ])
    assert.isTrue(Option.isSome(holder!))
    assert.isTrue(Option.isNone(early!))
    assert(Option.isSome(late!))
    assert.strictEqual(late.value.item.instanceId, "i")
  }),

  // -- ours ------------------------------------------------------------------------------------

  one_instance_and_many_fetchers: Effect.gen(function*() {
    yield* enqueueStart("i")
    assert.lengthOf(yield* fetchers(32, () => 0, fetchOrchestration()), 1)
    yield* expectNoOrchestration()
  }),

  a_busy_instance_does_not_starve_others: Effect.gen(function*() {
    yield* create("hot")
    yield* send(activityCompleted("hot", 0))
    yield* claimInstance("hot")
    yield* Effect.forEach(
      Array.from({ length: 50 }, (_, index) => index + 1),
      (id) => send(activityCompleted("hot", id))
    )
    yield* enqueueStart("cold")
    yield* claimInstance("cold")
    yield* expectNoOrchestration()
  })
})
