/**
 * Executions of one instance: histories of their own, numbered by the turns that write them.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Event from "../../model/Event.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import type { HistoryEnd } from "../../provider/Provider.ts"
import {
  ack,
  activityScheduled,
  claimInstance,
  claimOrchestration,
  completed,
  continueAsNewItem,
  create,
  enqueueStart,
  fetchOrchestration,
  multi,
  named,
  poke,
  send,
  started,
  topic,
  turn
} from "./harness.ts"
import type { Ack } from "./harness.ts"

const tags = (events: ReadonlyArray<Event.Event>) => events.map(({ _tag }) => _tag)
const names = (events: ReadonlyArray<Event.Event>) =>
  events.map((event) => event._tag === "ActivityScheduled" ? event.name : event._tag)

/** A start for execution `executionId`, and its turn. */
const startTurn = (executionId: number, parts: Ack) =>
  Effect.gen(function*() {
    yield* enqueueStart("i", { executionId })
    yield* ack(yield* claimInstance("i"), { executionId, ...parts })
  })

export const multiExecution = topic("multi_execution", {
  test_execution_isolation: Effect.gen(function*() {
    const provider = yield* Provider
    yield* startTurn(1, { events: [started(), activityScheduled(2), completed(3)] })
    yield* startTurn(2, { events: [started(), completed(2)] })
    const first = ["OrchestrationStarted", "ActivityScheduled", "OrchestrationCompleted"]
    const second = ["OrchestrationStarted", "OrchestrationCompleted"]
    assert.deepStrictEqual(tags(yield* provider.readWithExecution("i", 1)), first)
    assert.deepStrictEqual(tags(yield* provider.readWithExecution("i", 2)), second)
    const newest = yield* provider.read("i")
    assert.deepStrictEqual(tags(newest), second)
    assert.isTrue(newest.every(({ executionId }) => executionId === 2))
  }),

  test_latest_execution_detection: Effect.gen(function*() {
    const provider = yield* Provider
    yield* startTurn(1, { events: [activityScheduled(1, "A")] })
    yield* startTurn(2, { events: [activityScheduled(1, "B")] })
    assert.deepStrictEqual(names(yield* provider.read("i")), ["B"])
    assert.deepStrictEqual(names(yield* provider.readWithExecution("i", 1)), ["A"])
  }),

  test_execution_id_sequencing: Effect.gen(function*() {
    yield* enqueueStart("i", { executionId: 1 })
    const first = yield* claimOrchestration()
    assert.strictEqual(first.item.executionId, 1)
    yield* ack(first, { executionId: 1, events: [started()], metadata: named() })
    yield* startTurn(2, { events: [started()], metadata: named() })
    yield* enqueueStart("i", { executionId: 3 })
    assert.strictEqual((yield* claimOrchestration()).item.executionId, 2)
  }),

  test_continue_as_new_creates_new_execution: Effect.gen(function*() {
    const provider = yield* Provider
    yield* startTurn(1, { events: [started()] })
    yield* send(continueAsNewItem("i", { input: "new-input" }))
    yield* ack(yield* claimInstance("i"), { executionId: 2, events: [started({ input: "new-input" })] })
    const more = yield* fetchOrchestration()
    if (Option.isSome(more)) assert.strictEqual(more.value.item.executionId, 2)
    assert.lengthOf(yield* provider.readWithExecution("i", 2), 1)
  }),

  test_execution_history_persistence: Effect.gen(function*() {
    const provider = yield* Provider
    for (const execution of [1, 2, 3]) {
      yield* startTurn(execution, { events: [activityScheduled(1, `Activity-${execution}`)] })
    }
    for (const execution of [1, 2, 3]) {
      assert.deepStrictEqual(names(yield* provider.readWithExecution("i", execution)), [`Activity-${execution}`])
    }
    assert.deepStrictEqual(names(yield* provider.read("i")), ["Activity-3"])
  }),

  // -- ours ------------------------------------------------------------------------------------

  the_newest_execution_is_never_left: Effect.gen(function*() {
    const admin = yield* Admin
    yield* multi("i", 3)
    yield* turn("i", { executionId: 1, metadata: named() })
    assert.strictEqual(yield* admin.latestExecutionId("i"), 3)
  }),

  continued_executions_have_an_end_time: Effect.gen(function*() {
    const admin = yield* Admin
    yield* create("i")
    yield* turn("i", { executionId: 1, metadata: named({ status: "ContinuedAsNew", output: "next" }) })
    const info = yield* admin.getExecutionInfo("i", 1)
    assert.deepStrictEqual([info.status, info.output], ["ContinuedAsNew", "next"])
    assert.isNotNull(info.completedAtMs)
    // Until its message is claimed the instance is still in its old execution.
    yield* send(continueAsNewItem("i"))
    assert.strictEqual((yield* claimInstance("i")).item.executionId, 1)
  }),

  a_known_history_is_left_out_of_any_length: Effect.gen(function*() {
    for (const events of [2, 300]) {
      const instance = `i${events}`
      const history = [started(), ...Array.from({ length: events - 1 }, (_, i) => activityScheduled(i + 2))]
      yield* enqueueStart(instance)
      // An instance without a history has none that a caller could know.
      const first = yield* claimInstance(instance, { isKnown: () => true })
      assert.isFalse(first.item.isKnownHistory)
      yield* ack(first, { events: history, metadata: named() })
      const claimAgain = (isKnown: (end: HistoryEnd) => boolean) =>
        Effect.gen(function*() {
          yield* poke(instance)
          const { item, lockToken } = yield* claimInstance(instance, { isKnown })
          yield* (yield* Provider).dropOrchestrationItem(lockToken)
          return item
        })
      const ends: Array<HistoryEnd> = []
      const unknown = yield* claimAgain((end) => {
        ends.push(end)
        return false
      })
      assert.strictEqual(unknown.history.length, events)
      assert.isFalse(unknown.isKnownHistory)
      assert.deepStrictEqual(ends, [{
        instanceId: instance,
        executionId: 1,
        lastEvent: Event.encode(unknown.history.at(-1)!)
      }])
      const known = yield* claimAgain(() => true)
      assert.deepStrictEqual(known.history, [])
      assert.isTrue(known.isKnownHistory)
      assert.isTrue(Option.isNone(known.historyError))
    }
  })
})
