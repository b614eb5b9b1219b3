import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Charge = Activity.make("Charge", { success: Schema.String })
const Pay = Orchestration.make("Pay", { success: Schema.String })
const Echo = Orchestration.make("Echo", { payload: Schema.String, success: Schema.String })

/** A process that counts how often its activity runs. */
const payments = (handler: Effect.Effect<string> = Effect.succeed("paid")) => {
  const runs = { count: 0 }
  const runtime = Runtime.layer({ orchestrations: [Pay, Echo], activities: [Charge] }).pipe(Layer.provide([
    Charge.toLayer(() => Effect.suspend(() => (runs.count++, handler))),
    Pay.toLayer(() => Charge.execute()),
    Echo.toLayer(Effect.succeed)
  ]))
  return { runs, runtime }
}

/** The store of the test; these operations fail until then. */
const failing = (reason: ProviderError.Reason, untilMs: number, operations?: ReadonlyArray<string>) =>
  Effect.map(
    ProviderDriver.ProviderDriver,
    (driver) =>
      LocalProcess.intercept(driver, (call, operation) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) =>
          now >= untilMs || operations?.includes(operation) === false
            ? call
            : Effect.fail(new ProviderError.ProviderError({ operation, reason }))))
  )

/** Lets time pass until it has ended, a minute at most after `untilMs`. */
const settled = Effect.fnUntraced(function*<A, E>(call: Effect.Effect<A, E>, untilMs: number) {
  const fiber = yield* Effect.forkChild(Effect.exit(call))
  for (let at = 0; at < untilMs + 61_000 && fiber.pollUnsafe() === undefined; at += 500) {
    yield* TestClock.adjust(500)
  }
  assert.isDefined(fiber.pollUnsafe(), "it has not ended")
  return yield* Fiber.join(fiber)
})

const start = (runtime: Parameters<typeof LocalProcess.start>[0], store: ProviderDriver.ProviderDriver["Service"]) =>
  LocalProcess.start(runtime, { provider: { longPolling: { aggressivePollInterval: "1 second" } } }).pipe(
    Effect.provideService(ProviderDriver.ProviderDriver, store)
  )

const reasons: Record<string, ProviderError.Reason> = {
  "a full disk": new ProviderError.Unavailable({ sqlState: "53100", problem: "disk full" }),
  "a lost connection": new ProviderError.ConnectionLost({ problem: "cut" }),
  "a table lock": new ProviderError.Contention({ sqlState: "55P03", problem: "lock not available" }),
  "a missing right": new ProviderError.PermissionDenied({ problem: "REVOKE" }),
  "a schema that does not fit": new ProviderError.SchemaMismatch({ sqlState: "42883", problem: "no such function" }),
  "an unknown error": new ProviderError.Unexpected({ problem: "?", sqlState: null, cause: new Error("?") })
}

const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([])])

describe("Only the delivery at fault counts:", () => {
  for (const [what, reason] of Object.entries(reasons)) {
    it.effect(`results cannot be stored: after 400 s of ${what} they are, and no handler has run twice`, () =>
      Effect.gen(function*() {
        const { runs, runtime } = payments()
        const { client } = yield* start(
          runtime,
          yield* failing(reason, 400_000, [
            "ackWorkItems",
            "advanceOrchestrations"
          ])
        )
        const exit = yield* settled(client.execute(Pay, { instanceId: "i" }), 400_000)
        assert.deepStrictEqual(exit, Exit.succeed("paid"))
        assert.strictEqual(runs.count, 1)
      }).pipe(inMemory))

    it.effect(`turns cannot be stored: after 400 s of ${what} they are`, () =>
      Effect.gen(function*() {
        const { runs, runtime } = payments()
        const { client } = yield* start(
          runtime,
          yield* failing(reason, 400_000, [
            "ackOrchestrationItems",
            "advanceOrchestrations"
          ])
        )
        const exit = yield* settled(client.execute(Pay, { instanceId: "i" }), 400_000)
        assert.deepStrictEqual(exit, Exit.succeed("paid"))
        assert.strictEqual(runs.count, 1)
      }).pipe(inMemory))
  }

  for (const seconds of [15, 400]) {
    it.effect(`the store is unavailable: ${seconds} s from the start delay everything and fail nothing`, () =>
      Effect.gen(function*() {
        const driver = yield* ProviderDriver.ProviderDriver
        const other = yield* start(Runtime.layer({}), driver)
        const ids = Array.from({ length: 20 }, (_, i) => `i${i}`)
        yield* Effect.forEach(ids, (instanceId) => other.client.start(Pay, { instanceId }))
        const { runs, runtime } = payments()
        yield* start(runtime, yield* failing(reasons["a lost connection"]!, seconds * 1_000))
        const all = Effect.forEach(ids, (instanceId) => other.client.wait(Pay, instanceId))
        const exit = yield* settled(all, seconds * 1_000)
        assert.deepStrictEqual(exit, Exit.succeed(ids.map(() => "paid")))
        assert.strictEqual(runs.count, ids.length)
      }).pipe(inMemory))
  }

  it.effect("the store refuses a result for good: its activity fails with the reason, its handler runs once", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const { runs, runtime } = payments(Effect.succeed("poison pill"))
      const refused = Effect.fail(
        new ProviderError.ProviderError({
          operation: "ackWorkItems",
          reason: new ProviderError.DataRefused({ sqlState: "54000", problem: "too large" })
        })
      )
      const { client } = yield* start(runtime, {
        ...driver,
        ackWorkItems: (items) =>
          items.some(({ completion }) => completion?.workItem.includes("poison pill"))
            ? refused
            : driver.ackWorkItems(items),
        advanceOrchestrations: (turns) =>
          turns.some(({ results }) => results.some(({ workItem }) => workItem.includes("poison pill")))
            ? refused
            : driver.advanceOrchestrations!(turns)
      })
      const exit = yield* settled(client.execute(Pay, { instanceId: "i" }), 0)
      assert.isTrue(Exit.isFailure(exit))
      const error = yield* Effect.flip(client.wait(Pay, "i"))
      assert.instanceOf(error, Client.InstanceFailed)
      assert.include(error.message, "too large")
      assert.strictEqual(runs.count, 1)
    }).pipe(inMemory))

  it.effect("a lock is kept while its result is being stored: no other process takes the activity", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      // Slower than the lock of 30 seconds.
      const slow = LocalProcess.intercept(
        driver,
        (call, operation) =>
          operation === "ackWorkItems" || operation === "advanceOrchestrations"
            ? Effect.delay(call, "45 seconds")
            : call
      )
      const first = payments()
      const second = payments()
      const { client } = yield* start(first.runtime, slow)
      const done = yield* Effect.forkChild(client.execute(Pay, { instanceId: "i" }))
      yield* TestClock.adjust("1 second")
      yield* start(second.runtime, driver)
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(yield* Fiber.join(done), "paid")
      assert.deepStrictEqual([first.runs.count, second.runs.count], [1, 0])
    }).pipe(inMemory))

  it.effect("no process serves it: it waits, not counted, and begins at once when a process serves it", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const Other = Orchestration.make("Other")
      const others = Runtime.layer({ orchestrations: [Other], activities: [Activity.make("Another")] }).pipe(
        Layer.provide([Other.toLayer(() => Effect.void), Activity.make("Another").toLayer(() => Effect.void)])
      )
      const { client } = yield* start(others, driver)
      for (let i = 0; i < 8; i++) yield* start(others, driver)
      const ids = Array.from({ length: 60 }, (_, i) => `i${i}`)
      yield* Effect.forEach(ids, (instanceId) => client.start(Pay, { instanceId }))
      yield* TestClock.adjust("1 minute")
      const { runs, runtime } = payments()
      yield* start(runtime, driver)
      // One or two claims of the process that serves them, and no pause.
      yield* TestClock.adjust("10 seconds")
      const results = yield* Effect.forEach(ids, (instanceId) => client.wait(Pay, instanceId, { timeout: 1 }))
      assert.deepStrictEqual(results, ids.map(() => "paid"))
      assert.strictEqual(runs.count, 60)
    }).pipe(inMemory))

  it.effect("a history cannot be read: the instance continues when a release can read it", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      let isOlder = true
      const { runtime } = payments(Effect.as(Effect.sleep("1 second"), "paid"))
      const { client } = yield* LocalProcess.start(runtime, {
        provider: { longPolling: { aggressivePollInterval: "1 second" } },
        runtime: { warmInstances: 0 }
      }).pipe(Effect.provideService(ProviderDriver.ProviderDriver, {
        ...driver,
        fetchOrchestrationItems: (options) =>
          Effect.map(
            driver.fetchOrchestrationItems(options),
            (claimed) =>
              claimed.map((one) => isOlder && one.history.length > 0 ? { ...one, history: [`{"newer":1}`] } : one)
          )
      }))
      yield* client.start(Pay, { instanceId: "i" })
      yield* TestClock.adjust("1 hour")
      assert.strictEqual((yield* client.status("i"))._tag, "Running")
      isOlder = false
      const done = yield* Effect.forkChild(client.wait(Pay, "i"))
      yield* TestClock.adjust("61 seconds")
      assert.strictEqual(yield* Fiber.join(done), "paid")
    }).pipe(inMemory))

  const away = Effect.fnUntraced(function*(handler: Effect.Effect<string>) {
    const driver = yield* ProviderDriver.ProviderDriver
    const { runs, runtime } = payments(handler)
    let isAway = (_operation: string) => false
    const { client } = yield* start(Runtime.layer({}), driver)
    yield* start(
      runtime,
      LocalProcess.intercept(driver, (call, operation) =>
        Effect.suspend(() =>
          isAway(operation)
            ? Effect.fail(new ProviderError.ProviderError({ operation, reason: reasons["a lost connection"]! }))
            : call
        ))
    )
    const done = yield* Effect.forkChild(client.execute(Pay, { instanceId: "i" }))
    const pass = (seconds: number) => Effect.replicateEffect(TestClock.adjust("1 second"), seconds, { discard: true })
    return { done, pass, runs, setAway: (is: typeof isAway) => void (isAway = is) }
  })

  it.effect("the store is unavailable: an activity with an expired lock continues, and does not begin again", () =>
    Effect.gen(function*() {
      const { done, pass, runs, setAway } = yield* away(Effect.as(Effect.sleep("5 minutes"), "paid"))
      yield* pass(3)
      setAway(() => true)
      yield* pass(40)
      // Claims get through first.
      setAway((operation) => operation === "renewWorkItemLocks")
      yield* pass(5)
      setAway(() => false)
      yield* pass(320)
      assert.deepStrictEqual(done.pollUnsafe(), Exit.succeed("paid"))
      assert.strictEqual(runs.count, 1)
    }).pipe(inMemory))

  it.effect("results cannot be stored: a result with a lock that expired during the outage is stored after it", () =>
    Effect.gen(function*() {
      const { done, pass, runs, setAway } = yield* away(Effect.as(Effect.sleep("10 seconds"), "paid"))
      yield* pass(5)
      setAway(() => true)
      yield* pass(55)
      // So do results.
      setAway((operation) => operation === "renewWorkItemLocks")
      yield* pass(15)
      setAway(() => false)
      yield* pass(30)
      assert.deepStrictEqual(done.pollUnsafe(), Exit.succeed("paid"))
      assert.strictEqual(runs.count, 1)
    }).pipe(inMemory))

  it.effect("turns cannot be stored: not before their locks have run out, for two minutes", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const { runs, runtime } = payments()
      const slow = LocalProcess.intercept(
        driver,
        (call, operation) =>
          Effect.flatMap(Clock.currentTimeMillis, (now) =>
            now >= 120_000
              ? call
              : operation === "ackOrchestrationItems"
              ? Effect.delay(call, "6 seconds")
              : operation === "renewOrchestrationItemLocks"
              ? Effect.fail(new ProviderError.ProviderError({ operation, reason: reasons["a table lock"]! }))
              : call)
      )
      // One slot, as another one would take the instance over meanwhile.
      const { client } = yield* LocalProcess.start(runtime, {
        provider: { longPolling: { aggressivePollInterval: "1 second" } },
        runtime: { orchestrationConcurrency: 1 }
      }).pipe(Effect.provideService(ProviderDriver.ProviderDriver, slow))
      const exit = yield* settled(client.execute(Pay, { instanceId: "i" }), 120_000)
      assert.deepStrictEqual(exit, Exit.succeed("paid"))
      assert.strictEqual(runs.count, 1)
    }).pipe(inMemory))

  it.effect("a lock is kept while the history of its turn is being read, however long that takes", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      let runs = 0
      const Long = Orchestration.make("Long", { success: Schema.Int })
      const Go = Signal.make("Go")
      const runtime = Runtime.layer({ orchestrations: [Long], activities: [Charge] }).pipe(Layer.provide([
        Charge.toLayer(() => Effect.sync(() => (runs++, "paid"))),
        Long.toLayer(Effect.fn(function*() {
          let count = 0
          for (; count < 70; count++) yield* Charge.execute()
          yield* Go.wait
          return count
        }))
      ]))
      const options = {
        provider: { longPolling: { aggressivePollInterval: "1 second" } },
        runtime: { verifyReplay: false }
      } as const
      const first = yield* LocalProcess.start(runtime, options)
      yield* first.client.start(Long, { instanceId: "i" })
      yield* Effect.repeat(TestClock.adjust("1 second"), { until: () => runs === 70 })
      for (let i = 0; i < 10; i++) yield* TestClock.adjust("1 second")
      yield* first.stop
      let claims = 0
      // Locks are five seconds long.
      const slow = {
        ...LocalProcess.intercept(
          driver,
          (call, operation) => operation === "readHistory" ? Effect.delay(call, "12 seconds") : call
        ),
        fetchOrchestrationItems: (request: Parameters<typeof driver.fetchOrchestrationItems>[0]) =>
          Effect.tap(driver.fetchOrchestrationItems(request), ({ length }) => Effect.sync(() => claims += length))
      }
      const onSlow = Effect.provideService(ProviderDriver.ProviderDriver, slow)
      const { client } = yield* LocalProcess.start(runtime, options).pipe(onSlow)
      yield* LocalProcess.start(runtime, options).pipe(onSlow)
      yield* client.send(Go, "i")
      const done = yield* Effect.forkChild(client.wait(Long, "i"))
      for (let i = 0; i < 40; i++) yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(done.pollUnsafe(), Exit.succeed(70))
      assert.strictEqual(claims, 1)
    }).pipe(inMemory))
})
