import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as turns from "../../src/replay/turn.ts"
import { activity, Instance, signal } from "./play.ts"

const A = activity("A")

const message = `orchestration "Tested" awaits something that is not durable (a promise, a callback, a real timer): ` +
  `nothing recorded can ever wake it. Put it in an activity. Instead of an endless sleep, wait for a signal`

/** Waits for the rest of the event loop, independently of time. */
const laterTasks = () => new Promise<void>((resolve) => void setImmediate(resolve))

describe("code that is not durable", () => {
  for (
    const [what, wait] of [
      ["a promise", () => Effect.promise(() => Promise.resolve(1))],
      ["a real timer", () => Effect.callback((resume) => void setTimeout(() => resume(Effect.void), 0))],
      ["a callback that never comes", () => Effect.callback(() => {})],
      ["nothing at all", () => Effect.never],
      ["a queue without a producer", () => Effect.andThen(Queue.unbounded<number>(), Queue.take)],
      ["a sleep beyond every date", () => Effect.sleep("1000000000 weeks")],
      ["an infinite sleep", () => Effect.sleep(Infinity)]
    ] as const
  ) {
    it(`await ${what}: fails, names the orchestration and says what to do`, () => {
      const instance = new Instance(Effect.suspend<unknown, never, never>(wait))
      instance.turn()
      assert.deepInclude(instance.failure, { _tag: "Configuration", kind: "Nondeterminism", message })
      assert.deepStrictEqual(instance.written, ["1 OrchestrationStarted", "2 OrchestrationFailed"])
    })
  }

  it("await after a turn: fails in the turn that reaches it, which stores only received messages", () => {
    const instance = new Instance(Effect.andThen(A(1), Effect.never))
    instance.turn()
    instance.turn(instance.completed(2))
    assert.deepInclude(instance.failure, { message })
    assert.deepStrictEqual(instance.written, ["3 ActivityCompleted <2", "4 OrchestrationFailed"])
  })

  for (
    const [what, loop] of [
      ["sleeping for no time", () => Effect.forever(Effect.sleep(0))],
      ["letting others run", () => Effect.forever(Effect.yieldNow)],
      ["doing nothing", () => Effect.forever(Effect.void)],
      ["retrying at once", () => Effect.retry(Effect.fail("again"), { while: () => true })]
    ] as const
  ) {
    it(`loop ${what}: fails instead of blocking the process`, () => {
      const instance = new Instance(Effect.andThen(A(1), Effect.suspend<unknown, never, never>(loop as never)))
      instance.turn()
      instance.turn(instance.completed(2))
      assert.deepInclude(instance.failure, { _tag: "Configuration", kind: "Nondeterminism" })
      assert.include(JSON.stringify(instance.failure), "\"Tested\\\" does not come to rest")
    })
  }

  it("await beside something durable: the instance waits for that, and then fails", () => {
    const program = Effect.all([Effect.sleep(50), Effect.promise(() => new Promise(() => {}))], { concurrency: 2 })
    const instance = new Instance(program)
    instance.turn()
    assert.strictEqual(instance.outcome._tag, "Waiting")
    instance.turn(instance.fired(2))
    assert.deepInclude(instance.failure, { message })
  })

  it("await beside something durable that wins: is allowed", () => {
    const instance = new Instance(Effect.race(Effect.never, signal("Go")))
    instance.turn()
    instance.turn(instance.raised("Go", "went"))
    assert.strictEqual(instance.output, "went")
  })

  it("continue after a promise: nothing is recorded, and the runtime is notified", async () => {
    const reached: Array<string> = []
    const program = Effect.gen(function*() {
      yield* Effect.race(Effect.sleep("1 hour"), Effect.promise(() => Promise.resolve()))
      reached.push("after the promise")
      yield* A("outside")
      reached.push("after the activity")
    })
    const instance = new Instance(program)
    instance.turn()
    assert.strictEqual(instance.outcome._tag, "Waiting")
    assert.deepStrictEqual(reached, [])
    await laterTasks()
    assert.notInclude(reached, "after the activity")
    assert.isAbove(instance.strays, 0)
    // A later turn does not see what happened outside.
    instance.turn(instance.raised("Other"))
    assert.deepStrictEqual(instance.events(), ["1 OrchestrationStarted", "2 TimerCreated", "3 ExternalEvent"])
  })

  it("continue after a real timer beside a turn: the decisions of the turn do not change", async () => {
    const program = Effect.all([
      A(1),
      Effect.callback<void>((resume) => void setImmediate(() => resume(Effect.void)))
    ], { concurrency: 2 })
    const instance = new Instance(program)
    instance.turn()
    await laterTasks()
    await laterTasks()
    instance.turn(instance.completed(2, "a"))
    assert.deepInclude(instance.failure, { message })
  })

  for (
    const [what, after] of [
      ["and does nothing durable", Effect.void],
      ["and ends the program", Effect.interrupt]
    ] as const
  ) {
    it(`continue after a promise ${what}: the program is not resumed`, async () => {
      const promised = Effect.andThen(Effect.promise(() => Promise.resolve()), after)
      const { warm } = turns.run(
        new Instance(Effect.all([Effect.sleep("1 hour"), promised], { concurrency: 2 })).claimed([])
      )
      assert.isTrue(warm?.isSound())
      await laterTasks()
      assert.isFalse(warm?.isSound())
      assert.isUndefined(warm?.resume({ nowMs: 0, messages: [] }))
    })
  }
})
