/**
 * Instances whose payloads are encrypted, on PostgreSQL: plain for programs and clients, sealed in every row.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Metrics, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import type { PayloadCodec } from "duroxide-prisma/provider"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { counts, isolated } from "../utils/metrics.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { begin, canary, encrypted, guest, hotel, receipt, Refused, Ring, rows, Stay, Steps } from "./utils.ts"

type Codec = Layer.Layer<PayloadCodec.PayloadCodec> | Layer.Layer<never>

const Pay = Activity.make("Pay", { payload: Schema.String, success: Schema.String })
const Thrice = Orchestration.make("Thrice", { payload: Schema.String, success: Schema.String })
/** The last turn is one of a timer: it is claimed, and resumes after an event with a payload. */
const thrice = Runtime.layer({ orchestrations: [Thrice], activities: [Pay] }).pipe(Layer.provide([
  Pay.toLayer((text) => Effect.succeed(`paid: ${text}`)),
  Thrice.toLayer(Effect.fn(function*(text) {
    const twice = yield* Pay.execute(yield* Pay.execute(text))
    const [paid] = yield* Effect.all([Pay.execute(twice), Effect.sleep("300 millis")], { concurrency: "unbounded" })
    return paid
  }))
]))

/** A process on this database. */
const process = (url: string, codec: Codec, runtime: typeof thrice = hotel) =>
  runtime.pipe(
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url, maxConnections: 3 })),
    Layer.provide(RuntimeConfig.layer({ shutdownTimeout: 1_000 })),
    Layer.provide(codec),
    Layer.provide(Logger.layer([]))
  )

/** Rings until the program has heard it. */
const stays = (instanceId: string) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    const ringing = Effect.forever(Effect.andThen(client.send(Ring, instanceId, guest), Effect.sleep("50 millis")))
    return yield* Effect.raceFirst(
      Effect.exit(client.wait(Stay, instanceId)),
      Effect.ignore(ringing) as Effect.Effect<never>
    )
  })

const failureOf = (exit: Exit.Exit<unknown, unknown>) => Exit.isFailure(exit) ? Cause.squash(exit.cause) : undefined

describe("Encrypted payloads", () => {
  it.live("are plain above the store and sealed in every row: starts, activities, failures, signals, values", () =>
    Effect.gen(function*() {
      const database = yield* PgServer.database
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        for (const ends of ["well", "refused", "dead"] as const) yield* begin(ends, ends)
        const [well, refused, dead] = yield* Effect.all(
          [stays("well"), stays("refused"), stays("dead")],
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(well, Exit.succeed(receipt))
        assert.deepStrictEqual(failureOf(refused), new Refused({ reason: canary }))
        assert.include(String(failureOf(dead)), canary)
        // Of each of two executions, the program and an activity.
        const steps = yield* Stream.runCollect(client.readStream(Steps, "well"))
        assert.deepStrictEqual(steps.map(({ chunk }) => chunk), [guest, guest, guest, guest])
        const stored = yield* database.sql("SELECT count(DISTINCT chunk)::integer AS texts FROM progress_chunks")
        assert.deepStrictEqual(stored, [{ texts: 12 }], "equal chunks do not show")
        const status = yield* client.status("well")
        assert.include(JSON.stringify(status), `in house: ${canary}`)
        assert.include(JSON.stringify(yield* client.status("dead")), canary)

        const all = yield* rows(database)
        assert.isAbove(all.filter(({ row }) => row.includes("$sealed")).length, 40)
        assert.deepStrictEqual(all.filter(({ row }) => row.includes(canary)), [])
        // Operators never see them, also through a store that has the codec.
        const admin = yield* Admin.Admin
        const seen = JSON.stringify(
          yield* Effect.all([
            admin.readHistoryWithExecutionId("well", 1),
            admin.getInstanceInfo("dead"),
            admin.list(),
            admin.readChunks("well", "steps")
          ])
        )
        assert.notInclude(seen, canary)
        assert.include(seen, "$sealed")
      }).pipe(Effect.provide(process(database.url, encrypted("k1"))))
    }).pipe(Effect.scoped))

  it.live("keep programs warm: turns are stored without a claim, and resume without a replay", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const turns = yield* Effect.gen(function*() {
        const client = yield* Client.Client
        // With the first one, the process learns the time of the store.
        for (const instanceId of ["first", "second"]) {
          assert.strictEqual(
            yield* client.execute(Thrice, { instanceId, payload: canary }),
            `paid: paid: paid: ${canary}`
          )
        }
        return [yield* counts(Metrics.optimisticTurns), yield* counts(Metrics.orchestrationReplays)]
      }).pipe(Effect.provide(process(url, encrypted("k1"), thrice)), isolated)
      assert.isAtLeast(turns[0]!["first advanced"] ?? 0, 1)
      assert.isAtLeast(turns[0]!["next advanced"] ?? 0, 2)
      assert.deepStrictEqual(turns[1], {})
    }).pipe(Effect.scoped))

  it.live("block an instance while no process has their key, and let it continue when one has", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const during = <A, E>(codec: Codec, effect: Effect.Effect<A, E, Client.Client>) =>
        Effect.provide(effect, process(url, codec))
      const blocked = Effect.gen(function*() {
        const client = yield* Client.Client
        const block = Effect.map(
          client.status("guest"),
          (status) => status._tag === "Running" ? Option.getOrUndefined(status.block) : undefined
        )
        yield* waitUntil(Effect.map(block, (block) => block !== undefined))
        return yield* block
      })
      // Until the program waits to be rung.
      yield* during(
        encrypted("k1"),
        Effect.andThen(
          begin("guest"),
          waitUntil(Effect.map(
            sql("SELECT FROM history WHERE instance_id = 'guest' AND event_type = 'ExternalSubscribed'"),
            (rows) => rows.length > 0
          ))
        )
      )
      const ring = Effect.flatMap(Client.Client, (client) => client.send(Ring, "guest", guest))
      for (const [codec, what] of [[Layer.empty, "none"], [encrypted("k2"), "another"]] as const) {
        const block = yield* during(codec, Effect.andThen(ring, blocked))
        assert.strictEqual(block?.reason, "DataUnreadable", what)
        assert.include(
          block?.problem,
          "payload of orchestration \"Stay\" does not match its schema: it is encrypted (key k1,"
        )
        assert.include(block?.problem, "provide the PayloadCodec that has stored it, with its key")
        assert.notInclude(block?.problem, canary)
      }
      // What the process without a codec has sent is plain, what the other one has sent is encrypted with k2.
      assert.deepStrictEqual(yield* during(encrypted("k2", "k1"), stays("guest")), Exit.succeed(receipt))
      const keys = yield* sql<{ readonly key: string }>(
        "SELECT DISTINCT substring(event_data FROM 'aes-256-gcm:(k[0-9])') AS key FROM history ORDER BY 1"
      )
      assert.includeMembers(keys.map(({ key }) => key), ["k1", "k2"])
    }).pipe(Effect.scoped))
})
