import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as pg from "pg"
import type { MigrationError } from "../../src/prisma/MigrationError.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as Test from "../utils/driver.ts"
import * as Duroxide from "../utils/duroxideSchema.ts"
import { ours, withMigrations } from "../utils/migrations.ts"
import * as PgServer from "../utils/PgServer.ts"

const silently = Effect.provide(Logger.layer([]))
const reset = (options: Migrator.ResetOptions) => silently(Migrator.reset(options))
const migrate = (options: Migrator.Options) => silently(Migrator.migrate(options))
const refusal = <A, R>(effect: Effect.Effect<A, MigrationError, R>) =>
  Effect.map(Effect.flip(effect), ({ reason }) => reason)

const nothing: Migrator.Removed = { tables: [], columns: [], indexes: [], functions: [], schema: false }

/** A migrated schema of its own, beside others of the database. */
const ownSchema = Effect.fnUntraced(function*(schema: string) {
  const test = yield* PgServer.emptyDatabase
  const quoted = pg.escapeIdentifier(schema)
  yield* Effect.addFinalizer(() => test.sql(`DROP SCHEMA IF EXISTS ${quoted} CASCADE`))
  const url = new URL(test.url)
  url.searchParams.set("schema", schema)
  yield* migrate({ url: url.toString() })
  yield* test.sql(`SET search_path = ${quoted}`)
  return { ...test, schema, quoted, url: url.toString() }
})

const schemas = (sql: PgServer.TestDatabase["sql"]) =>
  Effect.map(
    sql<{ name: string }>("SELECT nspname::text AS name FROM pg_namespace ORDER BY 1"),
    (rows) => rows.map(({ name }) => name)
  )

/** A release that adds a column, a trigger and a table of our own. */
const laterRelease = withMigrations(Object.fromEntries([
  ...ours.map(({ name, sql }, index) =>
    [
      name,
      index === 0
        ? `${sql}
        ALTER TABLE instances ADD COLUMN added_note TEXT DEFAULT 'a;b', ADD COLUMN added_count BIGINT; -- of ours; only
        CREATE INDEX added_note_idx ON instances (added_note);`
        : sql
    ] as const
  ),
  [
    "99990101000000_additions",
    `CREATE FUNCTION dx_added() RETURNS trigger LANGUAGE plpgsql AS $body$
    BEGIN
      NEW.added_note := 'x;y'; -- one statement; two
      RETURN NEW;
    END
    $body$;
    CREATE TRIGGER dx_added BEFORE INSERT ON instances FOR EACH ROW EXECUTE FUNCTION dx_added();
    CREATE TABLE added (id BIGINT);
    ALTER TABLE history ADD COLUMN added_note TEXT;`
  ] as const
]))

const triggers = (sql: PgServer.TestDatabase["sql"]) =>
  Effect.map(
    sql<{ name: string }>(
      "SELECT tgname AS name FROM pg_trigger WHERE NOT tgisinternal AND tgname LIKE 'dx!_%' ESCAPE '!' ORDER BY 1"
    ),
    (rows) => rows.map(({ name }) => name)
  )
const triggersOfLaterRelease = [
  "dx_added",
  "dx_delete_streams",
  "dx_notify_deleted_instance_slot",
  "dx_notify_free_instance_slot",
  "dx_notify_free_slot",
  "dx_notify_moved_activity",
  "dx_notify_moved_message",
  "dx_notify_outbox",
  "dx_route_activity",
  "dx_route_message",
  "dx_set_first_status",
  "dx_set_status"
]

/** A table that Duroxide does not have. */
const ourTable =
  /^((queue|sqlite)_|(attributes|blocked_instances|limits|limit_keys|operator_actions|paused|processes|progress_chunks|progress_streams|removed_events|schedules|schedule_runs)$)/

describe("a schema of our own", () => {
  it.live("reset: removes triggers with the functions they call", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      yield* Effect.addFinalizer(() => test.sql("DROP SCHEMA IF EXISTS later CASCADE"))
      yield* laterRelease(migrate({ url: test.url, schema: "later" }))
      assert.deepStrictEqual(yield* triggers(test.sql), triggersOfLaterRelease)
      const removed = yield* laterRelease(reset({ url: test.url, schema: "later" }))
      assert.isTrue(removed.schema)
      assert.include(removed.tables, "added")
      assert.deepStrictEqual(removed.columns, [])
    }))

  it.live("reset: removes everything, the schema included, and leaves other schemas unchanged", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* ownSchema("To \"go\"")
      yield* migrate({ url, schema: "stays" })
      yield* Effect.addFinalizer(() => sql("DROP SCHEMA stays CASCADE"))
      const neighbour = yield* Duroxide.objects(sql, "stays")
      const removed = yield* reset({ url })
      assert.lengthOf(removed.tables, 32)
      assert.isTrue(removed.schema)
      assert.notInclude(yield* schemas(sql), schema)
      assert.deepStrictEqual(yield* Duroxide.objects(sql, "stays"), neighbour)
      assert.deepStrictEqual(yield* reset({ url }), nothing)
    }))

  it.live("reset: leaves foreign objects and their schema", () =>
    Effect.gen(function*() {
      const { quoted, schema, sql, url } = yield* ownSchema("shared")
      yield* sql(
        `CREATE TABLE ${quoted}.orders (id integer);
         CREATE FUNCTION ${quoted}.dx_mine() RETURNS integer LANGUAGE sql AS 'SELECT 1';
         CREATE VIEW ${quoted}.report AS SELECT * FROM ${quoted}.orders`
      )
      const removed = yield* reset({ url })
      assert.isFalse(removed.schema)
      const left = (yield* Duroxide.objects(sql, schema)).filter((object) => !object.startsWith("column"))
      assert.deepStrictEqual(left.map((object) => object.replace(/ [0-9a-f]{32}$/, "")), [
        "function dx_mine()",
        "relation orders r",
        "relation report v"
      ])
      yield* migrate({ url })
      yield* Migrator.verify({ url })
    }))

  it.live("reset: never removes the schema public", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      if (test.schema === "public") yield* migrate({ url: test.url })
      else yield* migrate({ url: test.url, schema: test.schema })
      const removed = yield* reset({ url: test.url })
      assert.strictEqual(removed.schema, test.schema !== "public")
      assert.include(yield* schemas(test.sql), "public")
    }))

  it.live("reset: without our migrations nothing is touched, whatever the tables are called", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* Duroxide.filled("rust")
      const before = yield* Duroxide.objects(sql, schema)
      assert.deepStrictEqual(yield* reset({ url }), nothing)
      assert.deepStrictEqual(yield* Duroxide.objects(sql, schema), before)
    }))

  it.live("reset: refuses while locks are live, unless forced", () =>
    Effect.gen(function*() {
      const test = yield* ownSchema("busy")
      yield* Effect.gen(function*() {
        const { driver } = yield* Test.openOn(test)
        yield* Test.claimed(driver, "a")
        yield* driver.enqueueForWorker([Test.activity(), Test.activity({ sessionId: "s" })])
        yield* Test.take(driver, { session: { workerId: "me", lockTimeoutMs: 60_000 } })
      }).pipe(Effect.scoped)
      const before = yield* Duroxide.objects(test.sql, test.schema)
      const reason = yield* refusal(reset({ url: test.url }))
      assert.deepInclude(reason, {
        _tag: "LocksLive",
        schema: "busy",
        instances: 1,
        activities: 2,
        sessions: 1,
        leases: 0
      })
      assert.isTrue(reason.isRetryable)
      assert.deepStrictEqual(yield* Duroxide.objects(test.sql, test.schema), before)
      assert.isTrue((yield* reset({ url: test.url, force: true })).schema)
    }))

  it.live("reset: refuses while tasks, messages or rows of the outbox are leased", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* ownSchema("leased")
      const later = "extract(epoch FROM now()) * 1000 + 60000"
      yield* sql(
        `SELECT dx_create_tasks('[{"name": "Resize", "payload": "null", "max_attempts": 1, "queue": "tasks"}]');
         UPDATE queue_tasks SET status = 'Running', attempt = 1, lease_until = ${later};
         SELECT dx_publish_messages('[{"queue": "q", "payload": {"kind": "k"}, "delay_ms": 0, "max_attempts": 20}]');
         SELECT dx_receive_messages(1, 'q', '00000000-0000-0000-0000-000000000000', 60000);
         UPDATE queue_outbox SET lease_token = 'x', lease_until = ${later}`
      )
      assert.deepInclude(yield* refusal(reset({ url })), { _tag: "LocksLive", instances: 0, leases: 3 })
      yield* sql(
        `UPDATE queue_tasks SET lease_until = 1; UPDATE queue_outbox SET lease_until = 1;
         UPDATE queue_messages SET visible_at = now() - interval '1 second'`
      )
      assert.isTrue((yield* reset({ url })).schema)
    }))

  it.live("reset: a paused instance does not prevent it", () =>
    Effect.gen(function*() {
      const test = yield* ownSchema("paused")
      yield* test.sql("INSERT INTO instance_locks VALUES ('a', '', 99999999999999, 0)")
      assert.isTrue((yield* reset({ url: test.url })).schema)
    }))

  it.live("reset: ignores expired locks", () =>
    Effect.gen(function*() {
      const test = yield* ownSchema("expired")
      yield* Effect.flatMap(Test.openOn(test), ({ driver }) => Test.claimed(driver, "a")).pipe(Effect.scoped)
      yield* test.sql("UPDATE instance_locks SET locked_until = 1")
      assert.isTrue((yield* reset({ url: test.url })).schema)
    }))

  it.live("reset: refuses while a view depends on our tables, and names the table", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* ownSchema("viewed")
      yield* sql("CREATE VIEW running AS SELECT * FROM executions")
      const before = yield* Duroxide.objects(sql, schema)
      const reason = yield* refusal(reset({ url, force: true }))
      assert.strictEqual(reason._tag, "ObjectsDepend")
      assert.include(reason.message, "executions")
      assert.deepStrictEqual(yield* Duroxide.objects(sql, schema), before)
    }))

  it.live("reset: a newer schema is SchemaAhead, and if allowed keeps the records of that release", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* ownSchema("newer")
      yield* sql(
        `INSERT INTO _prisma_migrations (id, checksum, migration_name, finished_at)
         VALUES ('x', 'x', '99990101000000_from_the_future', now());
         CREATE TABLE dx_future ()`
      )
      assert.strictEqual((yield* refusal(reset({ url })))._tag, "SchemaAhead")
      assert.isFalse((yield* reset({ url, allowAhead: true })).schema)
      const books = yield* sql("SELECT migration_name FROM _prisma_migrations")
      assert.deepStrictEqual(books, [{ migration_name: "99990101000000_from_the_future" }])
      assert.include(yield* Duroxide.objects(sql, schema), "relation dx_future r")
    }))

  it.live("reset: waits no longer than lockTimeout for other users of the tables", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* ownSchema("used")
      yield* sql("BEGIN; SELECT FROM instances")
      const reason = yield* refusal(reset({ url, lockTimeout: "50 millis" }))
      yield* sql("ROLLBACK")
      assert.deepInclude(reason, { _tag: "TablesInUse", tables: ["instances"], waitedMs: 50 })
      yield* Migrator.verify({ url })
    }))
})

describe("an adopted schema", () => {
  it.live("reset: leaves the schema as duroxide-pg made it, with all data, and adopt works again", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* Duroxide.filled("rust")
      yield* sql(
        "ALTER TABLE worker_queue SET (fillfactor = 60); CREATE TABLE theirs (); CREATE INDEX ON history (event_type)"
      )
      const before = yield* Duroxide.objects(sql, schema)
      const stored = sql(
        "SELECT instance_id, execution_id, event_id, event_data, created_at FROM history ORDER BY 1, 2, 3"
      )
      const rows = yield* stored
      const applied = yield* silently(Migrator.adopt({ url }))
      const removed = yield* reset({ url })
      assert.lengthOf(removed.tables, 23)
      for (const table of removed.tables) assert.match(table, ourTable)
      assert.isFalse(removed.schema)
      assert.isAbove(removed.functions.length, 15)
      assert.lengthOf(removed.indexes, 36)
      assert.deepStrictEqual(yield* Duroxide.objects(sql, schema), before)
      assert.deepStrictEqual(yield* stored, rows)
      assert.deepStrictEqual(yield* reset({ url }), nothing)
      assert.deepStrictEqual(yield* silently(Migrator.adopt({ url })), applied)
    }))

  it.live("adopt and reset: add and remove our columns, triggers and tables", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* Duroxide.filled("rust")
      const before = yield* Duroxide.objects(sql, schema)
      yield* laterRelease(silently(Migrator.adopt({ url })))
      yield* laterRelease(Migrator.verify({ url }))
      assert.deepStrictEqual(yield* laterRelease(silently(Migrator.adopt({ url }))), [])
      const after = yield* Duroxide.objects(sql, schema)
      for (const column of ["instances.added_note", "instances.added_count", "history.added_note", "added.id"]) {
        assert.isDefined(after.find((object) => object.startsWith(`column ${column} `)), column)
      }
      assert.deepStrictEqual(yield* triggers(sql), triggersOfLaterRelease)

      const removed = yield* laterRelease(reset({ url }))
      assert.deepStrictEqual(removed.tables.filter((table) => !ourTable.test(table)), ["added"])
      assert.includeMembers([...removed.columns], [
        "instances.added_note",
        "instances.added_count",
        "history.added_note"
      ])
      assert.include(removed.indexes, "added_note_idx")
      assert.deepStrictEqual(yield* triggers(sql), [])
      assert.deepStrictEqual(yield* Duroxide.objects(sql, schema), before)
    }))

  it.live("reset: refuses while either side holds locks", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* Duroxide.empty("rust")
      yield* silently(Migrator.adopt({ url }))
      yield* sql("INSERT INTO instance_locks VALUES ('a', 'theirs', 99999999999999, 0)")
      assert.deepInclude(yield* refusal(reset({ url })), {
        _tag: "LocksLive",
        instances: 1,
        activities: 0,
        sessions: 0,
        leases: 0
      })
      assert.isAbove((yield* reset({ url, force: true })).functions.length, 15)
      assert.lengthOf(yield* sql("SELECT FROM instance_locks"), 1)
    }))
})
