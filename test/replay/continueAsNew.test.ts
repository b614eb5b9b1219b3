import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import * as Orchestration from "../../src/Orchestration.ts"
import { engine } from "../../src/replay/context.ts"
import { activity, continueAsNew, Instance, set, signal, take } from "./play.ts"

const A = activity("A")

/** What the last turn sends, in short. */
const sent = (instance: Instance) =>
  instance.last.turn.orchestratorItems.map((item) =>
    item._tag === "StartOrchestration"
      ? `start ${item.instance}`
      : item._tag === "CancelInstance"
      ? `cancel ${item.instance}: ${item.reason}`
      : item._tag
  )

const clear = (key: string) => Effect.flatMap(engine, ({ request }) => request({ _tag: "ClearKeyValue", key }))

describe("continue as new", () => {
  it("continue: open work closes with the execution, and requests of this turn are not sent", () => {
    const instance = new Instance(Effect.gen(function*() {
      yield* Effect.raceFirst(
        Effect.all([A(1), signal("S"), take("box"), Effect.sleep(50)], { concurrency: "unbounded" }),
        signal("Go")
      )
      yield* Effect.forkDetach(A(2), { startImmediately: true })
      return yield* continueAsNew(1)
    }))
    instance.turn()
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(instance.written, [
      "7 ExternalEvent",
      "8 ActivityScheduled",
      "9 ExternalSubscribedCancelled <3 orchestration_terminal",
      "10 ExternalSubscribedPersistentCancelled <4 orchestration_terminal",
      "11 OrchestrationContinuedAsNew",
      "12 ActivityCancelRequested <2 orchestration_terminal_continued_as_new",
      "13 ActivityCancelRequested <8 orchestration_terminal_continued_as_new"
    ])
    assert.deepStrictEqual(instance.last.turn.workerItems, [])
    assert.deepStrictEqual(instance.last.turn.metadata, { status: "ContinuedAsNew", output: "1" })
  })

  it("continue: the first call wins, and the code stops there", () => {
    let after = 0
    const instance = new Instance(
      Effect.all([
        Effect.andThen(continueAsNew(1), Effect.sync(() => after++)),
        Effect.andThen(A(1), Effect.sync(() => after++)),
        continueAsNew(2)
      ], { concurrency: "unbounded" })
    )
    instance.turn()
    assert.deepInclude(instance.outcome, { _tag: "ContinuedAsNew", input: "1" })
    assert.deepStrictEqual(instance.written, ["1 OrchestrationStarted", "2 OrchestrationContinuedAsNew"])
    assert.strictEqual(after, 0)
  })

  it("continue: loses to a cancellation", () => {
    const instance = new Instance(Effect.andThen(signal("Go"), continueAsNew(1)))
    instance.turn()
    instance.turn(instance.raised("Go"), instance.cancel("stop"))
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("stop"))
    assert.deepStrictEqual(sent(instance), [])
  })

  it("continue: unread messages are carried over in order of arrival, also those after the end", () => {
    const instance = new Instance(Effect.gen(function*() {
      const first = yield* Effect.raceFirst(take("b"), signal("Go"))
      return first === "second" ? yield* take("b") : yield* continueAsNew(first)
    }))
    instance.turn(instance.sent("a", 1))
    instance.turn(instance.raised("Go", "go"), instance.sent("b", 2), instance.sent("a", 3), instance.sent("b", 4))
    assert.deepStrictEqual(sent(instance), ["ContinueAsNew"])
    const next = instance.next().become(take("b"))
    next.turn(next.sent("b", 5))
    assert.deepStrictEqual(next.history[0], {
      ...next.history[0]!,
      carryForwardEvents: [["a", "1"], ["b", "2"], ["a", "3"], ["b", "4"]]
    } as never)
    assert.deepStrictEqual(next.written, [
      "1 OrchestrationStarted",
      "2 ExternalEventPersistent",
      "3 ExternalEventPersistent",
      "4 ExternalEventPersistent",
      "5 ExternalEventPersistent",
      "6 ExternalEventPersistent",
      "7 ExternalSubscribedPersistent",
      "8 OrchestrationCompleted"
    ])
    assert.strictEqual(next.output, 2)
  })

  it("continue: all unread messages are carried over, however many", () => {
    const many = Array.from({ length: 250 }, (_, index) => index)
    const instance = new Instance(Effect.andThen(signal("Go"), continueAsNew()))
    instance.turn()
    instance.turn(instance.raised("Go"), ...many.map((value) => instance.sent("box", value)))
    const next = instance.next().become(Effect.forEach(many, () => take("box")))
    next.turn()
    assert.deepStrictEqual(next.output, many)
  })

  it("continue: code that has stopped takes no message", () => {
    const programs = [
      Effect.all([Effect.andThen(signal("Go"), continueAsNew()), take("box")], { concurrency: "unbounded" }),
      Effect.all([Effect.andThen(signal("Go"), continueAsNew()), Effect.andThen(signal("Go"), take("box"))], {
        concurrency: "unbounded"
      }),
      Effect.andThen(signal("Go"), Effect.raceFirst(continueAsNew(), Effect.void))
    ]
    for (const program of programs) {
      const instance = new Instance(program)
      instance.turn()
      instance.turn(instance.raised("Go"), instance.raised("Go"), instance.sent("box", 1), instance.sent("box", 2))
      assert(instance.outcome._tag === "ContinuedAsNew")
      assert.deepStrictEqual(instance.outcome.carried.map(({ data, name }) => [name, data]), [["box", "1"], [
        "box",
        "2"
      ]])
    }
  })

  it("continue: values and status are kept; cleared ones are not", () => {
    const instance = new Instance(Effect.gen(function*() {
      const { keyValues } = yield* engine
      const before = Object.fromEntries(yield* keyValues)
      const status = yield* Orchestration.customStatus
      yield* set("a", "1")
      yield* set("b", "2")
      yield* clear("b")
      yield* Orchestration.setCustomStatus("busy")
      yield* signal("Go")
      return status === null ? yield* continueAsNew() : { before, status }
    }))
    instance.turn()
    instance.turn(instance.raised("Go"))
    const next = instance.next()
    next.turn()
    next.turn(next.raised("Go"))
    assert.deepStrictEqual(next.output, { before: { a: "1" }, status: "busy" })
  })

  it("continue: doing so before the end of the history is nondeterminism", () => {
    const both = Effect.all([signal("A"), signal("B")], { concurrency: "unbounded" })
    const instance = new Instance(both)
    instance.turn()
    instance.turn(instance.raised("A"))
    const changed = [Effect.andThen(signal("A"), continueAsNew()), signal("B")]
    instance.become(Effect.all(changed, { concurrency: "unbounded" }))
    instance.turn(instance.raised("Other"))
    assert.deepInclude(instance.failure, { kind: "Nondeterminism" })
  })
})

describe("kept signals", () => {
  it("take: reads any number of messages in one turn", () => {
    const n = 250
    const instance = new Instance(Effect.forEach(Array.from({ length: n }), () => take("box")))
    instance.turn(...Array.from({ length: n - 1 }, (_, index) => instance.sent("box", index)))
    assert.strictEqual(instance.outcome._tag, "Waiting")
    instance.turn(instance.sent("box", n - 1))
    assert.deepStrictEqual(instance.output, Array.from({ length: n }, (_, index) => index))
  })

  it("take: a dropped take receives no message, whether the message is before or after the drop in the batch", () => {
    const program = Effect.gen(function*() {
      const first = yield* Effect.raceFirst(take("box"), Effect.as(Effect.sleep(10), "timer"))
      return [first, yield* take("box")]
    })
    const late = new Instance(program)
    late.turn()
    late.turn(late.fired(3), late.sent("box", "m"))
    assert.deepStrictEqual(late.output, ["timer", "m"])
    assert.deepStrictEqual(late.written, [
      "4 TimerFired <3",
      "5 ExternalEventPersistent",
      "6 ExternalSubscribedPersistent",
      "7 ExternalSubscribedPersistentCancelled <2 dropped_future",
      "8 OrchestrationCompleted"
    ])
    const early = new Instance(program)
    early.turn()
    early.turn(early.sent("box", "m"), early.fired(3), early.sent("box", "n"))
    assert.deepStrictEqual(early.output, ["m", "n"])
  })

  it("take: of several takers each gets the next message, and names do not mix", () => {
    const program = Effect.all([take("a"), take("b"), take("a")], { concurrency: "unbounded" })
    const instance = new Instance(program)
    instance.turn(instance.sent("b", "b1"), instance.sent("c", "c1"))
    instance.turn(instance.sent("a", "a1"), instance.sent("a", "a2"))
    assert.deepStrictEqual(instance.output, ["a1", "b1", "a2"])
  })

  it("take: an open take closes with its instance, but not one that was served after a drop", () => {
    const instance = new Instance(Effect.gen(function*() {
      yield* Effect.raceFirst(take("box"), Effect.sleep(10))
      yield* take("box")
      yield* Effect.raceFirst(signal("End"), take("box"))
    }))
    instance.turn()
    instance.turn(instance.fired(3), instance.sent("box", "m"))
    instance.turn(instance.cancel("stop"))
    assert.deepStrictEqual(instance.written, [
      "10 OrchestrationCancelRequested stop",
      "11 ExternalSubscribedCancelled <7 orchestration_terminal",
      "12 ExternalSubscribedPersistentCancelled <8 orchestration_terminal",
      "13 OrchestrationFailed"
    ])
  })
})
