/**
 * Which inputs a provider refuses, and which it must accept.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Provider } from "../../provider/Provider.ts"
import {
  ack,
  activityCompleted,
  activityItem,
  activityScheduled,
  Backdoor,
  beginFirst,
  cancelItem,
  claimInstance,
  claimOrchestration,
  claimWork,
  create,
  elapse,
  elapseLockTimeout,
  enqueueActivity,
  enqueueStart,
  expectNoOrchestration,
  expectNoWork,
  externalRaised,
  fails,
  lockTimeout,
  poke,
  send,
  stamp,
  started,
  topic
} from "./harness.ts"

const garbage = `{"garbage": true}`

export const errorHandling = topic("error_handling", {
  test_invalid_lock_token_on_ack: fails(
    ack({ lockToken: "invalid-token", item: { instanceId: "i", executionId: 1 } }),
    /Invalid lock token|lock_token/
  ),

  test_duplicate_event_id_rejection: Effect.gen(function*() {
    const provider = yield* Provider
    yield* enqueueStart("i")
    yield* ack(yield* claimOrchestration(), { events: [started()] })
    yield* enqueueStart("i")
    yield* fails(ack(yield* claimOrchestration(), { events: [activityScheduled(1)] }))
    assert.deepStrictEqual((yield* provider.read("i")).map(({ _tag }) => _tag), ["OrchestrationStarted"])
  }),

  test_missing_instance_metadata: Effect.gen(function*() {
    const provider = yield* Provider
    assert.deepStrictEqual(yield* provider.read("unknown"), [])
  }),

  test_corrupted_serialization_data: expectNoOrchestration(),

  test_lock_expiration_during_ack: Effect.gen(function*() {
    const provider = yield* Provider
    yield* enqueueStart("i")
    const claimed = yield* claimInstance("i", { lockTimeout: yield* lockTimeout() })
    yield* elapseLockTimeout
    yield* fails(ack(claimed, { events: [started()] }), /Invalid lock token/)
    assert.deepStrictEqual(yield* provider.read("i"), [])
  }),

  test_read_corrupted_history_returns_error: Effect.gen(function*() {
    const provider = yield* Provider
    yield* create("i")
    assert.isNotEmpty(yield* provider.read("i"))
    yield* (yield* Backdoor).corruptInstanceHistory("i", garbage)
    yield* fails(provider.read("i"))
  }),

  test_read_with_execution_corrupted_history_returns_error: Effect.gen(function*() {
    const provider = yield* Provider
    yield* create("i")
    assert.isNotEmpty(yield* provider.readWithExecution("i", 1))
    yield* (yield* Backdoor).corruptInstanceHistory("i", garbage)
    yield* fails(provider.readWithExecution("i", 1))
  }),

  // -- ours ------------------------------------------------------------------------------------

  unreadable_history_is_delivered_as_error: Effect.gen(function*() {
    // Not an event, not JSON, and JSON with a character that PostgreSQL's JSON types cannot hold.
    for (const [instance, text] of [["a", garbage], ["b", "no JSON"], ["c", `{"type":"\\u0000"}`]] as const) {
      yield* create(instance)
      yield* (yield* Backdoor).corruptInstanceHistory(instance, text)
      yield* poke(instance)
      const { attemptCount, item } = yield* claimInstance(instance)
      assert.isTrue(Option.isSome(item.historyError), `${text} read as history`)
      assert.deepStrictEqual([item.history, item.messages.length, attemptCount], [[], 1, 1])
    }
  }),

  unreadable_message_spares_its_neighbours: Effect.gen(function*() {
    const backdoor = yield* Backdoor
    yield* create("i")
    yield* create("other")
    yield* backdoor.insertMessage("i", "{broken")
    yield* poke("i")
    yield* poke("other")
    const claimed = yield* claimInstance("i")
    assert.deepStrictEqual(claimed.item.messages, [externalRaised("i")])
    yield* claimInstance("other")
    yield* ack(claimed)
    // Hidden for a while, never deleted, and not counted, because it is not at fault.
    assert.strictEqual(yield* backdoor.getMaxAttemptCount("i"), 0)
    yield* expectNoOrchestration()
    yield* poke("i")
    yield* claimInstance("i")
  }),

  unreadable_message_alone_is_not_delivered: Effect.gen(function*() {
    const backdoor = yield* Backdoor
    yield* create("i")
    yield* backdoor.insertMessage("i", `{"NoSuchMessage":{"instance":"i"}}`)
    yield* enqueueStart("other")
    yield* claimInstance("other")
    yield* expectNoOrchestration()
    assert.strictEqual(yield* backdoor.getMaxAttemptCount("i"), 0)
  }),

  unreadable_activity_is_passed_over: Effect.gen(function*() {
    yield* (yield* Backdoor).insertActivity("no JSON")
    yield* enqueueActivity("i", 1)
    const { item } = yield* claimWork()
    assert.deepStrictEqual(item, activityItem("i", 1))
    yield* expectNoWork()
  }),

  append_with_execution: Effect.gen(function*() {
    const provider = yield* Provider
    const events = [started(), activityScheduled(2)].map((event) => stamp("i", 1, event))
    yield* provider.appendWithExecution("i", 1, [])
    assert.deepStrictEqual(yield* provider.read("i"), [])
    yield* provider.appendWithExecution("i", 1, events)
    assert.deepStrictEqual(yield* provider.readWithExecution("i", 1), events)
    yield* fails(provider.appendWithExecution("i", 1, [stamp("i", 1, activityScheduled(3)), events[1]!]))
    yield* fails(provider.appendWithExecution("i", 1, [stamp("i", 1, activityScheduled(0))]))
    assert.deepStrictEqual(yield* provider.readWithExecution("i", 1), events)
  }),

  event_ids_start_at_one: Effect.gen(function*() {
    const provider = yield* Provider
    yield* enqueueStart("i")
    const claimed = yield* claimOrchestration()
    yield* fails(ack(claimed, { events: [activityScheduled(0)] }))
    yield* ack(claimed, { events: [started()] })
    assert.lengthOf(yield* provider.read("i"), 1)
  }),

  messages_stay_in_their_queue: Effect.gen(function*() {
    yield* fails(send(activityItem("i", 1)))
    yield* enqueueActivity("i", 1)
    const { lockToken } = yield* claimWork()
    // The types forbid this, but a caller without types may still try it.
    yield* fails(
      (yield* Provider).ackWorkItem(lockToken, Option.some(cancelItem("i") as unknown as ReturnType<typeof completion>))
    )
    yield* expectNoOrchestration()
  }),

  replayed_version_stamps_round_trip: Effect.gen(function*() {
    const provider = yield* Provider
    yield* enqueueStart("i")
    const event = started({ duroxideVersion: "0.1.30", timestampMs: 1_234_567_890_123 })
    yield* ack(yield* claimOrchestration(), { executionId: 1, events: [event] })
    const stored = [stamp("i", 1, event)]
    assert.deepStrictEqual(yield* provider.readWithExecution("i", 1), stored)
    yield* poke("i")
    assert.deepStrictEqual((yield* claimInstance("i")).item.history, stored)
  }),

  orphans_wait_for_their_start: Effect.gen(function*() {
    // A cancellation that arrives before its start waits for it. It does not block other messages, and is not lost.
    yield* send(cancelItem("late"))
    yield* enqueueStart("other")
    yield* claimInstance("other")
    yield* expectNoOrchestration()
    yield* enqueueStart("late")
    const { attemptCount, item } = yield* claimInstance("late")
    assert.deepStrictEqual(beginFirst(item.messages).map(({ _tag }) => _tag), ["StartOrchestration", "CancelInstance"])
    assert.strictEqual(attemptCount, 1)
  }),

  orphans_are_deleted_at_their_age: Effect.gen(function*() {
    const provider = yield* Provider
    yield* send(cancelItem("old"))
    yield* elapse("2 seconds")
    yield* send(cancelItem("young"))
    assert.strictEqual(yield* provider.sweepMessages({ maxAge: Duration.seconds(1) }), 1)
    yield* enqueueStart("old")
    assert.lengthOf((yield* claimInstance("old")).item.messages, 1)
    yield* enqueueStart("young")
    assert.lengthOf((yield* claimInstance("young")).item.messages, 2)
  })
})

const completion = () => activityCompleted("i", 1)
