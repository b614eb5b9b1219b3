import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"
import { opening } from "../../src/prisma/internal/opening.ts"

/** Attempts take ten seconds, and fail as long as `isSilent`. */
const slow = Effect.gen(function*() {
  const state = { attempts: 0, closed: 0, isSilent: true }
  const use = yield* opening(Effect.gen(function*() {
    state.attempts++
    yield* Effect.addFinalizer(() => Effect.sync(() => void state.closed++))
    yield* Effect.sleep("10 seconds")
    return state.isSilent ? yield* Effect.fail("silent") : "open"
  }))
  return { state, use }
})

describe("Opened by the first use:", () => {
  it.effect("uses share an attempt, and fail together", () =>
    Effect.gen(function*() {
      const { state, use } = yield* slow
      const uses = yield* Effect.forEach(Array.from({ length: 10 }), () => Effect.forkChild(Effect.exit(use)))
      yield* TestClock.adjust("10 seconds")
      for (const fiber of uses) assert.deepStrictEqual(yield* Fiber.join(fiber), Exit.fail("silent"))
      assert.deepInclude(state, { attempts: 1, closed: 1 })
    }))

  it.effect("after a failure, none is tried for as long as it took", () =>
    Effect.gen(function*() {
      const { state, use } = yield* slow
      const first = yield* Effect.forkChild(Effect.exit(use))
      yield* TestClock.adjust("19 seconds")
      assert.deepStrictEqual(yield* Fiber.join(first), Exit.fail("silent"))
      assert.strictEqual(yield* Effect.flip(use), "silent")
      assert.strictEqual(state.attempts, 1)
      state.isSilent = false
      yield* TestClock.adjust("1 second")
      const second = yield* Effect.forkChild(use)
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(yield* Fiber.join(second), "open")
      assert.strictEqual(yield* use, "open")
      assert.deepInclude(state, { attempts: 2, closed: 1 })
    }))

  it.effect("a use that is interrupted leaves the attempt to the others", () =>
    Effect.gen(function*() {
      const { state, use } = yield* slow
      state.isSilent = false
      const [first, second] = [yield* Effect.forkChild(use), yield* Effect.forkChild(use)]
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.interrupt(first)
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(yield* Fiber.join(second), "open")
      assert.strictEqual(state.attempts, 1)
    }))
})
