import { assert, describe, it } from "@effect/vitest"
import { Activity, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Health } from "duroxide-prisma/observability"
import { FromDriver, MemoryDriver, Provider, ProviderDriver } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { HttpRouter } from "effect/http"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as References from "effect/References"
import * as TestClock from "effect/testing/TestClock"
import { ConnectionLost, ProviderError } from "../../src/provider/ProviderError.ts"
import * as LocalProcess from "../utils/localProcess.ts"
import * as Starts from "../utils/starts.ts"

const activity = (id: number, tag?: string) =>
  ({
    _tag: "ActivityExecute",
    instance: "a",
    executionId: 1,
    id,
    name: "Unserved",
    input: "1",
    ...(tag !== undefined && { tag })
  }) as const

const store = FromDriver.layer().pipe(Layer.provideMerge(MemoryDriver.layer), Layer.provideMerge(Logger.layer([])))

const down = (_: unknown, operation: string) =>
  Effect.fail(new ProviderError({ operation, reason: new ConnectionLost({ problem: "the host db is unreachable" }) }))

/** In virtual time that passes only when nothing can happen without it. */
const check = Effect.gen(function*() {
  const fiber = yield* Effect.forkChild(Health.check, { startImmediately: true })
  while (fiber.pollUnsafe() === undefined) {
    for (let i = 0; i < 20; i++) yield* Effect.yieldNow
    yield* TestClock.adjust("100 millis")
  }
  return yield* Fiber.join(fiber)
})

describe("Health", () => {
  it.effect("is healthy on an empty store, and while work waits no longer than a lock and two seconds", () =>
    Effect.gen(function*() {
      const provider = yield* Provider.Provider
      assert.deepStrictEqual((yield* check).status, "healthy")
      yield* provider.startOrchestration(Starts.start("a"))
      yield* provider.enqueueForWorker(activity(1))
      yield* TestClock.adjust("7 seconds")
      assert.deepStrictEqual((yield* check).problems, [])
      yield* TestClock.adjust("1 second")
      const late = yield* check
      assert.strictEqual(late.status, "unhealthy")
      assert.deepStrictEqual(late.problems, [
        "the oldest message has waited for 8 s, more than 7 s: see duroxide-prisma status"
      ])
      assert.strictEqual(late.backlog?.orchestrator.depth, 1)
      yield* TestClock.adjust("30 seconds")
      assert.lengthOf((yield* check).problems, 2)
    }).pipe(Effect.provide(store)))

  it.effect("names the tag of late activities, and goes by the lock timeouts of the configuration", () =>
    Effect.gen(function*() {
      const provider = yield* Provider.Provider
      yield* provider.enqueueForWorker(activity(1, "gpu"))
      yield* TestClock.adjust("90 seconds")
      assert.deepStrictEqual((yield* check).problems, [
        "the oldest activity with the tag gpu has waited for 90 s, more than 62 s: see duroxide-prisma status"
      ])
    }).pipe(Effect.provide([store, RuntimeConfig.layer({ workerLockTimeout: "1 minute" })])))

  it.effect("is unhealthy when the store cannot be reached, and does not say where that is", () =>
    Effect.gen(function*() {
      const report = yield* check
      assert.strictEqual(report.status, "unhealthy")
      assert.deepStrictEqual(report.problems, ["the store did not answer"])
      assert.isNull(report.backlog)
    }).pipe(Effect.provide(
      FromDriver.layer().pipe(
        Layer.provide(Layer.succeed(ProviderDriver.ProviderDriver, LocalProcess.intercept(MemoryDriver.make(), down))),
        Layer.provideMerge(Logger.layer([]))
      )
    )))

  it.effect("is unhealthy when the store takes longer than five seconds, and logs that", () => {
    const lines: Array<readonly [string, unknown]> = []
    const logger = Logger.make(({ fiber, message }) =>
      void lines.push([String(message), fiber.getRef(References.CurrentLogAnnotations)["error_type"]])
    )
    return Effect.gen(function*() {
      assert.deepStrictEqual((yield* check).problems, ["the store did not answer"])
      assert.deepStrictEqual(lines, [["Health: the store did not answer", "Timeout"]])
    }).pipe(Effect.provide(
      FromDriver.layer().pipe(
        Layer.provide(
          Layer.succeed(ProviderDriver.ProviderDriver, LocalProcess.intercept(MemoryDriver.make(), () => Effect.never))
        ),
        Layer.provideMerge(Logger.layer([logger]))
      )
    ))
  })

  it.effect("is unhealthy when the runtime of the process has failed or closes", () =>
    Effect.gen(function*() {
      const Nothing = Activity.make("Nothing")
      const services = yield* Layer.build(
        Runtime.layer({ activities: [Nothing] }).pipe(Layer.provide(Nothing.toLayer(() => Effect.void)))
      )
      const runtime = Context.get(services, Runtime.Runtime)
      const inside = Effect.provideService(check, Runtime.Runtime, runtime)
      assert.strictEqual((yield* inside).status, "healthy")
      const failed = {
        ...runtime,
        health: Effect.succeed({
          state: "Failed" as const,
          orchestrations: Option.none(),
          activities: Option.none()
        })
      }
      assert.deepStrictEqual((yield* Effect.provideService(check, Runtime.Runtime, failed)).problems, [
        "the runtime of this process is failed"
      ])
    }).pipe(Effect.scoped, Effect.provide(store)))

  it.live("GET /health answers 200 or 503, with the report as JSON", () =>
    Effect.gen(function*() {
      const services = yield* Effect.context<Provider.Provider>()
      const ask = Effect.fnUntraced(function*(provider: Provider.Provider["Service"]) {
        const { dispose, handler } = HttpRouter.toWebHandler(
          Health.layerHttp().pipe(Layer.provide(Layer.succeed(Provider.Provider, provider))),
          { disableLogger: true }
        )
        yield* Effect.addFinalizer(() => Effect.promise(dispose))
        const response = yield* Effect.promise(() => handler(new Request("http://localhost/health")))
        return [response.status, yield* Effect.promise(() => response.json())] as const
      })
      const provider = Context.get(services, Provider.Provider)
      const empty = {
        orchestrator: { depth: 0, oldestAgeMs: null },
        worker: [],
        activeInstances: 0,
        blockedInstances: 0,
        limitedActivities: 0,
        limitedInstances: 0
      }
      assert.deepStrictEqual<unknown>(yield* ask(provider), [200, {
        status: "healthy",
        problems: [],
        backlog: empty,
        queues: null
      }])
      const [status, body] = yield* ask({ ...provider, readBacklog: down(undefined, "readBacklog") })
      assert.deepStrictEqual<unknown>([status, body], [
        503,
        { status: "unhealthy", problems: ["the store did not answer"], backlog: null, queues: null }
      ])
    }).pipe(Effect.scoped, Effect.provide(store)))
})
