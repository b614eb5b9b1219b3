import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { MemoryDriver } from "duroxide-prisma/provider"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Job = Activity.make("Job", { payload: Schema.String })
const Jobs = Orchestration.make("Jobs", { payload: Schema.String })
const Killer = Orchestration.make("Killer")

/** A process that ends at once when `die` is called, and counts what it runs. */
const runtime = (runs: Map<string, number>, die: () => void) => {
  const note = (what: string) => runs.set(what, (runs.get(what) ?? 0) + 1)
  return Runtime.layer({ orchestrations: [Jobs, Killer], activities: [Job] }).pipe(Layer.provide([
    Jobs.toLayer(Job.execute),
    Killer.toLayer(() =>
      Effect.sync(() => {
        note("killer")
        die()
      })
    ),
    Job.toLayer((what) =>
      Effect.suspend(() => {
        note(what)
        if (what === "stops") return Effect.interrupt
        return what === "guilty"
          ? Effect.andThen(Effect.sleep("20 seconds"), Effect.sync(die))
          : Effect.sleep(what.startsWith("short") ? "4 seconds" : "10 minutes")
      })
    )
  ]))
}

/** Runs one process after the other: as soon as one has died, the next one starts. */
const restarting = Effect.gen(function*() {
  const runs = new Map<string, number>()
  let deaths = 0
  const client = (yield* LocalProcess.start(Runtime.layer({}))).client
  yield* Effect.gen(function*() {
    while (true) {
      const died = yield* Deferred.make<void>()
      const process = yield* LocalProcess.start(
        runtime(runs, () => {
          deaths++
          Deferred.doneUnsafe(died, Effect.void)
        }),
        {
          provider: { longPolling: { aggressivePollInterval: "5 seconds" } },
          runtime: { cancellationCheckInterval: Infinity }
        }
      )
      yield* Deferred.await(died)
      yield* process.kill
      yield* process.stop
    }
  }).pipe(Effect.forkScoped)
  return { client, runs, deaths: () => deaths }
})

const pass = Effect.fnUntraced(function*(minutes: number) {
  for (let i = 0; i < minutes; i++) yield* TestClock.adjust("1 minute")
})

const poison = (error: unknown) => {
  assert.instanceOf(error, Client.InstanceFailed)
  const { details } = error
  assert.strictEqual(details._tag, "Poison")
  if (details._tag === "Poison") assert.deepStrictEqual([details.attemptCount, details.maxAttempts], [10, 10])
  return error
}

const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([])])

describe("Poison:", () => {
  it.effect(
    "an activity takes its process down: it fails after ten, and nothing that ran beside it",
    () =>
      Effect.gen(function*() {
        const { client, deaths, runs } = yield* restarting
        const innocent = Array.from({ length: 15 }, (_, i) => `innocent ${i}`)
        yield* Effect.forEach(
          ["guilty", ...innocent],
          (payload) => client.start(Jobs, { instanceId: payload, payload })
        )
        // Together, in smaller groups, and each alone until it has proved itself.
        yield* pass(200)
        const error = poison(yield* Effect.flip(client.wait(Jobs, "guilty", { timeout: 1 })))
        assert.include(error.message, `activity Job#2 was delivered 10 times and never ended (maxAttempts 10)`)
        assert.strictEqual(runs.get("guilty"), 10)
        assert.strictEqual(deaths(), 10)
        yield* Effect.forEach(innocent, (instanceId) => client.wait(Jobs, instanceId, { timeout: 1 }))
        assert.isAtMost(Math.max(...innocent.map((instanceId) => runs.get(instanceId)!)), 7)
      }).pipe(inMemory)
  )

  it.effect("two processes die: what was in flight runs together in the third one", () =>
    Effect.gen(function*() {
      let running = 0
      let most = 0
      const layer = Runtime.layer({ orchestrations: [Jobs], activities: [Job] }).pipe(Layer.provide([
        Jobs.toLayer(Job.execute),
        Job.toLayer(() =>
          Effect.acquireUseRelease(
            Effect.sync(() => {
              most = Math.max(most, ++running)
            }),
            () => Effect.sleep("4 seconds"),
            () => Effect.sync(() => running--)
          )
        )
      ]))
      const ids = Array.from({ length: 8 }, (_, i) => `${i}`)
      const start = LocalProcess.start(layer, { provider: { longPolling: { aggressivePollInterval: "1 second" } } })
      for (let death = 1; death <= 2; death++) {
        const process = yield* start
        if (death === 1) {
          yield* Effect.forEach(ids, (payload) => process.client.start(Jobs, { instanceId: payload, payload }))
        }
        for (let i = 0; running < ids.length && i < 100; i++) yield* TestClock.adjust("1 second")
        yield* process.kill
        yield* process.stop
        running = 0
      }
      most = 0
      const { client } = yield* start
      const hasBegun = () => most > 0
      for (let i = 0; !hasBegun() && i < 100; i++) yield* TestClock.adjust("1 second")
      for (let i = 0; i < 6; i++) yield* TestClock.adjust("1 second")
      assert.strictEqual(most, ids.length)
      yield* Effect.forEach(ids, (instanceId) => client.wait(Jobs, instanceId, { timeout: 1 }))
    }).pipe(inMemory))

  it.effect("a turn takes its process down: the instance fails after ten", () =>
    Effect.gen(function*() {
      const { client, runs } = yield* restarting
      yield* client.start(Killer, { instanceId: "killer" })
      yield* pass(5)
      const error = poison(yield* Effect.flip(client.wait(Killer, "killer", { timeout: 1 })))
      assert.include(error.message, `orchestration killer was delivered 10 times and never ended (maxAttempts 10)`)
      assert.strictEqual(runs.get("killer"), 10)
    }).pipe(inMemory))

  it.effect("a handler interrupts itself: the activity fails after ten", () =>
    Effect.gen(function*() {
      const { client, runs } = yield* restarting
      yield* client.start(Jobs, { instanceId: "stops", payload: "stops" })
      yield* pass(1)
      poison(yield* Effect.flip(client.wait(Jobs, "stops", { timeout: 1 })))
      assert.strictEqual(runs.get("stops"), 10)
    }).pipe(inMemory))
})
