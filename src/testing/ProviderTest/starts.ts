/**
 * Starts of clients: for later, in sets, in place of an ended instance, and with a signal.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as WorkItem from "../../model/WorkItem.ts"
import { Provider } from "../../provider/Provider.ts"
import type { Start } from "../../provider/Provider.ts"
import * as bounds from "../../provider/shared/bounds.ts"
import {
  ack,
  claimInstance,
  complete,
  completed,
  continueAsNewItem,
  create,
  done,
  elapse,
  elapseUntil,
  expectNoOrchestration,
  fails,
  listed,
  named,
  send,
  stamp,
  started,
  startItem,
  topic,
  turn,
  version
} from "./harness.ts"

const startOf = (instance: string, more: Partial<Start> = {}): Start => ({
  start: startItem(instance),
  pinnedVersion: version("1.0.0"),
  delay: Option.none(),
  ...more
})

const start = (instance: string, more?: Partial<Start>) =>
  Effect.flatMap(Provider, (provider) => provider.startOrchestration(startOf(instance, more)))

const startAll = (...starts: ReadonlyArray<Start>) =>
  Effect.flatMap(Provider, (provider) => provider.startOrchestrations(starts))

const signalTo = (instance: string, name: string): WorkItem.Of<"QueueMessage"> => ({
  _tag: "QueueMessage",
  instance,
  name,
  data: "null"
})

/** The names of the signals of the next batch. */
const namesOf = (messages: ReadonlyArray<WorkItem.WorkItem>) =>
  messages.flatMap((message) => message._tag === "QueueMessage" ? message.name : [])

const startsAt = (instance: string) =>
  Effect.flatMap(
    Provider,
    (provider) => Effect.map(provider.readInstance(instance), (state) => Option.getOrThrow(state).startsAtMs)
  )

const failed = { status: "Failed", output: "it failed" } as const

export const starts = topic("starts", {
  a_start_at_a_time_takes_its_id_and_its_instance_says_when_it_begins: Effect.gen(function*() {
    const atMs = (yield* Clock.currentTimeMillis) + 60_000
    assert.strictEqual(yield* start("i", { startAtMs: atMs }), "Started")
    assert.strictEqual(yield* startsAt("i"), atMs)
    assert.strictEqual(yield* start("i"), "AlreadyExists")
    yield* expectNoOrchestration()
  }),

  a_start_at_a_time_begins_then: Effect.gen(function*() {
    const atMs = (yield* Clock.currentTimeMillis) + 300
    yield* start("i", { startAtMs: atMs })
    yield* elapseUntil(atMs)
    yield* claimInstance("i")
    assert.isNull(yield* startsAt("i"))
  }),

  a_start_at_a_time_in_the_past_begins_at_once: Effect.gen(function*() {
    assert.strictEqual(yield* start("i", { startAtMs: 1_000 }), "Started")
    assert.isNull(yield* startsAt("i"))
    yield* claimInstance("i")
  }),

  a_start_has_a_time_or_a_delay: fails(
    start("i", { startAtMs: 1_000, delay: Option.some(Duration.seconds(1)) }),
    /startAtMs/
  ),

  a_set_answers_for_each_start_in_order: Effect.gen(function*() {
    yield* create("b")
    const atMs = (yield* Clock.currentTimeMillis) + 60_000
    const outcomes = yield* startAll(startOf("c"), startOf("b"), startOf("a", { startAtMs: atMs }), startOf("c"))
    assert.deepStrictEqual(outcomes, ["Started", "AlreadyExists", "Started", "AlreadyExists"])
    assert.strictEqual(yield* startsAt("a"), atMs)
    yield* claimInstance("c")
    yield* expectNoOrchestration()
    assert.deepStrictEqual(yield* startAll(), [])
  }),

  bad_input_of_one_start_refuses_the_set: Effect.gen(function*() {
    yield* fails(startAll(startOf("a"), startOf("b\u0000")), /instance/)
    yield* fails(startAll(startOf("a"), startOf("b", { message: signalTo("b", "Go") })), /message/)
    assert.deepStrictEqual(yield* listed(), [])
  }),

  an_ended_instance_is_replaced_with_its_descendants: Effect.gen(function*() {
    const provider = yield* Provider
    yield* done("i")
    yield* done("child", "i")
    yield* done("grandchild", "child")
    yield* done("other")
    assert.strictEqual(yield* start("i"), "AlreadyExists")
    assert.strictEqual(yield* start("i", { replaces: "Failed" }), "AlreadyExists")
    assert.strictEqual(yield* start("i", { replaces: "Ended" }), "Started")
    assert.deepStrictEqual([...yield* listed()].sort(), ["i", "other"])
    assert.deepStrictEqual(yield* provider.read("i"), [])
    const claimed = yield* claimInstance("i")
    assert.deepStrictEqual(claimed.item.history, [])
    yield* ack(claimed, { events: [started()], metadata: named() })
  }),

  only_a_failed_instance_is_replaced_where_asked: Effect.gen(function*() {
    yield* create("i")
    yield* turn("i", { metadata: named(failed) })
    assert.strictEqual(yield* start("i", { replaces: "Failed" }), "Started")
    yield* claimInstance("i")
  }),

  an_instance_that_runs_is_not_replaced_nor_one_with_such_a_descendant: Effect.gen(function*() {
    yield* create("i")
    assert.strictEqual(yield* start("i", { replaces: "Ended" }), "AlreadyExists")
    yield* complete("i")
    yield* create("child", { parentInstanceId: "i" })
    assert.strictEqual(yield* start("i", { replaces: "Ended" }), "AlreadyExists")
    yield* complete("child")
    assert.strictEqual(yield* start("child", { replaces: "Ended" }), "AlreadyExists")
    assert.strictEqual(yield* start("i", { replaces: "Ended" }), "Started")
    assert.deepStrictEqual(yield* listed(), ["i"])
  }),

  an_instance_whose_next_execution_nothing_begins_is_replaced: Effect.gen(function*() {
    yield* create("i")
    yield* turn("i", { metadata: named({ status: "ContinuedAsNew" }) })
    yield* send(continueAsNewItem("i"))
    assert.strictEqual(yield* start("i", { replaces: "Ended" }), "AlreadyExists")
    yield* ack(yield* claimInstance("i"))
    assert.strictEqual(yield* start("i", { replaces: "Failed" }), "AlreadyExists")
    assert.strictEqual(yield* start("i", { replaces: "Ended" }), "Started")
    assert.deepStrictEqual((yield* claimInstance("i")).item.history, [])
  }),

  a_set_replaces_and_starts_together: Effect.gen(function*() {
    yield* done("b")
    yield* create("c")
    const replaces = "Ended"
    assert.deepStrictEqual(
      yield* startAll(startOf("c", { replaces }), startOf("b", { replaces }), startOf("a", { replaces })),
      ["AlreadyExists", "Started", "Started"]
    )
  }),

  a_signal_comes_with_the_start_behind_it: Effect.gen(function*() {
    assert.strictEqual(yield* start("i", { message: signalTo("i", "First") }), "Started")
    assert.strictEqual(yield* start("i", { message: signalTo("i", "Second") }), "AlreadyExists")
    const { item } = yield* claimInstance("i")
    assert.strictEqual(item.messages[0]?._tag, "StartOrchestration")
    assert.deepStrictEqual(namesOf(item.messages), ["First", "Second"])
  }),

  a_signal_waits_with_a_start_that_waits: Effect.gen(function*() {
    const atMs = (yield* Clock.currentTimeMillis) + 300
    yield* start("i", { startAtMs: atMs, message: signalTo("i", "Go") })
    yield* elapseUntil(atMs)
    yield* elapse(20)
    assert.deepStrictEqual(namesOf((yield* claimInstance("i")).item.messages), ["Go"])
  }),

  a_signal_of_a_start_reaches_a_running_instance_and_not_an_ended_one: Effect.gen(function*() {
    yield* create("i")
    assert.strictEqual(yield* start("i", { message: signalTo("i", "Go") }), "AlreadyExists")
    const claimed = yield* claimInstance("i")
    assert.deepStrictEqual(namesOf(claimed.item.messages), ["Go"])
    yield* ack(claimed, { metadata: named({ status: "Completed", output: "1" }) })
    assert.strictEqual(yield* start("i", { message: signalTo("i", "Go") }), "Ended")
    yield* expectNoOrchestration()
    assert.strictEqual(yield* start("i", { replaces: "Ended", message: signalTo("i", "Go") }), "Started")
    assert.deepStrictEqual(namesOf((yield* claimInstance("i")).item.messages), ["Go"])
  }),

  a_signal_of_a_start_is_for_its_instance: fails(start("i", { message: signalTo("j", "Go") }), /another instance/),

  an_instance_that_is_full_takes_no_signal_of_a_start: Effect.gen(function*() {
    const provider = yield* Provider
    yield* create("i")
    yield* provider.appendWithExecution("i", 1, [stamp("i", 1, completed(bounds.mostEvents))])
    yield* fails(start("i", { message: signalTo("i", "Go") }), /full|messages|events/)
    yield* expectNoOrchestration()
  })
})
