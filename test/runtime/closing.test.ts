import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import type { RuntimeConfig } from "duroxide-prisma"
import { FromDriver, MemoryDriver, ProviderDriver } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Work = Activity.make("Work", { success: Schema.String })
const Job = Orchestration.make("Job", { success: Schema.String })
const Quick = Orchestration.make("Quick")

const start = (work: Effect.Effect<string>, runtime: RuntimeConfig.Options = {}) =>
  LocalProcess.start(
    Runtime.layer({ orchestrations: [Job, Quick], activities: [Work] }).pipe(Layer.provide([
      Work.toLayer(() => work),
      Job.toLayer(() => Work.execute()),
      Quick.toLayer(() => Effect.void)
    ])),
    { runtime, provider: { longPolling: { aggressivePollInterval: "100 millis" } } }
  )

const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([])])

describe("Closing a runtime", () => {
  it.effect("stops the claims of both dispatchers at once, while work under way may end", () =>
    Effect.gen(function*() {
      const { client, stop } = yield* start(Effect.as(Effect.sleep("8 seconds"), "done"), {
        shutdownTimeout: "10 seconds"
      })
      yield* client.start(Job, { instanceId: "under way" })
      yield* TestClock.adjust("1 second")
      const closing = yield* Effect.forkChild(stop)
      yield* TestClock.adjust("1 second")
      const other = yield* LocalProcess.start(Runtime.layer({}))
      yield* other.client.start(Quick, { instanceId: "late" })
      yield* TestClock.adjust("5 seconds")
      assert.isUndefined(closing.pollUnsafe())
      const driver = yield* ProviderDriver.ProviderDriver
      assert.deepStrictEqual(yield* driver.readHistory({ instanceId: "late", executionId: null }), [])
      yield* TestClock.adjust("2 seconds")
      assert.isDefined(closing.pollUnsafe())
      // Its result is there for the next process.
      const next = yield* start(Effect.succeed("run again"))
      const job = yield* Effect.forkChild(next.client.wait(Job, "under way"))
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* Fiber.join(job), "done")
    }).pipe(inMemory))

  it.effect("while it starts, blames no loop for its end", () => {
    const lines: Array<string> = []
    const logger = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))
    return Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const asked = yield* Deferred.make<void>()
      const starting = yield* Effect.forkChild(
        start(Effect.succeed("done")).pipe(
          Effect.provideService(ProviderDriver.ProviderDriver, {
            ...driver,
            readNextDue: Effect.andThen(Deferred.succeed(asked, undefined), Effect.never)
          })
        )
      )
      yield* Deferred.await(asked)
      yield* TestClock.adjust("10 millis")
      assert.isUndefined(starting.pollUnsafe())
      yield* Fiber.interrupt(starting)
      assert.deepStrictEqual(lines.filter((line) => /^(Fatal|Error|Warn)/.test(line)), [])
    }).pipe(Effect.provide([MemoryDriver.layer, Logger.layer([logger])]))
  })

  it.effect("waits for a claim that is under way, and gives back what it took", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const looking = yield* Deferred.make<void>()
      const { stop } = yield* start(Effect.never, { shutdownTimeout: 0 }).pipe(
        Effect.provideService(ProviderDriver.ProviderDriver, {
          ...driver,
          fetchWorkItems: (request) =>
            Effect.andThen(
              Deferred.succeed(looking, undefined),
              Effect.delay(driver.fetchWorkItems(request), "1 second")
            )
        })
      )
      yield* Deferred.await(looking)
      const work = { name: "Work", instanceId: "i", executionId: 1, activityId: 2, sessionId: null, tag: null }
      const workItem = JSON.stringify({
        ActivityExecute: { instance: "i", execution_id: 1, id: 2, name: "Work", input: "null" }
      })
      yield* driver.enqueueForWorker([{ ...work, workItem }])
      const closing = yield* Effect.forkChild(stop)
      yield* TestClock.adjust("999 millis")
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust("1 millis")
      assert.isDefined(closing.pollUnsafe())
      const claimed = yield* driver.fetchWorkItems({
        limit: 1,
        lockTimeoutMs: 1_000,
        tags: { _tag: "Any" },
        session: null
      })
      assert.deepStrictEqual(claimed.map(({ attemptCount }) => attemptCount), [1])
    }).pipe(inMemory))

  it.effect("takes at most shutdownTimeout, activityGracePeriod and 5 seconds, even if nothing ends", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const started = yield* Deferred.make<void>()
      let isStuck = false
      // Neither the activity nor the store answers now.
      const { client, stop } = yield* start(
        Effect.andThen(Deferred.succeed(started, undefined), Effect.uninterruptible(Effect.never)),
        { shutdownTimeout: "10 seconds", activityGracePeriod: "10 seconds" }
      ).pipe(Effect.provideService(
        ProviderDriver.ProviderDriver,
        LocalProcess.intercept(driver, (call) => Effect.suspend(() => isStuck ? Effect.never : call))
      ))
      for (let i = 0; i < 3; i++) yield* client.start(Job, { instanceId: `i${i}` })
      yield* TestClock.adjust("1 second")
      yield* Deferred.await(started)
      isStuck = true
      const begun = yield* Clock.currentTimeMillis
      const closing = yield* Effect.forkChild(Effect.flatMap(stop, () => Clock.currentTimeMillis))
      for (let i = 0; i < 60; i++) yield* TestClock.adjust("1 second")
      assert.isAtMost((yield* Fiber.join(closing)) - begun, 25_000)
    }).pipe(inMemory))
})

describe("Closing a provider", () => {
  const options = { lockTimeout: Duration.seconds(30), pollTimeout: Duration.millis(100), versions: Option.none() }

  it.effect("fails calls in progress and later calls with Closed", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const scope = yield* Scope.make()
      const provider = yield* FromDriver.make({ ...driver, readInstances: () => Effect.never }).pipe(
        Scope.provide(scope)
      )
      const calls: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
        provider.readInstance("i"),
        provider.fetchOrchestrationItem({ ...options, pollTimeout: Duration.minutes(5) }),
        provider.fetchWorkItems({ ...options, tags: { _tag: "Any" }, session: Option.none() }),
        provider.fetchOrchestrationItem(options)
      ]
      const all = Effect.forEach(calls, Effect.flip, { concurrency: "unbounded" })
      const underWay = yield* Effect.forkChild(all)
      yield* TestClock.adjust(1)
      yield* Scope.close(scope, Exit.void)
      const errors = [...yield* Fiber.join(underWay), ...yield* all]
      assert.deepStrictEqual(
        errors.map((error) => (error as { reason: { _tag: string } }).reason._tag),
        errors.map(() => "Closed")
      )
    }).pipe(inMemory))
})
