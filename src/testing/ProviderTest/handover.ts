/**
 * Activities that a turn creates and its caller has room for: they are stored claimed, unless they would overtake
 * others.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { TagFilter } from "../../model/Instance.ts"
import {
  abandonWork,
  ackWork,
  activityCompleted,
  activityItem,
  activityScheduled,
  claimActivity,
  claimInstance,
  completed,
  elapse,
  elapseLockTimeout,
  enqueueActivity,
  expectNoOrchestration,
  expectNoWork,
  fails,
  lockTimeout,
  named,
  poke,
  renewWork,
  Settings,
  started,
  topic
} from "./harness.ts"
import { advance, advances, begins, completion, receives, working } from "./unclaimed.ts"
import type { Advance, HandOver } from "./unclaimed.ts"

type Fields = Parameters<typeof activityItem>[2]

/** Schedules activities 4, 5, … */
const next = (handOver: HandOver, ...activities: ReadonlyArray<Fields>): Advance => ({
  events: [completion(3, 2), ...activities.map((fields, index) => activityScheduled(4 + index, fields?.name))],
  workers: activities.map((fields, index) => activityItem("i", 4 + index, fields)),
  handOver
})

const any: TagFilter = { _tag: "Any" }

/** All of them wait unclaimed, in this order. */
const wait = (...ids: ReadonlyArray<number>) =>
  Effect.andThen(
    Effect.forEach(ids, (id) => claimActivity(id, { tags: any }), { discard: true }),
    expectNoWork({ tags: any })
  )

export const handover = topic("handover", {
  activities_are_stored_claimed: Effect.gen(function*() {
    const handOver = { limit: 2 }
    const handedOver = yield* advances("i", yield* working("i"), next(handOver, {}, {}))
    const [one, other] = yield* receives(handedOver, [4, 5])
    yield* expectNoWork()
    assert.deepStrictEqual(one!.item, activityItem("i", 4))
    assert.strictEqual(one!.attemptCount, 1)
    assert.notStrictEqual(one!.lockToken, other!.lockToken)
    yield* renewWork(one!.lockToken, "30 seconds")
    yield* ackWork(one!.lockToken, activityCompleted("i", 4))
    yield* fails(ackWork(one!.lockToken), /Invalid lock token/)
    assert.deepStrictEqual((yield* claimInstance("i")).item.messages, [activityCompleted("i", 4)])
  }),

  a_chain_passes_from_turn_to_turn: Effect.gen(function*() {
    let held = yield* working("i")
    for (let id = 2; id < 12; id += 2) {
      const handedOver = yield* advances("i", held, {
        events: [completion(id + 1, id), activityScheduled(id + 2)],
        workers: [activityItem("i", id + 2)],
        handOver: { limit: 1 }
      })
      held = [...yield* receives(handedOver, [id + 2])]
    }
    yield* advances("i", held, {
      events: [completion(13, 12), completed(14)],
      metadata: named({ status: "Completed", output: "done" })
    })
    yield* expectNoWork()
    yield* expectNoOrchestration()
  }),

  a_first_turn_hands_over: Effect.gen(function*() {
    const handedOver = yield* begins("i", {
      events: [started(), activityScheduled(2), activityScheduled(3)],
      workers: [activityItem("i", 2), activityItem("i", 3)],
      metadata: named(),
      handOver: { limit: 1 }
    })
    const held = yield* receives(handedOver, [2])
    yield* advances("i", held, { events: [completion(4, 2)] })
    yield* wait(3)
  }),

  no_more_than_the_limit: Effect.gen(function*() {
    yield* receives(yield* advances("i", yield* working("i"), next({ limit: 2 }, {}, {}, {}, {})), [4, 5])
    yield* wait(6, 7)
  }),

  only_activities_that_the_caller_serves: Effect.gen(function*() {
    const handOver = { limit: 1, activities: ["Mine", "Also"] }
    const handedOver = yield* advances("i", yield* working("i"), next(handOver, {}, { name: "Mine" }, { name: "Also" }))
    yield* receives(handedOver, [5], handOver)
    yield* wait(4, 6)
  }),

  only_tags_that_the_caller_serves: Effect.gen(function*() {
    const handOver: HandOver = { tags: { _tag: "Tags", tags: ["gpu"] } }
    const handedOver = yield* advances("i", yield* working("i"), next(handOver, {}, { tag: "gpu" }, { tag: "cpu" }))
    yield* receives(handedOver, [5], handOver)
    yield* wait(4, 6)
  }),

  untagged_and_one_tag: Effect.gen(function*() {
    const handOver: HandOver = { tags: { _tag: "DefaultAnd", tags: ["gpu"] } }
    const handedOver = yield* advances("i", yield* working("i"), next(handOver, {}, { tag: "gpu" }, { tag: "cpu" }))
    yield* receives(handedOver, [4, 5], handOver)
    yield* wait(6)
  }),

  every_tag: Effect.gen(function*() {
    const handedOver = yield* advances("i", yield* working("i"), next({ tags: any }, {}, { tag: "gpu" }))
    yield* receives(handedOver, [4, 5], { tags: any })
    yield* wait()
  }),

  no_tag_at_all: Effect.gen(function*() {
    yield* receives(yield* advances("i", yield* working("i"), next({ tags: { _tag: "None" } }, {})), [])
    yield* wait(4)
  }),

  none_with_a_session: Effect.gen(function*() {
    const handedOver = yield* advances("i", yield* working("i"), next({}, { sessionId: "s" }, {}))
    yield* receives(handedOver, [5])
    yield* claimActivity(4, { session: { workerId: "A" } })
  }),

  none_that_rust_runs: Effect.gen(function*() {
    const turn = next({}, {}, {})
    yield* receives(yield* advances("i", yield* working("i"), { ...turn, forRust: new Set([turn.workers![1]!]) }), [4])
  }),

  none_that_the_same_turn_cancels: Effect.gen(function*() {
    const handedOver = yield* advances("i", yield* working("i"), {
      ...next({}, {}, {}),
      cancelled: [{ instanceId: "i", executionId: 1, activityId: 4 }]
    })
    yield* receives(handedOver, [5])
    yield* wait()
  }),

  a_cancelled_one_does_not_count_among_the_limit: Effect.gen(function*() {
    const handedOver = yield* advances("i", yield* working("i"), {
      ...next({ limit: 1 }, {}, {}),
      cancelled: [{ instanceId: "i", executionId: 1, activityId: 4 }]
    })
    yield* receives(handedOver, [5])
    yield* wait()
  }),

  none_of_a_turn_that_is_not_stored: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* poke("i")
    assert.deepStrictEqual(yield* advance("i", ended, next({}, {})), { _tag: "Queued", results: ["Done"] })
    yield* expectNoWork()
  }),

  // -- no activity is overtaken ------------------------------------------------------------------------

  none_overtakes_an_older_activity: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* enqueueActivity("other", 1)
    yield* receives(yield* advances("i", ended, next({}, {}, {})), [])
    yield* wait(1, 4, 5)
  }),

  one_for_which_a_slot_is_spare_does_not_matter: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* enqueueActivity("other", 1)
    yield* enqueueActivity("other", 2)
    const { optimisticTurns } = yield* Settings
    const handedOver = yield* advances("i", ended, next({ spare: 2 }, {}))
    assert.deepStrictEqual(handedOver.map(({ item }) => item.id), optimisticTurns ? [4] : [])
    yield* wait(1, 2, ...(optimisticTurns ? [] : [4]))
  }),

  one_more_than_slots_are_spare_is_not_overtaken: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* enqueueActivity("other", 1)
    yield* enqueueActivity("other", 2)
    yield* receives(yield* advances("i", ended, next({ spare: 1 }, {})), [])
    yield* wait(1, 2, 4)
  }),

  one_that_the_caller_does_not_serve_does_not_matter: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* enqueueActivity("other", 1, { name: "Strange" })
    yield* enqueueActivity("other", 2, { tag: "gpu" })
    yield* enqueueActivity("other", 3, { sessionId: "s" })
    yield* receives(yield* advances("i", ended, next({}, {})), [4])
    yield* wait(1, 2)
  }),

  one_that_runs_does_not_matter: Effect.gen(function*() {
    yield* enqueueActivity("other", 1)
    yield* claimActivity(1)
    yield* receives(yield* advances("i", yield* working("i"), next({}, {})), [4])
  }),

  one_that_is_not_due_does_not_matter: Effect.gen(function*() {
    yield* enqueueActivity("other", 1)
    yield* abandonWork((yield* claimActivity(1)).lockToken, { delay: "1 hour" })
    yield* receives(yield* advances("i", yield* working("i"), next({}, {})), [4])
  }),

  one_whose_lock_has_expired_comes_first: Effect.gen(function*() {
    const ended = yield* working("i")
    yield* enqueueActivity("other", 1)
    yield* claimActivity(1, { lockTimeout: yield* lockTimeout() })
    yield* elapseLockTimeout
    yield* receives(yield* advances("i", ended, next({}, {})), [])
    assert.strictEqual((yield* claimActivity(1)).attemptCount, 2)
    yield* wait(4)
  }),

  // -- as after a claim ----------------------------------------------------------------------------

  its_lock_expires: Effect.gen(function*() {
    const handOver = { lockTimeout: yield* lockTimeout() }
    const [held] = yield* receives(yield* advances("i", yield* working("i"), next(handOver, {})), [4], handOver)
    yield* expectNoWork()
    yield* elapseLockTimeout
    const { attemptCount } = yield* claimActivity(4)
    assert.strictEqual(attemptCount, 2)
    yield* fails(ackWork(held!.lockToken, activityCompleted("i", 4)), /Invalid lock token/)
  }),

  its_lock_is_renewed: Effect.gen(function*() {
    const handOver = { lockTimeout: yield* lockTimeout() }
    const [held] = yield* receives(yield* advances("i", yield* working("i"), next(handOver, {})), [4], handOver)
    yield* renewWork(held!.lockToken, yield* lockTimeout(5))
    yield* elapse(yield* lockTimeout(1.5))
    yield* expectNoWork()
    yield* ackWork(held!.lockToken)
  }),

  it_is_given_back: Effect.gen(function*() {
    const [held] = yield* receives(yield* advances("i", yield* working("i"), next({}, {})), [4])
    yield* abandonWork(held!.lockToken, { ignoreAttempt: true })
    assert.strictEqual((yield* claimActivity(4)).attemptCount, 1)
  })
})
