/**
 * Databases that the tests of a file hand on to each other, each with its open connections: a clone and new
 * connections cost more than most tests.
 *
 * A test gets an empty store on which nothing runs. A store about which there is a doubt is dropped instead.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import { setTimeout } from "node:timers/promises"
import { afterAll } from "vitest"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/internal/client.ts"
import type { ProviderError } from "../../src/provider/ProviderError.ts"
import * as PgServer from "./PgServer.ts"

export interface Store {
  readonly test: PgServer.TestDatabase
  readonly database: Database.Database["Service"]
}

/** Makes a migrated database. */
export type Fresh = Effect.Effect<PgServer.TestDatabase, never, Scope.Scope>

/** A store for the scope, at first made by `fresh`. To be called once for a file: its end closes the stores. */
export const make = (fresh: Fresh): Effect.Effect<Store, ProviderError, Scope.Scope> => {
  const idle: Array<Kept> = []
  afterAll(() => Effect.runPromise(Effect.forEach(idle.splice(0), close, { discard: true })))
  return Effect.acquireRelease(
    Effect.suspend(() => {
      const store = idle.pop()
      return store === undefined ? open(fresh) : Effect.succeed(store)
    }),
    (store, exit) =>
      Effect.flatMap(
        Exit.isSuccess(exit) ? emptied(store) : Effect.succeed(false),
        (isEmpty) => isEmpty ? Effect.sync(() => void idle.push(store)) : close(store)
      )
  )
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

interface Kept extends Store {
  readonly scope: Scope.Closeable
  /** Statements that run, also those whose caller no longer waits. */
  readonly running: Set<Fiber.Fiber<unknown, unknown>>
}

const open = Effect.fnUntraced(function*(fresh: Fresh) {
  const scope = Scope.makeUnsafe()
  return yield* Effect.gen(function*() {
    const test = yield* fresh
    const database = yield* Database.make({ url: test.url, schema: test.schema })
    const running: Kept["running"] = new Set()
    const query: Store["database"]["query"] = (...args) =>
      Effect.flatMap(Effect.forkDetach(database.query<never>(...args), { startImmediately: true }), (statement) => {
        running.add(statement)
        statement.addObserver(() => running.delete(statement))
        return Fiber.join(statement)
      })
    return { test, database: { ...database, query }, scope, running }
  }).pipe(Scope.provide(scope), Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause))))
})

const close = ({ scope }: Kept) => Scope.close(scope, Exit.void)

/** Makes it as new; false if something is still at work. */
const emptied = Effect.fnUntraced(function*({ database, running, test: { schema, sql } }: Kept) {
  // Without a template the database is that of all tests, so what works there may belong to others.
  if (PgServer.server().template === null) return false
  yield* Effect.forEach(running, Fiber.await, { discard: true })
  for (let i = 0; i < 20; i++) {
    const [sessions] = yield* sql<{ kept: number; others: number }>(
      `SELECT count(*) FILTER (WHERE is_kept)::int AS kept, count(*) FILTER (WHERE NOT is_kept)::int AS others
        FROM (
          SELECT state = 'idle' AND application_name = 'duroxide-prisma' AS is_kept
          FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
        ) AS session`
    )
    if (sessions!.others === 0) {
      const forgetful = yield* Effect.replicateEffect(
        database.query<{ pid: number }>("forget", forget),
        sessions!.kept,
        {
          concurrency: "unbounded"
        }
      )
      if (new Set(forgetful.map(([row]) => row!.pid)).size < sessions!.kept) return false
      // Claims that read thousands of dead rows remember what they have found, and miss what the next test stores.
      const [queues] = yield* sql<{ bytes: number }>(
        `SELECT sum(pg_relation_size(oid))::int AS bytes FROM pg_class
          WHERE relnamespace = $1::regnamespace AND relname LIKE '%_queue_route_visible_at_id_idx'`,
        [schema]
      )
      if (queues!.bytes > mostIndexBytes) return false
      const tables = yield* sql<{ name: string }>(
        `SELECT oid::regclass::text AS name FROM pg_class
          WHERE relnamespace = $1::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
            AND relname NOT LIKE '%migrations'`,
        [schema]
      )
      yield* sql(tables.map(({ name }) => `DELETE FROM ${name}`).join("; "))
      return true
    }
    // A connection that listened ends. The clock may be that of the test, which does not move.
    yield* Effect.promise(() => setTimeout(10))
  }
  return false
}, Effect.orElseSucceed(() => false))

/** Far fewer than the 5,000 entries after which a claim sets a mark. */
const mostIndexBytes = 128 * 1024

/** Removes what stored functions remember in a session. It lasts so long that each goes to another connection. */
const forget = Prisma.sql`
  SELECT
    pg_backend_pid() AS pid,
    set_config('duroxide_prisma.handover', '', false),
    set_config('duroxide_prisma.orchestrator_queue', '', false),
    set_config('duroxide_prisma.orchestrator_queue_ahead', '', false),
    set_config('duroxide_prisma.worker_queue', '', false),
    set_config('duroxide_prisma.worker_queue_ahead', '', false),
    pg_sleep(0.01)::text`
