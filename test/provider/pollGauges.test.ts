import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import { FromDriver, MemoryDriver, Notifier } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import { make as makeHints } from "../../src/waking/hints.ts"
import * as LongPolling from "../utils/longPolling.ts"
import { counts, isolated, observed, values } from "../utils/metrics.ts"

describe("Gauges of waiting", () => {
  it.effect("the state of the listener is shown", () =>
    Effect.gen(function*() {
      let listener: Notifier.Listener | undefined
      yield* Effect.scoped(Effect.gen(function*() {
        yield* makeHints({
          name: "test",
          listen: (its) => Effect.sync(() => void (listener = its)),
          announce: () => Effect.void
        }, { notifyDeliveryTimeoutMs: 100 })
        assert.deepStrictEqual(yield* values(Metrics.listenerConnected), { "": 0 })
        listener!.connected()
        assert.deepStrictEqual(yield* values(Metrics.listenerConnected), { "": 1 })
        listener!.disconnected("cut")
        assert.deepStrictEqual(yield* values(Metrics.listenerConnected), { "": 0 })
      }))
      assert.deepStrictEqual(yield* values(Metrics.listenerConnected), {})
    }).pipe(isolated))

  const activity = { _tag: "ActivityExecute", instance: "a", executionId: 1, id: 2, name: "A", input: "1" } as const

  /** Ten seconds, in which everything happens that can. */
  const pass = Effect.forEach(Array.from({ length: 100 }), () =>
    Effect.andThen(
      Effect.repeat(Effect.yieldNow, { times: 20 }),
      TestClock.adjust("100 millis")
    ), { discard: true })

  /** A provider that waits for activities, and lets another process of the same store add one. */
  const waiting = Effect.fnUntraced(function*(isConnected: boolean) {
    const driver = MemoryDriver.make()
    const notifiers = Notifier.makeInProcess()
    const open = (sender: string) =>
      isConnected
        ? Effect.provideService(FromDriver.make(driver), Notifier.Notifier, notifiers.connect(sender))
        : FromDriver.make(driver)
    const other = yield* isolated(open("other"))
    const provider = yield* open("this one")
    const take = provider.fetchWorkItems({
      lockTimeout: Duration.minutes(1),
      pollTimeout: Duration.minutes(30),
      tags: { _tag: "Any" },
      session: Option.none()
    })
    return { other, take }
  })

  it.effect("each look is counted with its reason", () =>
    Effect.gen(function*() {
      const { other, take } = yield* waiting(true)
      yield* Effect.forkChild(take)
      yield* pass
      const before = yield* counts(Metrics.wakeReasons)
      yield* Effect.forkChild(other.enqueueForWorker(activity))
      yield* pass
      const after = yield* counts(Metrics.wakeReasons)
      assert.strictEqual((after["worker NotifyReceived"] ?? 0) - (before["worker NotifyReceived"] ?? 0), 1)
      assert.isUndefined(after["orchestrator NotifyReceived"])
    }).pipe(isolated))

  it.effect("the time from a hint to the next claim is observed, once for each claim of work", () =>
    Effect.gen(function*() {
      const driver = MemoryDriver.make()
      const { listener, notifier } = LongPolling.manual()
      const provider = yield* LongPolling.open(driver, notifier)
      const other = yield* LongPolling.open(driver, undefined)
      listener().connected()
      const take = LongPolling.waiting(1, LongPolling.fetchActivity(provider))
      const hint = { hint: Notifier.Hint.Work({ queue: "worker", visibleAtMs: 0 }), sender: "other" }

      const [first] = yield* take
      yield* LongPolling.pass("1 minute")
      listener().receive(hint)
      yield* LongPolling.pass("1 second")
      assert.deepStrictEqual(yield* observed(Metrics.hintToClaim), {}, "a look for nothing")

      yield* other.enqueueForWorker(activity)
      yield* other.enqueueForWorker({ ...activity, id: 3 })
      listener().receive(hint)
      listener().receive(hint)
      yield* LongPolling.settle
      assert.isDefined(first!.pollUnsafe())
      assert.deepStrictEqual(yield* observed(Metrics.hintToClaim), { worker: [1, 0] })
      const [second] = yield* take
      assert.isDefined(second!.pollUnsafe())
      assert.deepStrictEqual(yield* observed(Metrics.hintToClaim), { worker: [1, 0] }, "no hint")

      yield* other.enqueueForWorker({ ...activity, id: 4 })
      listener().receive(hint)
      yield* LongPolling.pass("5 seconds")
      yield* take
      assert.deepStrictEqual(yield* observed(Metrics.hintToClaim), { worker: [2, 5_000] }, "no free slot until then")
    }).pipe(isolated))

  it.effect("the mode of each queue is shown", () =>
    Effect.gen(function*() {
      const { take } = yield* waiting(true)
      yield* Effect.forkChild(take)
      yield* pass
      assert.deepStrictEqual(yield* values(Metrics.aggressivePolling), { worker: 0 })
    }).pipe(isolated))

  it.effect("a queue whose process cannot listen is shown as polled", () =>
    Effect.gen(function*() {
      const { take } = yield* waiting(false)
      yield* Effect.forkChild(take)
      yield* pass
      assert.deepStrictEqual(yield* values(Metrics.aggressivePolling), { worker: 1 })
      assert.isAtLeast((yield* counts(Metrics.wakeReasons))["worker Poll"] ?? 0, 50)
    }).pipe(isolated))
})
