/**
 * Metrics of a provider. Those of failures and repeated sends are in retries.test.ts.
 */
import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import { FromDriver, MemoryDriver, ProviderError } from "duroxide-prisma/provider"
import type { ProviderDriver } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"
import { counts, isolated, observed } from "../utils/metrics.ts"
import * as Starts from "../utils/starts.ts"

type Driver = ProviderDriver.ProviderDriver["Service"]

const activity = (id: number) =>
  ({ _tag: "ActivityExecute", instance: "a", executionId: 1, id, name: "A", input: "1" }) as const
const poll = { lockTimeout: Duration.minutes(5), pollTimeout: Duration.zero }
const turn = {
  executionId: 1,
  historyDelta: [],
  workerItems: [],
  orchestratorItems: [],
  metadata: {},
  cancelledActivities: []
}

/** Statements take so many milliseconds, by the monotonic clock; the wall clock is set back meanwhile. */
const slow = Effect.fnUntraced(function*(driver: Driver, ms: number) {
  const clock = yield* Clock.Clock
  let nanos = 0n
  const skewed = Object.assign(Object.create(clock) as Clock.Clock, {
    monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe() + nanos,
    currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() - Number(nanos / 1_000n)
  })
  const slowed = LocalProcess.intercept(driver, (call) =>
    Effect.tap(call, () =>
      Effect.sync(() => {
        nanos += BigInt(ms * 1_000_000)
      })))
  return { clock: skewed, driver: slowed }
})

const takeWork = (provider: Effect.Success<ReturnType<typeof FromDriver.make>>) =>
  provider.fetchWorkItems({ ...poll, tags: { _tag: "Any" }, session: Option.none(), most: () => 9 })

const takeInstance = (provider: Effect.Success<ReturnType<typeof FromDriver.make>>) =>
  provider.fetchOrchestrationItem({ ...poll, versions: Option.none() })

/** Lets what is under way reach the store. */
const inTime = <A, E>(call: Effect.Effect<A, E>) =>
  Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(Effect.exit(call), { startImmediately: true })
    while (fiber.pollUnsafe() === undefined) {
      for (let i = 0; i < 20; i++) yield* Effect.yieldNow
      yield* TestClock.adjust("10 millis")
    }
    return yield* yield* Fiber.join(fiber)
  })

const quietly = Effect.provide(Logger.layer([]))

const histograms = {
  enqueue: Metrics.enqueueOrchestratorDuration,
  fetch: Metrics.fetchOrchestrationItemDuration,
  ack: Metrics.ackOrchestrationItemDuration,
  dequeue: Metrics.dequeueWorkerDuration,
  ackWorker: Metrics.ackWorkerDuration
}

describe("Metrics of a provider", () => {
  it("histograms have the names and the buckets of the contract, also below a millisecond", () => {
    assert.deepStrictEqual(Object.values(histograms).map(({ id }) => id), [
      "provider.enqueue_orchestrator_duration_ms",
      "provider.fetch_orchestration_item_duration_ms",
      "provider.ack_orchestration_item_duration_ms",
      "provider.dequeue_worker_duration_ms",
      "provider.ack_worker_duration_ms"
    ])
  })

  it.effect("each of the five histograms observes its own call, in milliseconds of the monotonic clock", () =>
    Effect.gen(function*() {
      const { clock, driver } = yield* slow(MemoryDriver.make(), 0.3)
      const provider = yield* Effect.provideService(FromDriver.make(driver), Clock.Clock, clock)
      const sums = Effect.map(
        Effect.all(Object.fromEntries(Object.entries(histograms).map(([name, metric]) => [name, observed(metric)]))),
        (all) =>
          Object.fromEntries(
            Object.entries(all).flatMap(([name, { "": one }]) =>
              one === undefined ? [] : [[name, [one[0], Math.round(one[1] * 10) / 10]]]
            )
          )
      )
      const timed = Effect.provideService(Clock.Clock, clock)
      yield* timed(inTime(provider.startOrchestration(Starts.start("a"))))
      assert.deepStrictEqual(yield* sums, { enqueue: [1, 0.3] })
      const claimed = Option.getOrThrow(yield* timed(inTime(takeInstance(provider))))
      assert.deepStrictEqual(yield* sums, { enqueue: [1, 0.3], fetch: [1, 0.3] })
      yield* timed(inTime(provider.ackOrchestrationItem(claimed.lockToken, { ...turn, workerItems: [activity(2)] })))
      assert.deepStrictEqual(yield* sums, { enqueue: [1, 0.3], fetch: [1, 0.3], ack: [1, 0.3] })
      const [work] = yield* timed(inTime(takeWork(provider)))
      assert.deepStrictEqual((yield* sums)["dequeue"], [1, 0.3])
      yield* timed(inTime(provider.ackWorkItem(work!.lockToken, Option.none())))
      assert.deepStrictEqual(yield* sums, {
        enqueue: [1, 0.3],
        fetch: [1, 0.3],
        ack: [1, 0.3],
        dequeue: [1, 0.3],
        ackWorker: [1, 0.3]
      })
      const { buckets } = yield* Metric.value(Metrics.ackWorkerDuration)
      assert.deepStrictEqual(
        buckets.filter(([, count]) => count === 0).map(([boundary]) => boundary),
        [0.1, 0.2]
      )
      assert.strictEqual(buckets.at(-1)![0], 5_000)
    }).pipe(quietly, isolated))

  it.effect("each of the five histograms observes calls that fail, too", () =>
    Effect.gen(function*() {
      const driver = LocalProcess.intercept(
        MemoryDriver.make(),
        (_, operation) =>
          Effect.fail(
            new ProviderError.ProviderError({
              operation,
              reason: new ProviderError.PermissionDenied({ problem: "no" })
            })
          )
      )
      const provider = yield* FromDriver.make(driver)
      const calls: ReadonlyArray<Effect.Effect<unknown, ProviderError.ProviderError>> = [
        provider.startOrchestration(Starts.start("a")),
        takeInstance(provider),
        provider.ackOrchestrationItem("t", turn),
        takeWork(provider),
        provider.ackWorkItem("t", Option.none())
      ]
      for (const call of calls) yield* Effect.exit(inTime(call))
      for (const [name, metric] of Object.entries(histograms)) {
        assert.strictEqual((yield* observed(metric))[""]?.[0], 1, name)
      }
    }).pipe(quietly, isolated))

  it.effect("the size of a set is observed for each statement, and what each claim finds", () =>
    Effect.gen(function*() {
      const provider = yield* FromDriver.make(MemoryDriver.make())
      yield* inTime(
        Effect.forEach([1, 2, 3], (id) => provider.enqueueForWorker(activity(id)), { concurrency: "unbounded" })
      )
      yield* inTime(takeInstance(provider))
      yield* inTime(takeWork(provider))
      yield* inTime(takeWork(provider))
      assert.deepStrictEqual(yield* observed(Metrics.statementBatchSize), { enqueue_worker: [1, 3] })
      assert.deepStrictEqual(yield* observed(Metrics.claimBatchSize), { orchestrator: [1, 0], worker: [2, 3] })
      assert.deepStrictEqual(yield* counts(Metrics.infrastructureErrors), {})
    }).pipe(quietly, isolated))
})
