import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Metrics, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { Admin, FromDriver, MemoryDriver, Provider } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as v8 from "node:v8"
import * as vm from "node:vm"
import * as Database from "../../src/prisma/Database.ts"
import { engine } from "../../src/replay/context.ts"
import * as App from "../utils/app.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Step = Activity.make("Step", { payload: Schema.Int, success: Schema.Int })
const Go = Signal.make("Go", { payload: Schema.String })

/** One step after the other; its result counts them. Every test has one of its own name, for its metrics. */
const chain = (name: string) => Orchestration.make(name, { payload: Schema.Int, success: Schema.Int })

const stepByStep = Effect.fnUntraced(function*(steps: number) {
  let sum = 0
  for (let i = 0; i < steps; i++) sum += yield* Step.execute(1)
  return sum
})

const replays = (name: string) =>
  Effect.map(
    Metric.value(Metric.withAttributes(Metrics.orchestrationReplays, { orchestration_name: name })),
    ({ count }) => count
  )

/** Every turn is claimed. */
const claiming = { verifyReplay: false, optimisticTurns: false } as const

const patient = { provider: { longPolling: { aggressivePollInterval: "10 minutes" } }, runtime: claiming } as const

describe("WarmInstances", () => {
  it.live(
    "a long chain continues in memory: two statements a turn, no replay, the same cost at its end as at its start",
    () => {
      const Long = chain("LongChain")
      const steps: Array<{ readonly cpu: number; readonly time: number }> = []
      const runtime = Runtime.layer({ orchestrations: [Long], activities: [Step] }).pipe(Layer.provide([
        Long.toLayer(stepByStep),
        Step.toLayer((n) => Effect.sync(() => (steps.push({ cpu: cpuTime(), time: performance.now() }), n)))
      ]))
      return Effect.gen(function*() {
        const client = yield* Client.Client
        const { statementCounts } = yield* Database.Database
        yield* client.execute(Long, { instanceId: "warm-up", payload: 300 })
        steps.length = 0
        const before = yield* statementCounts
        assert.strictEqual(yield* client.execute(Long, { instanceId: "long", payload: 1_000 }), 1_000)
        const after = yield* statementCounts
        assert.strictEqual(after["fetchOrchestrationItems"]! - before["fetchOrchestrationItems"]!, 1_001)
        assert.strictEqual(after["ackOrchestrationItems"]! - before["ackOrchestrationItems"]!, 1_001)
        assert.strictEqual(after["readHistory"], before["readHistory"])
        assert.strictEqual(yield* replays("LongChain"), 0)
        // CPU time of this process, and of each part the cheapest of its quarters: another load of the machine makes
        // steps dearer for a while, in CPU time, too.
        const cost = (from: number) =>
          Math.min(...[0, 50, 100, 150].map((at) => (steps[from + at + 49]!.cpu - steps[from + at]!.cpu) / 49))
        const [start, end] = [cost(0), cost(799)]
        const elapsed = (steps[999]!.time - steps[0]!.time) / 999
        console.log(
          `chain of 1,000 activities: ${start.toFixed(2)} ms of CPU a step at the start, ${
            end.toFixed(2)
          } at the end, ratio ${(end / start).toFixed(2)}; ${elapsed.toFixed(1)} ms by the clock`
        )
        assert.isAtMost(end / start, 1.5)
      }).pipe(Effect.provide(App.layer(runtime, patient)))
    }
  )

  it.live("two processes on one instance: each resumes only from the history it has seen", () => {
    const Shared = chain("SharedChain")
    const runtime = Runtime.layer({ orchestrations: [Shared], activities: [Step] }).pipe(Layer.provide([
      Shared.toLayer(stepByStep),
      Step.toLayer(Effect.succeed)
    ]))
    return Effect.gen(function*() {
      const provider = yield* Provider.Provider
      const client = yield* Client.Client
      yield* Layer.build(Layer.fresh(runtime).pipe(Layer.provide(RuntimeConfig.layer(claiming))))
      // More events than a claim returns.
      assert.strictEqual(yield* client.execute(Shared, { instanceId: "shared", payload: 150 }), 150)
      const history = yield* provider.read("shared")
      assert.deepStrictEqual(history.map(({ eventId }) => eventId), history.map((_, index) => index + 1))
      assert.strictEqual(history.length, 302)
      assert.isAbove(yield* replays("SharedChain"), 0, "the processes took turns")
    }).pipe(Effect.scoped, Effect.provide(App.layer(runtime, { runtime: claiming })))
  })

  it.effect("an instance that is deleted and starts again in the same millisecond keeps no state of the old one", () => {
    const Echo = Orchestration.make("EchoOnce", { payload: Schema.String, success: Schema.String })
    const runtime = Runtime.layer({ orchestrations: [Echo] }).pipe(Layer.provide([
      Echo.toLayer((text) => Effect.map(Go.wait, (word) => `${text} ${word}`))
    ]))
    return Effect.gen(function*() {
      const client = yield* Client.Client
      const admin = yield* Admin.Admin
      for (const payload of ["old", "new"]) {
        yield* client.start(Echo, { instanceId: "again", payload })
        yield* untilWaiting("again")
        if (payload === "old") yield* admin.deleteInstance("again", { force: true })
      }
      yield* client.send(Go, "again", "word")
      assert.strictEqual(yield* client.wait(Echo, "again"), "new word")
    }).pipe(Effect.provide(inMemory(runtime)))
  })

  it.effect("what only a replay can decide: a warm program that dies or diverges is replayed, and fails as the replay does", () => {
    const Fails = Orchestration.make("FailsWarm", { payload: Schema.String })
    const runtime = Runtime.layer({ orchestrations: [Fails], activities: [Step] }).pipe(Layer.provide([
      Fails.toLayer((how) =>
        Effect.andThen(
          Step.execute(1),
          how === "dies" ? Effect.die(new Error("out of order")) : Effect.andThen(Effect.never, Effect.void)
        )
      ),
      Step.toLayer(Effect.succeed)
    ]))
    return Effect.gen(function*() {
      const client = yield* Client.Client
      const failure = (payload: string) =>
        Effect.map(Effect.flip(client.execute(Fails, { instanceId: payload, payload })), (error) => error.message)
      assert.include(yield* failure("dies"), "out of order")
      assert.include(yield* failure("hangs"), "awaits something that is not durable")
      assert.strictEqual(yield* replays("FailsWarm"), 2)
    }).pipe(Effect.provide(inMemory(runtime)))
  })

  it.effect("what the store refuses: the instance fails with the reason, as it does when it is replayed", () => {
    const Loud = Orchestration.make("LoudWarm")
    const runtime = Runtime.layer({ orchestrations: [Loud], activities: [Step] }).pipe(Layer.provide([
      Loud.toLayer(() => Effect.andThen(Step.execute(1), unstorable)),
      Step.toLayer(Effect.succeed)
    ]))
    return Effect.gen(function*() {
      const client = yield* Client.Client
      const error = yield* Effect.flip(client.execute(Loud, { instanceId: "loud" }))
      assert.include(error.message, "NUL")
    }).pipe(Effect.provide(inMemory(runtime)))
  })

  for (const verifyReplay of [true, false]) {
    it.effect(`verifyReplay ${verifyReplay}: code that is not deterministic ${verifyReplay ? "fails" : "may continue"}`, () => {
      const Dice = Orchestration.make("Dice", { success: Schema.Number })
      const runtime = Runtime.layer({ orchestrations: [Dice], activities: [Step] }).pipe(Layer.provide([
        Dice.toLayer(() => {
          const chance = Math.random()
          return Effect.as(Step.execute(1), chance)
        }),
        Step.toLayer(Effect.succeed)
      ]))
      return Effect.gen(function*() {
        const client = yield* Client.Client
        const exit = yield* Effect.result(client.execute(Dice, { instanceId: "dice" }))
        if (verifyReplay) {
          assert.isTrue(Result.isFailure(exit))
          assert.include(Result.getOrThrow(Result.flip(exit)).message, `"Dice" is not deterministic`)
        } else assert.isTrue(Result.isSuccess(exit))
      }).pipe(Effect.provide(inMemory(runtime, { verifyReplay })))
    })
  }

  it.effect("limits: the least recently used programs are dropped, by number and by bytes", () => {
    const Wait = Orchestration.make("WaitLimited", { payload: Schema.String, success: Schema.String })
    const runtime = Runtime.layer({ orchestrations: [Wait] }).pipe(Layer.provide([
      Wait.toLayer((text) => Effect.andThen(Go.wait, Effect.map(Go.wait, () => text)))
    ]))
    const run = (limits: RuntimeConfig.Options, text: string) =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const before = yield* replays("WaitLimited")
        for (const instanceId of ["a", "b", "c"]) {
          yield* client.start(Wait, { instanceId, payload: text })
          yield* untilWaiting(instanceId)
        }
        const kept = yield* Metric.value(Metrics.warmInstances)
        // The oldest first: it was dropped, and its turn causes the next one to be dropped.
        for (const instanceId of ["c", "b", "a"]) {
          yield* client.send(Go, instanceId, "1")
          yield* untilWaiting(instanceId, 2)
          yield* client.send(Go, instanceId, "2")
          assert.strictEqual(yield* client.wait(Wait, instanceId), text)
        }
        return { kept: kept.value, replayed: (yield* replays("WaitLimited")) - before }
      }).pipe(Effect.provide(inMemory(runtime, limits)))
    return Effect.gen(function*() {
      assert.deepStrictEqual(yield* run({}, "short"), { kept: 3, replayed: 0 })
      assert.deepStrictEqual(yield* run({ warmInstances: 2 }, "short"), { kept: 2, replayed: 1 })
      // A text counts twice per character; two programs with one of 20,000 fit.
      const long = "x".repeat(20_000)
      assert.deepStrictEqual(yield* run({ warmInstanceBytes: 120_000 }, long), { kept: 2, replayed: 1 })
      assert.deepStrictEqual(yield* run({ warmInstances: 0 }, "short"), { kept: 0, replayed: 6 })
    })
  })

  it.live("10,000 instances that wait: memory grows with the programs kept, not with those that wait", () => {
    const Wait = Orchestration.make("WaitMany", { success: Schema.String })
    const runtime = Runtime.layer({ orchestrations: [Wait] }).pipe(Layer.provide([
      Wait.toLayer(() => Effect.race(Go.wait, Effect.as(Effect.sleep("7 days"), "late")))
    ]))
    const started = (instances: number, limits: RuntimeConfig.Options) =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const { statementCounts } = yield* Database.Database
        yield* client.execute(Wait, { instanceId: "warm-up" }).pipe(Effect.timeoutOption(100))
        const before = heapUsed()
        yield* Effect.forEach(
          Array.from({ length: instances }, (_, index) => `wait-${index}`),
          (instanceId) => client.start(Wait, { instanceId }),
          { concurrency: 256, discard: true }
        )
        yield* waitUntil(Effect.map(
          Metric.value(Metric.withAttributes(Metrics.orchestrationTurns, { orchestration_name: "WaitMany" })),
          ({ count }) => count >= turns + instances
        ))
        turns += instances
        const grown = heapUsed() - before
        const { value: bytes } = yield* Metric.value(Metrics.warmInstanceBytes)
        const { value: count } = yield* Metric.value(Metrics.warmInstances)
        console.log(
          `${instances} waiting instances, ${count} programs kept: the heap grew by ${
            (grown / 1e6).toFixed(1)
          } MB, estimated ${(bytes / 1e6).toFixed(1)} MB; ${
            (yield* statementCounts)["ackOrchestrationItems"]
          } statements stored their turns`
        )
        return { grown, bytes, count }
      }).pipe(Effect.provide(App.layer(runtime, { runtime: { ...limits, verifyReplay: false } })))
    let turns = 1
    return Effect.gen(function*() {
      const bounded = yield* started(10_000, { warmInstances: 500 })
      turns++
      const all = yield* started(2_000, { warmInstances: 20_000, warmInstanceBytes: 1e9 })
      assert.strictEqual(bounded.count, 500)
      assert.isAtLeast(all.count, 2_000)
      const unbounded = all.grown * 5
      assert.isBelow(bounded.grown, unbounded / 4)
      assert.isBelow(all.grown, 1.5 * all.bytes, "the estimate is realistic")
    })
  })
})

// internal

/** CPU time of this process, milliseconds. */
const cpuTime = () => {
  const { system, user } = process.cpuUsage()
  return (system + user) / 1000
}

/** No definition accepts a name like this. */
const unstorable = Effect.flatMap(
  engine,
  ({ perform }) => Effect.asVoid(perform({ _tag: "WaitExternal", name: "no\0name" }))
)

/** A whole application in memory and in virtual time, in which an instance that would block fails at once. */
const inMemory = (
  runtime: Layer.Layer<Runtime.Runtime, never, Provider.Provider>,
  options: RuntimeConfig.Options = {}
) =>
  Layer.mergeAll(runtime, Client.layer, FromDriver.layerAdmin).pipe(
    Layer.provide(RuntimeConfig.layer({ pollTimeout: "1000 days", onMismatch: "fail", ...options })),
    Layer.provideMerge(FromDriver.layer({ longPolling: { aggressivePollInterval: "1000 days" } })),
    Layer.provide(MemoryDriver.layer),
    Layer.provideMerge(Logger.layer([]))
  )

/** Waits until the instance waits for its `times`-th signal. */
const untilWaiting = (instanceId: string, times = 1) =>
  Effect.repeat(Effect.flatMap(Provider.Provider, (provider) => provider.read(instanceId)), {
    until: (history) => history.filter(({ _tag }) => _tag === "ExternalSubscribedPersistent").length >= times
  })

v8.setFlagsFromString("--expose-gc")
const collect: () => void = vm.runInNewContext("gc")

const heapUsed = () => {
  collect()
  collect()
  return process.memoryUsage().heapUsed
}
