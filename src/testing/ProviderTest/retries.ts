/**
 * Retries: what an instance that has failed, or is blocked, has when it runs again.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as ErrorDetails from "../../model/ErrorDetails.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  abandon,
  ack,
  activityItem,
  activityScheduled,
  claimInstance,
  continueAsNewItem,
  create,
  customStatus,
  enqueueStart,
  expectNoOrchestration,
  expectNoWork,
  fails,
  named,
  poke,
  send,
  started,
  topic,
  turn,
  valueCleared,
  valuesCleared,
  valueSet
} from "./harness.ts"
import type { EventInput } from "./harness.ts"

const details = ErrorDetails.application("ActivityFailed", "\"no\"")
const answer = (eventId: number, of: number): EventInput => ({
  _tag: "ActivityFailed",
  eventId,
  sourceEventId: of,
  details
})
const mail = (eventId: number, data: string): EventInput => ({
  _tag: "ExternalEventPersistent",
  eventId,
  name: "Notes",
  data
})
const failed = (eventId: number): EventInput => ({ _tag: "OrchestrationFailed", eventId, details })

/** The turn in which the instance fails, with values set before and in it. */
const end = (executionId: number, firstId: number) => ({
  executionId,
  events: [
    mail(firstId, "one"),
    answer(firstId + 1, firstId - 1),
    mail(firstId + 2, "two"),
    valueSet(firstId + 3, "k", "late"),
    failed(firstId + 4)
  ],
  metadata: named({ status: "Failed", output: "no" })
})

const values = (instanceId: string) =>
  Effect.flatMap(
    Provider,
    (provider) => Effect.map(provider.getKvAllValues(instanceId), (all) => [...all].toSorted(byKey))
  )

const byKey = ([a]: ReadonlyArray<string>, [b]: ReadonlyArray<string>) => a! < b! ? -1 : 1

const claimed = Effect.fnUntraced(function*(instanceId: string) {
  const { item } = yield* claimInstance(instanceId)
  return {
    history: item.history.map(({ eventId }) => eventId),
    messages: item.messages.map((message) => message._tag === "QueueMessage" ? message.data : message._tag),
    stored: [...item.keyValues].map(([key, { value }]) => [key, value])
  }
})

export const retries = topic("retries", {
  failed_instance_runs_again_from_its_last_good_event: Effect.gen(function*() {
    const { retry } = yield* Admin
    const { readInstance } = yield* Provider
    yield* create("i")
    yield* turn("i", {
      executionId: 1,
      events: [valueSet(2, "k", "early"), customStatus(3, "working"), activityScheduled(4)]
    })
    yield* turn("i", end(1, 5))
    assert.deepStrictEqual(yield* values("i"), [["k", "late"]])
    // Its first bad answer is event 6: the mail before it stays.
    // Its plan, then the retry.
    for (const dryRun of [true, false]) {
      const { instances } = yield* retry("i", { reason: "the bank is back", dryRun })
      assert.deepStrictEqual(instances, [
        {
          instanceId: "i",
          from: 5,
          removed: [6, 9],
          again: [{ name: "TestActivity", eventId: 4 }],
          forgotten: [],
          tasks: []
        }
      ])
    }
    const state = Option.getOrThrow(yield* readInstance("i"))
    assert.deepInclude(state, { status: "Running", output: null, failure: null, customStatus: "working", block: null })
    assert.deepStrictEqual(yield* values("i"), [["k", "early"]])
    yield* poke("i")
    assert.deepStrictEqual(yield* claimed("i"), {
      history: [1, 2, 3, 4, 5, 10],
      messages: [`{"again":[4]}`, "two", "ExternalRaised"],
      stored: []
    })
  }),

  a_fork_continues_from_an_event_beside_its_source: Effect.gen(function*() {
    const { fork, readHistoryWithExecutionId } = yield* Admin
    const { readInstance } = yield* Provider
    yield* create("i")
    yield* turn("i", {
      executionId: 1,
      events: [valueSet(2, "k", "first")],
      metadata: named({ status: "ContinuedAsNew" })
    })
    yield* send(continueAsNewItem("i"))
    yield* ack(yield* claimInstance("i"), { executionId: 2, events: [started()], metadata: named() })
    yield* turn("i", {
      executionId: 2,
      events: [valueSet(2, "k", "second"), customStatus(3, "working"), activityScheduled(4)]
    })
    yield* turn("i", end(2, 5))
    const source = yield* readHistoryWithExecutionId("i", 2)
    const before = yield* readInstance("i")
    yield* fork("i", { atEvent: 4, newId: "f" })
    assert.deepStrictEqual(yield* readInstance("i"), before)
    assert.deepStrictEqual(yield* readHistoryWithExecutionId("i", 2), source)
    const state = Option.getOrThrow(yield* readInstance("f"))
    assert.deepInclude(state, { status: "Running", executionId: 2, customStatus: "working", parentInstanceId: null })
    assert.deepStrictEqual(yield* values("f"), [["k", "second"]])
    assert.deepStrictEqual(yield* claimed("f"), {
      // Behind the copies stands the marker of the fork.
      history: [1, 2, 3, 4, 5],
      messages: [`{"again":[4],"isFork":true}`],
      stored: [["k", "first"]]
    })
    for (const taken of ["f", "i"]) yield* fails(fork("i", { atEvent: 4, newId: taken }), /is taken/)
    yield* enqueueStart("queued")
    yield* fails(fork("i", { atEvent: 4, newId: "queued" }), /is taken/)
  }),

  values_of_earlier_executions_come_back: Effect.gen(function*() {
    const { pruneExecutions, retry } = yield* Admin
    yield* create("i")
    yield* turn("i", {
      executionId: 1,
      events: [valueSet(2, "k", "first"), valueSet(3, "gone", "x"), valueSet(4, "kept", "y")],
      metadata: named({ status: "ContinuedAsNew" })
    })
    const begins = Effect.fnUntraced(function*(executionId: number) {
      yield* send(continueAsNewItem("i"))
      yield* ack(yield* claimInstance("i"), { executionId, events: [started()], metadata: named() })
    })
    yield* begins(2)
    yield* turn("i", {
      executionId: 2,
      events: [valueSet(2, "k", "second"), valueCleared(3, "gone"), activityScheduled(4)]
    })
    yield* turn("i", end(2, 5))
    assert.deepStrictEqual(yield* values("i"), [["k", "late"], ["kept", "y"]])
    yield* retry("i", { from: 2 })
    assert.deepStrictEqual(yield* values("i"), [["gone", "x"], ["k", "second"], ["kept", "y"]])
    assert.deepStrictEqual((yield* claimed("i")).stored.toSorted(byKey), [["gone", "x"], ["k", "first"], ["kept", "y"]])

    yield* create("cleared")
    yield* turn("cleared", { executionId: 1, events: [valueSet(2, "k", "v"), valuesCleared(3), activityScheduled(4)] })
    yield* turn("cleared", end(1, 5))
    yield* retry("cleared")
    assert.deepStrictEqual(yield* values("cleared"), [])
    assert.deepStrictEqual((yield* claimed("cleared")).history, [1, 2, 3, 4, 5, 10])

    yield* create("pruned")
    yield* turn("pruned", { executionId: 1, metadata: named({ status: "ContinuedAsNew" }) })
    yield* send(continueAsNewItem("pruned"))
    yield* ack(yield* claimInstance("pruned"), {
      executionId: 2,
      events: [started(), valueSet(2, "k", "v"), failed(3)],
      metadata: named({ status: "Failed", output: "no" })
    })
    yield* pruneExecutions("pruned", { keepLast: 1 })
    yield* fails(retry("pruned"), /execution 1 is not stored/)
    assert.deepStrictEqual(yield* values("pruned"), [["k", "v"]])
  }),

  blocked_instance_runs_again_from_an_earlier_event: Effect.gen(function*() {
    const { retry } = yield* Admin
    const { readInstance } = yield* Provider
    yield* create("i")
    yield* turn("i", { executionId: 1, events: [activityScheduled(2)], workers: [activityItem("i", 2)] })
    yield* poke("i", "waits")
    yield* abandon((yield* claimInstance("i")).lockToken, {
      delay: "1 hour",
      ignoreAttempt: true,
      block: { reason: "HistoryDiffers", problem: "event 2 differs", eventId: 2, build: "new" }
    })
    yield* expectNoOrchestration()
    yield* retry("i", { from: 1 })
    assert.isNull(Option.getOrThrow(yield* readInstance("i")).block)
    // The activity that was removed from the history is removed from its queue.
    yield* expectNoWork()
    assert.deepStrictEqual(yield* claimed("i"), {
      history: [1, 3],
      messages: [`{"again":[]}`, "ExternalRaised"],
      stored: []
    })
  }),

  poison_instance_keeps_all_its_turns: Effect.gen(function*() {
    const { retry } = yield* Admin
    yield* create("i")
    yield* turn("i", { executionId: 1, events: [activityScheduled(2), activityScheduled(3)] })
    yield* turn("i", {
      executionId: 1,
      events: [{ _tag: "ActivityCompleted", eventId: 4, sourceEventId: 2, result: "1" }, valueSet(5, "k", "v")]
    })
    yield* turn("i", {
      executionId: 1,
      events: [{
        _tag: "OrchestrationFailed",
        eventId: 6,
        details: {
          _tag: "Poison",
          attemptCount: 10,
          maxAttempts: 10,
          messageType: { Orchestration: { instance: "i", execution_id: 1 } },
          message: "it died"
        }
      }],
      metadata: named({ status: "Failed", output: "poison" })
    })
    yield* retry("i")
    const again = yield* claimed("i")
    assert.deepStrictEqual(again, { history: [1, 2, 3, 4, 5, 7], messages: [`{"again":[3]}`], stored: [] })
  }),

  running_instance_is_not_retried: Effect.gen(function*() {
    const { retry } = yield* Admin
    yield* create("i")
    yield* poke("i")
    yield* claimInstance("i")
    yield* fails(retry("i"), /it runs/)
    yield* fails(retry("unknown"), /not found/)
    yield* create("own")
    yield* turn("own", { executionId: 1, events: [failed(2)], metadata: named({ status: "Failed", output: "no" }) })
    yield* fails(retry("own", { from: 2 }), /the event must be one from 1 to 1/)
  })
})
