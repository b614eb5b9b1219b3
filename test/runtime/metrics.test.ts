/**
 * Metrics of turns and activities. Those of warm instances are in warmInstances.test.ts.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Metrics, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"
import { counts, isolated, observed, values } from "../utils/metrics.ts"

class Refused extends Schema.TaggedError<Refused>()("Refused", {}) {}

const Step = Activity.make("Step", { payload: Schema.Int, error: Refused, tag: "gpu" })
const Plain = Activity.make("Plain")
const Work = Orchestration.make("Work", { payload: Schema.Int, error: Refused })
const Month = Orchestration.make("Month")
const Loop = Orchestration.make("Loop", { payload: Schema.Int })
const Parent = Orchestration.make("Parent", { version: "2.0.0" })
const Dies = Orchestration.make("Dies")
const Waits = Orchestration.make("Waits")
const Go = Signal.make("Go")

const PlainLive = Plain.toLayer(() => Effect.void)

const handlers = Layer.mergeAll(
  PlainLive,
  Step.toLayer((ms) => ms < 0 ? new Refused() : Effect.sleep(ms)),
  Work.toLayer(Step.execute),
  Month.toLayer(() => Effect.sleep("30 days")),
  Loop.toLayer((left) => left === 0 ? Effect.void : Loop.continueAsNew(left - 1)),
  Parent.toLayer(() => Loop.execute(0)),
  Dies.toLayer(() => Effect.die(new Error("no"))),
  Waits.toLayer(() => Go.wait)
)

const runtime = Runtime.layer({
  orchestrations: [Work, Month, Loop, Parent, Dies, Waits],
  activities: [Step, Plain]
}).pipe(Layer.provide(handlers), Layer.provide(RuntimeConfig.layer({ tags: { _tag: "Any" }, verifyReplay: true })))

const inVirtualTime = <A, E>(test: Effect.Effect<A, E, Client.Client | TestRuntime.TestRuntime>) =>
  test.pipe(Effect.provide([TestRuntime.layer(runtime), Logger.layer([])]), isolated)

describe("Metrics of a runtime", () => {
  it.effect("starts are counted once, by who began them; ends by their status; history sizes and turns", () =>
    inVirtualTime(Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.execute(Loop, { instanceId: "loop", payload: 2 })
      yield* client.execute(Parent, { instanceId: "parent" })
      yield* client.start(Waits, { instanceId: "waits" })
      yield* client.terminate("waits", "enough")
      yield* Effect.exit(client.wait(Waits, "waits"))
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationStarts), {
        "Loop 1.0.0 client": 1,
        "Loop 1.0.0 continueAsNew": 2,
        "Parent 2.0.0 client": 1,
        "Loop 1.0.0 suborchestration": 1,
        "Waits 1.0.0 client": 1
      })
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationCompletions), {
        "Loop 1.0.0 continuedAsNew": 2,
        "Loop 1.0.0 success": 2,
        "Parent 2.0.0 success": 1,
        "Waits 1.0.0 cancelled": 1
      })
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationFailures), {})
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationTurns), { Loop: 4, Parent: 2, Waits: 2 })
      const sizes = yield* observed(Metrics.orchestrationHistorySize)
      // Started, child scheduled, child completed, completed.
      assert.deepStrictEqual(sizes["Parent"], [1, 4])
      assert.deepStrictEqual(sizes["Loop"], [4, 8])
    })))

  it.effect("lossy signals that find no open wait are counted", () =>
    inVirtualTime(Effect.gen(function*() {
      const client = yield* Client.Client
      const Hurry = Signal.make("Hurry", { unawaited: "lost" })
      yield* client.start(Waits, { instanceId: "waits" })
      yield* client.send(Hurry, "waits")
      yield* client.send(Hurry, "waits")
      assert.deepStrictEqual(yield* counts(Metrics.signalsLost), { Waits: 2 })
      yield* client.send(Go, "waits")
      yield* client.wait(Waits, "waits")
      assert.deepStrictEqual(yield* counts(Metrics.signalsLost), { Waits: 2 })
    })))

  it.effect("the duration of an execution is that of all its turns, by the clock of the store", () =>
    inVirtualTime(Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Month, { instanceId: "month" })
      yield* TestRuntime.advance("15 days")
      yield* TestRuntime.crash
      yield* client.wait(Month, "month")
      const { "Month 1.0.0 success": [count, sum] = [0, 0] } = yield* observed(Metrics.orchestrationDuration)
      assert.strictEqual(count, 1)
      assert.approximately(sum, 30 * 86_400, 60)
    })))

  it.effect("failures are counted once, by what failed", () =>
    inVirtualTime(Effect.gen(function*() {
      const client = yield* Client.Client
      yield* Effect.exit(client.execute(Dies, { instanceId: "dies" }))
      yield* Effect.exit(client.execute(Work, { instanceId: "refused", payload: -1 }))
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationFailures), {
        "Dies 1.0.0 app_error": 1,
        "Work 1.0.0 app_error": 1
      })
    })))

  it.effect("what no code here can run is counted at each try, by name and reason", () => {
    // Sent by another build: its payload is a text.
    const Sent = Orchestration.make("Work", { payload: Schema.String })
    const Calls = Orchestration.make("Calls")
    const Other = Activity.make("Step", { payload: Schema.String, tag: "gpu" })
    const blocking = Runtime.layer({ orchestrations: [Work, Calls], activities: [Step] }).pipe(
      Layer.provide([handlers, Calls.toLayer(() => Other.execute("a text"))]),
      Layer.provide(RuntimeConfig.layer({ tags: { _tag: "Any" }, onMismatch: "block" }))
    )
    return Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Sent, { instanceId: "turn", payload: "a text" })
      yield* client.start(Calls, { instanceId: "activity" })
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationBlocks), { "Work DataUnreadable": 1 })
      assert.deepStrictEqual(yield* counts(Metrics.activityBlocks), { "Step DataUnreadable": 1 })
    }).pipe(Effect.provide([TestRuntime.layer(blocking), Logger.layer([])]), isolated)
  })

  it.effect("activities are counted and timed, by name, outcome and tag", () =>
    inVirtualTime(Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.execute(Work, { instanceId: "a", payload: 90_000 })
      assert.deepStrictEqual(yield* counts(Metrics.activityExecutions), { "Step success gpu": 1 })
      assert.deepStrictEqual(yield* observed(Metrics.activityDuration), { "Step success gpu": [1, 90] })
    })))

  it.effect("a turn without a claim is counted with its start, and with the result that leads to it", () =>
    Effect.gen(function*() {
      const Chain = Orchestration.make("Chain")
      const serving = Runtime.layer({ orchestrations: [Chain], activities: [Plain] }).pipe(
        Layer.provide([Chain.toLayer(() => Effect.andThen(Plain.execute(), Plain.execute())), PlainLive])
      )
      const { client } = yield* LocalProcess.start(serving)
      const run = (instanceId: string) =>
        Effect.gen(function*() {
          yield* client.start(Chain, { instanceId })
          yield* TestClock.adjust("1 minute")
        })
      // The first one is claimed: before, the clock of the store is not known.
      yield* run("first")
      const before = yield* counts(Metrics.optimisticTurns)
      yield* run("second")
      const after = yield* counts(Metrics.optimisticTurns)
      assert.strictEqual((after["first advanced"] ?? 0) - (before["first advanced"] ?? 0), 1)
      assert.strictEqual((after["next advanced"] ?? 0) - (before["next advanced"] ?? 0), 2)
      // Claimed turns are timed from their claim.
      const { "": [claims] = [0] } = yield* observed(Metrics.orchestrationProcessingDuration)
      assert.isAtLeast(claims, 1)
    }).pipe(Effect.provide([MemoryDriver.layer, Logger.layer([])]), isolated))

  it.effect("a handler that ignores its interruption is counted while it runs", () =>
    Effect.gen(function*() {
      const Stubborn = Activity.make("Stubborn")
      const Hasty = Orchestration.make("Hasty")
      const serving = Runtime.layer({ orchestrations: [Hasty], activities: [Stubborn] }).pipe(
        Layer.provide([
          Stubborn.toLayer(() => Effect.uninterruptible(Effect.sleep("5 minutes"))),
          Hasty.toLayer(() => Effect.asVoid(Effect.timeoutOption(Stubborn.execute(), "1 second")))
        ])
      )
      const { client } = yield* LocalProcess.start(serving)
      yield* client.start(Hasty, { instanceId: "hasty" })
      for (let i = 0; i < 6; i++) yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(yield* values(Metrics.uninterruptedHandlers), { "": 1 })
      for (let i = 0; i < 30; i++) yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(yield* values(Metrics.uninterruptedHandlers), { "": 0 })
      assert.deepStrictEqual(yield* counts(Metrics.activityExecutions), { "Stubborn cancelled default": 1 })
    }).pipe(Effect.provide([MemoryDriver.layer, Logger.layer([])]), isolated))

  it.effect("activities that are cancelled before they begin are counted, too", () =>
    Effect.gen(function*() {
      const Quick = Activity.make("Quick", { payload: Schema.Int })
      const Many = Orchestration.make("Many")
      let runs = 0
      const serving = Runtime.layer({ orchestrations: [Many], activities: [Quick] }).pipe(
        Layer.provide([
          Quick.toLayer((ms) => Effect.andThen(Effect.sync(() => runs++), Effect.sleep(ms))),
          Many.toLayer(Effect.fn(function*() {
            // Short ones, so that the process claims activities ahead.
            for (let i = 0; i < 10; i++) yield* Quick.execute(0)
            const all = Effect.all([Quick.execute(60_000), Quick.execute(60_000)], { concurrency: "unbounded" })
            yield* Effect.timeoutOption(all, "50 millis")
          }))
        ])
      )
      const { client } = yield* LocalProcess.start(serving, { runtime: { workerConcurrency: 1 } })
      yield* client.start(Many, { instanceId: "many" })
      for (let i = 0; i < 500; i++) yield* TestClock.adjust("1 millis")
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(runs, 11)
      assert.deepStrictEqual(yield* counts(Metrics.activityExecutions), {
        "Quick success default": 10,
        "Quick cancelled default": 2
      })
    }).pipe(Effect.provide([MemoryDriver.layer, Logger.layer([])]), isolated))

  const Asks = Orchestration.make("Asks")
  const asking = Runtime.layer({ orchestrations: [Asks], activities: [Plain] }).pipe(
    Layer.provide([Asks.toLayer(() => Plain.execute()), PlainLive])
  )

  /** Runs one instance on a driver that says that everything was delivered eleven times before. */
  const runPoisoned = Effect.fnUntraced(function*(queue: "orchestrator" | "worker") {
    const driver = yield* ProviderDriver.ProviderDriver
    const deadly = <A extends { readonly attemptCount: number }>(all: ReadonlyArray<A>) =>
      all.map((one) => ({ ...one, attemptCount: 12 }))
    const { client } = yield* LocalProcess.start(asking, { runtime: { optimisticTurns: false } }).pipe(
      Effect.provideService(ProviderDriver.ProviderDriver, {
        ...driver,
        fetchWorkItems: (options) =>
          Effect.map(driver.fetchWorkItems(options), (all) => queue === "worker" ? deadly(all) : all),
        fetchOrchestrationItems: (options) =>
          Effect.map(
            driver.fetchOrchestrationItems(options),
            (all) => queue === "worker" ? all : all.map((claim) => ({ ...claim, messages: deadly(claim.messages) }))
          )
      })
    )
    yield* client.start(Asks, { instanceId: "asks" })
    yield* TestClock.adjust("1 minute")
  })

  it.effect("an activity that fails as poison is counted", () =>
    Effect.gen(function*() {
      yield* runPoisoned("worker")
      assert.deepStrictEqual(yield* counts(Metrics.activityPoison), { "": 1 })
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationPoison), {})
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationFailures), { "Asks 1.0.0 poison": 1 })
    }).pipe(Effect.provide([MemoryDriver.layer, Logger.layer([])]), isolated))

  it.effect("an instance that fails as poison is counted", () =>
    Effect.gen(function*() {
      yield* runPoisoned("orchestrator")
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationPoison), { "": 1 })
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationFailures), { "Asks 1.0.0 poison": 1 })
      assert.deepStrictEqual(yield* counts(Metrics.orchestrationCompletions), { "Asks 1.0.0 failed": 1 })
    }).pipe(Effect.provide([MemoryDriver.layer, Logger.layer([])]), isolated))
})
