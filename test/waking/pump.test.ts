import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { Hint } from "../../src/waking/Notifier.ts"
import * as pumps from "../../src/waking/pump.ts"
import type { WorkQueue } from "../../src/waking/workQueue.ts"
import * as Clocks from "../utils/clock.ts"
import { pass } from "../utils/longPolling.ts"
import { queueOf } from "../utils/workQueues.ts"

/** A queue that is polled every second, as without a notifier. */
const polled = queueOf({ aggressivePollMs: 1_000 })

type Pump = pumps.Options<string, string>

/** A pump with these two of its own. */
const pumpOf = (
  fetch: Pump["fetch"],
  abandon: Pump["abandon"] = () => Effect.void
) =>
  Effect.flatMap(polled, (queue) =>
    pumps.make<string, string>({
      maxBatch: 10,
      closed: "closed",
      queue,
      lockTimeoutMs: 30_000,
      leftSome: () => {},
      fetch,
      abandon
    }))

/** A pump over a list of items; counts the statements and records abandoned items. */
const setup = (items: Array<string>) =>
  Effect.gen(function*() {
    const queue = yield* polled
    const looks: Array<number> = []
    const returned: Array<string> = []
    let failure: string | undefined
    const pump = yield* pumps.make<string, string>({
      maxBatch: 10,
      queue,
      lockTimeoutMs: 30_000,
      leftSome: () => {},
      closed: "closed",
      fetch: (limit) =>
        Effect.suspend(() => {
          looks.push(limit)
          if (failure !== undefined) return Effect.fail(failure)
          return Effect.succeed({ items: items.splice(0, limit), more: false })
        }),
      abandon: (item) => Effect.sync(() => returned.push(item))
    })
    return { queue, pump, looks, returned, fail: (error: string | undefined) => failure = error }
  })

const long = Duration.minutes(10)
const settle = TestClock.adjust(0)

describe("Pump", () => {
  it.effect("due times: the nearest are remembered; the store is asked for later ones when these have come", () =>
    Effect.gen(function*() {
      let asked = 0
      const queue = yield* queueOf({}, { findNextDue: () => asked++ })
      const count = 12_000
      for (let i = 0; i < count; i++) queue.wakeAt(1_000 * (i + 1), false)
      // One that comes before all others, and one after all.
      queue.wakeAt(500, false)
      queue.received({ hint: Hint.Work({ queue: "worker", visibleAtMs: 1_000 * (count + 1) }), sender: "b" }, 0)
      yield* TestClock.setTime(9_900_000)
      queue.wakeForDue()
      assert.strictEqual(asked, 0)
      yield* TestClock.setTime(1_000 * (count + 2))
      queue.wakeForDue()
      assert.strictEqual(asked, 1)
      assert.strictEqual(queue.untilDue(), Infinity)
    }))

  it.effect("take: all waiting callers share one statement", () =>
    Effect.gen(function*() {
      const { looks, pump } = yield* setup(["a", "b", "c"])
      const taken = yield* Effect.forEach([1, 2, 3], () => pump.take(long), { concurrency: "unbounded" })
      assert.deepStrictEqual(taken, [["a"], ["b"], ["c"]])
      assert.deepStrictEqual(looks, [3])
    }))

  it.effect("take: a caller that gets an item and asks again at once causes another claim", () =>
    Effect.gen(function*() {
      const { pump } = yield* setup(["a", "b", "c"])
      const taken = yield* Effect.forEach([1, 2, 3, 4], () => pump.take(Duration.zero))
      assert.deepStrictEqual(taken, [["a"], ["b"], ["c"], []])
    }))

  it.effect("take: a claim that only set items aside is followed by another", () =>
    Effect.gen(function*() {
      const answers = [{ items: [], more: true }, { items: ["a"], more: false }]
      const pump = yield* pumpOf(() => Effect.sync(() => answers.shift() ?? { items: [], more: false }))
      assert.deepStrictEqual(yield* pump.take(Duration.zero), ["a"])
      assert.deepStrictEqual(yield* pump.take(Duration.zero), [])
    }))

  it.effect("take: a caller gets as many items as it wants at the time of the claim, in their order", () =>
    Effect.gen(function*() {
      const { looks, pump } = yield* setup(["a", "b", "c", "d"])
      let most = 1
      const several = yield* Effect.forkChild(pump.take(long, { most: () => most }))
      const one = yield* Effect.forkChild(pump.take(long))
      most = 2.5
      yield* settle
      assert.deepStrictEqual(yield* Fiber.join(several), ["a", "b"])
      assert.deepStrictEqual(yield* Fiber.join(one), ["c"])
      assert.deepStrictEqual(looks, [3])
    }))

  it.effect("take: a caller that wants nothing any more leaves without a claim, and the wake-up is kept for the next", () =>
    Effect.gen(function*() {
      const items: Array<string> = []
      const { looks, pump, queue } = yield* setup(items)
      let most = 1
      const waiting = yield* Effect.forkChild(pump.take(long, { most: () => most }))
      yield* settle
      most = 0
      items.push("a")
      queue.wake("Stored")
      assert.deepStrictEqual(yield* Fiber.join(waiting), [])
      assert.deepStrictEqual(yield* pump.take(long, { most: () => Number.NaN }), [])
      assert.deepStrictEqual(looks, [1])
      const next = yield* Effect.forkChild(pump.take(long))
      yield* settle
      assert.deepStrictEqual(yield* Fiber.join(next), ["a"])
    }))

  it.effect("take: sends nothing without a waiting caller, and claims once per interval with one", () =>
    Effect.gen(function*() {
      const { looks, pump } = yield* setup([])
      yield* TestClock.adjust("1 hour")
      assert.deepStrictEqual(looks, [])
      const waiting = yield* Effect.forkChild(pump.take(long))
      yield* settle
      yield* TestClock.adjust("5 seconds")
      // At once, and after each of five seconds.
      assert.strictEqual(looks.length, 6)
      yield* Fiber.interrupt(waiting)
      yield* TestClock.adjust("1 hour")
      assert.strictEqual(looks.length, 6)
    }))

  it.effect("wake: work is seen at once, and a wake-up without a waiting caller is kept", () =>
    Effect.gen(function*() {
      const items: Array<string> = []
      const { looks, pump, queue } = yield* setup(items)
      const first = yield* Effect.forkChild(pump.take(long))
      yield* settle
      items.push("now")
      queue.wake("Stored")
      assert.deepStrictEqual(yield* Fiber.join(first), ["now"])
      items.push("later")
      queue.wake("Stored")
      assert.deepStrictEqual(yield* pump.take(long), ["later"])
      assert.strictEqual(looks.length, 3)
    }))

  it.effect("wakeAt: claims when work falls due, in the order of the times", () =>
    Effect.gen(function*() {
      const items: Array<string> = []
      const { looks, pump, queue } = yield* setup(items)
      queue.wakeAt(300, false)
      queue.wakeAt(100, false)
      queue.wakeAt(300, false)
      const waiting = yield* Effect.forkChild(pump.take(long))
      yield* settle
      assert.strictEqual(looks.length, 1)
      yield* TestClock.adjust(99)
      assert.strictEqual(looks.length, 1)
      yield* TestClock.adjust(1)
      assert.strictEqual(looks.length, 2)
      items.push("due")
      yield* TestClock.adjust(200)
      assert.deepStrictEqual(yield* Fiber.join(waiting), ["due"])
      assert.strictEqual(looks.length, 3)
    }))

  it.effect("take: looks once without time to wait, and else returns none at its timeout", () =>
    Effect.gen(function*() {
      const { looks, pump } = yield* setup([])
      assert.deepStrictEqual(yield* pump.take(Duration.zero), [])
      assert.strictEqual(looks.length, 1)
      const waiting = yield* Effect.forkChild(pump.take(Duration.millis(300)))
      yield* TestClock.adjust(299)
      assert.isUndefined(waiting.pollUnsafe())
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(yield* Fiber.join(waiting), [])
      assert.strictEqual(looks.length, 1)
    }))

  it.effect("take: a failure reaches all callers, and the next call claims again", () =>
    Effect.gen(function*() {
      const { fail, pump } = yield* setup(["a"])
      fail("down")
      const errors = yield* Effect.forEach([1, 2], () => Effect.flip(pump.take(long)), { concurrency: "unbounded" })
      assert.deepStrictEqual(errors, ["down", "down"])
      fail(undefined)
      assert.deepStrictEqual(yield* pump.take(long), ["a"])
    }))

  it.effect("take: an interrupted caller waits until the claim under way has been given back", () =>
    Effect.gen(function*() {
      const returned: Array<string> = []
      const pump = yield* pumpOf(
        () => Effect.as(Effect.sleep(50), { items: ["late"], more: false }),
        (item) => Effect.sync(() => returned.push(item))
      )
      const waiting = yield* Effect.forkChild(pump.take(long))
      yield* TestClock.adjust(20)
      const interrupted = yield* Effect.forkChild(Fiber.interrupt(waiting))
      yield* TestClock.adjust(29)
      assert.isUndefined(interrupted.pollUnsafe())
      yield* TestClock.adjust(1)
      assert.isDefined(interrupted.pollUnsafe())
      assert.deepStrictEqual(returned, ["late"])
    }))

  it.effect("take: an interrupted caller waits at most 2 seconds for the claim under way", () =>
    Effect.gen(function*() {
      const answered = yield* Deferred.make<void>()
      const pump = yield* pumpOf(() => Effect.as(Deferred.await(answered), { items: [], more: false }))
      const waiting = yield* Effect.forkChild(pump.take(long))
      yield* settle
      const interrupted = yield* Effect.forkChild(Fiber.interrupt(waiting))
      yield* TestClock.adjust(1_999)
      assert.isUndefined(interrupted.pollUnsafe())
      yield* TestClock.adjust(1)
      assert.isDefined(interrupted.pollUnsafe())
      yield* Deferred.succeed(answered, undefined)
    }))

  it.effect("closing waits at most 2 seconds for the claim under way", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const pump = yield* pumpOf(() => Effect.never).pipe(Scope.provide(scope))
      const waiting = yield* Effect.forkChild(Effect.flip(pump.take(long)))
      yield* settle
      const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void))
      assert.strictEqual(yield* Fiber.join(waiting), "closed")
      yield* TestClock.adjust(1_999)
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust(1)
      assert.isDefined(closing.pollUnsafe())
    }))

  it.effect("take: fails as closed when the pump is closed while it waits, or was before", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const { pump } = yield* setup([]).pipe(Scope.provide(scope))
      const waiting = yield* Effect.forkChild(Effect.flip(pump.take(long)))
      yield* settle
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual(yield* Fiber.join(waiting), "closed")
      assert.strictEqual(yield* Effect.flip(pump.take(Duration.zero)), "closed")
    }))

  it.effect("a wall clock that is set back delays neither the next claim nor the end of a wait", () =>
    Effect.gen(function*() {
      const { clock, setBack } = Clocks.stepping(yield* Clock.Clock)
      yield* Effect.gen(function*() {
        const { looks, pump } = yield* setup([])
        const waiting = yield* Effect.forkChild(pump.take(Duration.seconds(10)))
        yield* settle
        yield* TestClock.adjust("5 seconds")
        assert.strictEqual(looks.length, 6)
        setBack(3_600_000)
        yield* TestClock.adjust("5 seconds")
        assert.strictEqual(looks.length, 11)
        assert.deepStrictEqual(yield* Fiber.join(waiting), [])
      }).pipe(Effect.provideService(Clock.Clock, clock))
    }))

  describe("after locks have run out, a thorough look follows", () => {
    /** A queue that only wake-ups make look, with one caller that takes up to two items of each answer. */
    const looksOf = (answers: Array<number | "down">, during: (queue: WorkQueue) => void = () => {}) =>
      Effect.gen(function*() {
        const queue = yield* queueOf()
        queue.changed({ _tag: "Connected" })
        const looks: Array<"thorough" | "quick"> = []
        const pump = yield* pumps.make<string, string>({
          maxBatch: 10,
          queue,
          lockTimeoutMs: 30_000,
          leftSome: () => {},
          closed: "closed",
          fetch: (_, isThorough) =>
            Effect.suspend(() => {
              looks.push(isThorough ? "thorough" : "quick")
              if (isThorough) during(queue)
              const answer = answers.shift() ?? 0
              return answer === "down"
                ? Effect.fail("down")
                : Effect.succeed({ items: Array<string>(answer).fill("a"), more: false })
            }),
          abandon: () => Effect.void
        })
        yield* Effect.forkChild(Effect.forever(Effect.ignore(pump.take(long, { most: () => 2 }))))
        yield* pass(0)
        looks.length = 0
        queue.wake("LocksExpired")
        yield* pass(0)
        return looks
      })

    it.effect("once, if it finds nothing, or less than it could take", () =>
      Effect.gen(function*() {
        assert.deepStrictEqual(yield* looksOf([0]), ["thorough"])
        assert.deepStrictEqual(yield* looksOf([0, 1]), ["thorough"])
      }))

    it.effect("and another one, when the looks for the rest have become empty, if it took all it could", () =>
      Effect.gen(function*() {
        assert.deepStrictEqual(yield* looksOf([0, 2, 2, 0]), ["thorough", "quick", "quick", "thorough"])
      }))

    it.effect("also if it has failed, and something else has woken the queue meanwhile", () =>
      Effect.gen(function*() {
        let isWoken = false
        const looks = yield* looksOf([0, "down"], (queue) => {
          if (isWoken) return
          isWoken = true
          queue.wake("Stored")
        })
        assert.deepStrictEqual(looks, ["thorough", "quick", "thorough"])
      }))
  })

  it.effect("callers that name locks of different lengths share no statement, and each gets an answer", () =>
    Effect.gen(function*() {
      const looks: Array<readonly [limit: number, lockTimeoutMs: number]> = []
      const items = ["a", "b"]
      const pump = yield* pumpOf((limit, _, lockTimeoutMs) =>
        Effect.sync(() => {
          looks.push([limit, lockTimeoutMs])
          return { items: items.splice(0, 1), more: items.length > 0 }
        })
      )
      const take = (timeout: Duration.Duration, lockTimeoutMs?: number) =>
        Effect.forkChild(pump.take(timeout, { lockTimeoutMs, most: () => 2 }))
      const first = yield* take(long)
      const second = yield* take(long, 1_000)
      const third = yield* take(long)
      yield* pass(0)
      assert.deepStrictEqual(looks, [[4, 30_000], [2, 1_000]])
      assert.deepStrictEqual(yield* Fiber.join(first), ["a"])
      assert.deepStrictEqual(yield* Fiber.join(second), ["b"])
      // One without time to wait is not held up by others that wait before it.
      const hurried = yield* take(Duration.zero, 1_000)
      yield* pass(0)
      assert.deepStrictEqual(yield* Fiber.join(hurried), [])
      assert.deepStrictEqual(looks.slice(2), [[2, 1_000]])
      yield* Fiber.interrupt(third)
    }))

  it.effect("keeps claiming after a claim or an abandon died", () =>
    Effect.gen(function*() {
      const answers = [
        () => {
          throw new Error("no driver does this")
        },
        () => Effect.die(new Error("nor this")),
        () => Effect.as(Effect.sleep(50), { items: ["late"], more: false }),
        () => Effect.succeed({ items: ["a"], more: false })
      ]
      const pump = yield* pumpOf(
        () => answers.shift()!(),
        () => Effect.die(new Error("broken"))
      )
      for (let i = 0; i < 2; i++) assert.isTrue(Exit.isFailure(yield* Effect.exit(pump.take(long))))
      const waiting = yield* Effect.forkChild(pump.take(long))
      yield* TestClock.adjust(20)
      const interrupted = yield* Effect.forkChild(Fiber.interrupt(waiting))
      yield* TestClock.adjust(30)
      yield* Fiber.join(interrupted)
      assert.deepStrictEqual(yield* pump.take(long), ["a"])
    }))
})
