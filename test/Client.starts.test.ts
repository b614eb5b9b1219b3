import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { MemoryDriver, ProviderDriver } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Database from "../src/prisma/Database.ts"
import * as PrismaDriver from "../src/prisma/PrismaDriver.ts"
import * as LocalProcess from "./utils/localProcess.ts"
import * as PgServer from "./utils/PgServer.ts"

const Go = Signal.make("Go", { payload: Schema.String })
const Raised = Signal.make("Raised", { payload: Schema.String, unawaited: "lost" })

/** Returns its payload, then so many signals. */
const Collect = Orchestration.make("Collect", {
  payload: {
    name: Schema.String,
    signals: Schema.Int,
    lossy: Schema.Boolean.pipe(Schema.withDecodingDefaultKey(Effect.succeed(false)))
  },
  success: Schema.Array(Schema.String),
  error: Schema.String,
  instanceId: ({ name }) => `collect-${name}`
})

const collect = Effect.fn(function*({ lossy, name, signals }: typeof Collect.payload.Type) {
  if (signals < 0) return yield* Effect.fail("failed")
  const all = [name]
  for (let i = 0; i < signals; i++) all.push(yield* lossy ? Raised.wait : Go.wait)
  return all
})

const runtime = Runtime.layer({ orchestrations: [Collect] }).pipe(Layer.provide(Collect.toLayer(collect)))

const quiet = { lossy: false }

describe("Client.start in virtual time", () => {
  const layer = TestRuntime.layer(runtime).pipe(Layer.provideMerge(Logger.layer([])))

  it.effect("begins at its time or after its delay, and its status says when", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const nowMs = yield* Clock.currentTimeMillis
      const payload = { name: "x", signals: 0, ...quiet }
      yield* client.start(Collect, { instanceId: "at", payload, startAt: new Date(nowMs + 3_600_000) })
      yield* client.start(Collect, { instanceId: "after", payload, delay: "2 hours" })
      for (const [instanceId, ms] of [["at", 3_600_000], ["after", 7_200_000]] as const) {
        const status = yield* client.status(instanceId)
        assert.deepStrictEqual(status._tag === "Running" && status.startsAtMs, Option.some(nowMs + ms))
      }
      assert.deepStrictEqual(yield* client.wait(Collect, "at"), ["x"])
      assert.strictEqual(yield* Clock.currentTimeMillis, nowMs + 3_600_000)
      assert.deepStrictEqual(yield* client.wait(Collect, "after"), ["x"])
      assert.strictEqual(yield* Clock.currentTimeMillis, nowMs + 7_200_000)
    }).pipe(Effect.provide(layer)))

  it.effect("startMany: a start without a time of its own gets that of all", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const nowMs = yield* Clock.currentTimeMillis
      const payload = { name: "x", signals: 0, ...quiet }
      yield* client.startMany(Collect, [
        { instanceId: "shared", payload, startAt: undefined },
        { instanceId: "own", payload, delay: "1 hour" }
      ], { startAt: new Date(nowMs + 7_200_000) })
      for (const [instanceId, ms] of [["shared", 7_200_000], ["own", 3_600_000]] as const) {
        const status = yield* client.status(instanceId)
        assert.deepStrictEqual(status._tag === "Running" && status.startsAtMs, Option.some(nowMs + ms))
      }
    }).pipe(Effect.provide(layer)))

  it.effect("takes a time or a delay", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const start = { instanceId: "i", payload: { name: "x", signals: 0, ...quiet } }
      const both = yield* Effect.flip(client.start(Collect, { ...start, startAt: 0, delay: 0 }))
      const noTime = yield* Effect.flip(client.start(Collect, { ...start, startAt: "soon" }))
      for (const error of [both, noTime]) {
        assert.strictEqual(error._tag === "ProviderError" && error.reason._tag, "InvalidInput")
      }
      assert.strictEqual((yield* client.status("i"))._tag, "NotFound")
    }).pipe(Effect.provide(layer)))
})

const postgres = Layer.unwrap(
  Effect.map(
    PgServer.PgServer,
    ({ url }) => PrismaDriver.layer().pipe(Layer.provide(Database.layer({ url })), Layer.orDie)
  )
).pipe(Layer.provide(PgServer.layer))

const stores: ReadonlyArray<readonly [string, Layer.Layer<ProviderDriver.ProviderDriver>]> = [
  ["in memory", MemoryDriver.layer],
  ["on PostgreSQL", postgres]
]

describe.each(stores)("A client %s", (_, store) => {
  const scenario = <A, E>(test: (client: Client.Client["Service"]) => Effect.Effect<A, E>) =>
    Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(runtime)
      return yield* test(client)
    }).pipe(Effect.scoped, Effect.provide([store, Logger.layer([])]))

  it.live("starts many with an outcome for each, and all of them run", () =>
    scenario(Effect.fn(function*(client) {
      const names = Array.from({ length: 300 }, (_, i) => String(i))
      const starts = names.map((name) => ({ payload: { name, signals: 0, ...quiet } }))
      yield* client.start(Collect, starts[7]!)
      const outcomes = yield* client.startMany(Collect, [...starts, starts[3]!])
      assert.deepStrictEqual(
        outcomes,
        [...names, "3"].map((name, i) => ({
          instanceId: `collect-${name}`,
          outcome: i === 7 || i === 300 ? "AlreadyExists" : "Started"
        }))
      )
      const results = yield* Effect.forEach(
        names,
        (name) => client.wait(Collect, `collect-${name}`),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(results, names.map((name) => [name]))
    })))

  it.live("ends at once what is to begin later, when it is terminated or interrupted", () =>
    scenario(Effect.fn(function*(client) {
      const start = { payload: { name: "later", signals: 1, ...quiet }, delay: "1 hour" } as const
      const end = {
        terminated: (id: string) => client.terminate(id, "no more"),
        interrupted: (id: string) => client.interrupt(id, "no more"),
        overdue: (id: string) => client.interrupt(id, "no more", { deadline: "1 minute" })
      }
      for (const [instanceId, ended] of Object.entries(end)) {
        yield* client.start(Collect, { ...start, instanceId })
        yield* client.send(Go, instanceId, "waits for the start")
        yield* ended(instanceId)
        const cancelled = yield* Effect.flip(client.wait(Collect, instanceId))
        assert.deepStrictEqual(cancelled, new Client.InstanceCancelled({ instanceId, reason: "no more" }))
      }
    })))

  it.live("refuses many starts for one that is bad, before any is written", () =>
    scenario(Effect.fn(function*(client) {
      const good = { payload: { name: "good", signals: 0, ...quiet } }
      const bad = [
        { payload: { name: "bad", signals: 0.5, ...quiet } },
        { ...good, instanceId: "sub::bad" },
        { ...good, instanceId: "bad", delay: "-1 second" as const }
      ]
      for (const one of bad) yield* Effect.flip(client.startMany(Collect, [good, one]))
      assert.strictEqual((yield* client.status("collect-good"))._tag, "NotFound")
    })))

  it.live("starts with its signal an id that is free, and sends it to an instance that runs", () =>
    scenario(Effect.fn(function*(client) {
      const orStart = { orchestration: Collect, payload: { name: "a", signals: 3, ...quiet } }
      yield* Effect.forEach(
        ["1", "2", "3"],
        (text) => client.send(Go, "collect-a", text, { orStart }),
        { concurrency: "unbounded" }
      )
      const [name, ...signals] = yield* client.wait(Collect, "collect-a")
      assert.deepStrictEqual([name, ...signals.sort()], ["a", "1", "2", "3"])
      const ended = yield* Effect.flip(client.send(Go, "collect-a", "4", { orStart }))
      assert.strictEqual(ended._tag, "InstanceAlreadyExists")
      const again = { ...orStart, ifExists: "replaceEnded", payload: { name: "b", signals: 1, ...quiet } } as const
      yield* client.send(Go, "collect-a", "5", { orStart: again })
      assert.deepStrictEqual(yield* client.wait(Collect, "collect-a"), ["b", "5"])
    })))

  it.effect("replaces an instance that ends while the signal is on its way", () =>
    Effect.gen(function*() {
      let ended = 1
      const driver = LocalProcess.intercept(
        yield* ProviderDriver.ProviderDriver,
        (call, operation) =>
          operation === "startOrchestrations" && ended-- > 0 ? Effect.succeed(["Ended"] as never) : call
      )
      const { client } = yield* LocalProcess.start(runtime).pipe(
        Effect.provideService(ProviderDriver.ProviderDriver, driver)
      )
      const orStart = { orchestration: Collect, payload: { name: "a", signals: 1, ...quiet } }
      yield* client.send(Go, "collect-a", "1", { orStart: { ...orStart, ifExists: "replaceEnded" } })
      assert.deepStrictEqual(yield* client.wait(Collect, "collect-a"), ["a", "1"])
      ended = 1
      const refused = yield* Effect.flip(client.send(Go, "collect-b", "1", { orStart }))
      assert.strictEqual(refused._tag, "InstanceAlreadyExists")
    }).pipe(Effect.provide([MemoryDriver.layer, Logger.layer([])])))

  it.live("starts with a lossy signal, which its first waits receive", () =>
    scenario(Effect.fn(function*(client) {
      const orStart = { orchestration: Collect, payload: { name: "a", signals: 1, lossy: true } }
      yield* client.send(Raised, "collect-a", "1", { orStart })
      assert.deepStrictEqual(yield* client.wait(Collect, "collect-a"), ["a", "1"])
    })))

  it.live("starts an ended id anew where asked, and never one that runs", () =>
    scenario(Effect.fn(function*(client) {
      const start = (name: string, signals: number, ifExists?: Client.Replaces) =>
        client.execute(Collect, { instanceId: "i", payload: { name, signals, ...quiet }, ifExists })
      assert.deepStrictEqual(yield* start("a", 0), ["a"])
      for (const ifExists of [undefined, "replaceFailed"] as const) {
        assert.deepStrictEqual(
          yield* Effect.flip(start("b", 0, ifExists)),
          new Client.InstanceAlreadyExists({ instanceId: "i" })
        )
      }
      assert.deepStrictEqual(yield* start("c", 0, "replaceEnded"), ["c"])
      assert.strictEqual(yield* Effect.flip(start("d", -1, "replaceEnded")), "failed")
      assert.deepStrictEqual(yield* start("e", 0, "replaceFailed"), ["e"])
      yield* client.start(Collect, { instanceId: "j", payload: { name: "j", signals: 1, ...quiet } })
      const many = yield* client.startMany(
        Collect,
        ["i", "j", "k"].map((name) => ({ instanceId: name, payload: { name, signals: 0, ...quiet } })),
        { ifExists: "replaceEnded" }
      )
      assert.deepStrictEqual(many.map(({ outcome }) => outcome), ["Started", "AlreadyExists", "Started"])
    })))
})
