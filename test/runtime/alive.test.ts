import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import { FromDriver, MemoryDriver, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import type * as App from "../utils/app.ts"
import * as Clocks from "../utils/clock.ts"
import * as LocalProcess from "../utils/localProcess.ts"

const Work = Activity.make("Work", { success: Schema.String })
const Job = Orchestration.make("Job", { success: Schema.String })

const jobs = (handler: Effect.Effect<string> = Effect.succeed("done")) =>
  Runtime.layer({ orchestrations: [Job], activities: [Work] }).pipe(Layer.provide([
    Work.toLayer(() => Effect.andThen(Effect.log("the activity speaks"), handler)),
    Job.toLayer(() => Effect.andThen(Effect.log("the program speaks"), Work.execute()))
  ]))

const everySecond: App.Options = { provider: { longPolling: { aggressivePollInterval: "1 second" } } }

const run = (instanceId: string, client: Effect.Success<ReturnType<typeof LocalProcess.start>>["client"]) =>
  Effect.forkChild(client.execute(Job, { instanceId }))

const pass = Effect.fnUntraced(function*(seconds: number) {
  for (let i = 0; i < seconds; i++) yield* TestClock.adjust("1 second")
})

const away = new ProviderError.ConnectionLost({ problem: "connect ECONNREFUSED" })

/** A store that is unavailable until then. */
const awayUntil = (untilMs: number) =>
  Effect.map(
    ProviderDriver.ProviderDriver,
    (driver) =>
      LocalProcess.intercept(driver, (call, operation) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) =>
          now >= untilMs ? call : Effect.fail(new ProviderError.ProviderError({ operation, reason: away }))))
  )

const onStore = (store: ProviderDriver.ProviderDriver["Service"]) =>
  Effect.provideService(ProviderDriver.ProviderDriver, store)

const collect = () => {
  const lines: Array<string> = []
  const logger = Logger.make(({ logLevel, message }) => {
    lines.push(`${logLevel} ${String(message)}`)
  })
  return { lines, layer: Logger.layer([logger]) }
}

const silent = Logger.layer([])

describe("A process that is alive takes work", () => {
  for (const operation of ["fetchOrchestrationItems", "fetchWorkItems", "renewWorkItemLocks", "sweepMessages"]) {
    it.effect(`after a defect in ${operation}`, () =>
      Effect.gen(function*() {
        const driver = yield* ProviderDriver.ProviderDriver
        let defects = 0
        const { client } = yield* LocalProcess.start(jobs(Effect.as(Effect.sleep("1 minute"), "done")), everySecond)
          .pipe(
            onStore(
              LocalProcess.intercept(driver, (call, name) =>
                name === operation && defects++ === 0 ? Effect.die(new Error("once")) : call)
            )
          )
        const job = yield* run("i", client)
        yield* pass(70)
        assert.isAtLeast(defects, 1)
        assert.deepStrictEqual(job.pollUnsafe(), Exit.succeed("done"))
      }).pipe(Effect.provide([MemoryDriver.layer, silent])))
  }

  it.effect("after an outage in which its logger throws, which changes the outcome of no program", () =>
    Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(jobs(), everySecond).pipe(onStore(yield* awayUntil(3_000)))
      yield* pass(5)
      const job = yield* run("i", client)
      yield* pass(5)
      assert.deepStrictEqual(job.pollUnsafe(), Exit.succeed("done"))
    }).pipe(Effect.provide([
      MemoryDriver.layer,
      Logger.layer([Logger.make(() => {
        throw new Error("ENOSPC")
      })])
    ])))

  it.effect("after its last activity ended while the store did not answer the renewal of its lock", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const store = LocalProcess.intercept(
        driver,
        (call, operation) =>
          Effect.flatMap(
            Clock.currentTimeMillis,
            (now) =>
              now < 28_000 && (operation === "renewWorkItemLocks" || operation === "abandonWorkItems")
                ? Effect.delay(Effect.fail(new ProviderError.ProviderError({ operation, reason: away })), "2 seconds")
                : call
          )
      )
      let begun = 0
      const { client } = yield* LocalProcess.start(
        jobs(
          Effect.suspend(() =>
            begun++ === 0 ? Effect.andThen(Effect.sleep("2 seconds"), Effect.interrupt) : Effect.succeed("done")
          )
        ),
        { ...everySecond, runtime: { workerConcurrency: 1, pollTimeout: "1 second" } }
      ).pipe(onStore(store))
      const job = yield* run("i", client)
      yield* pass(70)
      assert.deepStrictEqual(job.pollUnsafe(), Exit.succeed("done"))
    }).pipe(Effect.provide([MemoryDriver.layer, silent])))

  it.effect("while its wall clock is set back: it claims, and keeps the locks of running work", () =>
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const driver = yield* ProviderDriver.ProviderDriver
      // The store has a clock of its own.
      const store = LocalProcess.intercept(driver, (call) => Effect.provideService(call, Clock.Clock, clock))
      const stepping = Clocks.stepping(clock)
      let begun = 0
      const slow = jobs(Effect.suspend(() => (begun++, Effect.as(Effect.sleep("5 minutes"), "done"))))
      const first = yield* LocalProcess.start(slow, everySecond).pipe(
        onStore(store),
        Effect.provideService(Clock.Clock, stepping.clock)
      )
      const job = yield* run("i", first.client)
      yield* pass(2)
      stepping.setBack(3_600_000)
      yield* LocalProcess.start(slow, everySecond).pipe(onStore(store))
      yield* pass(120)
      const soon = yield* run("another", first.client)
      yield* pass(2)
      assert.strictEqual(begun, 2)
      yield* pass(310)
      assert.deepStrictEqual([job.pollUnsafe(), soon.pollUnsafe()], [Exit.succeed("done"), Exit.succeed("done")])
      assert.strictEqual(begun, 2)
    }).pipe(Effect.provide([MemoryDriver.layer, silent])))

  const busy: Record<string, App.Options> = {
    "long polling off": { provider: { longPolling: { enabled: false } } },
    "pollTimeout: 0": { runtime: { pollTimeout: 0 } }
  }
  for (const [setting, options] of Object.entries(busy)) {
    it.effect(`with ${setting} it waits between two claims, and takes no work`, () =>
      Effect.gen(function*() {
        const driver = yield* ProviderDriver.ProviderDriver
        let looks = 0
        yield* LocalProcess.start(jobs(), options).pipe(
          onStore(LocalProcess.intercept(driver, (call, operation) => {
            if (operation.startsWith("fetch")) looks++
            return call
          }))
        )
        yield* pass(10)
        // Ten a second of each queue.
        assert.isAtLeast(looks, 100)
        assert.isAtMost(looks, 220)
      }).pipe(Effect.provide([MemoryDriver.layer, silent])))
  }
})

describe("Logs", () => {
  it.effect("report an outage once, and its end with its length", () => {
    const { layer, lines } = collect()
    return Effect.gen(function*() {
      yield* LocalProcess.start(jobs()).pipe(onStore(yield* awayUntil(15_000)))
      yield* pass(30)
      assert.deepStrictEqual(
        lines.filter((line) => /^(Warn|Error|Fatal)/.test(line) || line.includes("Provider")),
        [
          "Warn Provider: the store cannot be used; loops keep retrying, client calls fail",
          "Info Provider: the store can be used again"
        ]
      )
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })

  it.effect("report an outage of an hour a few more times, at growing pauses", () => {
    const { layer, lines } = collect()
    return Effect.gen(function*() {
      yield* LocalProcess.start(jobs()).pipe(onStore(yield* awayUntil(3_600_000)))
      yield* pass(3_610)
      assert.isAtMost(lines.filter((line) => line.startsWith("Warn")).length, 8)
      assert.strictEqual(lines.filter((line) => line.includes("still cannot")).length, 5)
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })
})

describe("Health", () => {
  const start = Effect.fnUntraced(function*(store: ProviderDriver.ProviderDriver["Service"]) {
    const services = yield* jobs().pipe(
      Layer.provide(FromDriver.layer(everySecond.provider)),
      Layer.provide(Layer.succeed(ProviderDriver.ProviderDriver, store)),
      Layer.build
    )
    return Context.get(services, Runtime.Runtime)
  })

  it.effect("says when the store last answered a claim, independently of the wall clock", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      let isAway = false
      const runtime = yield* start(
        LocalProcess.intercept(driver, (call, operation) =>
          isAway ? Effect.fail(new ProviderError.ProviderError({ operation, reason: away })) : call)
      )
      yield* pass(60)
      const well = yield* runtime.health
      assert.strictEqual(well.state, "Running")
      assert.isBelow(Duration.toMillis(Option.getOrThrow(Option.getOrThrow(well.orchestrations).sinceLastLook)), 2_000)
      isAway = true
      yield* pass(60)
      const deaf = yield* runtime.health
      for (const { sinceLastLook, underWay } of [deaf.orchestrations, deaf.activities].map(Option.getOrThrow)) {
        assert.isAtLeast(Duration.toMillis(Option.getOrThrow(sinceLastLook)), 58_000)
        assert.strictEqual(underWay, 0)
      }
    }).pipe(Effect.provide([MemoryDriver.layer, silent])))

  it.effect("a loop that ends nevertheless stops the claims, and fails the runtime", () => {
    const { layer, lines } = collect()
    return Effect.gen(function*() {
      const clock = yield* Clock.Clock
      let isBroken = false
      const breaking = Clocks.changed(clock, {
        sleep: (duration) => isBroken ? Effect.die(new Error("no timers left")) : clock.sleep(duration)
      })
      const store = yield* awayUntil(30_000)
      const runtime = yield* start(store).pipe(Effect.provideService(Clock.Clock, breaking))
      const failure = yield* Effect.forkChild(Effect.flip(runtime.failure))
      isBroken = true
      yield* pass(40)
      const error = yield* Fiber.join(failure)
      assert.instanceOf(error, Runtime.RuntimeFailed)
      assert.include(error.message, "no timers left")
      assert.strictEqual((yield* runtime.health).state, "Failed")
      assert.isTrue(lines.some((line) => line.startsWith("Fatal Runtime: a loop of")))
    }).pipe(Effect.provide([MemoryDriver.layer, layer]))
  })

  it.effect("launch ends with the failure of its runtime", () =>
    Effect.gen(function*() {
      const failed = new Runtime.RuntimeFailed({ loop: "a loop", problem: "it returned" })
      const broken = Layer.succeed(Runtime.Runtime, {
        orchestrations: [],
        activities: [],
        health: Effect.never,
        failure: Effect.fail(failed)
      })
      assert.strictEqual(yield* Effect.flip(Runtime.launch(broken)), failed)
    }))
})

describe("A process whose role may not claim", () => {
  const refusingUntil = (untilMs: number, sinceMs = 0) =>
    Effect.map(
      ProviderDriver.ProviderDriver,
      (driver) =>
        LocalProcess.intercept(driver, (call, operation) =>
          Effect.flatMap(Clock.currentTimeMillis, (now) =>
            now < sinceMs || now >= untilMs || !operation.startsWith("fetch") ? call : Effect.fail(
              new ProviderError.ProviderError({
                operation,
                reason: new ProviderError.PermissionDenied({
                  problem: "permission denied for table orchestrator_queue"
                })
              })
            )))
    )

  it.effect("fails, and says which role it needs", () =>
    Effect.gen(function*() {
      const store = yield* refusingUntil(Infinity)
      const program = jobs().pipe(
        Layer.provide(FromDriver.layer()),
        Layer.provide(Layer.succeed(ProviderDriver.ProviderDriver, store))
      )
      const launched = yield* Effect.forkChild(Effect.flip(Runtime.launch(program)), { startImmediately: true })
      yield* pass(9)
      assert.isUndefined(launched.pollUnsafe())
      yield* pass(8)
      const error = yield* Fiber.join(launched)
      assert.strictEqual(error._tag, "RuntimeFailed")
      assert.include(error.message, "permission denied for table orchestrator_queue")
      assert.include(error.message, "needs the role of workers (docs/postgresql.md#roles)")
    }).pipe(Effect.provide([MemoryDriver.layer, silent])))

  it.effect("for a moment only, as while rights are granted anew, runs", () =>
    Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(jobs(), everySecond).pipe(onStore(yield* refusingUntil(5_000)))
      yield* pass(20)
      const job = yield* run("i", client)
      yield* pass(5)
      assert.deepStrictEqual(job.pollUnsafe(), Exit.succeed("done"))
    }).pipe(Effect.provide([MemoryDriver.layer, silent])))

  it.effect("for a moment after a long wait without work, runs", () =>
    Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(jobs(), everySecond).pipe(
        onStore(yield* refusingUntil(27_000, 25_000))
      )
      yield* pass(40)
      const job = yield* run("i", client)
      yield* pass(5)
      assert.deepStrictEqual(job.pollUnsafe(), Exit.succeed("done"))
    }).pipe(Effect.provide([MemoryDriver.layer, silent])))
})
