/**
 * Limits of activities: how many have a slot, whose turn it is, and when the next one may begin.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { LimitChanges } from "../../model/Limit.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  abandonWork,
  ack,
  ackWork,
  activityItem,
  activityScheduled,
  claimActivity,
  claimInstance,
  claimWork,
  create,
  elapse,
  elapseLockTimeout,
  enqueueActivity,
  expectNoWork,
  fails,
  lockTimeout,
  named,
  poke,
  started,
  topic
} from "./harness.ts"
import { advances, completion, receives, working } from "./unclaimed.ts"

const name = "TestActivity"

const limit = (changes: LimitChanges) => Effect.flatMap(Admin, (admin) => admin.setLimit("activity", name, changes))

const unlimit = Effect.flatMap(Admin, (admin) => admin.removeLimit("activity", name))

const use = (key?: string) =>
  Effect.map(Effect.flatMap(Admin, (admin) => admin.getLimit("activity", name, key)), (limit) => limit!)

/** Queues these activities, in this order. */
const queue = (...activities: ReadonlyArray<readonly [id: number, limitKey?: string]>) =>
  Effect.forEach(
    activities,
    ([id, limitKey]) => enqueueActivity("i", id, limitKey === undefined ? {} : { limitKey }),
    { discard: true }
  )

/** Claims them one by one, in this order, and then no other. */
const claimOnly = (...ids: ReadonlyArray<number>) =>
  Effect.tap(Effect.forEach(ids, (id) => claimActivity(id)), () => expectNoWork())

export const limits = topic("limits", {
  no_more_than_the_limit_have_a_slot: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 2 } })
    yield* queue([1], [2], [3], [4])
    const [one, two] = yield* claimOnly(1, 2)
    yield* ackWork(one!.lockToken)
    yield* claimOnly(3)
    yield* ackWork(two!.lockToken)
    yield* claimOnly(4)
    const { inUse, waiting } = yield* use()
    assert.deepStrictEqual([inUse, waiting], [2, 0])
  }),

  other_activities_have_no_limit: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* queue([1], [2])
    yield* enqueueActivity("i", 3, { name: "Other" })
    yield* claimActivity(1)
    yield* claimActivity(3)
    yield* expectNoWork()
  }),

  each_key_has_slots_of_its_own: Effect.gen(function*() {
    yield* limit({ eachKey: { concurrency: 1 }, keys: { big: { concurrency: 2 }, free: {} } })
    yield* queue([1, "a"], [2, "a"], [3, "b"], [4, "big"], [5, "big"], [6, "big"], [7, "free"], [8, "free"], [9], [10])
    const claimed = yield* Effect.forEach([1, 3, 4, 5, 7, 8, 9], () => claimWork())
    assert.deepStrictEqual(claimed.map(({ item }) => item.id).sort((a, b) => a - b), [1, 3, 4, 5, 7, 8, 9])
    yield* expectNoWork()
    yield* ackWork(claimed.find(({ item }) => item.id === 1)!.lockToken)
    yield* claimOnly(2)
  }),

  total_and_key_count_both: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 2 }, eachKey: { concurrency: 1 } })
    yield* queue([1, "a"], [2, "a"], [3, "b"], [4, "c"])
    const [one] = yield* claimOnly(1, 3)
    yield* ackWork(one!.lockToken)
    yield* claimOnly(4)
  }),

  keys_take_turns: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* queue([1, "a"], [2, "a"], [3, "a"], [4, "b"], [5, "c"], [6, "c"])
    const order: Array<number> = []
    for (let i = 0; i < 6; i++) {
      const { item, lockToken } = yield* claimWork()
      order.push(item.id)
      yield* ackWork(lockToken)
    }
    assert.deepStrictEqual(order, [1, 4, 5, 2, 6, 3])
  }),

  keys_take_turns_without_a_bound: Effect.gen(function*() {
    yield* limit({})
    yield* queue([1, "a"], [2, "a"], [3, "a"], [4, "b"])
    yield* claimOnly(1, 4, 2, 3)
  }),

  a_lock_that_expires_keeps_the_slot: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* queue([1], [2])
    yield* claimActivity(1, { lockTimeout: yield* lockTimeout() })
    yield* elapseLockTimeout
    const again = yield* claimActivity(1)
    assert.strictEqual(again.attemptCount, 2)
    yield* expectNoWork()
    yield* abandonWork(again.lockToken)
    const third = yield* claimActivity(1)
    yield* expectNoWork()
    yield* ackWork(third.lockToken)
    yield* claimOnly(2)
  }),

  an_activity_of_a_session_that_another_worker_owns_takes_no_slot: Effect.gen(function*() {
    const by = (workerId: string) => ({ session: { workerId, lockTimeout: Duration.seconds(30) } })
    yield* limit({ total: { concurrency: 1 } })
    yield* enqueueActivity("i", 1, { name: "Other", sessionId: "s" })
    yield* claimActivity(1, by("owner"))
    yield* enqueueActivity("i", 2, { sessionId: "s" })
    yield* queue([3])
    // The owner is busy, and claims nothing.
    const three = yield* claimActivity(3, by("idle"))
    yield* expectNoWork(by("idle"))
    yield* ackWork(three.lockToken)
    yield* expectNoWork(by("idle"))
    yield* claimActivity(2, by("owner"))
  }),

  a_rate_spaces_beginnings: Effect.gen(function*() {
    yield* limit({ total: { rate: { count: 1, per: "3 seconds" } } })
    yield* queue([1], [2], [3])
    yield* claimOnly(1)
    yield* elapse("3100 millis")
    yield* claimOnly(2)
    yield* elapse("3100 millis")
    yield* claimOnly(3)
  }),

  a_burst_begins_at_once: Effect.gen(function*() {
    yield* limit({ eachKey: { rate: { count: 1, per: "3 seconds", burst: 2 } } })
    yield* queue([1, "a"], [2, "a"], [3, "a"], [4, "b"])
    yield* claimOnly(1, 4, 2)
    yield* elapse("3100 millis")
    yield* claimOnly(3)
  }),

  a_change_applies_to_what_waits: Effect.gen(function*() {
    yield* queue([1], [2], [3], [4])
    yield* claimActivity(1)
    assert.isTrue(yield* limit({ total: { concurrency: 2 } }))
    // What runs already counts.
    yield* claimOnly(2)
    assert.deepInclude(yield* use(), { inUse: 2, waiting: 2 })
    yield* limit({ total: { concurrency: 3 } })
    yield* claimOnly(3)
    assert.isTrue(yield* unlimit)
    yield* claimOnly(4)
    assert.isFalse(yield* unlimit)
    assert.isNull(yield* Effect.flatMap(Admin, (admin) => admin.getLimit("activity", name)))
  }),

  keys_are_known_before_a_limit: Effect.gen(function*() {
    yield* queue([1, "a"], [2, "a"], [3, "b"])
    yield* limit({ eachKey: { concurrency: 1 } })
    yield* claimOnly(1, 3)
  }),

  limits_of_a_program_replace_none: Effect.gen(function*() {
    const { getLimits, setLimit } = yield* Admin
    const bound = { concurrency: 3, rate: { count: 5, per: "1 minute", burst: 2 } } as const
    assert.isTrue(yield* setLimit("activity", name, { total: bound }, { replaces: false }))
    assert.isFalse(yield* setLimit("activity", name, { total: { concurrency: 1 } }, { replaces: false }))
    yield* setLimit("activity", name, { eachKey: { concurrency: 1 }, keys: { a: { concurrency: 2 } } })
    yield* setLimit("activity", name, { keys: { a: null, b: {} } })
    const [stored] = yield* getLimits
    assert.deepInclude(stored, {
      kind: "activity",
      name,
      total: { concurrency: 3, rate: { count: 5, perMs: 60_000, burst: 2 } },
      eachKey: { concurrency: 1, rate: null },
      inUse: 0,
      waiting: 0,
      oldestMs: null
    })
    assert.deepStrictEqual(stored!.keys, [
      { key: "b", own: { concurrency: null, rate: null }, inUse: 0, waiting: 0, oldestMs: null }
    ])
    yield* setLimit("activity", name, { total: { rate: bound.rate } })
    assert.deepInclude((yield* use()).total, { concurrency: null }, "a bound is replaced as a whole")
    assert.isTrue(yield* setLimit("activity", name, { total: null }))
    assert.isNull((yield* use()).total)
    assert.isTrue(yield* setLimit("activity", name, { total: null }), "also if nothing is different")
  }),

  use_is_told_by_key: Effect.gen(function*() {
    yield* limit({ eachKey: { concurrency: 1 } })
    const before = yield* Clock.currentTimeMillis
    yield* queue([1, "a"], [2, "a"], [3, "a"], [4, "b"])
    yield* claimOnly(1, 4)
    const { inUse, keyCount, keys, oldestMs, waiting } = yield* use()
    assert.deepStrictEqual([inUse, waiting, keyCount], [2, 2, 2])
    assert.isAtLeast(oldestMs!, before - 60_000)
    assert.deepStrictEqual(
      keys.map(({ inUse, key, waiting }) => [key, inUse, waiting]),
      [["a", 1, 2], ["b", 1, 0]]
    )
    assert.deepStrictEqual((yield* use("b")).keys.map(({ key }) => key), ["b"])
    const { activities } = yield* (yield* Admin).getQueueLoads
    assert.deepInclude(activities[0], { waiting: 0, running: 2, later: 2, limited: 2 })
    assert.strictEqual((yield* Effect.flatMap(Provider, ({ readBacklog }) => readBacklog)).limitedActivities, 2)
    yield* limit({ keys: { c: { concurrency: 1 } } })
    yield* queue([5])
    const more = yield* use()
    assert.sameMembers(more.keys.map(({ key }) => key), ["a", "b", "c", ""])
    assert.strictEqual(more.keyCount, 3, "c has a bound only")
  }),

  a_cancelled_activity_frees_its_slot: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* create("i")
    yield* queue([1], [2], [3])
    yield* claimOnly(1)
    yield* poke("i", "go")
    const cancelled = [1, 2].map((activityId) => ({ instanceId: "i", executionId: 1, activityId }))
    yield* ack(yield* claimInstance("i"), { cancelled })
    yield* claimOnly(3)
  }),

  a_deleted_activity_frees_its_slot: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    yield* create("other")
    yield* enqueueActivity("other", 1)
    yield* queue([2])
    yield* claimOnly(1)
    yield* Effect.flatMap(Admin, (admin) => admin.deleteInstance("other", { force: true }))
    yield* claimOnly(2)
  }),

  an_activity_without_a_slot_is_not_handed_over: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 1 } })
    const held = yield* working("i")
    const handedOver = yield* advances("i", held, {
      events: [completion(3, 2), activityScheduled(4), activityScheduled(5, "Other"), activityScheduled(6)],
      workers: [activityItem("i", 4), activityItem("i", 5, { name: "Other" }), activityItem("i", 6)],
      handOver: { activities: [name, "Other"] }
    })
    const [first] = yield* receives(handedOver, [4, 5])
    yield* ackWork(first!.lockToken)
    yield* claimOnly(6)
  }),

  with_free_slots_activities_are_handed_over: Effect.gen(function*() {
    yield* limit({ total: { concurrency: 5000 }, eachKey: { concurrency: 2000 } })
    const held = yield* working("i")
    const handedOver = yield* advances("i", held, {
      events: [completion(3, 2), activityScheduled(4), activityScheduled(5)],
      workers: [activityItem("i", 4, { limitKey: "a" }), activityItem("i", 5)],
      handOver: {}
    })
    const [one] = yield* receives(handedOver, [4, 5])
    assert.deepInclude(yield* use(), { inUse: 2, waiting: 0 })
    yield* ackWork(one!.lockToken)
    assert.deepInclude(yield* use(), { inUse: 1, waiting: 0 })
  }),

  an_instance_says_what_it_waits_for: Effect.gen(function*() {
    const { explain } = yield* Admin
    yield* limit({ total: { concurrency: 5 }, eachKey: { concurrency: 1 } })
    yield* queue([7, "tenant-7"], [8, "tenant-7"])
    yield* claimOnly(7)
    yield* create("j")
    yield* poke("j", "go")
    yield* ack(yield* claimInstance("j"), {
      events: [started(), activityScheduled(2)].slice(1),
      workers: [activityItem("j", 2, { limitKey: "tenant-7" })],
      metadata: named()
    })
    const { cause, sentence } = yield* explain("j")
    // No process of this test serves it.
    assert.strictEqual(cause._tag, "ActivityUnserved")
    assert.match(sentence, /TestActivity/)
    const { activities } = yield* (yield* Admin).getQueuedWork("j")
    assert.deepStrictEqual(activities[0]!.waitsForLimit, { key: "tenant-7", ahead: 1 })
    assert.isFalse(activities[0]!.isDue)
  }),

  bad_limits_are_refused: Effect.gen(function*() {
    for (
      const [changes, problem] of [
        [{ total: { concurrency: 0 } }, /concurrency is 0/],
        [{ eachKey: { concurrency: 1.5 } }, /1\.5/],
        [{ total: { rate: { count: 1, per: 0 } } }, /rate\.per/],
        [{ total: { rate: { count: 1, per: "1 second", burst: 0 } } }, /burst is 0/],
        [{ keys: { ["k".repeat(300)]: {} } }, /300 bytes/]
      ] as ReadonlyArray<readonly [LimitChanges, RegExp]>
    ) {
      yield* fails(limit(changes), problem)
    }
    yield* fails(Effect.flatMap(Admin, (admin) => admin.setLimit("activity", "", {})), /is empty/)
    assert.deepStrictEqual(yield* Effect.flatMap(Admin, (admin) => admin.getLimits), [])
  })
})
