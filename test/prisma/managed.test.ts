/**
 * What a process does with a managed server: TLS, login, pool, migrations, an orchestration, and the removal of it all.
 *
 * It always runs against the tests' own server behind TLS. With `AZURE_POSTGRES_URL`, it runs against that server as
 * well, in a schema of its own, with the `Credentials` that `DUROXIDE_PG_CREDENTIALS` chooses. Without it, a line says
 * that no managed server was tested.
 */
import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { Credentials, Database, Migrator, PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { randomUUID } from "node:crypto"
import { Prisma } from "../../src/prisma/generated/client.js"
import { authority } from "../utils/certificates.ts"
import * as PgServer from "../utils/PgServer.ts"
import { tlsServer } from "../utils/tlsServer.ts"

const Greet = Activity.make("Greet", { payload: { name: Schema.String }, success: Schema.String })
const Welcome = Orchestration.make("Welcome", { payload: { name: Schema.String }, success: Schema.String })

const WelcomeLive = Layer.mergeAll(
  Greet.toLayer(({ name }) => Effect.succeed(`Hello, ${name}`)),
  Welcome.toLayer(({ name }) => Greet.execute({ name }))
)

const size = 4

/** Returns the backends that the pool had, and leaves nothing behind. */
const walk = (target: { readonly url: string; readonly tls?: Database.Tls }) =>
  Effect.gen(function*() {
    const options = { ...target, schema: `managed_${randomUUID().replaceAll("-", "_")}` }
    yield* Effect.addFinalizer(() => Effect.ignore(Migrator.reset({ ...options, force: true })))
    assert.isNotEmpty(yield* Migrator.migrate(options))
    const found = yield* Effect.gen(function*() {
      const client = yield* Client.Client
      assert.strictEqual(yield* client.execute(Welcome, { instanceId: "one", payload: { name: "Ada" } }), "Hello, Ada")
      const { query, tls } = yield* Database.Database
      assert.strictEqual(tls, "verified")
      const backend = query<{ pid: number; ssl: boolean }>(
        "backend",
        Prisma.sql`SELECT pid, ssl, pg_sleep(0.2)::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()`
      )
      return yield* Effect.all(Array.from({ length: size }, () => backend), { concurrency: "unbounded" })
    }).pipe(Effect.provide(
      Runtime.layer({ orchestrations: [Welcome], activities: [Greet] }).pipe(
        Layer.provide(WelcomeLive),
        Layer.provideMerge(Client.layer),
        Layer.provideMerge(PrismaProvider.layer({ ...options, migrate: "verify", maxConnections: size }))
      )
    ))
    const rows = found.flat()
    assert.lengthOf(new Set(rows.map(({ pid }) => pid)), size)
    return rows
  }).pipe(
    Effect.scoped,
    Effect.provide(Layer.provideMerge(Credentials.layerConfig, Logger.layer([])))
  )

it.live("a server with verified TLS: login, pool, migrations, an orchestration", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.emptyDatabase
    const ours = authority()
    const server = yield* tlsServer(url, ours.issue("127.0.0.1"))
    yield* walk({ url: server.through(url), tls: { ca: ours.cert } })
  }))

const given = process.env.AZURE_POSTGRES_URL ?? ""

const managed = given === ""
  ? {
    name: "AZURE_POSTGRES_URL is not set: no managed server was tested",
    run: Effect.sync(() => {
      assert.strictEqual(given, "")
      console.log("[tests] AZURE_POSTGRES_URL is not set: no managed server was tested")
    })
  }
  : {
    name: "the managed server of AZURE_POSTGRES_URL: the same",
    run: Effect.map(walk({ url: given }), (rows) => {
      assert.isTrue(rows.every(({ ssl }) => ssl), "the server sees TLS")
      console.log(`[tests] the managed server of AZURE_POSTGRES_URL was tested (${new URL(given).hostname})`)
    })
  }

it.live(managed.name, () => managed.run)
