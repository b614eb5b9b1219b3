/**
 * First turns, stored together with the start of their instance: only where nothing is stored under its id.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as WorkItem from "../../model/WorkItem.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  ack,
  activityItem,
  activityScheduled,
  childStartItem,
  claimActivity,
  claimInstance,
  completed,
  continueAsNewItem,
  create,
  customStatus,
  elapse,
  elapseLockTimeout,
  enqueueStart,
  expectGone,
  expectInstances,
  expectNoOrchestration,
  expectNoWork,
  externalRaised,
  lockTimeout,
  named,
  poke,
  send,
  Settings,
  stamp,
  started,
  startItem,
  timerFired,
  topic,
  valueSet
} from "./harness.ts"
import { begin, begins, beginsNot, seen } from "./unclaimed.ts"
import type { Begin } from "./unclaimed.ts"

/** Waits for activity 2. */
const first: Begin = {
  events: [started(), activityScheduled(2)],
  workers: [activityItem("i", 2)],
  metadata: named()
}

/** Ends at once. */
const only: Begin = {
  events: [started(), completed(2)],
  metadata: named({ status: "Completed", output: "done" })
}

const history = (instance: string) => Effect.flatMap(Provider, (provider) => provider.read(instance))

/** The start was stored without its first turn: a claim delivers it, with these messages behind it. */
const waitsWith = (...messages: ReadonlyArray<WorkItem.WorkItem>) =>
  Effect.gen(function*() {
    assert.lengthOf(yield* history("i"), 0)
    yield* expectNoWork()
    const { item } = yield* claimInstance("i")
    assert.sameDeepMembers([...item.messages], [startItem("i"), ...messages])
  })

export const firstTurns = topic("first_turns", {
  a_start_and_its_first_turn_are_stored_together: Effect.gen(function*() {
    yield* begins("i", first)
    const provider = yield* Provider
    const state = Option.getOrThrow(yield* provider.readInstance("i"))
    assert.strictEqual(state.status, "Running")
    assert.strictEqual(state.orchestrationVersion, "1.0.0")
    assert.lengthOf(yield* history("i"), 2)
    yield* expectNoOrchestration()
    yield* claimActivity(2)
    yield* expectNoWork()
  }),

  readers_see_the_same_as_after_an_ack: Effect.gen(function*() {
    const { onFreshProvider } = yield* Settings
    const story = (store: typeof begins) =>
      Effect.gen(function*() {
        yield* create("clock")
        yield* store("j", { ...only, events: [...only.events!, valueSet(3, "k", "v")] })
        yield* store("i", {
          events: [started(), customStatus(2, "half"), valueSet(3, "k", "v"), activityScheduled(4)],
          workers: [activityItem("i", 4)],
          items: [childStartItem("child", "i"), timerFired("i", 5, (yield* Clock.currentTimeMillis) + 3_600_000)],
          metadata: named({ pinnedVersion: { major: 1, minor: 2, patch: 3 } }),
          pinsStartsTo: "1.0.0"
        })
        return [yield* seen("i"), yield* seen("j"), yield* seen("child")]
      })
    const afterClaims: typeof begins = (instance, turn) =>
      Effect.gen(function*() {
        const pinnedVersion = { major: 1, minor: 0, patch: 0 }
        const provider = yield* Provider
        yield* provider.startOrchestration({ start: startItem(instance), pinnedVersion, delay: Option.none() })
        yield* ack(yield* claimInstance(instance), turn)
        return []
      })
    assert.deepStrictEqual(yield* story(begins), yield* onFreshProvider(story(afterClaims)))
  }),

  an_instance_ends_with_its_first_turn: Effect.gen(function*() {
    yield* begins("i", only)
    const state = Option.getOrThrow(yield* (yield* Provider).readInstance("i"))
    assert.strictEqual(state.status, "Completed")
    assert.strictEqual(state.output, "done")
    yield* expectNoOrchestration()
  }),

  the_next_message_finds_the_instance_free: Effect.gen(function*() {
    yield* begins("i", first)
    yield* poke("i")
    const { attemptCount, item } = yield* claimInstance("i")
    assert.strictEqual(attemptCount, 1)
    assert.lengthOf(item.history, 2)
    assert.deepStrictEqual(item.messages, [externalRaised("i")])
  }),

  it_continues_as_new: Effect.gen(function*() {
    yield* begins("i", {
      events: [started()],
      items: [continueAsNewItem("i")],
      metadata: named({ status: "ContinuedAsNew", output: "{}" })
    })
    const { item } = yield* claimInstance("i")
    assert.deepStrictEqual(item.messages, [continueAsNewItem("i")])
  }),

  its_children_are_created: Effect.gen(function*() {
    yield* begins("i", {
      events: [started()],
      items: [childStartItem("child", "i")],
      metadata: named(),
      pinsStartsTo: "1.0.0"
    })
    yield* expectInstances("child")
    yield* claimInstance("child")
  }),

  its_version_range_holds_for_later_claims: Effect.gen(function*() {
    yield* begins("i", { ...first, pinned: "3.0.0" })
    yield* poke("i")
    yield* expectNoOrchestration({ versions: ["1.0.0", "2.9.9"] })
    yield* claimInstance("i", { versions: ["3.0.0", "3.0.0"] })
  }),

  // -- something is stored under its id ------------------------------------------------------------------

  a_taken_id: Effect.gen(function*() {
    yield* create("i")
    const before = yield* seen("i")
    yield* beginsNot("i", first, "AlreadyExists")
    assert.deepStrictEqual(yield* seen("i"), before)
    yield* expectNoOrchestration()
    yield* expectNoWork()
  }),

  a_start_that_waits: Effect.gen(function*() {
    yield* create("clock")
    yield* enqueueStart("i")
    yield* beginsNot("i", first, "AlreadyExists")
    yield* expectNoWork()
  }),

  a_message_that_waits_for_its_start: Effect.gen(function*() {
    yield* poke("i")
    yield* beginsNot("i", first, "Started")
    yield* waitsWith(externalRaised("i"))
  }),

  a_message_that_is_not_due: Effect.gen(function*() {
    yield* send(externalRaised("i"), "1 hour")
    yield* beginsNot("i", first, "Started")
    yield* waitsWith()
  }),

  events_that_a_tool_has_added: Effect.gen(function*() {
    const provider = yield* Provider
    yield* provider.appendWithExecution("i", 1, [stamp("i", 1, completed(9))])
    yield* beginsNot("i", first, "Started")
    yield* expectNoWork()
    assert.deepStrictEqual((yield* claimInstance("i")).item.messages, [startItem("i")])
  }),

  an_event_id_given_twice: Effect.gen(function*() {
    yield* beginsNot("i", { ...first, events: [started(), activityScheduled(1)] }, "Started")
    yield* waitsWith()
  }),

  a_turn_that_cannot_be_stored: Effect.gen(function*() {
    yield* beginsNot("i", { ...first, metadata: named({ output: "\u0000" }) }, "Started")
    yield* waitsWith()
  }),

  a_start_with_a_delay_begins_when_it_is_due: Effect.gen(function*() {
    const outcome = yield* begin("i", { ...first, delay: yield* lockTimeout() })
    assert.deepStrictEqual(outcome, { answers: ["Started"], settled: [] })
    yield* expectNoOrchestration()
    yield* elapseLockTimeout
    yield* waitsWith()
  }),

  // -- at the same time ----------------------------------------------------------------------------

  of_two_starts_of_an_id_one_begins: Effect.gen(function*() {
    const { optimisticTurns } = yield* Settings
    const { answers, settled } = yield* begin("i", first, 3)
    assert.lengthOf(answers.filter((answer) => answer === "Started"), 1)
    assert.lengthOf(settled.filter(Option.isSome), optimisticTurns ? 1 : 0)
    assert.lengthOf(yield* history("i"), optimisticTurns ? 2 : 0)
    if (optimisticTurns) yield* claimActivity(2)
    yield* expectNoWork()
  }),

  the_time_of_a_first_turn_is_that_of_the_store: Effect.gen(function*() {
    const { optimisticTurns } = yield* Settings
    const provider = yield* Provider
    assert.isUndefined(provider.storeNowMs())
    yield* create("clock")
    const before = provider.storeNowMs()
    if (!optimisticTurns) return assert.isUndefined(before)
    assert(before !== undefined)
    assert.isBelow(Math.abs(before - (yield* Clock.currentTimeMillis)), 60_000)
    // A timer may end a millisecond early.
    yield* elapse(1_010)
    assert.isAtLeast(provider.storeNowMs()!, before + 1_000)
  }),

  a_deleted_id_may_begin_again: Effect.gen(function*() {
    yield* begins("i", only)
    yield* (yield* Admin).deleteInstance("i")
    yield* expectGone("i")
    yield* begins("i", only)
    assert.lengthOf(yield* history("i"), 2)
  })
})
