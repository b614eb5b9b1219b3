import { assert, describe, it } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as coalescer from "../../src/provider/shared/coalescer.ts"

interface Setup {
  readonly lanes?: number
  readonly maxBatch?: number
  readonly maxBytes?: number
}

/** Doubles numbers, ten milliseconds a statement; a set that holds a negative number fails as a whole. */
const setup = (options: Setup = {}) =>
  Effect.gen(function*() {
    const sent: Array<ReadonlyArray<number>> = []
    const double = yield* coalescer.make<number, number, string>({
      lanes: 1,
      maxBatch: 10,
      maxBytes: 1_000,
      sizeOf: (item) => item,
      closed: "closed",
      ...options,
      splitOn: (error) => error === "bad item",
      isHeld: () => false,
      patience: Duration.seconds(30),
      send: (items) =>
        Effect.suspend(() => {
          sent.push(items)
          const answer = items.some((item) => item < 0)
            ? Effect.fail("bad item")
            : items.includes(0)
            ? Effect.fail("server down")
            : Effect.succeed(items.map((item) => item * 2))
          return Effect.delay(answer, 10)
        })
    })
    return { double, sent }
  })

const settle = TestClock.adjust(0)

describe("Coalescer", () => {
  it.effect("calls of one tick share a statement, each with its own result", () =>
    Effect.gen(function*() {
      const { double, sent } = yield* setup()
      const fiber = yield* Effect.forkChild(Effect.forEach([1, 2, 3], double, { concurrency: "unbounded" }))
      yield* TestClock.adjust(10)
      assert.deepStrictEqual(yield* Fiber.join(fiber), [2, 4, 6])
      assert.deepStrictEqual(sent, [[1, 2, 3]])
    }))

  it.effect("a single call is sent at once; calls made meanwhile share the next statement", () =>
    Effect.gen(function*() {
      const { double, sent } = yield* setup()
      const first = yield* Effect.forkChild(double(1))
      yield* settle
      assert.deepStrictEqual(sent, [[1]])
      const second = yield* Effect.forkChild(double(2))
      yield* TestClock.adjust(5)
      const third = yield* Effect.forkChild(double(3))
      yield* TestClock.adjust(5)
      assert.deepStrictEqual(sent, [[1], [2, 3]])
      yield* TestClock.adjust(10)
      assert.deepStrictEqual(yield* Effect.forEach([first, second, third], Fiber.join), [2, 4, 6])
    }))

  it.effect("a second lane takes what exceeds maxBatch, and no statement is larger", () =>
    Effect.gen(function*() {
      const { double, sent } = yield* setup({ lanes: 2, maxBatch: 2 })
      const fiber = yield* Effect.forkChild(Effect.forEach([1, 2, 3, 4, 5], double, { concurrency: "unbounded" }))
      yield* settle
      assert.deepStrictEqual(sent, [[1, 2], [3, 4]])
      yield* TestClock.adjust(20)
      assert.deepStrictEqual(yield* Fiber.join(fiber), [2, 4, 6, 8, 10])
      assert.deepStrictEqual(sent[2], [5])
    }))

  it.effect("one bad item fails without the others: its set is sent again item by item", () =>
    Effect.gen(function*() {
      const { double, sent } = yield* setup()
      const fiber = yield* Effect.forkChild(
        Effect.forEach([1, -1, 3], (item) => Effect.exit(double(item)), { concurrency: "unbounded" })
      )
      yield* TestClock.adjust(100)
      assert.deepStrictEqual(yield* Fiber.join(fiber), [Exit.succeed(2), Exit.fail("bad item"), Exit.succeed(6)])
      assert.deepStrictEqual(sent, [[1, -1, 3], [1], [-1], [3]])
    }))

  /**
   * Sends texts; one that another transaction holds fails its set after 200 milliseconds, or after 50 if it is alone.
   */
  const holding = Effect.gen(function*() {
    const sent: Array<ReadonlyArray<string>> = []
    const held = new Set<string>()
    const alone = { now: 0, most: 0 }
    const send = yield* coalescer.make<string, string, string>({
      lanes: 2,
      maxBatch: 10,
      maxBytes: 1_000,
      sizeOf: () => 1,
      closed: "closed",
      splitOn: (error) => error === "held",
      isHeld: (error) => error === "held",
      patience: Duration.seconds(30),
      send: (items) =>
        Effect.suspend(() => {
          sent.push(items)
          if (!items.some((item) => held.has(item))) return Effect.succeed(items)
          if (items.length > 1) return Effect.delay(Effect.fail("held"), 200)
          alone.most = Math.max(alone.most, ++alone.now)
          return Effect.delay(Effect.fail("held"), 50).pipe(Effect.ensuring(Effect.sync(() => alone.now--)))
        })
    })
    const ask = (...items: ReadonlyArray<string>) =>
      Effect.forkChild(Effect.forEach(items, (item) => Effect.exit(send(item)), { concurrency: "unbounded" }))
    return { alone, ask, held, sent }
  })

  it.effect("blocked items leave their lanes after one short try, and get their results when they are free", () =>
    Effect.gen(function*() {
      const { ask, held } = yield* holding
      held.add("held 1").add("held 2")
      const first = yield* ask("held 1")
      yield* settle
      const second = yield* ask("held 2")
      yield* settle
      const others = yield* ask("a", "b")
      yield* TestClock.adjust(49)
      assert.isUndefined(others.pollUnsafe())
      yield* TestClock.adjust(1)
      assert.deepStrictEqual(yield* Fiber.join(others), [Exit.succeed("a"), Exit.succeed("b")])
      yield* TestClock.adjust("20 seconds")
      assert.isUndefined(first.pollUnsafe())
      held.clear()
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(yield* Fiber.join(first), [Exit.succeed("held 1")])
      assert.deepStrictEqual(yield* Fiber.join(second), [Exit.succeed("held 2")])
    }))

  it.effect("blocked items of a set delay neither the set nor later items", () =>
    Effect.gen(function*() {
      const { alone, ask, held } = yield* holding
      const names = Array.from({ length: 20 }, (_, i) => `held ${i}`)
      for (const name of names) held.add(name)
      const blocked = yield* ask(...names)
      const first = yield* ask("a", "b")
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(yield* Fiber.join(first), [Exit.succeed("a"), Exit.succeed("b")])
      const second = yield* ask("c")
      yield* settle
      assert.deepStrictEqual(yield* Fiber.join(second), [Exit.succeed("c")])
      assert.isUndefined(blocked.pollUnsafe())
      assert.strictEqual(alone.most, 4)
      held.clear()
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(yield* Fiber.join(blocked), names.map(Exit.succeed))
    }))

  it.effect("an item that stays blocked is tried less and less often, and fails at its timeout", () =>
    Effect.gen(function*() {
      const { ask, held, sent } = yield* holding
      held.add("held")
      const blocked = yield* ask("held")
      yield* TestClock.adjust("29 seconds")
      assert.isUndefined(blocked.pollUnsafe())
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(yield* Fiber.join(blocked), [Exit.fail("held")])
      assert.isAtLeast(sent.length, 50)
      assert.isAtMost(sent.length, 65)
    }))

  it.effect("an item that was not tried alone yet goes before all that are known to be held", () =>
    Effect.gen(function*() {
      const { ask, held } = yield* holding
      const names = Array.from({ length: 100 }, (_, i) => `held ${i}`)
      for (const name of names) held.add(name)
      const blocked = yield* ask(...names)
      yield* TestClock.adjust("10 seconds")
      const mixed = yield* Effect.forEach(["held 0", "a", "held 1", "b"], (item) => ask(item))
      // The set, the tries under way, its own.
      yield* TestClock.adjust(200 + 50 + 50)
      assert.deepStrictEqual(mixed.map((fiber) => fiber.pollUnsafe() !== undefined), [false, true, false, true])
      yield* Fiber.interrupt(blocked)
    }))

  it.effect("an item fails at its timeout although many wait for their next try before it", () =>
    Effect.gen(function*() {
      const { ask, held } = yield* holding
      const names = Array.from({ length: 400 }, (_, i) => `held ${i}`)
      for (const name of names) held.add(name)
      const blocked = yield* ask(...names)
      yield* TestClock.adjust("29 seconds")
      assert.isUndefined(blocked.pollUnsafe())
      // The tries that were under way then.
      yield* TestClock.adjust(1_000 + 50)
      assert.deepStrictEqual(yield* Fiber.join(blocked), names.map(() => Exit.fail("held")))
    }))

  it.effect("an item whose caller was interrupted is not retried", () =>
    Effect.gen(function*() {
      const { ask, held, sent } = yield* holding
      held.add("held")
      const blocked = yield* ask("held")
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.interrupt(blocked)
      yield* TestClock.adjust("1 second")
      const tries = sent.length
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(sent.length, tries)
    }))

  it.effect("a set takes no further item once it has maxBytes, and always one", () =>
    Effect.gen(function*() {
      const { double, sent } = yield* setup({ maxBytes: 100 })
      const fiber = yield* Effect.forkChild(
        Effect.forEach([60, 60, 60, 500, 1], double, { concurrency: "unbounded" })
      )
      yield* TestClock.adjust(100)
      assert.deepStrictEqual(yield* Fiber.join(fiber), [120, 120, 120, 1_000, 2])
      assert.deepStrictEqual(sent, [[60, 60], [60, 500], [1]])
    }))

  it.effect("calls that wait or are in progress when the scope closes fail as closed, and so do later calls", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const { double } = yield* setup({ maxBatch: 1 }).pipe(Scope.provide(scope))
      const calls = yield* Effect.forkChild(
        Effect.forEach([1, 2], (item) => Effect.exit(double(item)), { concurrency: "unbounded" })
      )
      yield* settle
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(yield* Fiber.join(calls), [Exit.fail("closed"), Exit.fail("closed")])
      assert.deepStrictEqual(yield* Effect.exit(double(3)), Exit.fail("closed"))
    }))

  it.effect("an error of the server fails all items of the set, without a statement for each", () =>
    Effect.gen(function*() {
      const { double, sent } = yield* setup()
      const fiber = yield* Effect.forkChild(
        Effect.forEach([1, 0], (item) => Effect.exit(double(item)), { concurrency: "unbounded" })
      )
      yield* TestClock.adjust(100)
      assert.deepStrictEqual(yield* Fiber.join(fiber), [Exit.fail("server down"), Exit.fail("server down")])
      assert.strictEqual(sent.length, 1)
    }))

  it.effect("a call interrupted while it waits is not sent", () =>
    Effect.gen(function*() {
      const { double, sent } = yield* setup()
      const first = yield* Effect.forkChild(double(1))
      yield* settle
      const second = yield* Effect.forkChild(double(2))
      yield* settle
      yield* Fiber.interrupt(second)
      yield* TestClock.adjust(20)
      assert.strictEqual(yield* Fiber.join(first), 2)
      assert.deepStrictEqual(sent, [[1]])
    }))
})
