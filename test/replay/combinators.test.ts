import { assert, describe, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { OrchestrationContext } from "../../src/replay/context.ts"
import { A, B, C, echo, never, staggered } from "./combinators.ts"
import { calls, Instance, play, signal, start } from "./play.ts"

describe("sleep", () => {
  it("sleep: is a timer due from the turn's clock, fired by a message", () => {
    const instance = new Instance(Effect.as(Effect.sleep("3 days"), "rested"))
    const { turn } = instance.turn()
    const fireAtMs = start + Duration.toMillis("3 days")
    assert.deepStrictEqual(turn.orchestratorItems, [
      { _tag: "TimerFired", instance: "i", executionId: 1, id: 2, fireAtMs }
    ])
    assert.strictEqual(instance.outcome._tag, "Waiting")
    instance.turn(instance.fired(2))
    assert.strictEqual(instance.output, "rested")
    assert.deepStrictEqual(instance.events(), [
      "1 OrchestrationStarted",
      "2 TimerCreated",
      "3 TimerFired <2",
      "4 OrchestrationCompleted"
    ])
  })

  it("sleep: without duration costs no turn", () => {
    const instance = new Instance(
      Effect.andThen(Effect.sleep(0), Effect.andThen(Effect.sleep(-5), Effect.succeed("done")))
    )
    instance.turn()
    assert.strictEqual(instance.output, "done")
    assert.strictEqual(instance.history.length, 2)
  })

  it("sleep: rounds a fraction of a millisecond up", () => {
    const instance = new Instance(Effect.sleep(Duration.micros(1500n)))
    instance.turn()
    assert.deepStrictEqual(calls(instance.history), ["sleep 2"])
  })

  it("delay: counts from the turn in which it is reached", () => {
    const instance = play(Effect.andThen(A(1), Effect.delay(A(2), "1 second")), { activities: staggered })
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "sleep 1000", "A(2)"])
    assert.strictEqual(instance.nowMs, start + 100 + 1000 + 100)
  })
})

describe("all", () => {
  it("all: unbounded schedules every branch in one turn, results stand in branch order", () => {
    const instance = new Instance(Effect.all([A(1), B(2), C(3)], { concurrency: "unbounded" }))
    instance.turn()
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "B(2)", "C(3)"])
    instance.turn(instance.completed(4, "c"))
    instance.turn(instance.completed(2, "a"), instance.completed(3, "b"))
    assert.deepStrictEqual(instance.output, ["a", "b", "c"])
  })

  it("all: with concurrency 2 the third branch begins when one of the first two has ended", () => {
    const instance = new Instance(Effect.all([A(1), A(2), A(3), A(4)], { concurrency: 2 }))
    instance.turn()
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "A(2)"])
    instance.turn(instance.completed(3, "two"))
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "A(2)", "A(3)"])
    instance.turn(instance.completed(2, "one"), instance.completed(5, "three"))
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "A(2)", "A(3)", "A(4)"])
    instance.turn(instance.completed(8, "four"))
    assert.deepStrictEqual(instance.output, ["one", "two", "three", "four"])
  })

  it("all: in sequence schedules one branch at a time", () => {
    const instance = play(Effect.all([A(1), Effect.sleep(50), B(2)]), { activities: echo })
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "sleep 50", "B(2)"])
    assert.deepStrictEqual(instance.output, [1, null, 2])
  })

  it("all: nested fan-outs are one fan-out", () => {
    const inner = (n: number) =>
      Effect.all([A(n), Effect.all([B(n), C(n)], { concurrency: "unbounded" })], { concurrency: "unbounded" })
    const program = Effect.all([inner(1), inner(2)], { concurrency: "unbounded" })
    const instance = play(program, { activities: staggered })
    assert.deepStrictEqual(instance.output, [[1, [1, 1]], [2, [2, 2]]])
    assert.strictEqual(instance.nowMs, start + 300)
    assert.deepStrictEqual([...calls(instance.history)].sort(), ["A(1)", "A(2)", "B(1)", "B(2)", "C(1)", "C(2)"])
  })

  it("all: the first failure cancels the other branches and fails at once", () => {
    const program = Effect.all([A(1), B(2), signal("Go"), Effect.sleep("1 hour")], { concurrency: "unbounded" })
    const instance = new Instance(Effect.catch(program, (error) => Effect.andThen(C("after"), Effect.succeed(error))))
    instance.turn()
    const { turn } = instance.turn(instance.failed(3, "no"))
    assert.deepStrictEqual(instance.written, [
      "6 ActivityFailed <3",
      "7 ActivityScheduled",
      "8 ActivityCancelRequested <2 dropped_future",
      "9 ExternalSubscribedCancelled <4 dropped_future"
    ])
    assert.deepStrictEqual(turn.cancelledActivities, [{ instanceId: "i", executionId: 1, activityId: 2 }])
    instance.turn(instance.completed(7))
    assert.strictEqual(instance.output, "no")
  })

  it("all: a struct of branches keeps its keys", () => {
    const program = Effect.all({ a: A(1), b: B(2) }, { concurrency: "unbounded" })
    assert.deepStrictEqual(play(program, { activities: echo }).output, { a: 1, b: 2 })
  })

  it("all: mode result waits for every branch, failed or not", () => {
    const program = Effect.map(
      Effect.all([A(1), B(2)], { concurrency: "unbounded", mode: "result" }),
      (results) => results.map((result) => result._tag)
    )
    const instance = play(program, { activities: { A: () => ({ error: "no" }), B: (value) => ({ value, after: 10 }) } })
    assert.deepStrictEqual(instance.output, ["Failure", "Success"])
    assert.notInclude(instance.events().join(), "Cancel")
  })

  it("forEach: runs activities of a collection with bounded concurrency", () => {
    const instance = play(Effect.forEach([1, 2, 3, 4, 5], (n) => A(n), { concurrency: 3 }), { activities: staggered })
    assert.deepStrictEqual(instance.output, [1, 2, 3, 4, 5])
    assert.strictEqual(instance.nowMs, start + 200)
  })

  it("Stream.mapEffect: streams over activities, keeping order", () => {
    const program = Stream.fromIterable([1, 2, 3]).pipe(
      Stream.mapEffect((n) => A(n), { concurrency: 2 }),
      Stream.runCollect
    )
    assert.deepStrictEqual(play(program, { activities: staggered }).output, [1, 2, 3])
  })
})

describe("race", () => {
  it("race: the first success wins and cancels the loser", () => {
    const instance = play(Effect.andThen(Effect.race(A("a"), B("b")), (won) => Effect.as(C(0), won)), {
      activities: { ...staggered, A: () => never }
    })
    assert.strictEqual(instance.output, "b")
    assert.deepStrictEqual(instance.events(4), [
      "4 ActivityCompleted <3",
      "5 ActivityScheduled",
      "6 ActivityCancelRequested <2 dropped_future",
      "7 ActivityCompleted <5",
      "8 OrchestrationCompleted"
    ])
  })

  it("race: a failure does not win", () => {
    const activities = { ...staggered, A: () => ({ error: "no" }) }
    assert.strictEqual(play(Effect.race(A("a"), B("b")), { activities }).output, "b")
    const both = play(Effect.race(A("a"), B("b")), {
      activities: { ...activities, B: () => ({ error: "neither", after: 1 }) }
    })
    assert.strictEqual(both.outcome._tag, "Failed")
  })

  it("raceFirst: the first to end wins, failed or not", () => {
    const program = Effect.flip(Effect.raceFirst(A("a"), B("b")))
    const instance = play(program, { activities: { ...staggered, A: () => ({ error: "no" }) } })
    assert.strictEqual(instance.output, "no")
    assert.include(instance.events().join(), "ActivityCancelRequested <3 dropped_future")
  })

  it("race: of two completions in one batch the earlier one wins, whichever branch stands first", () => {
    for (const [first, second] of [[2, 3], [3, 2]] as const) {
      const instance = new Instance(Effect.race(Effect.as(A(0), "A"), Effect.as(B(0), "B")))
      instance.turn()
      instance.turn(instance.completed(first), instance.completed(second))
      assert.strictEqual(instance.output, first === 2 ? "A" : "B")
    }
  })

  it("raceAll: losers of every kind are dropped", () => {
    const program = Effect.raceAll([A("a"), signal("Go"), Effect.sleep("1 hour"), B("b"), C("c")])
    const instance = play(Effect.andThen(program, (won) => Effect.as(Effect.sleep(1), won)), {
      activities: { A: () => never, B: (value) => ({ value, after: 5 }), C: () => never }
    })
    assert.strictEqual(instance.output, "b")
    assert.deepStrictEqual(instance.events(7).slice(0, 5), [
      "7 ActivityCompleted <5",
      "8 TimerCreated",
      "9 ActivityCancelRequested <2 dropped_future",
      "10 ActivityCancelRequested <6 dropped_future",
      "11 ExternalSubscribedCancelled <3 dropped_future"
    ])
  })

  it("race: nested races and joins drop everything below a loser", () => {
    const loser = Effect.all([A(1), Effect.race(B(2), signal("Go"))], { concurrency: "unbounded" })
    const instance = play(Effect.race(loser, Effect.as(Effect.sleep(10), "timer")), {
      activities: { A: () => never, B: () => never }
    })
    assert.strictEqual(instance.output, "timer")
    assert.deepStrictEqual(instance.written, [
      "6 TimerFired <5",
      "7 ActivityCancelRequested <2 dropped_future",
      "8 ActivityCancelRequested <3 dropped_future",
      "9 ExternalSubscribedCancelled <4 dropped_future",
      "10 OrchestrationCompleted"
    ])
  })

  it("race: a branch that is ready at once wins without a turn", () => {
    const instance = new Instance(Effect.race(Effect.succeed("ready"), A(1)))
    instance.turn()
    assert.strictEqual(instance.output, "ready")
    assert.deepStrictEqual(instance.last.turn.workerItems, [])
  })
})

describe("timeout", () => {
  it("timeout: a slow activity fails with TimeoutError and is cancelled", () => {
    const program = A(1).pipe(
      Effect.timeout("150 millis"),
      Effect.catch((error) => Effect.succeed(Cause.isTimeoutError(error) ? "too slow" : "other"))
    )
    const instance = play(program, { activities: { A: () => never } })
    assert.strictEqual(instance.output, "too slow")
    assert.include(instance.events().join(), "ActivityCancelRequested <2 dropped_future")
  })

  it("timeout: a fast activity wins; the timer falls due unnoticed", () => {
    const instance = new Instance(Effect.andThen(Effect.timeout(A(1), "150 millis"), signal("Go")))
    instance.turn()
    instance.turn(instance.completed(2))
    instance.turn(instance.fired(3))
    assert.deepStrictEqual(instance.written, ["6 TimerFired <3"])
    instance.turn(instance.raised("Go", "on"))
    assert.strictEqual(instance.output, "on")
  })

  it("timeoutOption: says whether there was an answer", () => {
    const program = Effect.gen(function*() {
      const first = yield* Effect.timeoutOption(signal("Go"), "1 hour")
      const second = yield* Effect.timeoutOption(signal("Go"), "1 hour")
      return [Option.getOrElse(first, () => "none"), Option.getOrElse(second, () => "none")]
    })
    const instance = play(program, { signals: [{ at: 1000, name: "Go", value: "here" }] })
    assert.deepStrictEqual(instance.output, ["here", "none"])
    assert.strictEqual(instance.nowMs, start + 1000 + 3_600_000)
  })

  it("timeoutOrElse: continues with the other program", () => {
    const program = Effect.timeoutOrElse(A(1), { duration: 10, orElse: () => B(2) })
    assert.strictEqual(play(program, { activities: { A: () => never, B: (value) => ({ value }) } }).output, 2)
  })
})

describe("retry", () => {
  const failing = (times: number) => ({
    A: (value: unknown, attempt: number) => attempt <= times ? { error: `attempt ${attempt}` } : { value }
  })

  it("retry: exponential delays are timers between the attempts", () => {
    const program = Effect.retry(A(1), { times: 3, schedule: Schedule.exponential("1 second") })
    const instance = play(program, { activities: failing(3) })
    assert.deepStrictEqual(calls(instance.history), [
      "A(1)",
      "sleep 1000",
      "A(1)",
      "sleep 2000",
      "A(1)",
      "sleep 4000",
      "A(1)"
    ])
    assert.strictEqual(instance.output, 1)
  })

  it("retry: times is the number of repetitions, then the last error fails", () => {
    const instance = play(Effect.retry(A(1), { times: 2 }), { activities: failing(9) })
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "A(1)", "A(1)"])
    assert.deepInclude(instance.failure, { _tag: "Application", kind: "OrchestrationFailed", message: "\"attempt 3\"" })
  })

  it("retry: recurs without a delay needs no timer", () => {
    const instance = play(Effect.retry(A(1), Schedule.recurs(2)), { activities: failing(2) })
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "A(1)", "A(1)"])
  })

  it("retry: while decides by the error", () => {
    const program = Effect.retry(A(1), { while: (error) => error !== "attempt 2", schedule: Schedule.spaced(10) })
    const instance = play(Effect.flip(program), { activities: failing(9) })
    assert.strictEqual(instance.output, "attempt 2")
  })

  it("retry: jitter is drawn once and stays the same on every replay", () => {
    const program = Effect.retry(A(1), { times: 4, schedule: Schedule.jittered(Schedule.spaced("10 seconds")) })
    const sleeps = (instanceId: string) =>
      calls(play(program, { instanceId, activities: failing(4) }).history).filter((call) => call.startsWith("sleep"))
    const delays = sleeps("i").map((call) => Number(call.slice(6)))
    assert.strictEqual(delays.length, 4)
    for (const delay of delays) assert.isTrue(delay >= 8_000 && delay <= 12_000, `${delay}`)
    assert.strictEqual(new Set(delays).size, 4)
    assert.deepStrictEqual(sleeps("i"), sleeps("i"))
    assert.notDeepEqual(sleeps("i"), sleeps("j"))
  })

  it("retry: a schedule with a time limit uses the recorded clock", () => {
    const program = Effect.retry(A(1), Schedule.max([Schedule.spaced("1 minute"), Schedule.during("150 seconds")]))
    const instance = play(Effect.flip(program), { activities: failing(9) })
    assert.strictEqual(instance.output, "attempt 4")
    assert.strictEqual(instance.nowMs, start + 180_000)
  })

  it("repeat: runs again until the schedule ends", () => {
    const instance = play(Effect.repeat(A(1), { times: 2, schedule: Schedule.spaced("5 seconds") }), {
      activities: echo
    })
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "sleep 5000", "A(1)", "sleep 5000", "A(1)"])
  })

  it("repeat: until a result says so", () => {
    const activities = { A: (_: unknown, attempt: number) => ({ value: attempt }) }
    assert.strictEqual(play(Effect.repeat(A(0), { until: (n) => n === 3 }), { activities }).output, 3)
  })
})

describe("time and chance", () => {
  it("Clock: shows the turn's clock, never goes back, and repeats itself on replay", () => {
    const seen: Array<number> = []
    const look = Effect.map(Clock.currentTimeMillis, (now) => void seen.push(now))
    const program = Effect.gen(function*() {
      yield* look
      yield* A(1)
      yield* look
      yield* A(2)
      yield* look
    })
    const instance = new Instance(program, { staysWarm: false })
    instance.turn()
    instance.nowMs = start + 5_000
    instance.turn(instance.completed(2))
    // The clock of another machine is behind.
    instance.nowMs = start + 4_000
    instance.turn(instance.completed(4))
    const last = seen.slice(-3)
    assert.deepStrictEqual(last, [start, start + 5_000, start + 5_000])
    assert.deepStrictEqual(seen, [start, start, start, start + 5_000, start, start + 5_000, ...last, ...last])
  })

  it("DateTime.now: is the recorded time", () => {
    const program = Effect.andThen(Effect.sleep("1 day"), Effect.map(DateTime.now, DateTime.formatIso))
    assert.strictEqual(play(program).output, "2030-01-02T00:00:00.000Z")
  })

  it("timed: measures with the recorded clock", () => {
    const program = Effect.map(Effect.timed(A(1)), ([duration]) => Duration.toMillis(duration))
    assert.strictEqual(play(program, { activities: staggered }).output, 100)
  })

  it("Random: draws the same on every replay, other numbers in other instances and executions", () => {
    const program = Effect.gen(function*() {
      const before = yield* Random.next
      yield* A(1)
      return [before, yield* Random.nextIntBetween(0, 1e9), yield* Random.shuffle([1, 2, 3, 4, 5, 6, 7, 8])]
    })
    const drawn = (options: { instanceId?: string; executionId?: number }) =>
      JSON.stringify(play(program, { ...options, activities: echo }).output)
    const all = [drawn({}), drawn({ instanceId: "j" }), drawn({ executionId: 2 }), drawn({ instanceId: "i1" })]
    assert.strictEqual(drawn({}), all[0])
    assert.strictEqual(new Set(all).size, all.length)
  })

  it("Random: does not repeat itself from turn to turn", () => {
    const program = Effect.gen(function*() {
      const first = yield* Random.next
      yield* A(1)
      return first === (yield* Random.next)
    })
    assert.strictEqual(play(program, { activities: echo }).output, false)
  })
})

describe("log", () => {
  it("log: every line is written once, however often the turn is replayed", () => {
    const program = Effect.gen(function*() {
      yield* Effect.log("begin")
      yield* Effect.all([A(1), Effect.andThen(B(2), Effect.logInfo("B is done"))], { concurrency: "unbounded" })
      yield* Effect.logDebug("between")
      yield* Effect.sleep(10)
      yield* Effect.logWarning("end")
    })
    const instance = play(program, { activities: staggered })
    assert.deepStrictEqual(instance.logs.flat(), ["begin", "B is done", "between", "end"])
  })

  it("isReplaying: is true only for recorded operations", () => {
    const program = Effect.gen(function*() {
      const { isReplaying } = yield* OrchestrationContext
      const seen: Array<boolean> = []
      seen.push(yield* isReplaying)
      yield* A(1)
      seen.push(yield* isReplaying)
      yield* A(2)
      seen.push(yield* isReplaying)
      return seen
    })
    assert.deepStrictEqual(play(program, { activities: echo, staysWarm: false }).output, [true, true, false])
  })
})
