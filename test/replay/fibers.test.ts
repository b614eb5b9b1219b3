import { assert, describe, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Latch from "effect/Latch"
import * as Queue from "effect/Queue"
import * as Semaphore from "effect/Semaphore"
import { A, B, C, echo, never, staggered } from "./combinators.ts"
import { calls, Instance, play, signal, start } from "./play.ts"

describe("fibers", () => {
  it("forkChild: join waits for the forked fiber", () => {
    const program = Effect.gen(function*() {
      const fiber = yield* Effect.forkChild(A(1))
      const beside = yield* B(2)
      return [beside, yield* Fiber.join(fiber)]
    })
    const instance = play(program, { activities: staggered })
    assert.deepStrictEqual(instance.output, [2, 1])
    assert.strictEqual(instance.nowMs, start + 200)
  })

  it("forkChild: interrupting a fiber cancels its activity", () => {
    const program = Effect.gen(function*() {
      const fiber = yield* Effect.forkChild(A(1))
      yield* Effect.sleep(10)
      yield* Fiber.interrupt(fiber)
      const exit = yield* Fiber.await(fiber)
      yield* B(2)
      return Exit.hasInterrupts(exit)
    })
    const instance = play(program, { activities: { ...echo, A: () => never } })
    assert.strictEqual(instance.output, true)
    assert.include(instance.events(), "6 ActivityCancelRequested <3 dropped_future")
  })

  it("forkChild: fibers still running at the end are interrupted and their work is cancelled", () => {
    const program = Effect.gen(function*() {
      yield* Effect.forkChild(A(1))
      yield* Effect.forkChild(signal("Go"))
      yield* Effect.sleep(10)
      return "done"
    })
    const instance = play(program, { activities: { A: () => never } })
    assert.strictEqual(instance.output, "done")
    assert.deepStrictEqual(instance.written, [
      "5 TimerFired <2",
      "6 ActivityCancelRequested <3 dropped_future",
      "7 ExternalSubscribedCancelled <4 dropped_future",
      "8 OrchestrationCompleted"
    ])
  })

  it("forkDetach: work of fibers still running at the end is cancelled", () => {
    const program = Effect.gen(function*() {
      yield* Effect.forkDetach(Effect.andThen(A(1), B(2)))
      yield* Effect.forkDetach(signal("Go"))
      yield* Effect.sleep(10)
      return "done"
    })
    const instance = play(program, { activities: { A: () => never } })
    assert.strictEqual(instance.output, "done")
    assert.deepStrictEqual(instance.written, [
      "5 TimerFired <2",
      "6 ExternalSubscribedCancelled <4 orchestration_terminal",
      "7 OrchestrationCompleted",
      "8 ActivityCancelRequested <3 orchestration_terminal_completed"
    ])
    assert.deepStrictEqual(instance.last.turn.cancelledActivities, [{ instanceId: "i", executionId: 1, activityId: 3 }])
  })

  it("Deferred: carries a result from one fiber to another", () => {
    const program = Effect.gen(function*() {
      const deferred = yield* Deferred.make<unknown>()
      yield* Effect.forkChild(Effect.andThen(A(1), (value) => Deferred.succeed(deferred, value)))
      return yield* Deferred.await(deferred)
    })
    assert.strictEqual(play(program, { activities: echo }).output, 1)
  })

  it("Queue: workers take what producers offer, in order", () => {
    const program = Effect.gen(function*() {
      const queue = yield* Queue.bounded<number>(1)
      yield* Effect.forkChild(Effect.forEach([1, 2, 3, 4], (n) => Queue.offer(queue, n)))
      const worker = Effect.replicateEffect(Effect.andThen(Queue.take(queue), (n) => A(n)), 2)
      return yield* Effect.all([worker, worker], { concurrency: "unbounded" })
    })
    assert.deepStrictEqual(play(program, { activities: staggered }).output, [[1, 3], [2, 4]])
  })

  it("Semaphore: limits concurrency", () => {
    const program = Effect.gen(function*() {
      const semaphore = yield* Semaphore.make(2)
      return yield* Effect.forEach([1, 2, 3], (n) => semaphore.withPermits(1)(A(n)), { concurrency: "unbounded" })
    })
    const instance = new Instance(program)
    instance.turn()
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "A(2)"])
    instance.turn(instance.completed(2, 1))
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "A(2)", "A(3)"])
  })

  it("Latch: holds fibers until it opens", () => {
    const program = Effect.gen(function*() {
      const latch = yield* Latch.make()
      const fiber = yield* Effect.forkChild(latch.whenOpen(A(1)))
      yield* Effect.sleep(100)
      yield* latch.open
      return yield* Fiber.join(fiber)
    })
    const instance = play(program, { activities: echo })
    assert.deepStrictEqual(calls(instance.history), ["sleep 100", "A(1)"])
  })

  it("cached: an activity runs once for all callers", () => {
    const program = Effect.gen(function*() {
      const once = yield* Effect.cached(A(1))
      return yield* Effect.all([once, once, once], { concurrency: "unbounded" })
    })
    const instance = play(program, { activities: echo })
    assert.deepStrictEqual(instance.output, [1, 1, 1])
    assert.deepStrictEqual(calls(instance.history), ["A(1)"])
  })
})

describe("finalizers", () => {
  it("acquireRelease: releases with activities, in reverse, also after a failure", () => {
    const step = (n: number) => Effect.acquireRelease(A(n), () => Effect.orDie(B(-n)))
    const program = Effect.scoped(Effect.andThen(step(1), Effect.andThen(step(2), C("use"))))
    const instance = play(program, { activities: { ...echo, C: () => ({ error: "broken" }) } })
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "A(2)", "C(\"use\")", "B(-2)", "B(-1)"])
    assert.deepInclude(instance.failure, { kind: "OrchestrationFailed", message: "\"broken\"" })
  })

  it("onInterrupt: the loser of a race compensates before the winner continues", () => {
    const loser = Effect.onInterrupt(A(1), () => Effect.orDie(B("undo")))
    const program = Effect.andThen(
      Effect.race(loser, Effect.as(Effect.sleep(10), "timer")),
      (won) => Effect.as(C(0), won)
    )
    const instance = play(program, { activities: { ...echo, A: () => never } })
    assert.strictEqual(instance.output, "timer")
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "sleep 10", "B(\"undo\")", "C(0)"])
  })

  it("ensuring: runs an activity whatever happened", () => {
    const program = Effect.ensuring(A(1), Effect.orDie(B("finally")))
    const instance = play(program, { activities: { ...echo, A: () => ({ error: "no" }) } })
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "B(\"finally\")"])
    assert.strictEqual(instance.outcome._tag, "Failed")
  })

  it("uninterruptible: an activity that must end is waited for", () => {
    const program = Effect.race(Effect.uninterruptible(A("kept")), Effect.as(Effect.sleep(10), "timer"))
    const instance = play(program, { activities: { A: (value) => ({ value, after: 50 }) } })
    assert.strictEqual(instance.output, "timer")
    assert.strictEqual(instance.nowMs, start + 50)
    assert.notInclude(instance.events().join(), "Cancel")
  })
})
