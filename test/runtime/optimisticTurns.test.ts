/**
 * Turns that are stored without a claim: with the start of their instance, or with the outcomes that lead to them.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Metrics, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { AdminDriver, MemoryDriver, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as memory from "../../src/provider/memory/driver.ts"
import * as tables from "../../src/provider/memory/tables.ts"
import { MostFirstTurns } from "../../src/runtime/orchestrationDispatcher.ts"
import type { Options } from "../utils/app.ts"
import * as LocalProcess from "../utils/localProcess.ts"

const Step = Activity.make("Step", { payload: Schema.Int, success: Schema.Int })
const Go = Signal.make("Go", { payload: Schema.String })

const Chain = Orchestration.make("Chain", { payload: Schema.Int, success: Schema.Int })
const Fan = Orchestration.make("Fan", { payload: Schema.Int, success: Schema.Array(Schema.Int) })
const Either = Orchestration.make("Either", { success: Schema.String })
const Again = Orchestration.make("Again", { payload: Schema.Int, success: Schema.Int })
const Parent = Orchestration.make("Parent", { payload: Schema.Int, success: Schema.Int })
const Stateful = Orchestration.make("Stateful", { payload: Schema.String, success: Schema.String })
const Refuses = Orchestration.make("Refuses", { payload: Schema.String })

const orchestrations = [Chain, Fan, Either, Again, Parent, Stateful, Refuses] as const

const chain = Effect.fnUntraced(function*(steps: number) {
  let sum = 0
  for (let i = 0; i < steps; i++) sum += yield* Step.execute(1)
  return sum
})

const programs = [
  Chain.toLayer(chain),
  Fan.toLayer((n) =>
    Effect.forEach(Array.from({ length: n }, (_, i) => i), Step.execute, { concurrency: "unbounded" })
  ),
  Either.toLayer(() => Effect.race(Go.wait, Effect.map(Step.execute(7), String))),
  Again.toLayer((left) =>
    Effect.flatMap(Step.execute(1), () => left === 0 ? Effect.succeed(left) : Again.continueAsNew(left - 1))
  ),
  Parent.toLayer((n) => Effect.map(Effect.all([Chain.execute(n), Step.execute(n)]), ([a, b]) => a + b)),
  Stateful.toLayer(Effect.fnUntraced(function*(text) {
    yield* Orchestration.setCustomStatus(`status of ${text}`)
    yield* Effect.sleep("1 day")
    yield* Step.execute(1)
    return text
  })),
  Refuses.toLayer(() => Effect.die(new Error("out of order")))
] as const

const serve = (handler: (n: number) => Effect.Effect<number> = Effect.succeed) =>
  Runtime.layer({ orchestrations, activities: [Step] }).pipe(Layer.provide([Step.toLayer(handler), ...programs]))

type Driver = ProviderDriver.ProviderDriver["Service"]

/** Calls of a driver by their operation, one for each set. */
const counting = (driver: Driver) => {
  const calls: Record<string, number> = {}
  return {
    calls,
    driver: LocalProcess.intercept(driver, (call, operation) => {
      calls[operation] = (calls[operation] ?? 0) + 1
      return call
    }),
    /** Calls since the last look, without claims that look for work. */
    since: (): Record<string, number> => {
      const taken = Object.entries(calls).filter(([operation]) => !looks.has(operation))
      for (const operation of Object.keys(calls)) delete calls[operation]
      return Object.fromEntries(taken)
    }
  }
}

const looks = new Set(["fetchOrchestrationItems", "fetchWorkItems", "readInstances", "readEnds", "sweepMessages"])

const tick = Effect.promise(() => new Promise<void>((resolve) => void setImmediate(resolve)))

/** Lets everything happen that can happen at this time. */
const settle = Effect.repeat(tick, { times: 100 })

let processes = 0

/** A process whose store's clock is known, because it has claimed something. */
const start = Effect.fnUntraced(
  function*(
    driver: Driver,
    options: Options & { readonly handler?: (n: number) => Effect.Effect<number>; readonly firstId?: string } = {}
  ) {
    const process = yield* LocalProcess.start(serve(options.handler), {
      provider: { longPolling: { aggressivePollInterval: "1 hour" }, ...options.provider },
      runtime: options.runtime ?? {}
    }).pipe(Effect.provideService(ProviderDriver.ProviderDriver, driver))
    yield* process.client.execute(Chain, { instanceId: options.firstId ?? `warm-up ${++processes}`, payload: 0 })
    // Its claims have found nothing more, so they wait.
    yield* settle
    return process
  }
)

const answers = (answer: "advanced" | "queued" | "failed", turn: "first" | "next" = "next") =>
  Effect.map(Metric.value(Metric.withAttributes(Metrics.optimisticTurns, { turn, answer })), ({ count }) => count)

const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([])])

describe("First turns", () => {
  it.effect("the rows of an instance are the same, whether its first turn is stored with its start or after a claim", () =>
    Effect.gen(function*() {
      const rows = Effect.fnUntraced(function*(optimisticTurns: boolean) {
        const store = tables.make()
        const driver = yield* Effect.provide(ProviderDriver.ProviderDriver, memory.layer(store))
        const counted = counting(driver)
        // No activity is claimed.
        const { client } = yield* start(counted.driver, {
          runtime: { optimisticTurns, tags: { _tag: "Tags", tags: ["none"] } },
          firstId: "first"
        })
        counted.since()
        yield* client.start(Chain, { instanceId: "chain", payload: 2 })
        yield* client.start(Stateful, { instanceId: "state", payload: "x" })
        yield* client.start(Parent, { instanceId: "parent", payload: 2 })
        yield* client.start(Chain, { instanceId: "ended", payload: 0 })
        yield* client.start(Refuses, { instanceId: "failed", payload: "" })
        yield* client.start(Again, { instanceId: "newest", payload: 1, version: "newest" })
        yield* settle
        const acks = counted.since()["ackOrchestrationItems"] ?? 0
        return { acks, store }
      })
      const [claimed, begun] = [yield* rows(false), yield* rows(true)]
      // Only the child of "parent" was claimed.
      assert.isAtLeast(claimed.acks, 2)
      assert.strictEqual(begun.acks, 1)
      for (const part of ["instances", "executions", "history", "stored", "changed"] as const) {
        assert.deepStrictEqual(begun.store[part], claimed.store[part], part)
      }
      const activities = ({ store }: typeof begun) => [...store.activities.values()]
      assert.deepStrictEqual(activities(begun), activities(claimed))
      const messages = ({ store }: typeof begun) => [...store.messages.values()].map(({ workItem }) => workItem)
      assert.deepStrictEqual(messages(begun), messages(claimed))
    }).pipe(Effect.provide(Logger.layer([]))))

  it.effect("a start costs one statement, and its first turn counts like any other", () =>
    Effect.gen(function*() {
      const counted = counting(yield* ProviderDriver.ProviderDriver)
      const { client } = yield* start(counted.driver)
      const before = yield* Metric.value(
        Metric.withAttributes(Metrics.orchestrationStarts, {
          orchestration_name: "Either",
          version: "1.0.0",
          initiated_by: "client"
        })
      )
      counted.since()
      yield* client.start(Either, { instanceId: "either" })
      yield* settle
      const { count } = yield* Metric.value(
        Metric.withAttributes(Metrics.orchestrationStarts, {
          orchestration_name: "Either",
          version: "1.0.0",
          initiated_by: "client"
        })
      )
      assert.strictEqual(count - before.count, 1)
      // The activity is claimed, and its outcome leads to the last turn.
      assert.deepStrictEqual(counted.since(), { startOrchestrations: 1, advanceOrchestrations: 1 })
      assert.strictEqual(yield* client.wait(Either, "either"), "7")
    }).pipe(inMemory))

  it.effect("an instance that only processes of Rust run is left to them, also where a program has its name", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const { client } = yield* start(driver)
      yield* client.start(Orchestration.make("Refuses", { payload: Schema.String, servedBy: "rust" }), {
        instanceId: "theirs",
        payload: ""
      })
      assert.deepStrictEqual(yield* driver.readHistory({ instanceId: "theirs", executionId: null }), [])
    }).pipe(inMemory))

  it.effect("a taken id: the instance that has it is left as it is, and the slots reserved for the first turn are given back", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const { client } = yield* start(driver, { runtime: { orchestrationConcurrency: 1 }, handler: () => Effect.never })
      yield* client.start(Chain, { instanceId: "taken", payload: 1 })
      const history = yield* driver.readHistory({ instanceId: "taken", executionId: null })
      for (let i = 0; i < 3; i++) {
        const error = yield* Effect.flip(client.start(Chain, { instanceId: "taken", payload: 2 }))
        assert.instanceOf(error, Client.InstanceAlreadyExists)
      }
      assert.deepStrictEqual(yield* driver.readHistory({ instanceId: "taken", executionId: null }), history)
      const counted = counting(driver)
      const { client: other } = yield* start(counted.driver, { runtime: { orchestrationConcurrency: 1 } })
      counted.since()
      yield* other.start(Chain, { instanceId: "free", payload: 0 })
      assert.deepStrictEqual(counted.since(), { startOrchestrations: 1 })
    }).pipe(inMemory))

  it.effect("a caller that is interrupted, at whatever moment, keeps no slot reserved", () =>
    Effect.gen(function*() {
      let isSlow = false
      const slow = LocalProcess.intercept(
        yield* ProviderDriver.ProviderDriver,
        (call, operation) => isSlow && operation === "startOrchestrations" ? Effect.delay(call, "1 second") : call
      )
      const counted = counting(slow)
      const { client } = yield* start(counted.driver, { runtime: { orchestrationConcurrency: 1 } })
      isSlow = true
      for (let ticks = 0; ticks < 8; ticks++) {
        const call = yield* Effect.forkChild(client.start(Chain, { instanceId: `cut-${ticks}`, payload: 0 }))
        yield* Effect.repeat(Effect.yieldNow, { times: ticks })
        yield* Fiber.interrupt(call)
        yield* TestClock.adjust("1 second")
        yield* settle
      }
      counted.since()
      const last = yield* Effect.forkChild(client.start(Chain, { instanceId: "last", payload: 0 }))
      yield* settle
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(last)
      yield* settle
      assert.deepStrictEqual(counted.since(), { startOrchestrations: 1 })
    }).pipe(inMemory))

  it.effect("a shutdown gives back what a start under way hands over: another process runs it at once", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      let isSlow = false
      const slow = LocalProcess.intercept(
        driver,
        (call, operation) => isSlow && operation === "startOrchestrations" ? Effect.delay(call, "1 second") : call
      )
      const first = yield* start(slow, { runtime: { shutdownTimeout: "10 seconds" } })
      isSlow = true
      const starting = yield* Effect.forkChild(first.client.start(Chain, { instanceId: "chain", payload: 1 }))
      yield* settle
      const stopping = yield* Effect.forkChild(first.stop)
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(starting)
      yield* Fiber.join(stopping)
      const runs: Array<number> = []
      const second = yield* start(driver, {
        provider: { longPolling: { aggressivePollInterval: "100 millis" } },
        handler: (n) => Effect.sync(() => (runs.push(n), n))
      })
      const done = yield* Effect.forkChild(second.client.wait(Chain, "chain"))
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(yield* Fiber.join(done), 1)
      assert.deepStrictEqual(runs, [1])
    }).pipe(inMemory))

  it.effect("from the first start of a process on: it knows the time of the store before it serves", () =>
    Effect.gen(function*() {
      const counted = counting(yield* ProviderDriver.ProviderDriver)
      const { client } = yield* LocalProcess.start(serve()).pipe(
        Effect.provideService(ProviderDriver.ProviderDriver, counted.driver)
      )
      yield* settle
      counted.since()
      assert.strictEqual(yield* client.execute(Chain, { instanceId: "first", payload: 0 }), 0)
      const { ackOrchestrationItems, startOrchestrations } = counted.since()
      assert.deepStrictEqual([startOrchestrations, ackOrchestrationItems], [1, undefined])
    }).pipe(inMemory))

  it.effect("while claimed turns have all slots, too: else starts would go through the queue as long as load lasts", () =>
    Effect.gen(function*() {
      let isSlow = false
      const counted = counting(LocalProcess.intercept(
        yield* ProviderDriver.ProviderDriver,
        (call, operation) => isSlow && operation === "ackOrchestrationItems" ? Effect.delay(call, "1 second") : call
      ))
      const { client } = yield* start(counted.driver, { runtime: { orchestrationConcurrency: 1 } })
      yield* client.start(Either, { instanceId: "claimed" })
      counted.since()
      isSlow = true
      yield* client.send(Go, "claimed", "now")
      yield* settle
      assert.strictEqual(counted.since()["ackOrchestrationItems"], 1)
      const meanwhile = yield* Effect.forkChild(client.execute(Chain, { instanceId: "meanwhile", payload: 0 }))
      yield* settle
      assert.deepStrictEqual(counted.since(), { startOrchestrations: 1 })
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* Fiber.join(meanwhile), 0)
      assert.strictEqual(yield* client.wait(Either, "claimed"), "now")
    }).pipe(inMemory))

  it.effect("of a bounded number of starts: those that come meanwhile are claimed", () =>
    Effect.gen(function*() {
      const counted = counting(yield* ProviderDriver.ProviderDriver)
      const { client } = yield* start(counted.driver)
      counted.since()
      yield* Effect.forEach(
        Array.from({ length: 5 }, (_, i) => `s${i}`),
        (instanceId) => client.execute(Chain, { instanceId, payload: 0 }),
        { concurrency: "unbounded" }
      )
      assert.isAtLeast(counted.since()["ackOrchestrationItems"] ?? 0, 1)
    }).pipe(Effect.provideService(MostFirstTurns, 2), inMemory))
})

describe("Optimistic turns", () => {
  it.effect("a chain costs one statement a step, beside the claim of its activity", () =>
    Effect.gen(function*() {
      const counted = counting(yield* ProviderDriver.ProviderDriver)
      const { client } = yield* start(counted.driver)
      counted.since()
      assert.strictEqual(yield* client.execute(Chain, { instanceId: "chain", payload: 10 }), 10)
      assert.deepStrictEqual(counted.since(), { startOrchestrations: 1, advanceOrchestrations: 10 })
    }).pipe(inMemory))

  for (const runtime of [{ optimisticTurns: false }, { verifyReplay: true }, { warmInstances: 0 }] as const) {
    it.effect(`none with ${JSON.stringify(runtime)}`, () =>
      Effect.gen(function*() {
        const counted = counting(yield* ProviderDriver.ProviderDriver)
        const { client } = yield* start(counted.driver, { runtime })
        counted.since()
        assert.strictEqual(yield* client.execute(Chain, { instanceId: "chain", payload: 3 }), 3)
        const { ackWorkItems, advanceOrchestrations, startOrchestrations } = counted.since()
        assert.deepStrictEqual([startOrchestrations, advanceOrchestrations, ackWorkItems], [1, undefined, 3])
      }).pipe(inMemory))
  }

  it.effect("hands activities over although the slots have no limit", () =>
    Effect.gen(function*() {
      const counted = counting(yield* ProviderDriver.ProviderDriver)
      const { client } = yield* start(counted.driver, { runtime: { workerConcurrency: Infinity } })
      counted.since()
      assert.strictEqual(yield* client.execute(Chain, { instanceId: "chain", payload: 3 }), 3)
      assert.deepStrictEqual(counted.since(), { startOrchestrations: 1, advanceOrchestrations: 3 })
    }).pipe(inMemory))

  it.effect("none with a driver that cannot store them", () =>
    Effect.gen(function*() {
      const { advanceOrchestrations: _, ...driver } = yield* ProviderDriver.ProviderDriver
      const { client } = yield* start(driver)
      const replays = Metric.value(Metric.withAttributes(Metrics.orchestrationReplays, { orchestration_name: "Chain" }))
      const { count: before } = yield* replays
      assert.strictEqual(yield* client.execute(Chain, { instanceId: "chain", payload: 3 }), 3)
      // The programs stay warm.
      assert.strictEqual((yield* replays).count, before)
    }).pipe(inMemory))

  it.effect("activities that end together lead to one turn, and those that end during it to the next", () =>
    Effect.gen(function*() {
      const slow = LocalProcess.intercept(
        yield* ProviderDriver.ProviderDriver,
        (call, operation) => operation === "advanceOrchestrations" ? Effect.delay(call, "1 second") : call
      )
      const counted = counting(slow)
      const gates = Array.from({ length: 6 }, () => Deferred.makeUnsafe<void>())
      const { client } = yield* start(counted.driver, {
        handler: (n) => Effect.as(Deferred.await(gates[n]!), n),
        runtime: { cancellationCheckInterval: Infinity }
      })
      yield* client.start(Fan, { instanceId: "fan", payload: 6 })
      yield* settle
      counted.since()
      const end = (...ns: ReadonlyArray<number>) =>
        Effect.andThen(Effect.sync(() => ns.forEach((n) => Deferred.doneUnsafe(gates[n]!, Effect.void))), settle)
      yield* end(0, 1, 2)
      assert.strictEqual(counted.calls["advanceOrchestrations"], 1)
      yield* end(3)
      yield* end(4, 5)
      assert.strictEqual(counted.calls["advanceOrchestrations"], 1)
      yield* TestClock.adjust("1 second")
      yield* settle
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(yield* client.wait(Fan, "fan"), [0, 1, 2, 3, 4, 5])
      assert.deepStrictEqual(counted.since(), { advanceOrchestrations: 2 })
    }).pipe(inMemory))

  it.effect("retried activities, children, continue-as-new: the same results, and no turn is claimed for an outcome", () =>
    Effect.gen(function*() {
      const counted = counting(yield* ProviderDriver.ProviderDriver)
      const { client } = yield* start(counted.driver)
      counted.since()
      assert.strictEqual(yield* client.execute(Again, { instanceId: "again", payload: 2 }), 0)
      // The second and third execution begin with a claim.
      assert.deepStrictEqual(counted.since(), {
        startOrchestrations: 1,
        advanceOrchestrations: 3,
        ackOrchestrationItems: 2
      })
      assert.strictEqual(yield* client.execute(Parent, { instanceId: "parent", payload: 2 }), 4)
    }).pipe(inMemory))

  for (
    const [what, send] of Object.entries({
      "a signal": (client: Client.Client["Service"]) => client.send(Go, "either", "signal"),
      "a cancellation": (client: Client.Client["Service"]) => client.terminate("either", "enough")
    })
  ) {
    it.effect(`${what} that comes before the outcome is handled first`, () =>
      Effect.gen(function*() {
        const driver = yield* ProviderDriver.ProviderDriver
        const gate = Deferred.makeUnsafe<void>()
        // Its process claims no turn meanwhile.
        let isBlind = false
        const blind = LocalProcess.intercept(driver, (call, operation) =>
          isBlind && operation === "fetchOrchestrationItems"
            ? Effect.fail(
              new ProviderError.ProviderError({ operation, reason: new ProviderError.LockLost({ lockToken: "" }) })
            )
            : call)
        const { client } = yield* start(blind, {
          handler: (n) =>
            Effect.as(Deferred.await(gate), n)
        })
        const queued = yield* answers("queued")
        yield* client.start(Either, { instanceId: "either" })
        yield* settle
        isBlind = true
        yield* send(client)
        yield* Deferred.succeed(gate, undefined)
        yield* settle
        assert.strictEqual((yield* answers("queued")) - queued, 1)
        isBlind = false
        const done = yield* Effect.forkChild(Effect.exit(client.wait(Either, "either")))
        yield* TestClock.adjust("1 minute")
        const exit = yield* Fiber.join(done)
        assert.deepStrictEqual(
          Exit.isSuccess(exit) ? exit.value : Option.getOrThrow(Exit.findErrorOption(exit))._tag,
          what === "a signal" ? "signal" : "InstanceCancelled"
        )
      }).pipe(inMemory))
  }

  for (const stored of [true, false]) {
    it.effect(`a lost answer to a turn that was ${stored ? "stored" : "not stored"} doubles nothing and loses nothing`, () =>
      Effect.gen(function*() {
        const driver = yield* ProviderDriver.ProviderDriver
        let count = 0
        const lossy = LocalProcess.intercept(driver, (call, operation) => {
          if (operation !== "advanceOrchestrations" || ++count % 2 === 0) return call
          const lost = Effect.fail(
            new ProviderError.ProviderError({ operation, reason: new ProviderError.ConnectionLost({ problem: "cut" }) })
          )
          return stored ? Effect.andThen(call, lost) : lost
        })
        const failed = yield* answers("failed")
        let runs = 0
        const { client } = yield* start(lossy, { handler: (n) => Effect.sync(() => (runs++, n)) })
        const done = yield* Effect.forkChild(client.execute(Chain, { instanceId: "chain", payload: 6 }))
        yield* TestClock.adjust("1 hour")
        assert.strictEqual(yield* Fiber.join(done), 6)
        assert.strictEqual(runs, 6)
        assert.isAtLeast((yield* answers("failed")) - failed, 2)
        const history = yield* driver.readHistory({ instanceId: "chain", executionId: null })
        assert.strictEqual(history.filter((event) => event.includes("ActivityCompleted")).length, 6)
      }).pipe(inMemory))
  }

  it.effect("an outcome of a second delivery is stored before its turn runs", () =>
    Effect.gen(function*() {
      const counted = counting(yield* ProviderDriver.ProviderDriver)
      const first = yield* start(counted.driver, { handler: () => Effect.never })
      yield* first.client.start(Chain, { instanceId: "chain", payload: 2 })
      yield* settle
      yield* first.kill
      const { client } = yield* start(counted.driver, {
        provider: { longPolling: { aggressivePollInterval: "1 second" } }
      })
      counted.since()
      const done = yield* Effect.forkChild(client.wait(Chain, "chain"))
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(yield* Fiber.join(done), 2)
      const { ackOrchestrationItems, ackWorkItems, advanceOrchestrations } = counted.since()
      assert.deepStrictEqual([ackWorkItems, ackOrchestrationItems, advanceOrchestrations], [1, 1, 1])
    }).pipe(inMemory))

  it.effect("an instance that was deleted and started again under the same id gets no turn of the old program", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const admin = yield* AdminDriver.AdminDriver
      const gate = Deferred.makeUnsafe<void>()
      const provider = { longPolling: { aggressivePollInterval: "1 second" } } as const
      const first = yield* start(driver, { handler: (n) => Effect.as(Deferred.await(gate), n), provider })
      const second = yield* start(driver, { runtime: { tags: { _tag: "None" } }, provider })
      yield* first.client.start(Chain, { instanceId: "chain", payload: 2 })
      yield* settle
      yield* admin.deleteInstances({ instanceIds: ["chain"], mustHaveEnded: [] })
      yield* TestClock.adjust("2 seconds")
      yield* second.client.start(Chain, { instanceId: "chain", payload: 1 })
      // The first still has the program of two steps, and gets the activity of the one with one step.
      yield* TestClock.adjust("2 seconds")
      yield* Deferred.succeed(gate, undefined)
      const done = yield* Effect.forkChild(second.client.wait(Chain, "chain"))
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(yield* Fiber.join(done), 1)
    }).pipe(inMemory))
})
