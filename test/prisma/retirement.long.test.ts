import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import dns from "node:dns"
import { vi } from "vitest"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/generated/client.js"
import * as CuttingProxy from "../utils/cuttingProxy.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

const size = 4

const pid = Prisma.sql`SELECT pg_backend_pid() AS pid`

/** A pool with as many open connections as it may have, its backends, and how often it has retired them. */
const full = (through: (url: string) => string = (url) => url) =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    const db = yield* Database.make({ url: through(test.url), maxConnections: size, applicationName: "retirement" })
    let retired = 0
    yield* db.onRetired(() => retired++)
    const sent = {
      write: Prisma.raw(`INSERT INTO "${test.schema}".sessions VALUES ('a', '', 0, 0) RETURNING session_id`)
    }
    /** One statement on each connection. */
    const onEach = (sql: Prisma.Sql) =>
      Effect.gen(function*() {
        yield* test.sql("SELECT pg_advisory_lock(1)")
        const all = yield* Effect.forkChild(Effect.all(
          Array.from({ length: size }, () =>
            db.query<{ pid: number }>(
              "each",
              Prisma.sql`SELECT pg_backend_pid() AS pid, (${sql})::text, pg_advisory_xact_lock_shared(1)::text`
            )),
          { concurrency: "unbounded" }
        ))
        yield* waitUntil(Effect.map(
          test.sql(`SELECT FROM pg_stat_activity
                    WHERE application_name = 'retirement' AND datname = current_database() AND wait_event = 'advisory'`),
          ({ length }) => length === size
        ))
        yield* test.sql("SELECT pg_advisory_unlock(1)")
        return new Set((yield* Fiber.join(all)).map(([row]) => row!.pid))
      })
    const backends = Effect.map(
      test.sql<{ pid: number }>(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'retirement' AND datname = current_database()"
      ),
      (rows) => rows.map(({ pid }) => pid)
    )
    const gone = (pids: ReadonlySet<number>) =>
      waitUntil(Effect.map(backends, (now) => now.every((pid) => !pids.has(pid))))
    return { ...test, ...sent, db, onEach, backends, gone, retired: () => retired }
  })

/** The server of all open connections has become a standby: those opened later lead to another one. */
const demoted = Prisma.sql`SELECT set_config('default_transaction_read_only', 'on', false)`

describe("A pool whose server takes no writes any longer", () => {
  it.live("one statement fails, and all connections are replaced", () =>
    Effect.gen(function*() {
      const { db, gone, onEach, retired, write } = yield* full()
      const before = yield* onEach(demoted)
      const { reason } = yield* Effect.flip(db.query("write", write))
      assert.deepInclude(reason, { _tag: "Unavailable", sqlState: "25006", isRetryable: true })
      yield* gone(before)
      yield* db.query("write", write)
      assert.strictEqual(retired(), 1)
    }).pipe(silently))

  it.live("a busy connection ends its statement, and is not used again", () =>
    Effect.gen(function*() {
      const { db, gone, onEach, retired, sql, write } = yield* full()
      const before = yield* onEach(demoted)
      yield* sql("SELECT pg_advisory_lock(1)")
      const busy = yield* Effect.forkChild(db.query("busy", Prisma.sql`SELECT pg_advisory_xact_lock_shared(1)::text`))
      yield* waitUntil(Effect.map(
        sql("SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"),
        ({ length }) => length === 1
      ))
      yield* Effect.flip(db.query("write", write))
      yield* db.query("write", write)
      yield* sql("SELECT pg_advisory_unlock(1)")
      yield* Fiber.join(busy)
      yield* gone(before)
      assert.strictEqual(retired(), 1)
    }).pipe(silently))

  it.live("a transaction of the application finds it: all connections are replaced", () =>
    Effect.gen(function*() {
      const { db, gone, onEach, retired, write } = yield* full()
      const before = yield* onEach(demoted)
      yield* Effect.flip(Effect.tryPromise(() => db.client.$transaction((tx) => tx.$queryRaw(write))))
      yield* gone(before)
      yield* db.query("write", write)
      assert.strictEqual(retired(), 1)
    }).pipe(silently))
})

describe("A pool one of whose connections is lost", () => {
  it.live("by the server, under a statement: all are replaced", () =>
    Effect.gen(function*() {
      const { db, gone, onEach, retired } = yield* full()
      const before = yield* onEach(Prisma.sql`SELECT 1`)
      const { reason } = yield* Effect.flip(
        db.query("end", Prisma.sql`SELECT pg_terminate_backend(pg_backend_pid())`)
      )
      assert.deepInclude(reason, { _tag: "Unavailable", sqlState: "57P01" })
      yield* gone(before)
      assert.strictEqual(retired(), 1)
    }).pipe(silently))

  it.live("by the network, under a statement: all are replaced", () =>
    Effect.gen(function*() {
      const proxy = yield* CuttingProxy.proxyFor(PgServer.server().url)
      const { db, gone, onEach, retired } = yield* full(proxy.through)
      const before = yield* onEach(Prisma.sql`SELECT 1`)
      const cut = yield* Effect.forkChild(proxy.cut({ within: "statement", afterBytes: 1, manner: "reset" }))
      yield* Effect.yieldNow
      const { reason } = yield* Effect.flip(db.query("cut", pid))
      assert.strictEqual(reason._tag, "ConnectionLost")
      yield* Fiber.join(cut)
      yield* gone(before)
      assert.strictEqual(retired(), 1)
    }).pipe(silently))

  it.live("a statement that is refused replaces no connection", () =>
    Effect.gen(function*() {
      const { backends, db, onEach, retired } = yield* full()
      const before = yield* onEach(Prisma.sql`SELECT 1`)
      yield* Effect.flip(db.query("refused", Prisma.sql`SELECT 1 / 0`))
      assert.deepStrictEqual(new Set(yield* backends), before)
      assert.strictEqual(retired(), 0)
    }).pipe(silently))
})

describe("A new connection", () => {
  it.live("resolves the name of the server again", () =>
    Effect.gen(function*() {
      const url = PgServer.urlWith((url) => {
        url.hostname = "primary.test"
        url.searchParams.set("sslmode", "disable")
      })
      const { hostname } = new URL(PgServer.server().url)
      const lookup = dns.lookup
      const names: Array<string> = []
      yield* Effect.acquireRelease(
        Effect.sync(() =>
          vi.spyOn(dns, "lookup").mockImplementation(
            ((name: string, ...rest: [never, never]) => {
              names.push(name)
              return lookup(hostname, ...rest)
            }) as never
          )
        ),
        (spy) => Effect.sync(() => spy.mockRestore())
      )
      const db = yield* Database.make({ url, maxConnections: 1 })
      yield* db.query("before", pid)
      assert.lengthOf(names, 1)
      yield* Effect.flip(db.query("end", Prisma.sql`SELECT pg_terminate_backend(pg_backend_pid())`))
      yield* db.query("after", pid)
      assert.deepStrictEqual(names, ["primary.test", "primary.test"])
    }).pipe(silently))
})
