import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/generated/client.js"
import type { Reason } from "../../src/provider/ProviderError.ts"
import * as SqlFault from "../../src/provider/SqlFault.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitForStatement, waitUntil } from "../utils/waitUntil.ts"

type Expected = { readonly _tag: Reason["_tag"]; readonly isRetryable: boolean; readonly sqlState?: string | null }

const assertReason = (reason: Reason, expected: Expected) => {
  const { _tag, isRetryable } = reason
  assert.deepStrictEqual(
    { _tag, isRetryable, ...("sqlState" in expected && "sqlState" in reason ? { sqlState: reason.sqlState } : {}) },
    expected
  )
}

/** The database of a `describe`, with a function that raises the given error. */
const SharedDatabase = Layer.effect(Database.Database)(Effect.gen(function*() {
  const { schema, sql, url } = yield* PgServer.PgServer
  yield* sql(
    `CREATE FUNCTION fail(state text, message text, fields text) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
      RAISE EXCEPTION '%', message USING ERRCODE = state, DETAIL = fields;
    END $$`
  )
  yield* sql(
    `CREATE TABLE child (
      id varchar(30) PRIMARY KEY,
      parent text REFERENCES instances,
      CHECK (parent <> 'checked')
    )`
  )
  const withPath = new URL(url)
  withPath.searchParams.set("options", `-c search_path=${schema}`)
  return yield* Database.make({ url: withPath.toString() })
})).pipe(Layer.provide(PgServer.layer))

/** A fresh migrated database, opened. */
const open = (options?: Partial<Database.Options>) =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    const db = yield* Database.make({ url: test.url, ...options })
    return { test, db }
  })

const failure = (db: Database.Database["Service"], text: string) =>
  Effect.map(Effect.flip(db.query("test", Prisma.raw(text))), ({ operation, reason }) => {
    assert.strictEqual(operation, "test")
    return reason
  })

/** An error of an interactive transaction, which `query` never uses. */
const transactionFailure = (run: () => Promise<unknown>) =>
  Effect.flip(Effect.tryPromise({ try: run, catch: SqlFault.classify }))

const contention = (sqlState: string): Expected => ({ _tag: "Contention", isRetryable: true, sqlState })
const unavailable = (sqlState: string | null): Expected => ({ _tag: "Unavailable", isRetryable: true, sqlState })
const refused = (sqlState: string): Expected => ({ _tag: "DataRefused", isRetryable: false, sqlState })
const mismatch = (sqlState: string): Expected => ({ _tag: "SchemaMismatch", isRetryable: false, sqlState })
const unexpected = (sqlState: string | null): Expected => ({ _tag: "Unexpected", isRetryable: false, sqlState })

describe("against a concurrent transaction", () => {
  it.live("deadlock: is contention", () =>
    Effect.gen(function*() {
      const { db, test } = yield* open()
      yield* test.sql("INSERT INTO sessions VALUES ('a', '', 0, 0), ('b', '', 0, 0)")
      yield* test.sql(
        `CREATE FUNCTION take_both() RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
        BEGIN
          UPDATE sessions SET worker_id = 'us' WHERE session_id = 'a';
          UPDATE sessions SET worker_id = 'us' WHERE session_id = 'b';
          RETURN '';
        END $$`
      )
      yield* test.sql("BEGIN")
      yield* test.sql("UPDATE sessions SET worker_id = 'they' WHERE session_id = 'b'")
      const ours = yield* Effect.forkChild(failure(db, `SELECT "${test.schema}".take_both()`))
      // Ours waits first, so ours is the one that finds the deadlock and is its victim.
      // Their transaction would see a frozen pg_stat_activity, so this uses another connection.
      const waiting = Prisma.sql`
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%take_both%'`
      yield* waitUntil(Effect.map(db.query("test", waiting), (rows) => rows.length > 0))
      yield* test.sql("UPDATE sessions SET worker_id = 'they' WHERE session_id = 'a'")
      assertReason(yield* Fiber.join(ours), contention("40P01"))
    }))

  it.live("serialization: is contention, in a statement and at COMMIT", () =>
    Effect.gen(function*() {
      const { db, test } = yield* open()
      yield* test.sql("INSERT INTO sessions VALUES ('a', '', 0, 0), ('b', '', 0, 0)")
      const theirs = (change: string) => Effect.runPromise(test.sql(change))

      const inStatement = yield* transactionFailure(() =>
        db.client.$transaction(async (tx) => {
          await tx.session.findMany()
          await theirs("UPDATE sessions SET worker_id = 'they'")
          await tx.session.updateMany({ data: { workerId: "us" } })
        }, { isolationLevel: "RepeatableRead" })
      )
      assertReason(inStatement, contention("40001"))

      const atCommit = yield* transactionFailure(() =>
        db.client.$transaction(async (tx) => {
          const one = await tx.session.findMany()
          await tx.session.update({ where: { sessionId: "a" }, data: { lockedUntil: one.length } })
          await theirs("BEGIN ISOLATION LEVEL SERIALIZABLE")
          await theirs("SELECT count(*) FROM sessions")
          await theirs("UPDATE sessions SET locked_until = 1 WHERE session_id = 'b'")
          await theirs("COMMIT")
        }, { isolationLevel: "Serializable" })
      )
      assertReason(atCommit, contention("40001"))
    }))

  it.live("lock not available: is contention, at once and after lock_timeout", () =>
    Effect.gen(function*() {
      const { db, test } = yield* open()
      yield* test.sql("INSERT INTO sessions VALUES ('a', '', 0, 0)")
      yield* test.sql(
        `CREATE FUNCTION wait_briefly() RETURNS text LANGUAGE sql SET lock_timeout = '20ms' SET search_path FROM CURRENT AS $$
          UPDATE sessions SET worker_id = 'us'; SELECT ''
        $$`
      )
      yield* test.sql("BEGIN")
      yield* test.sql("SELECT FROM sessions FOR UPDATE")
      const select = `SELECT session_id FROM "${test.schema}".sessions FOR UPDATE NOWAIT`
      assertReason(yield* failure(db, select), contention("55P03"))
      assertReason(yield* failure(db, `SELECT "${test.schema}".wait_briefly()`), contention("55P03"))
    }))

  it.live("changed statement plan: is contention, and the retry works", () =>
    Effect.gen(function*() {
      const { db, test } = yield* open({ maxConnections: 1 })
      const create = (type: string) =>
        test.sql(`CREATE FUNCTION dx_test_plan() RETURNS ${type} LANGUAGE sql AS 'SELECT 1::${type}'`)
      const call = Prisma.sql`SELECT ${db.schemaSql}.dx_test_plan() AS one`
      yield* create("integer")
      assert.deepStrictEqual(yield* db.query("test", call), [{ one: 1 }])
      yield* test.sql("DROP FUNCTION dx_test_plan()")
      yield* create("text")
      const { reason } = yield* Effect.flip(db.query("test", call))
      assertReason(reason, contention("0A000"))
      assert.deepStrictEqual(yield* db.query("test", call), [{ one: "1" }])
    }))
})

describe("stopped by the server", () => {
  it.live("our statement timeout: is unavailability", () =>
    Effect.gen(function*() {
      const { db } = yield* open({ statementTimeout: "50 millis" })
      assertReason(yield* failure(db, "SELECT pg_sleep(10)::text"), unavailable("57014"))
    }))

  it.live("cancelled by hand: is unavailability, as the server has one code for both", () =>
    Effect.gen(function*() {
      const { db, test } = yield* open()
      const ours = yield* Effect.forkChild(failure(db, "SELECT pg_sleep(10)::text AS cancelled"))
      yield* waitForStatement(test, "AS cancelled")
      yield* test.sql(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%AS cancelled' AND pid <> pg_backend_pid()"
      )
      assertReason(yield* Fiber.join(ours), unavailable("57014"))
    }))

  it.live("terminated by an administrator: is unavailability, and the next statement works", () =>
    Effect.gen(function*() {
      const { db, test } = yield* open({ maxConnections: 1 })
      const ours = yield* Effect.forkChild(failure(db, "SELECT pg_sleep(10)::text AS terminated"))
      yield* waitForStatement(test, "AS terminated")
      yield* test.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%AS terminated' AND pid <> pg_backend_pid()"
      )
      assertReason(yield* Fiber.join(ours), unavailable("57P01"))
      assert.deepStrictEqual(yield* db.query("test", Prisma.sql`SELECT 1 AS one`), [{ one: 1 }])
    }))

  it.live("read-only server: is unavailability, as after a fail-over", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = new URL(test.url)
      url.searchParams.set("options", "-c default_transaction_read_only=on")
      const db = yield* Database.make({ url: url.toString() })
      const insert = `INSERT INTO "${test.schema}".sessions VALUES ('a', '', 0, 0) RETURNING session_id`
      assertReason(yield* failure(db, insert), unavailable("25006"))
    }))

  it.live("transaction timeout: is unavailability", () =>
    Effect.gen(function*() {
      const { db } = yield* open()
      const reason = yield* transactionFailure(() =>
        db.client.$transaction((tx) => tx.$queryRaw`SELECT pg_sleep(0.2)::text`, { timeout: 50 })
      )
      assertReason(reason, unavailable(null))
    }))
})

it.layer(SharedDatabase, { excludeTestServices: true })("refused by the server", (it) => {
  const secret = "4711-secret-payload"
  const cases: ReadonlyArray<readonly [string, string, Expected]> = [
    ["duplicate key", `INSERT INTO sessions VALUES ('${secret}', '', 0, 0), ('${secret}', '', 0, 0)`, refused("23505")],
    ["null in a required column", `INSERT INTO sessions VALUES ('${secret}', NULL, 0, 0)`, refused("23502")],
    ["foreign key", `INSERT INTO child VALUES ('${secret}', 'missing')`, refused("23503")],
    ["check", `INSERT INTO child VALUES ('${secret}', 'checked')`, refused("23514")],
    ["text that is not a number", `SELECT '${secret}'::integer`, refused("22P02")],
    ["number out of range", "SELECT 4711000000000::integer", refused("22003")],
    ["text of a number out of range", "SELECT '4711000000000'::integer", refused("22003")],
    ["long text of a number out of range", `SELECT '${"4711".repeat(100)}'::integer`, refused("22003")],
    ["text too long", `INSERT INTO child VALUES ('${secret}${secret}${secret}', NULL)`, refused("22001")],
    ["text of several lines that is not a number", `SELECT E'${secret}\\nmore'::integer`, refused("22P02")],
    ["long text that is not a number", `SELECT '${secret.repeat(30)}'::integer`, refused("22P02")],
    ["feature that PostgreSQL does not have", "SELECT DISTINCT 4711 FROM sessions FOR UPDATE", unexpected("0A000")],
    ["text that is not JSON", `SELECT '${secret}'::jsonb`, refused("22P02")],
    ["missing table", "SELECT 1 FROM dx_missing", mismatch("42P01")],
    ["missing column", "SELECT dx_missing FROM sessions", mismatch("42703")],
    ["missing function", "SELECT dx_missing()", mismatch("42883")],
    ["missing schema", "SELECT dx_missing.dx_missing()", mismatch("3F000")],
    ["broken statement", "SELEC 1", mismatch("42601")],
    ["column type the adapter cannot read", "SELECT 'pg_class'::regclass", unexpected(null)]
  ]
  for (const [name, statement, expected] of cases) {
    it.effect(`${name}: is ${expected._tag} without the value`, () =>
      Effect.gen(function*() {
        const db = yield* Database.Database
        const reason = yield* failure(db, statement)
        assertReason(reason, expected)
        const shown = `${reason.message} ${JSON.stringify(reason)} ${"cause" in reason ? String(reason.cause) : ""}`
        assert.notInclude(shown, "4711")
      }))
  }

  it.effect("missing right: is PermissionDenied", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const [role] = yield* test.sql<{ super: boolean }>(
        "SELECT rolsuper AS super FROM pg_roles WHERE rolname = current_user"
      )
      const url = new URL(test.url)
      if (role!.super) url.searchParams.set("options", "-c role=pg_monitor")
      const db = yield* Database.make({ url: url.toString() })
      const reason = yield* failure(db, "SELECT rolname FROM pg_authid")
      assertReason(reason, { _tag: "PermissionDenied", isRetryable: false })
      assert.include(reason.message, "pg_authid")
    }))
})

it.layer(SharedDatabase, { excludeTestServices: true })("raised", (it) => {
  const raised: ReadonlyArray<readonly [string, string, Expected]> = [
    ["08006", "connection failure", { _tag: "ConnectionLost", isRetryable: true }],
    ["08P01", "server conn crashed?", { _tag: "ConnectionLost", isRetryable: true }],
    ["08P01", "query_wait_timeout", unavailable("08P01")],
    ["08P01", "unsupported startup parameter: options", { _tag: "ConfigurationInvalid", isRetryable: false }],
    ["08P01", "no such database: shop", { _tag: "ConfigurationInvalid", isRetryable: false }],
    ["08P01", "database \"shop\" does not exist", { _tag: "ConfigurationInvalid", isRetryable: false }],
    ["08P01", "password authentication failed", { _tag: "AuthenticationFailed", isRetryable: false }],
    ["26000", "prepared statement \"dx_1\" does not exist", { _tag: "ConfigurationInvalid", isRetryable: false }],
    ["42P05", "prepared statement \"dx_1\" already exists", { _tag: "ConfigurationInvalid", isRetryable: false }],
    ["3D000", "database \"shop\" does not exist", { _tag: "ConfigurationInvalid", isRetryable: false }],
    ["28000", "no pg_hba.conf entry", { _tag: "AuthenticationFailed", isRetryable: false }],
    ["28P01", "password authentication failed", { _tag: "AuthenticationFailed", isRetryable: false }],
    ["40003", "statement completion unknown", { _tag: "ConnectionLost", isRetryable: true }],
    ["25P02", "current transaction is aborted", { _tag: "TransactionAborted", isRetryable: false }],
    ["25P03", "idle-in-transaction timeout", unavailable("25P03")],
    ["25P04", "transaction timeout", unavailable("25P04")],
    ["53100", "disk full", unavailable("53100")],
    ["53200", "out of memory", unavailable("53200")],
    ["53300", "too many connections", unavailable("53300")],
    ["53400", "configuration limit exceeded", unavailable("53400")],
    ["54000", "index row size 2712 exceeds btree version 4 maximum 2704", refused("54000")],
    ["57P02", "crash shutdown", unavailable("57P02")],
    ["57P03", "the database system is starting up", unavailable("57P03")],
    ["57P04", "database dropped", { _tag: "ConfigurationInvalid", isRetryable: false }],
    ["57P05", "idle session timeout", unavailable("57P05")],
    ["XX000", "internal error", unexpected("XX000")],
    ["P0001", "raised by an application", unexpected("P0001")],
    ["DX999", "a refusal this code does not know", unexpected("DX999")],
    ["DX003", "a refusal without fields", unexpected("DX003")]
  ]
  for (const [sqlState, message, expected] of raised) {
    it.effect(`${sqlState} (${message}): is ${expected._tag}`, () =>
      Effect.gen(function*() {
        const db = yield* Database.Database
        const call = `SELECT fail('${sqlState}', '${message}', '')`
        assertReason(yield* failure(db, call), expected)
      }))
  }

  it.effect("refusals of our functions: carry their fields", () =>
    Effect.gen(function*() {
      const db = yield* Database.Database
      const refusals = [
        ["DX001", { _tag: "LockLost", lockToken: "t" }],
        ["DX002", { _tag: "DuplicateEvent", instanceId: "i", executionId: 2 }],
        ["DX003", { _tag: "InvalidInput", field: "limit", problem: "must be at least 1" }],
        ["DX004", { _tag: "InstanceNotFound", instanceId: "i" }]
      ] as const
      for (const [state, { _tag, ...fields }] of refusals) {
        const reason = yield* failure(db, `SELECT fail('${state}', 'refused', '${JSON.stringify(fields)}')`)
        assert.include(reason, { _tag, ...fields })
      }
    }))
})

describe("anything else", () => {
  it("a value that is not an error: is Unexpected", () => {
    for (const thrown of ["text", null, undefined, 42, {}]) {
      assert.strictEqual(SqlFault.classify(thrown)._tag, "Unexpected")
    }
  })

  it("a message with a URL: is shown without it", () => {
    const reason = SqlFault.classify(new Error("cannot reach postgresql://user:hunter2@host/db?password=hunter2"))
    assert.notInclude(`${reason.message} ${JSON.stringify(reason)}`, "hunter2")
  })
})
