/**
 * Databases for tests: fresh, private, and dropped afterwards.
 *
 * A database is a clone of the migrated template (about 20 ms). Where the role of `DATABASE_URL` may not create
 * databases, it is a schema of the given one; `url` then carries `?schema=…`.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import type * as Scope from "effect/Scope"
import { randomUUID } from "node:crypto"
import * as pg from "pg"
import { inject } from "vitest"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as BareServer from "./bareServer.ts"
import type { ProvidedServer } from "./globalSetup.ts"

/**
 * A private database.
 */
export interface TestDatabase {
  /** For `Database`, `Migrator` and the Prisma CLI. With `TEST_ROLE=worker` it is `workerUrl`. */
  readonly url: string
  /** The schema `url` leads to. */
  readonly schema: string
  /** Runs SQL as an observer, on a separate connection kept for the test, with `search_path` at `schema`. */
  readonly sql: <Row = Record<string, unknown>>(
    text: string,
    values?: ReadonlyArray<unknown>
  ) => Effect.Effect<ReadonlyArray<Row>>
}

/** A private database with our tables. */
export interface MigratedDatabase extends TestDatabase {
  /** `url` with the rights of a worker alone; `url` itself where the server's role may not create roles. */
  readonly workerUrl: string
}

/**
 * The database of a test file, for `it.layer(PgServer.layer)`.
 */
export class PgServer extends Context.Service<PgServer, MigratedDatabase>()("test/PgServer") {}

/** The server all tests share. */
export const server = (): ProvidedServer => inject("server")

/** The server's address with other parts. */
export const urlWith = (change: (url: URL) => void): string => {
  const url = new URL(server().url)
  change(url)
  return url.toString()
}

/** A fresh migrated database. */
export const database: Effect.Effect<MigratedDatabase, never, Scope.Scope> = Effect.suspend(() => {
  const { template } = server()
  return template === null
    ? Effect.tap(ownSchema, ({ url }) => Effect.orDie(Effect.provide(Migrator.migrate({ url }), Logger.layer([]))))
    : ownDatabase(template)
})

/** A fresh database without our tables; its schema may not exist. */
export const emptyDatabase: Effect.Effect<TestDatabase, never, Scope.Scope> = Effect.suspend(() =>
  server().template === null ? ownSchema : ownDatabase(server().emptyTemplate)
)

/** The name of another template, a clone of the usual one that has been changed; dropped with the scope. */
export const otherTemplate = Effect.fnUntraced(
  function*(template: string, change: (url: string) => Effect.Effect<void>) {
    const name = yield* clone(template)
    yield* change(urlWith((url) => (url.pathname = `/${name}`)))
    return name
  }
)

/** A clone of the template, otherwise like `database`. */
export const databaseLike = (template: string): Effect.Effect<MigratedDatabase, never, Scope.Scope> =>
  ownDatabase(template)

/** `database` as a service. */
export const layer: Layer.Layer<PgServer> = Layer.effect(PgServer, database)

/** A connection for a test that needs sessions of its own; closed with the scope. */
export const connect = (url: string): Effect.Effect<pg.Client, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new pg.Client(url)
      client.on("error", () => {}) // tests kill connections
      await client.connect()
      if (BareServer.isWanted) await client.query("SET duroxide.notify = off")
      return client
    }),
    (client) => Effect.promise(() => client.end().catch(() => {}))
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const uniqueName = () => `test_${randomUUID().replaceAll("-", "_")}`

const admin = (sql: string): Effect.Effect<void> =>
  Effect.scoped(Effect.flatMap(connect(server().url), (client) => Effect.promise(() => client.query(sql))))

const clone = Effect.fnUntraced(function*(template: string) {
  const name = uniqueName()
  yield* Effect.acquireRelease(
    admin(`CREATE DATABASE ${name} TEMPLATE ${template}`),
    () => admin(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
  )
  return name
})

const ownDatabase = Effect.fnUntraced(function*(template: string) {
  const name = yield* clone(template)
  return yield* open(urlWith((url) => (url.pathname = `/${name}`)), "public", template !== server().emptyTemplate)
})

const ownSchema = Effect.gen(function*() {
  const schema = uniqueName()
  yield* Effect.addFinalizer(() => admin(`DROP SCHEMA IF EXISTS ${schema} CASCADE`))
  return yield* open(urlWith((url) => url.searchParams.set("schema", schema)), schema, false)
})

const open = Effect.fnUntraced(function*(url: string, schema: string, isClone: boolean) {
  const plain = new URL(url)
  plain.searchParams.delete("schema")
  const client = yield* connect(plain.toString())
  yield* Effect.promise(() => client.query(`SET search_path = ${pg.escapeIdentifier(schema)}`))
  const sql = <Row>(text: string, values?: ReadonlyArray<unknown>) =>
    Effect.promise(async () => (await client.query(text, values && [...values])).rows as ReadonlyArray<Row>)
  const { worker } = server()
  const workerUrl = worker !== null && isClone ? withLogin(url, worker) : url
  return { url: process.env.TEST_ROLE === "worker" ? workerUrl : url, workerUrl, schema, sql }
})

const withLogin = (url: string, { password, user }: { readonly user: string; readonly password: string }) => {
  const login = new URL(url)
  login.username = user
  login.password = password
  return login.toString()
}
