import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import * as storeClocks from "../../src/waking/storeClock.ts"

const make = Effect.map(Clock.Clock, storeClocks.make)

describe("the store's clock:", () => {
  it.effect("is unknown before the first answer, and five minutes after the last", () =>
    Effect.gen(function*() {
      const storeClock = yield* make
      assert.isUndefined(storeClock.nowMs())
      storeClock.heard(1_000)
      yield* TestClock.adjust("5 minutes")
      assert.strictEqual(storeClock.nowMs(), 301_000)
      yield* TestClock.adjust(1)
      assert.isUndefined(storeClock.nowMs())
    }))

  it.effect("an answer that was long on its way does not set it back", () =>
    Effect.gen(function*() {
      const storeClock = yield* make
      storeClock.heard(1_000)
      yield* TestClock.adjust("5 seconds")
      storeClock.heard(2_000)
      assert.strictEqual(storeClock.nowMs(), 6_000)
      storeClock.heard(6_500)
      assert.strictEqual(storeClock.nowMs(), 6_500)
    }))

  it.effect("a store whose clock was set back is believed after ten seconds", () =>
    Effect.gen(function*() {
      const storeClock = yield* make
      storeClock.heard(1_000_000)
      yield* TestClock.adjust("10 seconds")
      storeClock.heard(2_000)
      assert.strictEqual(storeClock.nowMs(), 1_010_000)
      yield* TestClock.adjust(1)
      storeClock.heard(2_001)
      assert.strictEqual(storeClock.nowMs(), 2_001)
    }))
})
