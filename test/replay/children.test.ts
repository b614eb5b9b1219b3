import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import type * as WorkItem from "../../src/model/WorkItem.ts"
import * as Orchestration from "../../src/Orchestration.ts"
import { engine } from "../../src/replay/context.ts"
import { child, continueAsNew, detached, Instance, signal } from "./play.ts"

/** What the last turn sends, in short. */
const sent = (instance: Instance) =>
  instance.last.turn.orchestratorItems.map((item) =>
    item._tag === "StartOrchestration"
      ? `start ${item.instance}`
      : item._tag === "CancelInstance"
      ? `terminate ${item.instance}: ${item.reason}`
      : item._tag
  )

const tagged = (tag: string) =>
  Effect.flatMap(engine, ({ perform }) => perform({ _tag: "CallActivity", name: "A", input: "1", tag }))

const duroxide = { version: { major: 0, minor: 1, patch: 31 } }

describe("child", () => {
  it("child: is named after its parent, from the second execution on with the execution's number", () => {
    const program = Effect.all([child("C"), child("C", null, "of its own")], { concurrency: "unbounded" })
    const first = new Instance(program)
    first.turn()
    assert.deepStrictEqual(sent(first), ["start i::sub::2", "start of its own"])
    const second = new Instance(program, { executionId: 2 })
    second.turn()
    assert.deepStrictEqual(sent(second), ["start i::sub::2_2", "start of its own"])
    second.turn(second.childCompleted(2, "a"), second.childCompleted(3, "b"))
    assert.deepStrictEqual(second.output, ["a", "b"])
  })

  it("child: a result for another execution is dropped", () => {
    const instance = new Instance(child("C"))
    instance.turn()
    const { warnings } = instance.turn({ ...instance.childCompleted(2, "old"), parentExecutionId: 7 })
    assert.deepStrictEqual(instance.written, [])
    assert.strictEqual(warnings.length, 1)
  })

  it("child: a typed failure can be caught, a second result is dropped", () => {
    const caught = Effect.catch(child("C"), (error) => Effect.andThen(signal("Go"), Effect.succeed({ error })))
    const instance = new Instance(caught)
    instance.turn()
    const { warnings } = instance.turn(instance.childFailed(2), instance.childCompleted(2))
    assert.strictEqual(warnings.length, 1)
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(instance.output, { error: "boom" })
  })

  it("child: a child that died is the defect ChildFailed", () => {
    const instance = new Instance(child("C"))
    instance.turn()
    instance.turn(instance.childFailed(2, ErrorDetails.application("Panicked", "oh")))
    assert.deepInclude(
      instance.failure,
      ErrorDetails.application("Panicked", `child orchestration "C" failed: orchestration panicked: oh`)
    )
  })

  it("child: its parent cannot catch a failure caused by the runtime", () => {
    const instance = new Instance(Effect.exit(child("C")))
    instance.turn()
    instance.turn(instance.childFailed(2, ErrorDetails.nondeterminism("changed")))
    assert.deepStrictEqual(instance.written, ["3 SubOrchestrationFailed <2", "4 OrchestrationFailed"])
    assert.deepStrictEqual(instance.failure, ErrorDetails.nondeterminism("changed"))
  })

  it("child of Duroxide: the loser of a race is cancelled once, and its late result is dropped", () => {
    const instance = new Instance(Effect.andThen(Effect.raceFirst(child("C"), signal("Win")), signal("End")), duroxide)
    instance.turn()
    instance.turn(instance.raised("Win"))
    assert.deepStrictEqual(instance.written, [
      "4 ExternalEvent",
      "5 ExternalSubscribed",
      "6 SubOrchestrationCancelRequested <2 dropped_future"
    ])
    assert.deepStrictEqual(sent(instance), ["terminate i::sub::2: parent dropped sub-orchestration future"])
    instance.turn(instance.childFailed(2, ErrorDetails.cancelled("parent dropped sub-orchestration future")))
    assert.deepStrictEqual(instance.written, ["7 SubOrchestrationFailed <2"])
    instance.turn(instance.raised("End", "end"))
    assert.deepStrictEqual(sent(instance), [])
    assert.strictEqual(instance.output, "end")
  })

  it("child of Duroxide: one that is begun and dropped in one turn is started and cancelled", () => {
    const instance = new Instance(Effect.andThen(Effect.raceFirst(child("C"), Effect.void), signal("Go")), duroxide)
    instance.turn()
    assert.deepStrictEqual(sent(instance), [
      "start i::sub::2",
      "terminate i::sub::2: parent dropped sub-orchestration future"
    ])
  })

  it("child: a reserved id is a defect that says so", () => {
    const instance = new Instance(child("C", null, "sub::x"))
    instance.turn()
    assert.include(ErrorDetails.display(instance.failure), "instanceId is refused: 'sub::'")
  })
})

// `interruption.test.ts` has those of this package.
describe("end of an execution of Duroxide with children", () => {
  /** An open child, one that lost a race, and one of the last turn. */
  const leaving = (last: Effect.Effect<unknown, unknown, Orchestration.Instance>) =>
    Effect.gen(function*() {
      yield* Effect.forkDetach(child("Open"), { startImmediately: true })
      yield* Effect.raceFirst(child("Loser"), signal("Go"))
      yield* Effect.forkDetach(child("Late"), { startImmediately: true })
      yield* Effect.raceFirst(child("LateLoser"), Effect.void)
      return yield* last
    })
  const ended = (
    last: Effect.Effect<unknown, unknown, Orchestration.Instance>,
    ...more: ReadonlyArray<(instance: Instance) => WorkItem.WorkItem>
  ) => {
    const instance = new Instance(leaving(last), duroxide)
    instance.turn()
    instance.turn(instance.raised("Go"), ...more.map((message) => message(instance)))
    return instance
  }
  const loser = "terminate i::sub::3: parent dropped sub-orchestration future"
  const scheduled = ["5 ExternalEvent", "6 SubOrchestrationScheduled", "7 SubOrchestrationScheduled"]
  const givenUp = [
    "8 SubOrchestrationCancelRequested <3 dropped_future",
    "9 SubOrchestrationCancelRequested <7 dropped_future"
  ]

  it("complete and fail: running losers are cancelled, those that never started are not; open children keep running", () => {
    for (
      const [last, event] of [
        [Effect.void, "10 OrchestrationCompleted"],
        [Effect.fail("no"), "10 OrchestrationFailed"]
      ] as const
    ) {
      const instance = ended(last)
      assert.deepStrictEqual(instance.written, [...scheduled, ...givenUp, event])
      assert.deepStrictEqual(sent(instance), [loser])
    }
  })

  it("continue as new: losers are cancelled, although the execution ends", () => {
    const instance = ended(continueAsNew(2))
    assert.deepStrictEqual(instance.written, [...scheduled, ...givenUp, "10 OrchestrationContinuedAsNew"])
    assert.deepStrictEqual(sent(instance), [loser, "ContinueAsNew"])
  })

  it("cancel: every running child is cancelled, with the reason of the parent", () => {
    const instance = ended(Effect.never, (instance) => instance.cancel("stop"))
    assert.deepStrictEqual(instance.written, [
      "5 ExternalEvent",
      "6 OrchestrationCancelRequested stop",
      "7 SubOrchestrationScheduled",
      "8 SubOrchestrationScheduled",
      "9 OrchestrationFailed"
    ])
    assert.deepStrictEqual(sent(instance), [
      "terminate i::sub::2: parent canceled",
      "terminate i::sub::3: parent canceled"
    ])
  })

  it("cancel: a child that was cancelled before is not cancelled again", () => {
    const instance = new Instance(Effect.andThen(Effect.raceFirst(child("C"), signal("Win")), signal("End")), duroxide)
    instance.turn()
    instance.turn(instance.raised("Win"))
    instance.turn(instance.cancel("stop"))
    assert.deepStrictEqual(sent(instance), [])
  })

  it("exceed a limit: losers are cancelled", () => {
    const instance = ended(tagged("t".repeat(257)))
    assert.deepStrictEqual(sent(instance), [loser])
    assert.deepStrictEqual(instance.written.slice(3), [
      "8 ActivityScheduled",
      "9 SubOrchestrationCancelRequested <3 dropped_future",
      "10 SubOrchestrationCancelRequested <7 dropped_future",
      "11 OrchestrationFailed",
      "12 ActivityCancelRequested <8 orchestration_terminal_failed"
    ])
  })

  it("die: the turn stores none of its requests and notifies no child", () => {
    const instance = ended(Effect.die("oh"))
    assert.deepStrictEqual(instance.written, ["5 ExternalEvent", "6 OrchestrationFailed"])
    assert.deepStrictEqual(sent(instance), [])
  })
})

describe("detached start", () => {
  it("detached: starts in every outcome that records it", () => {
    const outcomes: ReadonlyArray<readonly [string, Effect.Effect<unknown, unknown, Orchestration.Instance>]> = [
      ["Waiting", signal("Never")],
      ["Completed", Effect.void],
      ["Failed", Effect.fail("no")],
      ["ContinuedAsNew", continueAsNew()],
      ["Failed", tagged("t".repeat(257))]
    ]
    for (const [outcome, last] of outcomes) {
      const instance = new Instance(Effect.andThen(detached("D", "d"), last))
      instance.turn()
      assert.strictEqual(instance.outcome._tag, outcome)
      assert.strictEqual(instance.written[1], "2 OrchestrationChained")
      assert.strictEqual(sent(instance)[0], "start d", outcome)
    }
    const cancelled = new Instance(Effect.andThen(signal("Go"), detached("D", "d")))
    cancelled.turn()
    cancelled.turn(cancelled.raised("Go"), cancelled.cancel("stop"))
    assert.deepStrictEqual(cancelled.failure, ErrorDetails.cancelled("stop"))
    assert.deepStrictEqual(sent(cancelled), ["start d"])
  })

  it("detached: is neither recorded nor sent by code that dies", () => {
    const instance = new Instance(Effect.andThen(detached("D", "d"), Effect.die("oh")))
    instance.turn()
    assert.deepStrictEqual(instance.written, ["1 OrchestrationStarted", "2 OrchestrationFailed"])
    assert.deepStrictEqual(sent(instance), [])
  })

  it("detached: another id on replay is nondeterminism", () => {
    const instance = new Instance(Effect.andThen(detached("D", "d"), signal("Go")))
    instance.turn()
    instance.become(Effect.andThen(detached("D", "e"), signal("Go"))).turn(instance.raised("Go"))
    assert.deepInclude(instance.failure, {
      kind: "Nondeterminism",
      message: "event 2: history has detached start of \"D\", the code asks for the same with another instance"
    })
  })
})
