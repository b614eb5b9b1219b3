import { assert, describe, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as Activity from "../../src/Activity.ts"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import * as Event from "../../src/model/Event.ts"
import * as Orchestration from "../../src/Orchestration.ts"
import { complete } from "../../src/provider/internal/orchestrationItem.ts"
import * as turns from "../../src/replay/turn.ts"
import * as Signal from "../../src/Signal.ts"
import { activity, codeOf, Instance, signal } from "./play.ts"

const A = activity("A")
const B = activity("B")

/** Leaves an activity, a timer and a wait open, then does `last` when the signal Go comes. */
const leaving = <E>(last: Effect.Effect<unknown, E, Orchestration.Instance>) =>
  Effect.gen(function*() {
    yield* Effect.forkDetach(A(1), { startImmediately: true })
    yield* Effect.forkDetach(Effect.sleep("1 hour"), { startImmediately: true })
    yield* Effect.forkDetach(signal("Never"), { startImmediately: true })
    yield* signal("Go")
    return yield* last
  })

/** The second turn of it. */
const ended = <E>(last: Effect.Effect<unknown, E, Orchestration.Instance>, ...more: ReadonlyArray<"cancel">) => {
  const instance = new Instance(leaving(last), { parent: { instance: "p", id: 7, executionId: 3 } })
  instance.turn()
  assert.deepStrictEqual(instance.written.slice(1), [
    "2 ActivityScheduled",
    "3 TimerCreated",
    "4 ExternalSubscribed",
    "5 ExternalSubscribed"
  ])
  instance.turn(instance.raised("Go"), ...more.map(() => instance.cancel("enough")))
  return instance
}

const notice = (instance: Instance) => instance.last.turn.orchestratorItems

describe("end", () => {
  it("complete: schedules of the last turn are recorded, not enqueued; what is open is closed", () => {
    const instance = ended(
      Effect.andThen(
        Effect.forkDetach(Effect.andThen(B(2), Effect.sleep(5)), { startImmediately: true }),
        Effect.succeed("x")
      )
    )
    assert.deepStrictEqual(instance.written, [
      "6 ExternalEvent",
      "7 ActivityScheduled",
      "8 ExternalSubscribedCancelled <4 orchestration_terminal",
      "9 OrchestrationCompleted",
      "10 ActivityCancelRequested <2 orchestration_terminal_completed",
      "11 ActivityCancelRequested <7 orchestration_terminal_completed"
    ])
    const { turn } = instance.last
    assert.deepStrictEqual(turn.workerItems, [])
    assert.deepStrictEqual(turn.cancelledActivities.map(({ activityId }) => activityId), [2, 7])
    assert.deepStrictEqual(turn.metadata, { status: "Completed", output: "\"x\"" })
    assert.deepStrictEqual(notice(instance), [
      { _tag: "SubOrchCompleted", parentInstance: "p", parentExecutionId: 3, parentId: 7, result: "\"x\"" }
    ])
  })

  it("complete: messages after the end reach no wait", () => {
    const program = Effect.andThen(
      Effect.forkDetach(Effect.andThen(A(1), B(2)), { startImmediately: true }),
      signal("Go")
    )
    const instance = new Instance(program)
    instance.turn()
    instance.turn(instance.raised("Go"), instance.completed(2))
    assert.deepStrictEqual(instance.written, ["4 ExternalEvent", "5 ActivityCompleted <2", "6 OrchestrationCompleted"])
    const other = new Instance(program)
    other.turn()
    other.turn(other.completed(2), other.raised("Go"))
    assert.deepStrictEqual(other.written.slice(2), [
      "6 ActivityScheduled",
      "7 OrchestrationCompleted",
      "8 ActivityCancelRequested <6 orchestration_terminal_completed"
    ])
  })

  it("fail: a typed failure ends the same way, with its own text", () => {
    const instance = ended(
      Effect.andThen(Effect.forkDetach(B(2), { startImmediately: true }), Effect.fail({ code: 1 }))
    )
    assert.deepStrictEqual(instance.written, [
      "6 ExternalEvent",
      "7 ActivityScheduled",
      "8 ExternalSubscribedCancelled <4 orchestration_terminal",
      "9 OrchestrationFailed",
      "10 ActivityCancelRequested <2 orchestration_terminal_failed",
      "11 ActivityCancelRequested <7 orchestration_terminal_failed"
    ])
    const details = ErrorDetails.application("OrchestrationFailed", "{\"code\":1}")
    assert.deepStrictEqual(instance.failure, details)
    assert.deepStrictEqual(instance.last.turn.workerItems, [])
    assert.deepStrictEqual(instance.last.turn.metadata, { status: "Failed", output: "{\"code\":1}" })
    assert.deepStrictEqual(notice(instance), [
      { _tag: "SubOrchFailed", parentInstance: "p", parentExecutionId: 3, parentId: 7, details }
    ])
  })

  it("fail: handles dropped before the failure keep their breadcrumbs", () => {
    const instance = new Instance(Effect.andThen(Effect.raceFirst(signal("Go"), A(1)), Effect.fail("no")))
    instance.turn()
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(instance.written, [
      "4 ExternalEvent",
      "5 ActivityCancelRequested <3 dropped_future",
      "6 OrchestrationFailed"
    ])
  })

  it("die: only received messages are kept", () => {
    const instance = ended(Effect.andThen(
      Effect.forkDetach(B(2), { startImmediately: true }),
      Effect.die(new Error("cannot continue"))
    ))
    assert.deepStrictEqual(instance.written, [
      "6 ExternalEvent",
      "7 ExternalSubscribedCancelled <4 orchestration_terminal",
      "8 OrchestrationFailed",
      "9 ActivityCancelRequested <2 orchestration_terminal_failed"
    ])
    assert.deepInclude(instance.failure, ErrorDetails.application("Panicked", "cannot continue"))
    assert.strictEqual(instance.last.turn.metadata.output, "orchestration panicked: cannot continue")
    assert.strictEqual(notice(instance)[0]?._tag, "SubOrchFailed")
  })

  it("die: the whole defect can be logged, and a stack with its causes is stored", () => {
    const defect = new TypeError("cannot continue", { cause: new Error("x".repeat(3_000)) })
    const instance = new Instance(Effect.andThen(A(1), Effect.die(defect)))
    instance.turn()
    assert.isUndefined(instance.diedOf)
    instance.turn(instance.completed(2))
    assert.strictEqual(instance.diedOf && Cause.squash(instance.diedOf), defect)
    const { failure } = instance
    if (failure._tag !== "Application" || failure.stack === undefined) return assert.fail(JSON.stringify(failure))
    assert.match(failure.stack, /^TypeError: cannot continue\n +at .*endings\.test\.ts/)
    assert.include(failure.stack, "xxx")
    assert.isAtMost(failure.stack.length, 2_000)
    const stored = Result.getOrThrow(Event.decode(Event.encode(instance.history.at(-1)!)))
    assert.deepInclude(stored, { _tag: "OrchestrationFailed", details: failure })
  })

  it("die: code that throws, interrupts itself or throws something odd is Panicked", () => {
    const problemOf = (program: Effect.Effect<unknown>) => {
      const instance = new Instance(program)
      instance.turn()
      assert.deepStrictEqual(instance.written, ["1 OrchestrationStarted", "2 OrchestrationFailed"])
      const { failure } = instance
      return failure._tag === "Application" && failure.kind === "Panicked" ? failure.message : failure
    }
    assert.strictEqual(
      problemOf(Effect.sync(() => {
        throw new TypeError("x is not a function")
      })),
      "x is not a function"
    )
    assert.strictEqual(problemOf(Effect.die("a text")), "a text")
    assert.strictEqual(problemOf(Effect.interrupt), "the orchestration interrupted itself")
  })

  it("mismatch: only received messages are kept, and the details say Nondeterminism", () => {
    const instance = new Instance(Effect.andThen(signal("Go"), B(2)))
    instance.turn()
    instance.become(Effect.andThen(signal("Gone"), B(2)))
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(instance.written, [
      "3 ExternalEvent",
      "4 OrchestrationFailed"
    ])
    assert.deepInclude(instance.failure, { _tag: "Configuration", kind: "Nondeterminism", resource: "" })
  })

  it("abort: the code cannot catch a failure caused by the runtime", () => {
    const poison: ErrorDetails.ErrorDetails = {
      _tag: "Poison",
      attemptCount: 11,
      maxAttempts: 10,
      messageType: { Activity: { instance: "i", execution_id: 1, activity_name: "A", activity_id: 2 } },
      message: "{}"
    }
    const down: ErrorDetails.ErrorDetails = {
      _tag: "Infrastructure",
      operation: "ack",
      message: "down",
      retryable: false
    }
    for (const details of [poison, down, ErrorDetails.nondeterminism("elsewhere")]) {
      let calls = 0
      const tell = Effect.sync(() => calls++)
      const instance = new Instance(
        Effect.all([Effect.ensuring(A(1), tell), Effect.ensuring(B(2), tell)], { concurrency: "unbounded" })
      )
      instance.turn()
      instance.turn(instance.completed(3), instance.failedWith(2, details), instance.cancel("too late"))
      assert.strictEqual(calls, 0, "the code did not run")
      assert.deepStrictEqual(instance.written, [
        "4 ActivityCompleted <3",
        "5 ActivityFailed <2",
        "6 OrchestrationCancelRequested too late",
        "7 OrchestrationFailed"
      ])
      assert.deepStrictEqual(instance.failure, details)
    }
  })

  it("cancel: the execution fails as cancelled and the open work is dropped", () => {
    const instance = ended(Effect.never, "cancel")
    assert.deepStrictEqual(instance.written, [
      "6 ExternalEvent",
      "7 OrchestrationCancelRequested enough",
      "8 ExternalSubscribedCancelled <4 orchestration_terminal",
      "9 OrchestrationFailed",
      "10 ActivityCancelRequested <2 orchestration_terminal_failed"
    ])
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("enough"))
    assert.deepStrictEqual(instance.last.turn.metadata, { status: "Failed", output: "canceled: enough" })
    assert.deepStrictEqual(instance.last.turn.cancelledActivities.map(({ activityId }) => activityId), [2])
    assert.strictEqual(notice(instance)[0]?._tag, "SubOrchFailed")
  })

  it("cancel: wins over a result, a failure and new work of the same turn", () => {
    for (const last of [Effect.succeed("done"), Effect.fail("no"), Effect.asVoid(B(2))]) {
      const instance = ended(last, "cancel")
      assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("enough"))
      assert.deepStrictEqual(instance.last.turn.workerItems, [])
      assert.deepStrictEqual(notice(instance).map(({ _tag }) => _tag), ["SubOrchFailed"])
    }
    assert.include(ended(B(2), "cancel").written, "8 ActivityScheduled")
    assert.include(ended(B(2), "cancel").written, "12 ActivityCancelRequested <8 orchestration_terminal_failed")
  })

  it("cancel: the code does not run; handles it drops in that turn leave no breadcrumb", () => {
    const interrupted: Array<string> = []
    const program = Effect.raceFirst(
      signal("Go"),
      Effect.onInterrupt(A(1), () => Effect.sync(() => interrupted.push("interrupted")))
    )
    const alone = new Instance(program)
    alone.turn()
    alone.turn(alone.cancel("why"))
    assert.deepStrictEqual(interrupted, [])
    const instance = new Instance(program)
    instance.turn()
    instance.turn(instance.raised("Go"), instance.cancel("why"))
    assert.deepStrictEqual(instance.written, [
      "4 ExternalEvent",
      "5 OrchestrationCancelRequested why",
      "6 OrchestrationFailed",
      "7 ActivityCancelRequested <3 orchestration_terminal_failed"
    ])
  })

  it("cancel: the first reason stays, wherever it came from", () => {
    const instance = new Instance(signal("Go"))
    instance.turn()
    instance.turn(instance.cancel("first"), instance.cancel("second"))
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("first"))
    assert.deepStrictEqual(instance.written, [
      "3 OrchestrationCancelRequested first",
      "4 ExternalSubscribedCancelled <2 orchestration_terminal",
      "5 OrchestrationFailed"
    ])
  })

  it("cancel: in a batch with other messages, every message is recorded", () => {
    const seen: Array<unknown> = []
    const program = Effect.gen(function*() {
      const branches = [A(1), Effect.catch(B(2), Effect.succeed), Effect.sleep(50), signal("Go")]
      seen.push(yield* Effect.all(branches, { concurrency: "unbounded" }))
      yield* A("new")
    })
    const instance = new Instance(program, { parent: { instance: "p", id: 7, executionId: 1 } })
    instance.turn()
    const { warnings } = instance.turn(
      instance.completed(2, "a"),
      instance.cancel("stop"),
      instance.failed(3, "b"),
      instance.completed(2, "again"),
      instance.fired(4),
      instance.cancel("stop twice"),
      instance.raised("Go", "c"),
      instance.raised("Go", "d"),
      { ...instance.completed(3), executionId: 9 }
    )
    assert.deepStrictEqual(instance.written, [
      "6 ActivityCompleted <2",
      "7 OrchestrationCancelRequested stop",
      "8 ActivityFailed <3",
      "9 TimerFired <4",
      "10 ExternalEvent",
      "11 ExternalEvent",
      "12 ActivityScheduled",
      "13 OrchestrationFailed",
      "14 ActivityCancelRequested <12 orchestration_terminal_failed"
    ])
    assert.deepStrictEqual(seen.at(-1), ["a", "b", undefined, "c"])
    assert.strictEqual(warnings.length, 2)
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("stop"))
    assert.deepStrictEqual(instance.last.turn.workerItems, [])
    assert.deepStrictEqual(notice(instance).map(({ _tag }) => _tag), ["SubOrchFailed"])
  })

  it("cancel: loses to a mismatch and to code that dies", () => {
    const changed = new Instance(signal("Go"))
    changed.turn()
    changed.become(signal("Gone")).turn(changed.cancel("late"))
    assert.strictEqual(changed.failure._tag, "Configuration")
    const dying = new Instance(Effect.andThen(signal("Go"), Effect.die("oh")))
    dying.turn()
    dying.turn(dying.raised("Go"), dying.cancel("late"))
    assert.deepInclude(dying.failure, { kind: "Panicked" })
  })

  it("end: a root sends no message", () => {
    const instance = new Instance(Effect.succeed(1))
    const { turn } = instance.turn()
    assert.deepStrictEqual(turn.orchestratorItems, [])
    assert.deepStrictEqual(turn.metadata, {
      status: "Completed",
      output: "1",
      orchestrationName: "Tested",
      orchestrationVersion: "1.0.0",
      pinnedVersion: { major: 1000, minor: 1, patch: 0 }
    })
  })

  it("first turn: says who the instance is and where it comes from", () => {
    const instance = new Instance(signal("Go"), { parent: { instance: "p", id: 7, executionId: 3 } })
    assert.deepStrictEqual(instance.turn().turn.metadata, {
      orchestrationName: "Tested",
      orchestrationVersion: "1.0.0",
      pinnedVersion: { major: 1000, minor: 1, patch: 0 },
      parentInstanceId: "p"
    })
    assert.deepStrictEqual(instance.turn(instance.raised("Other")).turn.metadata, {})
  })
})

describe("payloads", () => {
  const Order = Schema.Struct({ id: Schema.Int, note: Schema.String })
  class Declined extends Schema.TaggedError<Declined>()("Declined", { code: Schema.Int }) {}
  const Charge = Activity.make("Charge", { payload: Order, success: Schema.DateFromString, error: Declined })
  const Fulfil = Orchestration.make("Fulfil", { payload: Order, success: Schema.DateFromString, error: Declined })
  const input = JSON.stringify({ id: 7, note: "a secret" })

  it("payload: is decoded and encoded by its Schema", () => {
    const instance = new Instance(codeOf(Fulfil, (order) => Charge.execute(order)), { input })
    instance.turn()
    assert.strictEqual(instance.activities.get(2)?.input, input)
    instance.turn(instance.completed(2, "2030-01-01T00:00:00.000Z"))
    assert.deepStrictEqual(instance.outcome, { _tag: "Completed", output: "\"2030-01-01T00:00:00.000Z\"" })
  })

  it("payload: a typed failure of an activity can be handled, or becomes the orchestration's", () => {
    const handled = new Instance(
      codeOf(
        Fulfil,
        (order) => Effect.catchTag(Charge.execute(order), "Declined", ({ code }) => Effect.succeed(new Date(code)))
      ),
      { input }
    )
    handled.turn()
    handled.turn(handled.failed(2, { _tag: "Declined", code: 5 }))
    assert.strictEqual(handled.output, "1970-01-01T00:00:00.005Z")
    const passed = new Instance(codeOf(Fulfil, (order) => Charge.execute(order)), { input })
    passed.turn()
    passed.turn(passed.failed(2, { _tag: "Declined", code: 5 }))
    assert.deepStrictEqual(
      passed.failure,
      ErrorDetails.application("OrchestrationFailed", `{"_tag":"Declined","code":5}`)
    )
  })

  const panic = (instance: Instance) => {
    const { failure } = instance
    if (failure._tag !== "Application" || failure.kind !== "Panicked") return assert.fail(JSON.stringify(failure))
    assert.notInclude(failure.message, "secret")
    return failure.message
  }

  it("payload: an input that does not match is Panicked, without showing it", () => {
    const instance = new Instance(codeOf(Fulfil, () => Effect.never), { input: `{"id":"secret","note":"secret"}` })
    instance.turn()
    assert.match(panic(instance), /^payload of orchestration "Fulfil" does not match its schema: .*\["id"\]/)
  })

  it("payload: a result of an activity that does not match is Panicked, without showing it", () => {
    const instance = new Instance(codeOf(Fulfil, (order) => Charge.execute(order)), { input })
    instance.turn()
    instance.turn(instance.completed(2, { secret: true }))
    assert.match(panic(instance), /^result of activity "Charge" does not match its schema: /)
  })

  it("payload: an invalid payload of a call is Panicked before anything is scheduled", () => {
    const program = Charge.execute({ id: 1.5, note: "secret" })
    const instance = new Instance(codeOf(Fulfil, () => program), { input })
    instance.turn()
    assert.match(panic(instance), /^payload of activity "Charge" does not match its schema: .*\["id"\]/)
    assert.deepStrictEqual(instance.written, ["1 OrchestrationStarted", "2 OrchestrationFailed"])
  })

  it("payload: a result of the code that does not match is Panicked", () => {
    const instance = new Instance(codeOf(Fulfil, () => Effect.succeed("secret" as never)), { input })
    instance.turn()
    assert.match(panic(instance), /^result of orchestration "Fulfil" does not match its schema: /)
  })

  it("payload: a signal that does not match is Panicked, without showing it", () => {
    const Approved = Signal.make("Approved", { payload: Schema.Boolean })
    const instance = new Instance(Approved.wait)
    instance.turn()
    instance.turn(instance.sent("Approved", "secret"))
    assert.match(panic(instance), /^payload of signal "Approved" does not match its schema: /)
  })

  it("payload: an error of an activity that matches no Schema is the defect ActivityDied", () => {
    const caught = Effect.catchDefect(
      Charge.execute({ id: 1, note: "" }),
      (defect) => Effect.succeed(new Date((defect as Activity.ActivityDied).problem === "free text" ? 1 : 0))
    )
    const instance = new Instance(codeOf(Fulfil, () => caught), { input })
    instance.turn()
    instance.turn(instance.failedWith(2, ErrorDetails.application("ActivityFailed", "free text")))
    assert.strictEqual(instance.output, "1970-01-01T00:00:00.001Z")
    const uncaught = new Instance(codeOf(Fulfil, (order) => Charge.execute(order)), { input })
    uncaught.turn()
    uncaught.turn(uncaught.failedWith(2, ErrorDetails.application("Panicked", "stack overflow")))
    assert.match(panic(uncaught), /^activity "Charge" died: .*stack overflow$/)
  })

  it("payload: no result at all is null", () => {
    const instance = new Instance(codeOf(Orchestration.make("Nothing"), () => Effect.void))
    instance.turn()
    assert.deepStrictEqual(instance.outcome, { _tag: "Completed", output: "null" })
  })
})

describe("unreadable history", () => {
  const details = ErrorDetails.nondeterminism("why")
  const fail = (text: string) => {
    const instance = new Instance(A(1), { parent: { instance: "p", id: 7, executionId: 3 } })
    instance.turn()
    const rows = instance.history.map(Event.encode)
    const { history } = complete({
      instanceId: "i",
      orchestrationName: "Tested",
      orchestrationVersion: "1.0.0",
      executionId: 1,
      nowMs: 0,
      rows: [],
      isWholeHistory: true,
      messages: [],
      messageIds: [],
      enqueuedAtMs: [],
      keyValues: new Map()
    }, text === "first" ? ["?", ...rows.slice(1)] : [...rows, "?"])
    return turns.fail({ ...instance.claimed([]), history }, details, { unreadable: true }).turn
  }

  it("the parent is notified if the first event can be read", () => {
    const { historyDelta, metadata, orchestratorItems } = fail("last")
    assert.deepStrictEqual(orchestratorItems, [
      { _tag: "SubOrchFailed", parentInstance: "p", parentExecutionId: 3, parentId: 7, details }
    ])
    assert.deepStrictEqual(historyDelta.map(({ _tag, eventId }) => [_tag, eventId]), [["OrchestrationFailed", 99_999]])
    assert.strictEqual(metadata.status, "Failed")
  })

  it("the parent is unknown if the first event cannot be read", () => {
    assert.deepStrictEqual(fail("first").orchestratorItems, [])
  })
})
