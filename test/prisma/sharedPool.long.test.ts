/**
 * A pool of the application, `PrismaProvider.layer({ pool })`: what runs on it, and what is left as it was.
 */
import { assert, describe, it } from "@effect/vitest"
import { PrismaPg } from "@prisma/adapter-pg"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { Database, Migrator, PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import { Queue } from "duroxide-prisma/queue"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { randomUUID } from "node:crypto"
import * as pg from "pg"
import { Prisma, PrismaClient } from "../../src/prisma/generated/client.js"
import { inUtc } from "../../src/prisma/internal/parsers.ts"
import { proxyFor } from "../programs/latencyProxy.ts"
import * as ApplicationPool from "../utils/applicationPool.ts"
import * as ForeignParsers from "../utils/foreignParsers.ts"
import * as Listening from "../utils/listening.ts"
import { loginRole } from "../utils/loginRole.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

/** A pool of the application, which ends it after the test. */
const poolOf = (url: string, options: pg.PoolConfig = {}) =>
  ApplicationPool.open({ connectionString: url, application_name: "app", max: 3, ...options })

/** With a database, and what of the application is to be seen in it. */
const shared = Effect.fnUntraced(function*(options: pg.PoolConfig = {}) {
  const test = yield* PgServer.database
  const pool = yield* poolOf(test.url, options)
  const names = Effect.map(
    test.sql<{ name: string }>(
      `SELECT application_name AS name FROM pg_stat_activity
       WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
       ORDER BY 1`
    ),
    (rows) => rows.map(({ name }) => name)
  )
  return { ...test, pool, names }
})

const one = Prisma.sql`SELECT 1 AS one`
const waits = Prisma.sql`SELECT pg_advisory_xact_lock_shared(1)::text`
const pid = Prisma.sql`SELECT pg_backend_pid() AS pid`

const Greet = Activity.make("Greet", { payload: Schema.String, success: Schema.String })
const Welcome = Orchestration.make("Welcome", { payload: Schema.String, success: Schema.String })
const WelcomeLive = Runtime.layer({ orchestrations: [Welcome], activities: [Greet] }).pipe(
  Layer.provide([
    Welcome.toLayer(Effect.fn(function*(name) {
      yield* Effect.sleep("20 millis")
      return yield* Greet.execute(name)
    })),
    Greet.toLayer((name) => Effect.succeed(`hello ${name}`))
  ])
)
const welcome = (count: number) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    const answers = yield* Effect.all(
      Array.from(
        { length: count },
        (_, i) => client.execute(Welcome, { instanceId: randomUUID(), payload: String(i) })
      ),
      { concurrency: "unbounded" }
    )
    assert.deepStrictEqual(answers, Array.from({ length: count }, (_, i) => `hello ${i}`))
  })
const app = (options: Parameters<typeof PrismaProvider.layer>[0]) =>
  WelcomeLive.pipe(Layer.provideMerge(Client.layer), Layer.provideMerge(PrismaProvider.layer(options)))

describe("a pool of the application:", () => {
  it.live("everything runs on its connections, one more listens, and it stays open", () =>
    Effect.gen(function*() {
      const { names, pool, schema } = yield* shared()
      const listeners = () => pool.eventNames().map((name) => pool.listenerCount(name))
      const before = listeners()
      let most = 0
      yield* Effect.gen(function*() {
        yield* Effect.forkScoped(
          Effect.forever(Effect.map(names, ({ length }) => void (most = Math.max(most, length))))
        )
        yield* Layer.build(
          PgQueue.layer({ queues: { work: {} } }).pipe(
            Layer.provideMerge(app({ pool, schema })),
            Layer.tap((context) =>
              Effect.gen(function*() {
                yield* welcome(40)
                const { publish, receive } = yield* Queue.Queue
                yield* publish("work", { kind: "new" })
                assert.lengthOf(
                  yield* receive("work", { maxMessages: 1, visibilityTimeout: "1 minute", wait: "20 seconds" }),
                  1
                )
              }).pipe(Effect.provideContext(context))
            )
          )
        )
        yield* waitUntil(Effect.map(names, (all) => all.some((name) => name.startsWith("duroxide-prisma listener"))))
        assert.deepStrictEqual(
          (yield* names).map((name) => name.split(" ")[0]),
          [...Array.from({ length: pool.totalCount }, () => "app"), "duroxide-prisma"]
        )
      }).pipe(Effect.scoped)
      assert.isAtMost(most, 3 + 1)
      yield* waitUntil(Effect.map(names, (all) => all.every((name) => name === "app")))
      assert.deepStrictEqual(listeners(), before)
      assert.isFalse(pool.ending)
      assert.deepStrictEqual((yield* Effect.promise(() => pool.query("SELECT 1 AS one"))).rows, [{ one: 1 }])
    }).pipe(silently))

  it.live("a PrismaClient of the application and the layer share it", () =>
    Effect.gen(function*() {
      const { names, pool, schema } = yield* shared({ max: 2 })
      const prisma = new PrismaClient({ adapter: new PrismaPg(pool, { schema }) })
      yield* Effect.gen(function*() {
        yield* welcome(5)
        const counts = yield* Effect.promise(() =>
          Promise.all(Array.from({ length: 9 }, () => prisma.instance.count()))
        )
        assert.deepStrictEqual(counts, Array.from({ length: 9 }, () => 5))
        assert.lengthOf((yield* names).filter((name) => name === "app"), 2)
      }).pipe(Effect.provide(app({ pool, schema, migrate: "none" })))
      assert.strictEqual(yield* Effect.promise(() => prisma.instance.count()), 5)
      yield* Effect.promise(() => prisma.$disconnect())
    }).pipe(Effect.scoped, silently))

  it.live("queues alone run on it, with one more connection that listens", () =>
    Effect.gen(function*() {
      const { names, pool, schema } = yield* shared()
      yield* Effect.gen(function*() {
        const { publish, receive } = yield* Queue.Queue
        const receiving = yield* Effect.forkChild(
          receive("work", { maxMessages: 1, visibilityTimeout: "1 minute", wait: "20 seconds" })
        )
        yield* waitUntil(Effect.map(names, (all) => all.some((name) => name.startsWith("duroxide-prisma queues"))))
        yield* publish("work", { kind: "new" })
        assert.lengthOf(yield* Fiber.join(receiving), 1)
        assert.isAtMost((yield* names).length, pool.totalCount + 1)
      }).pipe(Effect.provide(
        PgQueue.layer({ queues: { work: {} } }).pipe(
          Layer.provide(PrismaProvider.layerDatabase({ pool, schema, migrate: "verify" }))
        )
      ))
      assert.deepStrictEqual((yield* Effect.promise(() => pool.query("SELECT 1 AS one"))).rows, [{ one: 1 }])
    }).pipe(silently))

  it.live("it migrates a new schema, and two layers with different schemas work on one connection", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.emptyDatabase
      const pool = yield* poolOf(url, { max: 1 })
      yield* Effect.addFinalizer(() => sql("DROP SCHEMA IF EXISTS one CASCADE; DROP SCHEMA IF EXISTS two CASCADE"))
      for (const _ of ["first", "again"]) {
        yield* Effect.gen(function*() {
          const one = yield* Layer.build(app({ pool, schema: "one" }))
          const two = yield* Layer.build(app({ pool, schema: "two" }))
          yield* Effect.provideContext(welcome(3), one)
          yield* Effect.provideContext(welcome(3), two)
        }).pipe(Effect.scoped)
      }
      const prepared = yield* Effect.promise(() => pool.query("SELECT FROM pg_prepared_statements WHERE name ~ '^dx_'"))
      assert.isAbove(prepared.rows.length, 0)
    }).pipe(Effect.scoped, silently))

  it.live("its sessions keep their settings, and times are right in any time zone", () =>
    Effect.gen(function*() {
      const { pool, schema } = yield* shared({ max: 1, options: "-c TimeZone=Asia/Kolkata -c search_path=pg_catalog" })
      const settings = () => pool.query("SELECT name, setting FROM pg_settings WHERE name !~ 'plpgsql' ORDER BY 1")
      const before = yield* Effect.promise(settings)
      yield* Effect.gen(function*() {
        yield* welcome(1)
        const { client } = yield* Database.Database
        const [instance] = yield* Effect.promise(() => client.instance.findMany())
        assert.closeTo(instance!.createdAt.getTime(), Date.now(), 60_000)
        const { createdAt } = instance!
        const found = (at: number) =>
          Effect.promise(() =>
            client.instance.count({ where: { createdAt: { gt: new Date(at - 1), lt: new Date(at + 1000) } } })
          )
        assert.strictEqual(yield* found(createdAt.getTime()), 1)
        const joined = yield* Effect.promise(() =>
          client.$transaction([
            client.instance.count({ where: { createdAt: { lt: new Date(createdAt.getTime() + 1000) } } }),
            client.instance.findFirst({ where: { createdAt: { gt: new Date(createdAt.getTime() - 1000) } } })
          ])
        )
        assert.deepStrictEqual([joined[0], joined[1]?.createdAt], [1, createdAt])
        assert.strictEqual(yield* found(createdAt.getTime() + 60_000), 0)
        // A year of five digits, a year of one, and the year 0, which is 1 BC.
        const far = [Date.UTC(20_000, 0, 1), Date.parse("0001-02-03T00:00:00Z"), Date.parse("0000-02-03T00:00:00Z")]
        for (const at of far) {
          const [row] = yield* Effect.promise(() =>
            client.$queryRaw<Array<{ ms: number }>>`SELECT extract(epoch FROM ${new Date(
              at
            )}::timestamptz)::float8 * 1000 AS ms`
          )
          assert.strictEqual(row!.ms, at)
        }
        const [info] = (yield* (yield* Admin.Admin).list()).instances
        assert.strictEqual(info!.status, "Completed")
      }).pipe(Effect.provide(app({ pool, schema, migrate: "none" })))
      assert.deepStrictEqual((yield* Effect.promise(settings)).rows, before.rows)
    }).pipe(silently))

  it("a time with a zone is one in UTC", () => {
    assert.deepStrictEqual(
      [
        "2026-01-01 02:30:00.123456+05:30",
        "2026-06-30 23:59:59-08",
        "2026-01-01 00:00:00+00",
        "1800-01-01 00:00:00+00:53:28",
        "infinity"
      ].map(inUtc),
      [
        "2025-12-31T21:00:00.123456+00:00",
        "2026-07-01T07:59:59+00:00",
        "2026-01-01T00:00:00+00:00",
        "1799-12-31T23:06:32+00:00",
        "infinity"
      ]
    )
  })

  it.live("parsers of types that the application has set do not matter", () =>
    Effect.gen(function*() {
      const { pool, schema, url } = yield* shared()
      const { INT8, TIMESTAMPTZ } = pg.types.builtins
      for (const type of [INT8, TIMESTAMPTZ]) {
        const parser = pg.types.getTypeParser(type)
        yield* Effect.addFinalizer(() => Effect.sync(() => pg.types.setTypeParser(type, parser)))
      }
      pg.types.setTypeParser(TIMESTAMPTZ, String)
      pg.types.setTypeParser(INT8, Number)
      yield* Effect.provide(welcome(3), app({ pool, schema }))
      pg.types.setTypeParser(INT8, BigInt)
      yield* Effect.provide(welcome(3), app({ pool, schema }))
      // Our own pools share these with the application as well.
      yield* Effect.provide(welcome(3), app({ url, schema }))
      yield* ForeignParsers.set
      yield* Effect.provide(welcome(3), app({ pool, schema }))
      yield* Effect.provide(welcome(3), app({ url, schema }))
    }).pipe(Effect.scoped, silently))

  it.live("a connection that ends in the moment in which it is lent fails a statement, and not the process", () =>
    Effect.gen(function*() {
      const { pool, schema } = yield* shared({ max: 1 })
      const db = yield* Database.make({ pool, schema })
      let ends = 0
      pool.on("acquire", (client) => {
        // What the server said last, in the packet that ended the statement before.
        process.nextTick(() => {
          ends++
          client.emit("error", new Error("terminating connection due to administrator command"))
        })
      })
      for (let i = 0; i < 5; i++) yield* Effect.exit(db.query("one", Prisma.sql`SELECT 1 AS one`))
      assert.isAtLeast(ends, 5)
    }).pipe(Effect.scoped, silently))

  it.live("a migration with such parsers makes the same tables, through a URL and a pool", () =>
    Effect.gen(function*() {
      const made = Effect.fnUntraced(function*(isShared: boolean, isForeign: boolean) {
        const test = yield* PgServer.emptyDatabase
        const pool = yield* poolOf(test.url)
        if (isForeign) yield* ForeignParsers.set
        yield* Migrator.migrate(isShared ? { pool, schema: test.schema } : { url: test.url, schema: test.schema })
        yield* Migrator.verify(isShared ? { pool, schema: test.schema } : { url: test.url, schema: test.schema })
        return yield* test.sql(
          `SELECT relname::varchar(99) || COALESCE(reloptions::text, '') ||
             (SELECT count(*) FROM pg_trigger WHERE tgrelid = c.oid) AS made
           FROM pg_class AS c WHERE relnamespace = current_schema()::regnamespace ORDER BY 1`
        )
      }, Effect.scoped)
      const texts = (rows: ReadonlyArray<Record<string, unknown>>) =>
        rows.map(({ made }) => typeof made === "symbol" ? Symbol.keyFor(made) : made)
      const expected = texts(yield* made(false, false))
      assert.isAbove(expected.length, 20)
      assert.deepStrictEqual(texts(yield* made(false, true)), expected)
      assert.deepStrictEqual(texts(yield* made(true, true)), expected)
    }).pipe(Effect.scoped, silently))
})

/** A pool of two connections with a database layer, and how often that has retired connections. */
const opened = Effect.fnUntraced(function*(options: pg.PoolConfig = {}) {
  const test = yield* shared({ max: 2, ...options })
  const db = yield* Database.make({ pool: test.pool, schema: test.schema, checkoutTimeout: "1 second" })
  let retired = 0
  yield* db.onRetired(() => retired++)
  /** Waits until so many connections wait for the lock 1. */
  const waiting = (count: number) =>
    waitUntil(Effect.map(
      test.sql(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory' AND state = 'active'"
      ),
      ({ length }) => length === count
    ))
  /** The backend of each connection, after a statement on it. */
  const onEach = (statement: Prisma.Sql) =>
    Effect.gen(function*() {
      yield* test.sql("SELECT pg_advisory_lock(1)")
      const all = yield* Effect.forkChild(Effect.all(
        [1, 2].map(() =>
          db.query<{ pid: number }>(
            "each",
            Prisma.sql`SELECT pg_backend_pid() AS pid, (${statement})::text, pg_advisory_xact_lock_shared(1)::text`
          )
        ),
        { concurrency: "unbounded" }
      ))
      yield* waiting(2)
      yield* test.sql("SELECT pg_advisory_unlock(1)")
      return (yield* Fiber.join(all)).map(([row]) => row!.pid)
    })
  return { ...test, db, retired: () => retired, waiting, onEach }
})

describe("a pool of the application, when something fails:", () => {
  it.live("killed idle connections end nothing, and are replaced", () =>
    Effect.gen(function*() {
      const { db, onEach, sql } = yield* opened()
      const before = yield* onEach(one)
      yield* sql("SELECT pg_terminate_backend(unnest($1::int[]))", [before])
      yield* waitUntil(Effect.map(
        sql("SELECT FROM pg_stat_activity WHERE pid = ANY($1::int[])", [before]),
        ({ length }) => length === 0
      ))
      yield* Effect.retry(db.query("after", one), { times: 2 })
      const after = yield* onEach(one)
      assert.isTrue(after.every((pid) => !before.includes(pid)))
    }).pipe(silently))

  it.live("a killed connection fails its statement alone, and those as old are not used again", () =>
    Effect.gen(function*() {
      const { db, onEach, retired, sql, waiting } = yield* opened()
      const before = yield* onEach(one)
      yield* sql("SELECT pg_advisory_lock(1)")
      const running = yield* Effect.forkChild(Effect.flip(db.query("killed", waits)))
      yield* waiting(1)
      yield* sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'advisory' AND pid = ANY($1)",
        [
          before
        ]
      )
      const error = yield* Fiber.join(running)
      assert.isTrue(error.isRetryable)
      assert.include(["ConnectionLost", "Unavailable"], error.reason._tag)
      assert.strictEqual(retired(), 1)
      yield* sql("SELECT pg_advisory_unlock(1)")
      const after = yield* onEach(one)
      assert.isTrue(after.every((pid) => !before.includes(pid)), "the other one is as old")
    }).pipe(silently))

  it.live("a connection that breaks under its statement ends nothing else", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const proxy = yield* proxyFor(test.url)
      const pool = yield* poolOf(proxy.through(test.url), { max: 1 })
      const db = yield* Database.make({ pool, schema: test.schema })
      yield* test.sql("SELECT pg_advisory_lock(1)")
      const running = yield* Effect.forkChild(Effect.flip(db.query("broken", waits)))
      yield* waitUntil(Effect.map(
        test.sql("SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"),
        ({ length }) => length === 1
      ))
      proxy.reset()
      assert.strictEqual((yield* Fiber.join(running)).reason._tag, "ConnectionLost")
      assert.deepStrictEqual(yield* db.query("next", one), [{ one: 1 }])
    }).pipe(silently))

  it.live("a server that takes no writes any longer fails one statement, and all connections are replaced", () =>
    Effect.gen(function*() {
      const { db, onEach, retired, schema } = yield* opened()
      yield* onEach(Prisma.sql`SELECT set_config('default_transaction_read_only', 'on', false)`)
      const write = Prisma.raw(`INSERT INTO "${schema}".sessions VALUES ('a', '', 0, 0) RETURNING session_id`)
      const { reason } = yield* Effect.flip(db.query("write", write))
      assert.deepInclude(reason, { _tag: "Unavailable", sqlState: "25006" })
      yield* db.query("write", write)
      assert.strictEqual(retired(), 1)
    }).pipe(silently))

  it.live("a refused statement costs no login", () =>
    Effect.gen(function*() {
      const { db } = yield* opened({ max: 1 })
      const [before] = yield* db.query<{ pid: number }>("pid", pid)
      const { reason } = yield* Effect.flip(db.query("refused", Prisma.sql`SELECT 1 / 0 AS one`))
      assert.strictEqual(reason._tag, "DataRefused")
      assert.deepStrictEqual((yield* db.query("pid", pid))[0], before)
    }).pipe(silently))

  it.live("a pool without free connections is one error after checkoutTimeout, and the connection is given back", () =>
    Effect.gen(function*() {
      const { db, pool } = yield* opened({ max: 1 })
      const client = yield* Effect.promise(() => pool.connect())
      const error = yield* Effect.flip(db.query("late", one))
      assert.deepInclude(error.reason, { _tag: "Unavailable", sqlState: null })
      assert.include(error.message, "checkout timeout")
      client.release()
      assert.deepStrictEqual(yield* db.query("next", one), [{ one: 1 }])
    }).pipe(silently))

  it.live("a statement without an answer is given up, and its connection closed", () =>
    Effect.gen(function*() {
      const test = yield* shared({ max: 1 })
      const db = yield* Database.make({ pool: test.pool, schema: test.schema, statementTimeout: "1 milli" })
      yield* test.sql("SELECT pg_advisory_lock(1)")
      const error = yield* Effect.flip(db.query("endless", waits))
      assert.strictEqual(error.reason._tag, "ConnectionLost")
      assert.deepStrictEqual(yield* db.query("next", one), [{ one: 1 }])
    }).pipe(silently))

  it.live("a pool that the application has ended is one clear error", () =>
    Effect.gen(function*() {
      const log = Listening.logging()
      const { db, pool } = yield* log.into(opened())
      yield* Effect.promise(() => pool.end())
      const error = yield* Effect.flip(db.query("late", one))
      yield* Effect.flip(db.query("later", one))
      assert.strictEqual(error.reason._tag, "Closed")
      assert.isFalse(error.isRetryable)
      assert.include(error.message, "the application has ended the pool")
      yield* waitUntil(Effect.sync(() => log.lines.some(({ level }) => level === "Error")))
      assert.lengthOf(log.lines.filter(({ text }) => text.includes("the application has ended its pool")), 1)
      const again = yield* Effect.flip(Effect.scoped(Database.make({ pool })))
      assert.include(again.message, "the application has ended the pool")
    }).pipe(silently))

  it.live("after the layer is closed, its calls fail and the pool works", () =>
    Effect.gen(function*() {
      const { pool, schema } = yield* shared()
      const db = yield* Effect.scoped(Database.make({ pool, schema }))
      const error = yield* Effect.flip(db.query("late", one))
      assert.strictEqual(error.message, "late: the provider is closed")
      yield* Effect.promise(() => pool.query("SELECT 1"))
    }).pipe(silently))
})

describe("a pool of the application is refused", () => {
  const refused = (pool: Database.Pool, options: Partial<PrismaProvider.PoolOptions> = {}) =>
    Effect.map(
      Effect.flip(Effect.scoped(Layer.build(PrismaProvider.layer({ pool, migrate: "none", ...options })))),
      ({ message, reason }) => {
        assert.strictEqual(reason._tag, "ConfigurationInvalid")
        return message
      }
    )

  it.live("if its sessions have settings with which statements go wrong", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const strict = yield* poolOf(url, { options: "-c default_transaction_isolation=serializable" })
      assert.include(yield* refused(strict), "default_transaction_isolation = 'serializable'")
      const german = yield* poolOf(url, { options: "-c DateStyle=German" })
      assert.include(yield* refused(german), "DateStyle = 'German, DMY'")
      const rounding = yield* poolOf(url, { options: "-c extra_float_digits=0" })
      assert.include(yield* refused(rounding), "extra_float_digits = 0, which rounds numbers and times")
      assert.include(yield* refused(yield* poolOf(url, { binary: true } as pg.PoolConfig)), "`binary`")
    }).pipe(silently))

  it.live("if it is not a Pool of pg, or stands beside a URL", () =>
    Effect.gen(function*() {
      const { pool, url } = yield* shared()
      const other = { connect: () => {} } as unknown as Database.Pool
      assert.include(yield* refused(other), "must be a Pool of the package pg")
      assert.include(yield* refused(other, { migrate: "apply" }), "must be a Pool of the package pg")
      assert.include(yield* refused(pool, { url } as object), "either `url` or `pool`")
    }).pipe(silently))

  it.live("if its server refuses pg_notify, unless functions leave that out", () =>
    Effect.gen(function*() {
      if (PgServer.server().worker === null) return
      const { sql, workerUrl } = yield* PgServer.database
      yield* sql("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC")
      assert.include(yield* refused(yield* poolOf(workerUrl)), "SET duroxide.notify = off")
      const quiet = yield* poolOf(workerUrl, { options: "-c duroxide.notify=off" })
      assert.isFalse((yield* Database.make({ pool: quiet })).notifies)
    }).pipe(silently))
})

describe("a pool of the application, its login:", () => {
  it.live("a password that a function returns also leads to the connections beside the pool", () =>
    Effect.gen(function*() {
      const { schema, url } = yield* PgServer.database
      const role = yield* loginRole("hunter2")
      const at = new URL(role.at(url, "hunter2"))
      const { hostname: host, pathname, port, username: user } = at
      let asked = 0
      const pool = yield* ApplicationPool.open({
        host,
        port: Number(port),
        user,
        database: pathname.slice(1),
        password: async () => {
          asked++
          return "hunter2"
        }
      })
      const log = Listening.logging()
      yield* log.into(Layer.build(PrismaProvider.layer({ pool, schema, migrate: "none" })))
      yield* waitUntil(Effect.sync(() => log.of("Info").length > 0))
      assert.deepStrictEqual(log.of("Warn"), [])
      assert.isAtLeast(asked, 2)
      const opened = log.lines.find(({ text }) => text === "Provider: open")
      assert.deepInclude(opened!.annotations, {
        address: `${host}:${port}${pathname}`,
        tls: "off",
        settings: "migrate=none, pool=given"
      })
      assert.notInclude(JSON.stringify(log.lines), "hunter2")
    }))

  it.live("directUrl leads the connection that listens; without notifications there is none", () =>
    Effect.gen(function*() {
      const { names, pool, url } = yield* shared()
      const listener = Effect.map(names, (all) => all.filter((name) => name.startsWith("duroxide-prisma")).length)
      const log = Listening.logging()
      yield* log.into(
        Effect.gen(function*() {
          yield* Layer.build(PrismaProvider.layer({ pool, directUrl: url }))
          yield* waitUntil(Effect.map(listener, (count) => count === 1))
        }).pipe(Effect.scoped)
      )
      assert.deepStrictEqual(log.of("Warn"), [])
      yield* waitUntil(Effect.map(listener, (count) => count === 0))
      yield* Layer.build(PrismaProvider.layer({ pool, longPolling: { enabled: false } }))
      assert.strictEqual(yield* listener, 0)

      const elsewhere = yield* PgServer.database
      const { message } = yield* Effect.flip(Layer.build(PrismaProvider.layer({ pool, directUrl: elsewhere.url })))
      assert.include(message, "another database than that of the pool")
    }).pipe(silently))

  it.live("one connection: a warning, and work is done", () =>
    Effect.gen(function*() {
      const { pool, schema } = yield* shared({ max: 1 })
      const log = Listening.logging()
      yield* log.into(Effect.provide(welcome(3), app({ pool, schema, migrate: "none" })))
      assert.deepStrictEqual(
        log.lines.filter(({ level }) => level === "Warn").map(({ text }) => text),
        ["Database: the pool has one connection, so renewals of locks wait for other statements; give it a larger max"]
      )
    }))

  it.live("through a pooler: nothing is prepared, and migrations need directUrl", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      // The login names another process than the one that answers, as with a pooler.
      class Pooled extends pg.Client {
        constructor(config: pg.ClientConfig) {
          super(config)
          Object.defineProperty(this, "processID", { get: () => 1, set: () => {} })
        }
      }
      const pool = yield* poolOf(test.url, { max: 1, Client: Pooled } as object)
      const prepared = Effect.map(
        Effect.promise(() => pool.query("SELECT FROM pg_prepared_statements WHERE name ~ '^dx_'")),
        ({ rows }) => rows.length
      )
      yield* Effect.provide(welcome(2), app({ pool, schema: test.schema, migrate: "none" }))
      assert.strictEqual(yield* prepared, 0)
      yield* Effect.provide(welcome(2), app({ pool, schema: test.schema, directUrl: test.url }))
      const { message } = yield* Effect.flip(Layer.build(PrismaProvider.layer({ pool, schema: test.schema })))
      assert.include(message, "set directUrl")
      yield* Effect.provide(welcome(2), app({ pool, schema: test.schema, migrate: "none", preparedStatements: true }))
      assert.isAbove(yield* prepared, 0)
    }).pipe(silently))
})
