import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import * as interruptSignal from "../../src/model/shared/interruptSignal.ts"
import * as Orchestration from "../../src/Orchestration.ts"
import { activity, child, codeOf, continueAsNew, Instance, signal } from "./play.ts"

/** What the last turn sends to other instances, in short. */
const sent = (instance: Instance) =>
  instance.last.turn.orchestratorItems.flatMap((item) =>
    item._tag === "StartOrchestration"
      ? `start ${item.instance}`
      : item._tag === "CancelInstance"
      ? `terminate ${item.instance}: ${item.reason}`
      : item._tag === "QueueMessage"
      ? `${item.name === interruptSignal.name ? "interrupt" : item.name} ${item.instance}: ${
        interruptSignal.decode(item.data)
      }`
      : []
  )

const A = (input: unknown) => Effect.orDie(activity("A")(input))
const B = (input: unknown) => Effect.orDie(activity("B")(input))

const duroxide = { version: { major: 0, minor: 1, patch: 31 } }

const Child = Orchestration.make("C", { payload: Schema.Null, success: Schema.String })

describe("an interrupted program", () => {
  it("gives up what it waits for, and ends as cancelled", () => {
    const instance = new Instance(Effect.all([A(1), signal("S"), Effect.sleep("1 day")], { concurrency: "unbounded" }))
    instance.turn()
    instance.turn(instance.interrupted("enough"))
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("enough"))
    assert.deepStrictEqual(instance.last.turn.metadata, { status: "Failed", output: "canceled: enough" })
    assert.deepStrictEqual(instance.last.turn.cancelledActivities.map(({ activityId }) => activityId), [2])
    assert.deepStrictEqual(instance.written, [
      "5 ExternalEventPersistent",
      "6 ActivityCancelRequested <2 dropped_future",
      "7 ExternalSubscribedCancelled <3 dropped_future",
      "8 OrchestrationFailed"
    ])
  })

  it("runs its finalizers durably, with activities, timers and children in them", () => {
    const instance = new Instance(
      signal("Never").pipe(
        Effect.ensuring(Effect.gen(function*() {
          yield* A("undo")
          yield* Effect.sleep("1 hour")
          yield* Effect.orDie(child("Undo"))
        })),
        Effect.onInterrupt(() => B("interrupted"))
      )
    )
    instance.turn()
    instance.turn(instance.interrupted("enough"))
    assert.deepStrictEqual(instance.written, [
      "3 ExternalEventPersistent",
      "4 ActivityScheduled",
      "5 ExternalSubscribedCancelled <2 dropped_future"
    ])
    assert.deepStrictEqual(instance.outcome, { _tag: "Waiting" })
    instance.turn(instance.completed(4))
    instance.turn(instance.fired(6 + 1))
  })

  it("cannot end before its clean-up, which a second interruption does not touch", () => {
    const instance = new Instance(Effect.ensuring(signal("Never"), A("undo")))
    instance.turn()
    instance.turn(instance.interrupted("first"))
    instance.turn(instance.interrupted("second"))
    assert.deepStrictEqual(instance.outcome, { _tag: "Waiting" })
    instance.turn(instance.completed(4))
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("first"))
  })

  it("is terminated in the middle of its clean-up", () => {
    const instance = new Instance(Effect.ensuring(signal("Never"), A("undo")))
    instance.turn()
    instance.turn(instance.interrupted("enough"))
    instance.turn(instance.cancel("past its deadline"))
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("past its deadline"))
    assert.deepStrictEqual(instance.last.turn.cancelledActivities.map(({ activityId }) => activityId), [4])
  })

  it("fails when its clean-up fails or dies", () => {
    const definition = Orchestration.make("P", { error: Schema.String })
    const failing = new Instance(
      codeOf(
        definition,
        () => Effect.onExit(Effect.never.pipe(Effect.raceFirst(signal("Never"))), () => Effect.fail("cannot undo"))
      )
    )
    failing.turn()
    failing.turn(failing.interrupted("enough"))
    assert.deepStrictEqual(failing.failure, ErrorDetails.application("OrchestrationFailed", `"cannot undo"`))
    const dying = new Instance(codeOf(definition, () => Effect.ensuring(signal("Never"), Effect.die("oh")) as any))
    dying.turn()
    dying.turn(dying.interrupted("enough"))
    assert.deepInclude(dying.failure, { kind: "Panicked", message: "oh" })
  })

  it("runs to the end of what is uninterruptible", () => {
    const instance = new Instance(Effect.andThen(Effect.uninterruptible(Effect.andThen(A(1), A(2))), A(3)))
    instance.turn()
    instance.turn(instance.interrupted("enough"))
    assert.deepStrictEqual(instance.outcome, { _tag: "Waiting" })
    instance.turn(instance.completed(2))
    assert.deepStrictEqual(instance.written, ["4 ActivityCompleted <2", "5 ActivityScheduled"])
    instance.turn(instance.completed(5))
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("enough"))
  })

  it("does not run when the request was there before its first turn", () => {
    let runs = 0
    const instance = new Instance(Effect.andThen(Effect.sync(() => runs++), Effect.ensuring(A(1), A("undo"))))
    instance.turn(instance.interrupted("too early"))
    assert.deepStrictEqual(instance.written, [
      "1 OrchestrationStarted",
      "2 OrchestrationCancelRequested too early",
      "3 OrchestrationFailed"
    ])
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("too early"))
    assert.strictEqual(runs, 0)
  })

  it("takes the request into its next execution when it continues as new in the same turn", () => {
    const instance = new Instance(
      Effect.flatMap(
        Orchestration.Instance,
        ({ executionId }) =>
          executionId === 1
            ? Effect.andThen(signal("Go"), continueAsNew(2))
            : Effect.ensuring(signal("Never"), A("undo"))
      )
    )
    instance.turn()
    instance.turn(instance.raised("Go"), instance.interrupted("enough"))
    assert.strictEqual(instance.outcome._tag, "ContinuedAsNew")
    const next = instance.next()
    next.turn()
    assert.include(next.written, "4 ActivityScheduled")
    next.turn(next.completed(4))
    assert.deepStrictEqual(next.failure, ErrorDetails.cancelled("enough"))
  })

  it("runs on if it is one of Duroxide, which never reads the message", () => {
    const instance = new Instance(signal("Go"), duroxide)
    instance.turn()
    instance.turn(instance.interrupted("enough"))
    assert.deepStrictEqual(instance.outcome, { _tag: "Waiting" })
    instance.turn(instance.raised("Go", "on"))
    assert.strictEqual(instance.output, "on")
  })
})

describe("an interrupted call of a child", () => {
  const racing = Effect.raceFirst(child("C"), signal("Win"))

  it("interrupts the child, and ends with it", () => {
    const instance = new Instance(Effect.andThen(racing, A("next")))
    instance.turn()
    instance.turn(instance.raised("Win"))
    assert.deepStrictEqual(instance.written, [
      "4 ExternalEvent",
      "5 SubOrchestrationCancelRequested <2 interrupted"
    ])
    assert.deepStrictEqual(sent(instance), ["interrupt i::sub::2: its parent no longer waits for it"])
    instance.turn(instance.childFailed(2, ErrorDetails.cancelled("its parent no longer waits for it")))
    assert.deepStrictEqual(instance.written, ["6 SubOrchestrationFailed <2", "7 ActivityScheduled"])
  })

  it("hands over the reason when its whole program is interrupted", () => {
    const instance = new Instance(Effect.ensuring(child("C"), A("undo")))
    instance.turn()
    instance.turn(instance.interrupted("enough"))
    assert.deepStrictEqual(sent(instance), ["interrupt i::sub::2: enough"])
    instance.turn(instance.childFailed(2, ErrorDetails.cancelled("enough")))
    assert.deepStrictEqual(instance.written, ["5 SubOrchestrationFailed <2", "6 ActivityScheduled"])
    instance.turn(instance.completed(6))
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("enough"))
  })

  it("ends at once if its options say so", () => {
    for (const onInterrupt of ["interruptAndContinue", "terminate"] as const) {
      const instance = new Instance(
        Effect.andThen(Effect.raceFirst(Child.with({ onInterrupt }).execute(null), signal("Win")), A("next"))
      )
      instance.turn()
      instance.turn(instance.raised("Win"))
      const what = onInterrupt === "terminate" ? "terminate" : "interrupt"
      assert.deepStrictEqual(sent(instance), [`${what} i::sub::2: its parent no longer waits for it`])
      assert.deepStrictEqual(instance.written, [
        "4 ExternalEvent",
        "5 ActivityScheduled",
        "6 SubOrchestrationCancelRequested <2 dropped_future"
      ])
    }
  })

  it("terminates a child in Rust, and waits for its end", () => {
    const Rust = Orchestration.make("C", { payload: Schema.Null, servedBy: "rust" })
    const instance = new Instance(Effect.andThen(Effect.raceFirst(Rust.execute(null), signal("Win")), A("next")))
    instance.turn()
    instance.turn(instance.raised("Win"))
    assert.deepStrictEqual(sent(instance), ["terminate i::sub::2: its parent no longer waits for it"])
    instance.turn(instance.childFailed(2, ErrorDetails.cancelled("its parent no longer waits for it")))
    assert.include(instance.written, "7 ActivityScheduled")
  })

  it("gets the result of a child that has completed nevertheless, to undo it", () => {
    const undone: Array<string> = []
    const instance = new Instance(
      Effect.raceFirst(
        Child.with({
          onLateSuccess: (value) => Effect.map(A(`undo ${value}`), () => void undone.push(value))
        }).execute(null),
        signal("Win")
      ),
      { staysWarm: false }
    )
    instance.turn()
    instance.turn(instance.raised("Win", "won"))
    instance.turn(instance.childCompleted(2, "a room"))
    assert.deepStrictEqual(instance.written, ["6 SubOrchestrationCompleted <2", "7 ActivityScheduled"])
    instance.turn(instance.completed(7))
    assert.strictEqual(instance.output, "won")
    assert.include(undone, "a room")
  })

  it("neither starts nor interrupts a child that is given up in the turn that asks for it", () => {
    const instance = new Instance(Effect.andThen(Effect.raceFirst(child("C"), Effect.void), signal("Go")))
    instance.turn()
    assert.deepStrictEqual(sent(instance), [])
    assert.deepStrictEqual(instance.written, [
      "1 OrchestrationStarted",
      "2 SubOrchestrationScheduled",
      "3 ExternalSubscribed",
      "4 SubOrchestrationCancelRequested <2 dropped_future"
    ])
  })

  it("is terminated with its program, also while it waits for the end of the child", () => {
    const instance = new Instance(racing)
    instance.turn()
    instance.turn(instance.raised("Win"))
    instance.turn(instance.cancel("stop"))
    assert.deepStrictEqual(sent(instance), ["terminate i::sub::2: parent canceled"])
  })

  it("terminates the child at once in executions of Duroxide", () => {
    const instance = new Instance(Effect.andThen(racing, A("next")), duroxide)
    instance.turn()
    instance.turn(instance.raised("Win"))
    assert.deepStrictEqual(sent(instance), ["terminate i::sub::2: parent dropped sub-orchestration future"])
    assert.deepStrictEqual(instance.written, [
      "4 ExternalEvent",
      "5 ActivityScheduled",
      "6 SubOrchestrationCancelRequested <2 dropped_future"
    ])
  })
})

describe("the end of a parent", () => {
  it("comes after the ends of the children that its fibers wait for", () => {
    const instance = new Instance(
      Effect.andThen(Effect.forkChild(child("C"), { startImmediately: true }), signal("Go"))
    )
    instance.turn()
    instance.turn(instance.raised("Go", "done"))
    assert.deepStrictEqual(sent(instance), ["interrupt i::sub::2: its parent no longer waits for it"])
    assert.deepStrictEqual(instance.outcome, { _tag: "Waiting" })
    instance.turn(instance.childFailed(2, ErrorDetails.cancelled("its parent no longer waits for it")))
    assert.strictEqual(instance.output, "done")
  })

  it("interrupts children of detached fibers, and does not wait for them", () => {
    for (
      const [last, end] of [
        [signal("Go"), "completed"],
        [Effect.andThen(signal("Go"), Effect.fail("no")), "failed"]
      ] as const
    ) {
      const instance = new Instance(
        Effect.andThen(Effect.forkDetach(child("C"), { startImmediately: true }), last)
      )
      instance.turn()
      instance.turn(instance.raised("Go"))
      assert.include(sent(instance), "interrupt i::sub::2: its parent has ended")
      assert.include(instance.written, `6 SubOrchestrationCancelRequested <2 orchestration_terminal_${end}`)
    }
  })
})

describe("the next execution", () => {
  it("leaves the children of this one alone", () => {
    const instance = new Instance(
      Effect.andThen(
        Effect.forkDetach(child("C"), { startImmediately: true }),
        Effect.andThen(signal("Go"), continueAsNew(2))
      )
    )
    instance.turn()
    instance.turn(instance.raised("Go"))
    assert.strictEqual(instance.outcome._tag, "ContinuedAsNew")
    assert.deepStrictEqual(sent(instance), [])
  })
})

describe("a child that someone else has ended", () => {
  it("is the defect ChildCancelled, with the reason", () => {
    const instance = new Instance(
      Effect.catchDefect(
        child("C"),
        (defect) => defect instanceof Orchestration.ChildCancelled ? Effect.succeed(defect.reason) : Effect.die(defect)
      )
    )
    instance.turn()
    instance.turn(instance.childFailed(2, ErrorDetails.cancelled("not needed")))
    assert.strictEqual(instance.output, "not needed")
  })
})
