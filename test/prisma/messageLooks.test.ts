import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import * as messageLooks from "../../src/prisma/internal/queue/messageLooks.ts"
import * as pumps from "../../src/waking/pump.ts"

/** A caller that waits for messages of an empty queue; the times of its looks, in milliseconds. */
const waiting = Effect.fnUntraced(function*(nextMs: number | null = null) {
  const clock = yield* Clock.Clock
  const nowMs = () => clock.currentTimeMillisUnsafe()
  const startMs = nowMs()
  const times: Array<number> = []
  const state = { isConnected: true }
  const looks = messageLooks.make({
    clock,
    isConnected: () => state.isConnected,
    storeNowMs: nowMs,
    pollMs: 1_000,
    fallbackMs: 60_000
  })
  const pump = yield* pumps.make<string, string>({
    queue: looks.queue,
    fetch: () =>
      Effect.sync(() => {
        times.push(nowMs() - startMs)
        if (nextMs !== null && times.length === 1) looks.nextVisible(startMs + nextMs)
        return { items: [], more: false }
      }),
    abandon: () => Effect.void,
    maxBatch: 10,
    lockTimeoutMs: 30_000,
    leftSome: () => {},
    closed: "closed"
  })
  yield* Effect.forkChild(pump.take(Duration.minutes(30)))
  yield* TestClock.adjust(0)
  return { times, state, startMs, ...looks.subscriber }
})

describe("messageLooks", () => {
  it.effect("while connected, there is a look at first and one a minute", () =>
    Effect.gen(function*() {
      const { times } = yield* waiting()
      yield* TestClock.adjust("2 minutes")
      assert.deepStrictEqual(times, [0, 60_000, 120_000])
    }))

  it.effect("without a connection it polls, and a new connection leads to a look", () =>
    Effect.gen(function*() {
      const { connected, disconnected, state, times } = yield* waiting()
      state.isConnected = false
      disconnected?.()
      yield* TestClock.adjust(2_000)
      assert.deepStrictEqual(times, [0, 1_000, 2_000])
      yield* TestClock.adjust(500)
      state.isConnected = true
      connected?.()
      yield* TestClock.adjust("50 seconds")
      assert.deepStrictEqual(times, [0, 1_000, 2_000, 2_500])
    }))

  it.effect("a hint leads to a look at once, or when it says", () =>
    Effect.gen(function*() {
      const { received, startMs, times } = yield* waiting()
      yield* TestClock.adjust(100)
      received(0, "m mails")
      yield* TestClock.adjust(100)
      received(startMs + 5_000, "m mails")
      received(startMs + 9_000, "m mails")
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(times, [0, 100, 5_000])
    }))

  it.effect("what a look says of the next message leads to a look then, or a second later if it is due already", () =>
    Effect.gen(function*() {
      const later = yield* waiting(7_000)
      yield* TestClock.adjust("30 seconds")
      assert.deepStrictEqual(later.times, [0, 7_000])
      const held = yield* waiting(0)
      yield* TestClock.adjust("30 seconds")
      assert.deepStrictEqual(held.times, [0, 1_000])
    }))
})
