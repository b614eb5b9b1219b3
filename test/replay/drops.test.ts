import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { activity, Instance, signal, take } from "./play.ts"

const A = activity("A")
const B = activity("B")

/** Races `loser` with the signal Win, then waits for the signal End. */
const losing = (loser: Effect.Effect<unknown, unknown, never> | ReturnType<typeof A>) =>
  Effect.andThen(Effect.raceFirst(signal("Win"), loser), signal("End"))

describe("drop", () => {
  it("drop: breadcrumbs come after the turn's schedules, activities before waits, by id", () => {
    const losers = Effect.all([signal("S"), A(1), signal("T"), B(2)], { concurrency: "unbounded" })
    const instance = new Instance(Effect.andThen(Effect.raceFirst(losers, signal("Win")), Effect.andThen(A(3), B(4))))
    instance.turn()
    instance.turn(instance.raised("Win"))
    assert.deepStrictEqual(instance.written, [
      "7 ExternalEvent",
      "8 ActivityScheduled",
      "9 ActivityCancelRequested <3 dropped_future",
      "10 ActivityCancelRequested <5 dropped_future",
      "11 ExternalSubscribedCancelled <2 dropped_future",
      "12 ExternalSubscribedCancelled <4 dropped_future"
    ])
    assert.deepStrictEqual(instance.last.turn.cancelledActivities.map(({ activityId }) => activityId), [3, 5])
  })

  it("drop: a breadcrumb is written once, not again on later turns or at the end", () => {
    const instance = new Instance(
      Effect.andThen(losing(Effect.all([A(1), signal("S")], { concurrency: 2 })), signal("Last"))
    )
    instance.turn()
    instance.turn(instance.raised("Win"))
    instance.turn(instance.raised("End"))
    instance.turn(instance.raised("Last"))
    assert.strictEqual(instance.events().filter((event) => event.includes("dropped_future")).length, 2)
    assert.strictEqual(instance.events().filter((event) => event.includes("orchestration_terminal")).length, 0)
    assert.strictEqual(instance.outcome._tag, "Completed")
  })

  it("drop: an activity begun and dropped in one turn is recorded, enqueued and cancelled in its commit", () => {
    const instance = new Instance(
      Effect.andThen(Effect.raceFirst(A(1), Effect.void), Effect.andThen(B(2), signal("Go")))
    )
    const { turn } = instance.turn()
    assert.deepStrictEqual(instance.written, [
      "1 OrchestrationStarted",
      "2 ActivityScheduled",
      "3 ActivityScheduled",
      "4 ActivityCancelRequested <2 dropped_future"
    ])
    assert.deepStrictEqual(turn.workerItems.map(({ id }) => id), [2, 3])
    assert.deepStrictEqual(turn.cancelledActivities, [{ instanceId: "i", executionId: 1, activityId: 2 }])
    instance.turn(instance.completed(3))
    assert.deepStrictEqual(instance.written, ["5 ActivityCompleted <3", "6 ExternalSubscribed"])
  })

  it("drop: a dropped timer is cancelled, once", () => {
    const instance = new Instance(losing(Effect.sleep("7 days")))
    instance.turn()
    const [timer] = instance.timers.values()
    instance.turn(instance.raised("Win"))
    assert.deepStrictEqual(instance.last.turn.cancelledTimers, [timer!])
    assert.deepStrictEqual(instance.written, ["4 ExternalEvent", "5 ExternalSubscribed"])
    // If it fires anyway, the firing reaches no wait.
    instance.turn(instance.fired(3))
    assert.strictEqual(instance.outcome._tag, "Waiting")
    assert.isUndefined(instance.last.turn.cancelledTimers)
    instance.turn(instance.raised("End"))
    assert.strictEqual(instance.outcome._tag, "Completed")
  })

  it("drop: a timer begun and dropped in one turn is cancelled in its commit", () => {
    const instance = new Instance(
      Effect.andThen(Effect.raceFirst(Effect.sleep("7 days"), Effect.void), signal("Go"))
    )
    const { turn } = instance.turn()
    assert.deepStrictEqual(turn.cancelledTimers, turn.orchestratorItems as never)
    assert.deepStrictEqual(instance.events(), ["1 OrchestrationStarted", "2 TimerCreated", "3 ExternalSubscribed"])
  })

  it("drop: a wait begun and dropped in one turn takes no signal", () => {
    const program = Effect.andThen(Effect.raceFirst(signal("Go"), Effect.void), signal("Go"))
    const instance = new Instance(program)
    instance.turn()
    assert.deepStrictEqual(instance.written.slice(1), [
      "2 ExternalSubscribed",
      "3 ExternalSubscribed",
      "4 ExternalSubscribedCancelled <2 dropped_future"
    ])
    instance.turn(instance.raised("Go", "for the second"))
    assert.strictEqual(instance.output, "for the second")
    assert.deepStrictEqual(instance.written, ["5 ExternalEvent", "6 OrchestrationCompleted"])
  })

  it("drop: a dropped wait gives up its place at once; a later signal of the batch does not reach it", () => {
    const program = Effect.gen(function*() {
      const first = yield* Effect.raceFirst(signal("Go"), Effect.as(Effect.sleep(10), "timer"))
      return [first, yield* signal("Go")]
    })
    const instance = new Instance(program)
    instance.turn()
    instance.turn(instance.fired(3), instance.raised("Go", "lost"))
    assert.deepStrictEqual(instance.written, [
      "4 TimerFired <3",
      "5 ExternalEvent",
      "6 ExternalSubscribed",
      "7 ExternalSubscribedCancelled <2 dropped_future"
    ])
    instance.turn(instance.raised("Go", "found"))
    assert.deepStrictEqual(instance.output, ["timer", "found"])
  })

  it("drop: the next wait of the name moves up when the one before it is dropped", () => {
    const program = Effect.all([
      Effect.raceFirst(signal("Go"), Effect.as(Effect.sleep(10), "timer")),
      signal("Go")
    ], { concurrency: "unbounded" })
    const instance = new Instance(program)
    instance.turn()
    instance.turn(instance.fired(3), instance.raised("Go", "moved up"))
    assert.deepStrictEqual(instance.output, ["timer", "moved up"])
  })

  it("drop: a wait begun and dropped at once takes no message from the next wait", () => {
    const program = Effect.gen(function*() {
      yield* signal("Go")
      yield* Effect.raceFirst(take("Mail"), Effect.void)
      const read = yield* take("Mail")
      yield* signal("End")
      return read
    })
    const instance = new Instance(program)
    instance.turn(instance.sent("Mail", "first"))
    instance.turn(instance.raised("Go"))
    instance.turn(instance.raised("End"))
    assert.strictEqual(instance.output, "first")
    assert.notInclude(instance.written.join(), "orchestration_terminal")
  })

  it("drop: an activity that ended after the drop in the batch keeps its result, and nothing is cancelled", () => {
    const instance = new Instance(losing(A(1)))
    instance.turn()
    const { turn } = instance.turn(instance.raised("Win"), instance.completed(3, "late"))
    assert.deepStrictEqual(instance.written, ["4 ExternalEvent", "5 ActivityCompleted <3", "6 ExternalSubscribed"])
    assert.deepStrictEqual(turn.cancelledActivities, [])
    instance.turn(instance.raised("End", "end"))
    assert.strictEqual(instance.output, "end")
  })

  it("drop: an activity that ended before the drop in the batch has won", () => {
    const instance = new Instance(Effect.raceFirst(signal("Win"), A(1)))
    instance.turn()
    instance.turn(instance.completed(3, "first"), instance.raised("Win", "second"))
    assert.strictEqual(instance.output, "first")
    assert.deepStrictEqual(instance.written, [
      "4 ActivityCompleted <3",
      "5 ExternalEvent",
      "6 ExternalSubscribedCancelled <2 dropped_future",
      "7 OrchestrationCompleted"
    ])
  })

  it("drop: a late result of a cancelled activity is recorded and reaches no wait", () => {
    const instance = new Instance(losing(A(1)))
    instance.turn()
    instance.turn(instance.raised("Win"))
    instance.turn(instance.completed(3, "late"))
    assert.deepStrictEqual(instance.written, ["7 ActivityCompleted <3"])
    instance.turn(instance.raised("End", "end"))
    assert.strictEqual(instance.output, "end")
  })

  it("drop: a dropped timer fires unnoticed and leaves no breadcrumb", () => {
    const instance = new Instance(losing(Effect.sleep(50)))
    instance.turn()
    instance.turn(instance.raised("Win"))
    assert.deepStrictEqual(instance.written, ["4 ExternalEvent", "5 ExternalSubscribed"])
    instance.turn(instance.fired(3))
    assert.deepStrictEqual(instance.written, ["6 TimerFired <3"])
    instance.turn(instance.raised("End", "end"))
    assert.strictEqual(instance.output, "end")
  })

  it("drop: not dropping again what the history dropped is nondeterminism", () => {
    const instance = new Instance(losing(A(1)))
    instance.turn()
    instance.turn(instance.raised("Win"))
    instance.become(Effect.gen(function*() {
      yield* Effect.forkChild(Effect.andThen(Effect.yieldNow, A(1)))
      yield* signal("Win")
      yield* signal("End")
    }))
    instance.turn(instance.raised("End"))
    assert.deepInclude(instance.failure, {
      kind: "Nondeterminism",
      message: "event 6: history says the code gave up event 3, now it did not"
    })
  })

  it("drop: code that drops more than the history says continues", () => {
    const instance = new Instance(Effect.andThen(Effect.all([signal("Win"), A(1)], { concurrency: 2 }), signal("End")))
    instance.turn()
    instance.turn(instance.raised("Win"))
    instance.become(losing(A(1)))
    instance.turn(instance.completed(3))
    assert.deepStrictEqual(instance.written, ["5 ActivityCompleted <3", "6 ExternalSubscribed"])
  })
})
