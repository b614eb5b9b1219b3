import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { inspect } from "node:util"
import * as pg from "pg"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/generated/client.js"
import * as SqlFault from "../../src/provider/SqlFault.ts"
import { proxyFor } from "../programs/latencyProxy.ts"
import * as ForeignParsers from "../utils/foreignParsers.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitForStatement, waitUntil } from "../utils/waitUntil.ts"

const one = Prisma.sql`SELECT 1 AS one`

/** A statement that runs until it is stopped, to be found by `name`. */
const endless = (name: string) => Prisma.raw(`SELECT pg_sleep(60)::text AS ${name}`)

const stop = (test: PgServer.TestDatabase, name: string) =>
  test.sql(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND strpos(query, $1) > 0",
    [`AS ${name}`]
  )

const makeFailure = (options: Database.Options) =>
  Effect.map(Effect.flip(Effect.scoped(Database.make(options))), (error) => {
    assert.strictEqual(error.operation, "connect")
    assert.notInclude(`${error.message} ${JSON.stringify(error)}`, "hunter2")
    return error.reason
  })

describe("make: fails with one clear reason when", () => {
  const cases: ReadonlyArray<readonly [string, () => Database.Options, string, string]> = [
    ["no server listens", () => ({ url: "postgresql://u:hunter2@127.0.0.1:1/db" }), "ConnectionLost", "127.0.0.1:1/db"],
    [
      "the host is unknown",
      () => ({ url: "postgresql://u:hunter2@database.invalid/db" }),
      "ConnectionLost",
      "database.invalid"
    ],
    [
      "the socket is missing",
      () => ({ url: "postgresql://u:hunter2@/db?host=/missing" }),
      "ConnectionLost",
      "/missing:5432/db"
    ],
    [
      "the login is refused",
      () => ({
        url: PgServer.urlWith((url) => {
          // A server without authentication must still know the name.
          if (PgServer.server().source === "DATABASE_URL") url.username = "nobody_of_that_name"
          url.password = "hunter2"
        })
      }),
      "AuthenticationFailed",
      "Check user and password"
    ],
    [
      "the database is missing",
      () => ({ url: PgServer.urlWith((url) => (url.pathname = "/missing")) }),
      "ConfigurationInvalid",
      "missing"
    ],
    [
      "the server does not offer the TLS asked for",
      () => ({ url: PgServer.urlWith((url) => url.searchParams.set("sslmode", "verify-full")) }),
      "ConfigurationInvalid",
      ""
    ],
    [
      "a certificate cannot be read",
      () => ({ url: PgServer.urlWith((url) => url.searchParams.set("sslrootcert", "/missing.pem")) }),
      "ConfigurationInvalid",
      "ENOENT"
    ],
    [
      "a time limit is not a duration",
      () => ({ url: PgServer.urlWith(() => {}), statementTimeout: "30 secs" as "30 seconds" }),
      "ConfigurationInvalid",
      "statementTimeout must be a duration of more than 0"
    ],
    ["the URL is empty", () => ({ url: "" }), "ConfigurationInvalid", "DATABASE_URL"],
    [
      "the URL has no password",
      () => ({ url: PgServer.urlWith((url) => (url.password = "")) }),
      "AuthenticationFailed",
      "no password was given"
    ],
    ["the URL has one slash", () => ({ url: "postgresql:/u:hunter2@127.0.0.1:1/db" }), "ConfigurationInvalid", "://"],
    ["the URL has no slash", () => ({ url: "postgresql:u:hunter2@127.0.0.1:1/db" }), "ConfigurationInvalid", "://"],
    [
      "a password has a slash behind digits",
      () => ({ url: "postgresql://u:12/hunter2@127.0.0.1:1/db" }),
      "ConfigurationInvalid",
      "percent-encoded"
    ],
    ["the URL cannot be parsed", () => ({ url: "hunter2 at home" }), "ConfigurationInvalid", "percent-encoded"],
    [
      "the URL is not encoded",
      () => ({ url: "postgresql://u:hunter2%@h/d" }),
      "ConfigurationInvalid",
      "percent-encoded"
    ],
    [
      "the URL is for another database",
      () => ({ url: "mysql://u:hunter2@h/d" }),
      "ConfigurationInvalid",
      "must start with postgresql://"
    ],
    [
      "the schema name is empty",
      () => ({ url: PgServer.server().url, schema: "" }),
      "ConfigurationInvalid",
      "1 to 63 bytes"
    ],
    [
      "the schema name is too long",
      () => ({ url: PgServer.server().url, schema: "é".repeat(32) }),
      "ConfigurationInvalid",
      "64"
    ],
    [
      "the schema name has a NUL",
      () => ({ url: PgServer.server().url, schema: "a\0b" }),
      "ConfigurationInvalid",
      "character"
    ],
    [
      "the schema name is reserved",
      () => ({ url: PgServer.server().url, schema: "pg_mine" }),
      "ConfigurationInvalid",
      "reserved"
    ],
    [
      "the pool has no room",
      () => ({ url: PgServer.server().url, maxConnections: 0 }),
      "ConfigurationInvalid",
      "maxConnections"
    ],
    [
      "a wait has no length",
      () => ({ url: PgServer.server().url, checkoutTimeout: 0 }),
      "ConfigurationInvalid",
      "checkoutTimeout"
    ],
    [
      "a wait has no end",
      () => ({ url: PgServer.server().url, statementTimeout: "Infinity" }),
      "ConfigurationInvalid",
      "statementTimeout"
    ]
  ]
  for (const [name, options, reason, text] of cases) {
    it.live(name, () =>
      Effect.gen(function*() {
        const { _tag, message } = yield* makeFailure(options())
        assert.strictEqual(_tag, reason)
        assert.include(message, text)
      }))
  }

  it.live("the server accepts but never answers", () =>
    Effect.gen(function*() {
      const proxy = yield* proxyFor(PgServer.server().url)
      proxy.state.blackhole = true
      const reason = yield* makeFailure({
        url: proxy.through(PgServer.server().url),
        checkoutTimeout: "100 millis"
      })
      assert.strictEqual(reason._tag, "ConnectionLost")
    }))
})

describe("query: fails with one clear reason when", () => {
  const behindProxy = (options?: Partial<Database.Options>) =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const proxy = yield* proxyFor(test.url)
      const db = yield* Database.make({ url: proxy.through(test.url), ...options })
      return { db, proxy, test }
    })

  for (const how of ["reset", "finish"] as const) {
    it.live(`the connection breaks mid-statement (${how}), and the next one works`, () =>
      Effect.gen(function*() {
        const { db, proxy, test } = yield* behindProxy()
        const running = yield* Effect.forkChild(Effect.flip(db.query("broken", endless(how))))
        yield* waitForStatement(test, `AS ${how}`)
        proxy[how]()
        const error = yield* Fiber.join(running)
        assert.strictEqual(error.reason._tag, "ConnectionLost")
        assert.isTrue(error.isRetryable)
        assert.deepStrictEqual(yield* db.query("next", one), [{ one: 1 }])
        yield* stop(test, how)
      }))
  }

  it.live("nothing answers any longer: the statement has not left", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const scope = yield* Scope.make()
      const proxy = yield* Scope.provide(proxyFor(test.url), scope)
      const db = yield* Database.make({ url: proxy.through(test.url) })
      yield* Scope.close(scope, Exit.void)
      // The pool may not know yet that its connection is gone.
      const broken = yield* Effect.flip(db.query("broken", one))
      assert.strictEqual(broken.reason._tag, "ConnectionLost")
      const { reason } = yield* Effect.flip(db.query("unsent", one))
      assert.isTrue(reason._tag === "ConnectionLost" && reason.isUnsent, reason.message)
    }))

  it.live("the server never answers a running statement", () =>
    Effect.gen(function*() {
      const { proxy, test } = yield* behindProxy()
      const client = new pg.Client({ connectionString: proxy.through(test.url), query_timeout: 50 })
      yield* Effect.promise(() => client.connect())
      proxy.state.blackhole = true
      const reason = yield* Effect.flip(
        Effect.tryPromise({ try: () => client.query("SELECT 1"), catch: SqlFault.classify })
      )
      assert.strictEqual(reason._tag, "ConnectionLost")
      proxy.reset()
      yield* Effect.promise(() => client.end().catch(() => {}))
    }))

  it.live("every connection stays busy", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const db = yield* Database.make({ url: test.url, maxConnections: 1, checkoutTimeout: "1 second" })
      yield* Effect.forkChild(Effect.ignore(db.query("busy", endless("busy"))))
      yield* waitForStatement(test, "AS busy")
      const error = yield* Effect.flip(db.query("late", one))
      assert.strictEqual(error.reason._tag, "Unavailable")
      assert.include(error.message, "checkout timeout")
      assert.isTrue(error.isRetryable)
      yield* stop(test, "busy")
    }))

  it.live("the database was closed", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const db = yield* Effect.scoped(Database.make({ url }))
      const error = yield* Effect.flip(db.query("late", one))
      assert.strictEqual(error.reason._tag, "Closed")
      assert.isFalse(error.isRetryable)
    }))
})

describe("query", () => {
  it.live("query: survives the death of idle connections", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const db = yield* Database.make({ url: test.url, applicationName: "idle" })
      yield* db.query("before", one)
      yield* test.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'idle'")
      yield* waitUntil(
        Effect.map(
          test.sql("SELECT FROM pg_stat_activity WHERE application_name = 'idle'"),
          (rows) => rows.length === 0
        )
      )
      // The pool may not have noticed yet.
      const rows = yield* Effect.retry(db.query("after", one), { times: 2 })
      assert.deepStrictEqual(rows, [{ one: 1 }])
    }))

  it.live("query: an interruption returns at once and gives the connection back later", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const db = yield* Database.make({ url: test.url, maxConnections: 1 })
      const running = yield* Effect.forkChild(db.query("long", endless("interrupted")))
      yield* waitForStatement(test, "AS interrupted")
      yield* Fiber.interrupt(running)
      yield* stop(test, "interrupted")
      assert.deepStrictEqual(yield* db.query("next", one), [{ one: 1 }])
    }))

  it.live("query: counts the statements of each operation", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const db = yield* Database.make({ url })
      yield* Effect.all([db.query("a", one), db.query("a", one), db.query("b", one)])
      yield* Effect.ignore(db.query("b", Prisma.sql`SELECT broken`))
      assert.deepStrictEqual(yield* db.statementCounts, { a: 2, b: 2 })
    }))

  it.live("query: reads values as ever, whatever parsers the application has given to pg", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const db = yield* Database.make({ url })
      const read = db.query(
        "types",
        Prisma.sql`SELECT 1::bigint AS a, 2::integer AS b, 3::smallint AS c, true AS d, 0.5::float8 AS e, 'f' AS f,
          '2026-01-01 10:00:00.5+00'::timestamptz AS g, gen_random_uuid() IS NOT NULL AS h, '{"a": 1}'::jsonb AS i,
          ARRAY['a,b', 'c"d', E'e\\\\f\n', 'NULL', NULL, '', '{x}', ' '] AS j, ARRAY[1::bigint, NULL] AS k, ARRAY[true, false] AS l,
          '{}'::int[] AS m, ARRAY[0.5::float8] AS n, ARRAY[1::smallint] AS o, ARRAY['v'::varchar(3)] AS p`
      )
      const before = yield* read
      assert.deepInclude(before[0], {
        j: ["a,b", "c\"d", "e\\f\n", "NULL", null, "", "{x}", " "],
        k: [1n, null],
        l: [true, false],
        m: [],
        n: [0.5],
        o: [1],
        p: ["v"]
      })
      yield* ForeignParsers.set
      assert.deepStrictEqual(yield* read, before)
    }))

  it.live("query: runs in READ COMMITTED, whatever the default of the role", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = new URL(test.url)
      url.searchParams.set("options", "-c default_transaction_isolation=serializable")
      const db = yield* Database.make({ url: url.toString() })
      const [row] = yield* db.query<{ level: string }>(
        "isolation",
        Prisma.sql`SELECT current_setting('transaction_isolation') AS level`
      )
      assert.strictEqual(row!.level, "read committed")
    }))

  it.live("query: reads numbers with all their digits, whatever the default of the role", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = new URL(test.url)
      url.searchParams.set("options", "-c extra_float_digits=-3")
      const db = yield* Database.make({ url: url.toString() })
      const [row] = yield* db.query("digits", Prisma.sql`SELECT 0.1::float8 + 0.2::float8 AS sum`)
      assert.deepStrictEqual(row, { sum: 0.1 + 0.2 })
    }))

  it.live("query: compresses with LZ4 where the server can, unless another method was chosen", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const [server] = yield* test.sql<{ setting: string; can: boolean }>(
        `SELECT setting, 'lz4' = ANY (enumvals) AND source = 'default' AS can FROM pg_settings
         WHERE name = 'default_toast_compression'`
      )
      const methodOf = (url: string) =>
        Effect.gen(function*() {
          const db = yield* Database.make({ url })
          const [row] = yield* db.query<{ method: string }>(
            "compression",
            Prisma.sql`SELECT current_setting('default_toast_compression') AS method`
          )
          return row!.method
        })
      assert.strictEqual(yield* methodOf(test.url), server!.can ? "lz4" : server!.setting)
      const chosen = new URL(test.url)
      chosen.searchParams.set("options", "-c default_toast_compression=pglz")
      assert.strictEqual(yield* methodOf(chosen.toString()), "pglz")
    }))

  it.live("query: reads timestamps correctly in any time zone of the role", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = new URL(test.url)
      url.searchParams.set("options", "-c timezone=Asia/Kolkata")
      const db = yield* Database.make({ url: url.toString() })
      const rows = yield* db.query<{ at: Date; ms: number }>(
        "now",
        Prisma.sql`SELECT now() AS at, (extract(epoch FROM now()) * 1000)::double precision AS ms`
      )
      assert.closeTo(rows[0]!.at.getTime(), rows[0]!.ms, 1)
    }))
})

describe("prepared statements", () => {
  const prepared = Prisma.sql`SELECT name::text FROM pg_prepared_statements`
  const call = (db: Database.Database["Service"]) =>
    db.query("call", Prisma.sql`SELECT * FROM ${db.schemaSql}.dx_test(${1}::integer) AS one`)

  const open = (change: (url: URL) => void, options?: Partial<Database.Options>) =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* sql("CREATE FUNCTION dx_test(integer) RETURNS integer LANGUAGE sql AS 'SELECT $1'")
      const changed = new URL(url)
      change(changed)
      return yield* Database.make({ url: changed.toString(), maxConnections: 1, ...options })
    })

  it.live("our functions: are prepared once per connection, other statements are not", () =>
    Effect.gen(function*() {
      const db = yield* open(() => {})
      yield* Effect.all([call(db), call(db), db.query("other", one)])
      assert.lengthOf(yield* db.query("look", prepared), 1)
    }))

  it.live("preparedStatements false, or pgbouncer=true in the URL: prepares nothing", () =>
    Effect.gen(function*() {
      const off = yield* open(() => {}, { preparedStatements: false })
      yield* call(off)
      assert.lengthOf(yield* off.query("look", prepared), 0)
      const pooled = yield* open((url) => url.searchParams.set("pgbouncer", "true"))
      yield* call(pooled)
      assert.lengthOf(yield* pooled.query("look", prepared), 0)
    }))
})

describe("schema", () => {
  for (const schema of ["plain", "Mixed Case", "with-dash", "quo\"te", "back\\slash", "ünïcödé 🎉", "select"]) {
    it.live(`${schema}: works for statements and for models`, () =>
      Effect.gen(function*() {
        const test = yield* PgServer.database
        const name = pg.escapeIdentifier(schema)
        yield* test.sql(`CREATE SCHEMA ${name}`)
        yield* Effect.addFinalizer(() => test.sql(`DROP SCHEMA ${name} CASCADE`))
        yield* test.sql(`CREATE TABLE ${name}.sessions (LIKE sessions INCLUDING ALL)`)
        const db = yield* Database.make({ url: test.url, schema })
        yield* Effect.promise(() =>
          db.client.session.create({ data: { sessionId: "s", workerId: "w", lockedUntil: 1n, lastActivityAt: 2n } })
        )
        const rows = yield* db.query("read", Prisma.sql`SELECT session_id FROM ${db.schemaSql}.sessions`)
        assert.deepStrictEqual(rows, [{ session_id: "s" }])
      }))
  }

  it.live("schema: comes from the URL when it is not given", () =>
    Effect.gen(function*() {
      const url = PgServer.urlWith((url) => url.searchParams.set("schema", "from_url"))
      assert.strictEqual((yield* Database.make({ url })).schema, "from_url")
      assert.strictEqual((yield* Database.make({ url: Redacted.make(url), schema: "given" })).schema, "given")
    }))
})

describe("release", () => {
  it.live("release: waits for running statements and closes every connection", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const scope = yield* Scope.make()
      const db = yield* Database.make({ url: test.url, applicationName: "released" }).pipe(Scope.provide(scope))
      const running = yield* Effect.forkChild(db.query("last", Prisma.sql`SELECT pg_sleep(0.2)::text AS released`))
      yield* waitForStatement(test, "AS released")
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(yield* Fiber.join(running), [{ released: "" }])
      yield* waitUntil(
        Effect.map(
          test.sql("SELECT FROM pg_stat_activity WHERE application_name = 'released'"),
          (rows) => rows.length === 0
        )
      )
    }))

  it.live("make: never prints the password", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const db = yield* Database.make({ url })
      // The copy has the client, which the service makes with its first use.
      const shown = inspect({ ...db }, { depth: 5 })
      assert.include(shown, "maxLifetimeSeconds", "the pool")
      assert.notInclude(shown, new URL(url).password)
    }))
})
