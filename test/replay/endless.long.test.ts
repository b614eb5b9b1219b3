import { assert, describe, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Queue from "effect/Queue"
import * as Ref from "effect/Ref"
import * as Schedule from "effect/Schedule"
import * as Scheduler from "effect/Scheduler"
import * as Stream from "effect/Stream"
import * as Tracer from "effect/Tracer"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import type * as Orchestration from "../../src/Orchestration.ts"
import * as turns from "../../src/replay/turn.ts"
import { activity, continueAsNew, detached, Instance, set, signal } from "./play.ts"

const A = activity("A")

/** Every kind of step; `step` is called once in each round. */
const loops: {
  readonly [what: string]: (step: () => void) => Effect.Effect<unknown, unknown, Orchestration.Instance>
} = {
  "Effect.void": (step) =>
    Effect.gen(function*() {
      while (true) {
        step()
        yield* Effect.void
      }
    }),
  "Effect.succeed in Effect.fn": (step) => {
    const loop = Effect.fn("loop")(function*() {
      while (true) {
        step()
        yield* Effect.succeed(1)
      }
    })
    return loop()
  },
  "Effect.succeed behind another step of an eager generator": (step) =>
    Effect.suspend(Effect.fnUntracedEager(function*() {
      yield* Effect.yieldNow
      while (true) {
        step()
        yield* Effect.succeed(1)
      }
    })),
  "Effect.sync": (step) =>
    Effect.gen(function*() {
      while (true) yield* Effect.sync(step)
    }),
  "Effect.suspend": (step) => {
    const loop: Effect.Effect<never> = Effect.suspend(() => {
      step()
      return loop
    })
    return loop
  },
  "Effect.forever": (step) => Effect.forever(Effect.sync(step)),
  "Effect.forever without letting others run": (step) => Effect.forever(Effect.sync(step), { disableYield: true }),
  "Effect.whileLoop": (step) => Effect.whileLoop({ while: () => true, body: () => Effect.void, step }),
  "Effect.yieldNow": (step) => Effect.forever(Effect.andThen(Effect.sync(step), Effect.yieldNow)),
  "Effect.sleep of no time": (step) => Effect.forever(Effect.andThen(Effect.sync(step), Effect.sleep(0))),
  "Effect.retry": (step) => Effect.retry(Effect.suspend(() => Effect.fail(step())), Schedule.forever),
  "Effect.repeat": (step) => Effect.repeat(Effect.sync(step), { while: () => true }),
  "recursion": (step) => {
    const again = (n: number): Effect.Effect<number> =>
      Effect.map(
        Effect.suspend(() => {
          step()
          return again(n + 1)
        }),
        (n) => n + 1
      )
    return again(0)
  },
  "recursion of generators": (step) => {
    const again = (): Effect.Effect<number> =>
      Effect.gen(function*() {
        step()
        return (yield* again()) + 1
      })
    return again()
  },
  "forks": (step) => Effect.forever(Effect.forkChild(Effect.sync(step))),
  "forks that start at once": (step) =>
    Effect.forever(Effect.forkDetach(Effect.sync(step), { startImmediately: true })),
  "a fiber that forks the next one": (step) => {
    const next: Effect.Effect<unknown> = Effect.suspend(() => {
      step()
      return Effect.forkDetach(next)
    })
    return Effect.andThen(next, A(1))
  },
  "two fibers that play ball": (step) =>
    Effect.gen(function*() {
      const there = yield* Queue.unbounded<number>()
      const back = yield* Queue.unbounded<number>()
      yield* Effect.forkChild(Effect.forever(Effect.flatMap(Queue.take(there), (ball) => Queue.offer(back, ball))))
      yield* Queue.offer(there, 1)
      return yield* Effect.forever(Effect.flatMap(Queue.take(back), (ball) => {
        step()
        return Queue.offer(there, ball)
      }))
    }),
  "a stream": (step) => Stream.runForEach(Stream.forever(Stream.succeed(1)), () => Effect.sync(step)),
  "waiting for a value that no one changes": (step) =>
    Effect.gen(function*() {
      const done = yield* Ref.make(false)
      while (!(yield* Ref.get(done))) step()
    }),
  "catching interruption": (step) => {
    const loop: Effect.Effect<never> = Effect.catchCause(
      Effect.andThen(Effect.sync(step), Effect.interrupt),
      () => loop
    )
    return loop
  },
  "catching defects": (step) => {
    const loop: Effect.Effect<never> = Effect.catchDefect(
      Effect.andThen(Effect.sync(step), Effect.die("x")),
      () => loop
    )
    return loop
  },
  "catching whatever there is": (step) =>
    Effect.gen(function*() {
      while (true) yield* Effect.exit(Effect.forever(Effect.sync(step)))
    }),
  "a generator that catches": (step) =>
    Effect.gen(function*() {
      while (true) {
        try {
          step()
          yield* Effect.void
        } finally {
          // eslint-disable-next-line no-unsafe-finally
          continue
        }
      }
    }),
  "a region without interruption": (step) => Effect.uninterruptible(Effect.forever(Effect.sync(step))),
  "a finalizer": (step) => Effect.ensuring(Effect.void, Effect.forever(Effect.sync(step))),
  "a finalizer behind an activity": (step) => Effect.ensuring(Effect.die("x"), Effect.forever(Effect.sync(step))),
  "what is left when a race is lost": (step) =>
    Effect.raceFirst(Effect.onInterrupt(Effect.never, () => Effect.forever(Effect.sync(step))), Effect.yieldNow),
  "an observer of a fiber that ended": (step) =>
    Effect.gen(function*() {
      const fiber = yield* Effect.forkChild(Effect.void)
      yield* Fiber.await(fiber)
      yield* Effect.forkDetach(Effect.forever(Effect.sync(step)))
      yield* A(1)
    }),
  "a loop beside code that waits": (step) =>
    Effect.all([signal("Go"), Effect.forever(Effect.sync(step))], { concurrency: "unbounded" }),
  "a region that never lets others run": (step) =>
    Effect.forever(Effect.sync(step)).pipe(Effect.provideService(Scheduler.PreventSchedulerYield, true)),
  "a tracer of its own": (step) =>
    Effect.forever(Effect.sync(step)).pipe(
      Effect.withTracer(Tracer.make({ span: (options) => new Tracer.NativeSpan(options) }))
    ),
  "spans": (step) => Effect.forever(Effect.withSpan(Effect.sync(step), "step")),
  "values": (step) => Effect.forever(Effect.andThen(Effect.sync(step), set("k", "1"))),
  "activities that are not waited for": (step) =>
    Effect.forever(Effect.andThen(Effect.sync(step), Effect.forkChild(A(1)))),
  "detached starts": (step) => Effect.forever(Effect.andThen(Effect.sync(step), detached("D", "d"))),
  "asking for the next execution, and for it again": (step) =>
    Effect.forever(Effect.andThen(Effect.sync(step), Effect.forkChild(continueAsNew()))),
  "a deferred": (step) =>
    Effect.forever(Effect.gen(function*() {
      step()
      const deferred = yield* Deferred.make<void>()
      yield* Deferred.succeed(deferred, undefined)
      yield* Deferred.await(deferred)
    }))
}

const laterTasks = () => new Promise<void>((resolve) => void setImmediate(resolve))

describe("endless", () => {
  for (const [what, loop] of Object.entries(loops)) {
    it(`${what}: the turn ends, the instance fails, and the code never runs again`, async () => {
      let rounds = 0
      const instance = new Instance(loop(() => void rounds++))
      const { outcome, turn, warm } = turns.run(instance.claimed([]))
      if (outcome._tag !== "Failed" || outcome.details._tag !== "Configuration") return assert.fail(outcome._tag)
      assert.include(outcome.details.message, `orchestration "Tested" does not come to rest`)
      assert.isUndefined(warm)
      assert.deepStrictEqual(turn.historyDelta.map(({ _tag }) => _tag), ["OrchestrationStarted", "OrchestrationFailed"])
      const made = rounds
      for (let i = 0; i < 5; i++) await laterTasks()
      assert.strictEqual(rounds, made)
    })
  }

  it("steps are counted, not timed: the code stops at the same step each time", () => {
    let rounds = 0
    const instance = new Instance(loops["Effect.void"]!(() => void rounds++))
    turns.run(instance.claimed([]))
    const made = rounds
    turns.run(instance.claimed([]))
    assert.strictEqual(rounds, 2 * made)
  })

  it("steps that take long: processor time is the second limit", () => {
    let rounds = 0
    const instance = new Instance(Effect.forever(Effect.sync(() => {
      rounds++
      const end = performance.now() + 20
      while (performance.now() < end);
    })))
    const { outcome } = turns.run(instance.claimed([]))
    if (outcome._tag !== "Failed") return assert.fail(outcome._tag)
    assert.include(ErrorDetails.display(outcome.details), "does not come to rest")
    assert.isAbove(rounds, 50)
  })

  it("a loop that ends: much work in one turn is allowed", () => {
    const instance = new Instance(Effect.gen(function*() {
      let sum = 0
      for (let i = 0; i < 100_000; i++) sum += yield* Effect.map(Effect.succeed(i), (n) => n % 2)
      return sum
    }))
    assert.strictEqual(turns.run(instance.claimed([])).outcome._tag, "Completed")
  })

  it("after an activity: the turn stores only received messages", () => {
    const instance = new Instance(Effect.andThen(A(1), Effect.forever(set("k", "1"))))
    instance.turn()
    const { outcome, turn } = turns.run(instance.claimed([instance.completed(2)]))
    assert.strictEqual(outcome._tag, "Failed")
    assert.deepStrictEqual(turn.historyDelta.map(({ _tag }) => _tag), ["ActivityCompleted", "OrchestrationFailed"])
  })
})
