import { assert, describe, it } from "@effect/vitest"
import { Client, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import type { ProviderDriver } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Database from "../src/prisma/Database.ts"
import * as PrismaDriver from "../src/prisma/PrismaDriver.ts"
import * as LocalProcess from "./utils/localProcess.ts"
import * as PgServer from "./utils/PgServer.ts"

const Go = Signal.make("Go")

const Count = KeyValue.make("count", Schema.Int)
/** Definition that a caller of another version might have. */
const Flag = KeyValue.make("count", Schema.Boolean)

/** Counts its messages up to three; each execution takes one. */
const Counting = Orchestration.make("Counting", { payload: Schema.Int })

const runtime = Runtime.layer({ orchestrations: [Counting] }).pipe(Layer.provide(Counting.toLayer(
  Effect.fn(function*(count) {
    yield* Go.wait
    yield* Count.set(count)
    yield* Orchestration.setCustomStatus(count === 2 ? null : `count ${count}`)
    if (count < 3) return yield* Counting.continueAsNew(count + 1)
  })
)))

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
  /** The client of a process that runs "a", and of one that only waits. */
  const scenario = <A, E>(
    test: (running: Client.Client["Service"], waiting: Client.Client["Service"]) => Effect.Effect<A, E>
  ) =>
    Effect.gen(function*() {
      const { client } = yield* LocalProcess.start(runtime)
      const other = yield* Layer.build(Layer.fresh(Client.layer.pipe(Layer.provide(FromDriver.layer()))))
      yield* client.start(Counting, { instanceId: "a", payload: 1 })
      return yield* test(client, Context.get(other, Client.Client))
    }).pipe(Effect.scoped, Effect.provide([store, Logger.layer([])]))

  it.live("waits for each status in turn, over executions, here and in another process, until the end", () =>
    scenario(Effect.fn(function*(running, waiting) {
      for (const [count, status] of [[1, "count 1"], [2, null], [3, "count 3"]] as const) {
        const waits = yield* Effect.forEach(
          [running, waiting],
          (client) => Effect.forkChild(client.waitForStatus("a", { after: count - 1 }))
        )
        yield* running.send(Go, "a")
        const expected = { status: Option.fromNullOr(status), version: count }
        assert.deepStrictEqual(yield* Effect.forEach(waits, Fiber.join), [expected, expected])
      }
      for (const client of [running, waiting]) {
        const ended = yield* Effect.flip(client.waitForStatus("a", { after: 3 }))
        assert.deepStrictEqual(ended, new Client.InstanceEnded({ instanceId: "a", waitedFor: "status" }))
        assert.deepStrictEqual(yield* client.waitForStatus("a", { after: 2 }), {
          status: Option.some("count 3"),
          version: 3
        })
      }
    })))

  it.live("waits for a value that is there, for one that satisfies a predicate, and for one that will not come", () =>
    scenario(Effect.fn(function*(running, waiting) {
      const waits = yield* Effect.forEach([running, waiting], (client) =>
        Effect.forkChild(Effect.all([
          client.waitForValue(Count, "a"),
          client.waitForValue(Count, "a", { until: (count) => count >= 3 }),
          Effect.flip(client.waitForValue(Count, "a", { until: (count) => count > 3 })),
          // The first value that is not a boolean ends the wait.
          Effect.flip(client.waitForValue(Flag, "a"))
        ], { concurrency: "unbounded" })))
      for (let i = 0; i < 3; i++) yield* running.send(Go, "a")
      for (const [first, last, ended, mismatch] of yield* Effect.forEach(waits, Fiber.join)) {
        assert.isAtLeast(first, 1)
        assert.strictEqual(last, 3)
        assert.deepStrictEqual(ended, new Client.InstanceEnded({ instanceId: "a", waitedFor: "value" }))
        assert.strictEqual(mismatch._tag, "PayloadMismatch")
      }
    })))

  it.live("fails after its timeout, and looks once with a timeout of 0", () =>
    scenario(Effect.fn(function*(running, waiting) {
      for (const client of [running, waiting]) {
        const timeout = yield* Effect.flip(client.waitForStatus("a", { timeout: 20 }))
        assert.deepStrictEqual(timeout, new Client.WaitTimeout({ instanceId: "a", waitedFor: "status", timeoutMs: 20 }))
        assert.include(timeout.message, "did not have the status waited for after 20 ms; if it was started")
        const none = yield* Effect.flip(client.waitForValue(Count, "a", { timeout: 0 }))
        assert.deepStrictEqual(none, new Client.WaitTimeout({ instanceId: "a", waitedFor: "value", timeoutMs: 0 }))
      }
      yield* running.send(Go, "a")
      yield* running.waitForStatus("a")
      assert.strictEqual(yield* waiting.waitForValue(Count, "a", { timeout: 0 }), 1)
    })))

  it.live("refuses what no instance can have", () =>
    scenario(Effect.fn(function*(_, waiting) {
      for (const call of [waiting.waitForStatus("\0"), waiting.waitForStatus("a", { after: NaN })]) {
        const error = yield* Effect.flip(call)
        assert(error._tag === "ProviderError", error._tag)
        assert.strictEqual(error.reason._tag, "InvalidInput")
      }
    })))
})
