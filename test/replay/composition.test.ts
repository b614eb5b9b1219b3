import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as KeyValue from "../../src/KeyValue.ts"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import type * as WorkItem from "../../src/model/WorkItem.ts"
import * as Orchestration from "../../src/Orchestration.ts"
import type { OrchestrationItem } from "../../src/provider/Provider.ts"
import { engine } from "../../src/replay/context.ts"
import type { OrchestrationContext } from "../../src/replay/context.ts"
import * as batches from "../../src/runtime/batch.ts"
import { activity, child, continueAsNew, detached, Instance, set, signal, take } from "./play.ts"

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

const tagged = (tag: string) =>
  Effect.flatMap(engine, ({ perform }) => perform({ _tag: "CallActivity", name: "A", input: "1", tag }))

const clear = (key: string) => Effect.flatMap(engine, ({ request }) => request({ _tag: "ClearKeyValue", key }))

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

  it("child: a child that was cancelled, or died, is the defect ChildFailed", () => {
    for (const details of [ErrorDetails.cancelled("why"), ErrorDetails.application("Panicked", "oh")]) {
      const instance = new Instance(child("C"))
      instance.turn()
      instance.turn(instance.childFailed(2, details))
      assert.deepInclude(
        instance.failure,
        ErrorDetails.application("Panicked", `child orchestration "C" failed: ${ErrorDetails.display(details)}`)
      )
    }
  })

  it("child: its parent cannot catch a failure caused by the runtime", () => {
    const instance = new Instance(Effect.exit(child("C")))
    instance.turn()
    instance.turn(instance.childFailed(2, ErrorDetails.nondeterminism("changed")))
    assert.deepStrictEqual(instance.written, ["3 SubOrchestrationFailed <2", "4 OrchestrationFailed"])
    assert.deepStrictEqual(instance.failure, ErrorDetails.nondeterminism("changed"))
  })

  it("child: the loser of a race is cancelled once, and its late result is dropped", () => {
    const instance = new Instance(Effect.andThen(Effect.raceFirst(child("C"), signal("Win")), signal("End")))
    instance.turn()
    instance.turn(instance.raised("Win"))
    assert.deepStrictEqual(instance.written, [
      "4 ExternalEvent",
      "5 ExternalSubscribed",
      "6 SubOrchestrationCancelRequested <2 dropped_future"
    ])
    assert.deepStrictEqual(sent(instance), ["cancel i::sub::2: parent dropped sub-orchestration future"])
    instance.turn(instance.childFailed(2, ErrorDetails.cancelled("parent dropped sub-orchestration future")))
    assert.deepStrictEqual(instance.written, ["7 SubOrchestrationFailed <2"])
    instance.turn(instance.raised("End", "end"))
    assert.deepStrictEqual(sent(instance), [])
    assert.strictEqual(instance.output, "end")
  })

  it("child: one that is begun and dropped in one turn is started and cancelled", () => {
    const instance = new Instance(Effect.andThen(Effect.raceFirst(child("C"), Effect.void), signal("Go")))
    instance.turn()
    assert.deepStrictEqual(sent(instance), [
      "start i::sub::2",
      "cancel i::sub::2: parent dropped sub-orchestration future"
    ])
  })

  it("child: a reserved id is a defect that says so", () => {
    const instance = new Instance(child("C", null, "sub::x"))
    instance.turn()
    assert.include(ErrorDetails.display(instance.failure), "instanceId is refused: 'sub::'")
  })
})

describe("end with children", () => {
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
    const instance = new Instance(leaving(last))
    instance.turn()
    instance.turn(instance.raised("Go"), ...more.map((message) => message(instance)))
    return instance
  }
  const loser = "cancel i::sub::3: parent dropped sub-orchestration future"
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
    assert.deepStrictEqual(sent(instance), ["cancel i::sub::2: parent canceled", "cancel i::sub::3: parent canceled"])
  })

  it("cancel: a child that was cancelled before is not cancelled again", () => {
    const instance = new Instance(Effect.andThen(Effect.raceFirst(child("C"), signal("Win")), signal("End")))
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

describe("mailbox", () => {
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

  it("take: of several takers each gets the next message, and mailboxes do not mix", () => {
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

describe("limits", () => {
  const problemOf = (program: Effect.Effect<unknown, unknown, Orchestration.Instance>, options = {}) => {
    const instance = new Instance(program, { parent: { instance: "p", id: 7, executionId: 1 }, ...options })
    instance.turn()
    const { outcome } = instance
    if (outcome._tag !== "Failed") return outcome._tag
    const notice = { _tag: "SubOrchFailed", parentInstance: "p", parentExecutionId: 1, parentId: 7 } as const
    assert.deepStrictEqual(instance.last.turn.orchestratorItems, [{ ...notice, details: outcome.details }])
    if (outcome.details._tag !== "Application") return assert.fail(outcome.details._tag)
    // Not anything that a caller could mistake for an error of the program.
    assert.strictEqual(outcome.details.kind, "Panicked")
    assert.strictEqual(instance.written.filter((event) => event.includes("OrchestrationCompleted")).length, 0)
    return outcome.details.message
  }

  it("limits: a turn that exceeds one fails whatever its own end, and the parent is notified", () => {
    const status = (length: number) => Orchestration.setCustomStatus("é".repeat(length / 2))
    assert.strictEqual(problemOf(status(262_144)), "Completed")
    assert.strictEqual(problemOf(status(262_146)), "Custom status size (262146 bytes) exceeds limit (262144 bytes)")
    assert.strictEqual(problemOf(Effect.andThen(status(262_146), status(2))), "Completed")
    assert.strictEqual(problemOf(tagged("t".repeat(256))), "Waiting")
    assert.strictEqual(
      problemOf(tagged("t".repeat(257))),
      "Activity 'A' tag size (257 bytes) exceeds limit (256 bytes)"
    )
    assert.strictEqual(problemOf(set("k", "v".repeat(65_536))), "Completed")
    assert.strictEqual(
      problemOf(Effect.andThen(set("k", "v".repeat(65_537)), continueAsNew())),
      "KV value for key 'k' (65537 bytes) exceeds limit (65536 bytes)"
    )
  })

  it("limits: a string counts without the quotes and escapes of JSON", () => {
    const text = (value: string) => KeyValue.make("k", Schema.String).set(value)
    assert.strictEqual(problemOf(text("v".repeat(65_536))), "Completed")
    assert.strictEqual(problemOf(text("\n".repeat(65_536))), "Completed")
    assert.strictEqual(problemOf(text("é".repeat(32_768))), "Completed")
    const tooLong = "KV value for key 'k' (65537 bytes) exceeds limit (65536 bytes)"
    assert.strictEqual(problemOf(text("v".repeat(65_537))), tooLong)
    assert.strictEqual(problemOf(set("k", `"${"v".repeat(65_536)}`)), tooLong)
  })

  it("limits: all keys count, whichever turn set them", () => {
    const setAll = (n: number, prefix = "k") =>
      Effect.forEach(Array.from({ length: n }), (_, index) => set(`${prefix}${index}`, ""))
    const keyValues = new Map(Array.from({ length: 149 }, (_, index) => [`old${index}`, { value: "" }]))
    assert.strictEqual(problemOf(setAll(150)), "Completed")
    assert.strictEqual(problemOf(setAll(151)), "KV key count (151) exceeds limit (150)")
    assert.strictEqual(problemOf(setAll(1), { keyValues }), "Completed")
    assert.strictEqual(problemOf(setAll(2), { keyValues }), "KV key count (151) exceeds limit (150)")
    assert.strictEqual(problemOf(Effect.andThen(clear("old7"), setAll(2)), { keyValues }), "Completed")
    const later = new Instance(Effect.andThen(Effect.andThen(setAll(100, "a"), signal("Go")), setAll(100, "b")))
    later.turn()
    later.turn(later.raised("Go"))
    assert.strictEqual(
      ErrorDetails.display(later.failure),
      "orchestration panicked: KV key count (200) exceeds limit (150)"
    )
  })

  it("limits: a cancellation in the same turn comes first", () => {
    const instance = new Instance(Effect.andThen(signal("Go"), tagged("t".repeat(257))))
    instance.turn()
    instance.turn(instance.raised("Go"), instance.cancel("stop"))
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("stop"))
  })
})

describe("status and values", () => {
  it("replay: removing a status or value from the code is noticed", () => {
    for (const vanishing of [set("k", "v"), clear("k"), Orchestration.setCustomStatus("s")]) {
      const instance = new Instance(Effect.andThen(signal("Go"), Effect.andThen(vanishing, signal("End"))))
      instance.turn()
      instance.turn(instance.raised("Go"))
      instance.become(Effect.andThen(signal("Go"), signal("End"))).turn(instance.raised("End"))
      assert.deepInclude(instance.failure, { kind: "Nondeterminism" })
    }
  })

  it("replay: a different value is noticed, a different status text or time of a value is not", () => {
    const writing = (value: string, status: string) =>
      Effect.gen(function*() {
        yield* set("k", value)
        yield* Orchestration.setCustomStatus(status)
        yield* signal("Go")
        return yield* Orchestration.customStatus
      })
    const instance = new Instance(writing("v", "s"))
    instance.turn()
    instance.nowMs += 1_000
    instance.become(writing("v", "t")).turn(instance.raised("Go"))
    assert.strictEqual(instance.output, "t")
    const other = new Instance(writing("v", "s"))
    other.turn()
    other.become(writing("w", "s")).turn(other.raised("Go"))
    assert.deepInclude(other.failure, {
      message: "event 2: history has value of \"k\", the code asks for the same with another value"
    })
  })

  it("replay: a run of removals matches in any order if Duroxide recorded it, never if we did", () => {
    const removing = (...keys: ReadonlyArray<string>) => Effect.andThen(Effect.forEach(keys, clear), signal("Go"))
    for (const [major, outcome] of [[0, "Completed"], [1000, "Failed"]] as const) {
      const instance = new Instance(removing("a", "b", "c"), { version: { major, minor: 1, patch: 30 } })
      instance.turn()
      instance.become(removing("c", "a", "b")).turn(instance.raised("Go"))
      assert.strictEqual(instance.outcome._tag, outcome)
    }
    const other = new Instance(removing("a", "b"), { version: { major: 0, minor: 1, patch: 30 } })
    other.turn()
    other.become(removing("a", "d")).turn(other.raised("Go"))
    assert.strictEqual(other.outcome._tag, "Failed")
  })

  it("status, key: a text that cannot be stored is a defect that says so, without showing it", () => {
    const [unstorable, long] = [KeyValue.make("secret\0", Schema.Int), KeyValue.make("secret".repeat(427), Schema.Int)]
    const problems = new Map<Effect.Effect<void, never, OrchestrationContext>, RegExp>([
      [Orchestration.setCustomStatus("secret\0"), /status text is refused: it holds a NUL character/],
      [unstorable.set(1), /key is refused: it holds a NUL character/],
      [unstorable.clear, /key is refused: it holds a NUL character/],
      [long.set(1), /key is refused: it has 2562 bytes, the limit is \d+: with the instance's id it may have 2560/]
    ])
    for (const [program, expected] of problems) {
      const instance = new Instance(program)
      instance.turn()
      const problem = ErrorDetails.display(instance.failure)
      assert.match(problem, expected)
      assert.notInclude(problem, "secret")
    }
  })
})

describe("batch", () => {
  const item = (...messages: ReadonlyArray<WorkItem.WorkItem>): OrchestrationItem => ({
    instanceId: "c",
    orchestrationName: "C",
    orchestrationVersion: "unknown",
    executionId: 1,
    nowMs: 0,
    history: [],
    isKnownHistory: false,
    historyError: Option.none(),
    enqueuedAtMs: messages.map(() => 0),
    messageIds: messages.map((_, index) => index),
    messages,
    keyValues: new Map()
  })
  const start = (parentInstance: string | null, parentId = 2): WorkItem.Of<"StartOrchestration"> => ({
    _tag: "StartOrchestration",
    instance: "c",
    orchestration: "C",
    input: "null",
    version: null,
    parentInstance,
    parentId: parentInstance === null ? null : parentId,
    ...(parentInstance !== null && { parentExecutionId: 1 }),
    executionId: 1
  })

  it("batch: a timer arrives when it is due, wherever it stands in the queue", () => {
    const timer = (
      id: number,
      fireAtMs: number
    ) => ({ _tag: "TimerFired", instance: "c", executionId: 1, id, fireAtMs } as const)
    const signal = (name: string) => ({ _tag: "ExternalRaised", instance: "c", name, data: "null" } as const)
    const read = batches.read({
      ...item(
        start(null),
        timer(2, 60),
        timer(3, 30),
        signal("at 29"),
        signal("at 59"),
        timer(4, 200),
        signal("at 100")
      ),
      enqueuedAtMs: [0, 0, 0, 29, 59, 59, 100]
    })
    assert.deepStrictEqual(
      read._tag === "Run" &&
        read.messages.map((message) => "id" in message ? message.id : "name" in message && message.name),
      ["at 29", 3, "at 59", 2, "at 100", 4]
    )
  })

  it("batch: if two parents start a child under one id at once, the second is notified that the id is taken", () => {
    const read = batches.read(item(start("p"), start("q"), start("p"), start(null)))
    if (read._tag !== "Run") return assert.fail(read._tag)
    assert.strictEqual(read.started.parentInstance, "p")
    assert.deepStrictEqual(read.rejections, [{
      _tag: "SubOrchFailed",
      parentInstance: "q",
      parentExecutionId: 1,
      parentId: 2,
      details: ErrorDetails.application(
        "Panicked",
        "sub-orchestration instance id 'c' already exists and is running"
      )
    }])
  })
})
