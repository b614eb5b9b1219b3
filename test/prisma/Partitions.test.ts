/**
 * A store whose history is partitioned: what the change keeps, and that later migrations and a reset work on it. Part
 * of the validation suite runs on such a store (`PrismaDriver.suite.partitions.test.ts`).
 */
import { assert, describe, it } from "@effect/vitest"
import { Migrator, Partitions, Roles } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import { randomUUID } from "node:crypto"
import * as pg from "pg"
import * as Duroxide from "../utils/duroxideSchema.ts"
import { ours, withMigrations } from "../utils/migrations.ts"
import * as PgServer from "../utils/PgServer.ts"

const silently = Effect.provide(Logger.layer([]))

const fill = (sql: PgServer.TestDatabase["sql"], instances: number) =>
  sql(
    `INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
     SELECT 'i-' || i, 1, e, 'TimerFired', '{"n":' || e || '}', now()
     FROM generate_series(1, $1::int) AS i, generate_series(1, 5) AS e`,
    [instances]
  )

const contents = (sql: PgServer.TestDatabase["sql"]) =>
  Effect.map(
    sql<{ sum: string }>(
      "SELECT count(*) || ' ' || md5(string_agg(h::text, ',' ORDER BY h::text)) AS sum FROM history AS h"
    ),
    ([row]) => row!.sum
  )

const partitions = (sql: PgServer.TestDatabase["sql"]) =>
  sql<{ name: string; rows: number }>(
    `SELECT c.relname AS name, (SELECT count(*)::int FROM history AS h WHERE h.tableoid = c.oid) AS rows
     FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'history'::regclass ORDER BY 1`
  )

describe("Partitions.apply", () => {
  it.live("keeps rows, keys, rights and owner, in a schema of any name, and does it once", () =>
    silently(Effect.gen(function*() {
      const { sql, url } = yield* PgServer.emptyDatabase
      const schema = "needs quotes; ünd mehr"
      const role = `worker ${randomUUID().slice(0, 8)}`
      const [owner, quoted] = [`owner ${role}`, schema].map(pg.escapeIdentifier)
      yield* Effect.addFinalizer(() => sql(`DROP SCHEMA IF EXISTS ${quoted!} CASCADE`))
      yield* Migrator.migrate({ url, schema })
      yield* Effect.acquireRelease(
        Roles.apply({ url, schema, roles: { worker: role } }),
        () => sql(`DROP OWNED BY ${pg.escapeIdentifier(role)} CASCADE; DROP ROLE ${pg.escapeIdentifier(role)}`)
      )
      yield* Effect.acquireRelease(
        sql(`CREATE ROLE ${owner!}`),
        () => sql(`DROP OWNED BY ${owner!} CASCADE; DROP ROLE ${owner!}`)
      )
      yield* sql(`SET search_path = ${quoted!}`)
      yield* sql(
        `ALTER TABLE history OWNER TO ${owner!}; ALTER TABLE history SET (autovacuum_vacuum_scale_factor = 0.05)`
      )
      yield* fill(sql, 200)
      const describeTable = sql(
        `SELECT pg_get_userbyid(c.relowner) AS owner, pg_get_constraintdef(k.oid) AS key, k.conname,
           (SELECT array_agg(a::text ORDER BY a::text) FROM aclexplode(c.relacl) AS a) AS rights
         FROM pg_class AS c JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype = 'p'
         WHERE c.oid = 'history'::regclass`
      )
      const [before, rows] = [yield* describeTable, yield* contents(sql)]
      assert.isTrue(yield* Partitions.apply({ url, schema, partitions: 8 }))
      assert.deepStrictEqual([yield* describeTable, yield* contents(sql)], [before, rows])
      const parts = yield* partitions(sql)
      assert.deepStrictEqual(parts.map(({ name }) => name), [0, 1, 2, 3, 4, 5, 6, 7].map((i) => `history_p000${i}`))
      // Each has some: 1,000 rows of 200 instances.
      assert.isTrue(parts.every(({ rows }) => rows > 0 && rows % 5 === 0), JSON.stringify(parts))
      const storage = yield* sql(
        "SELECT DISTINCT reloptions::text AS o FROM pg_class WHERE relname LIKE 'history_p0%' AND relkind = 'r'"
      )
      assert.deepStrictEqual(storage, [{ o: "{autovacuum_vacuum_scale_factor=0.05}" }])
      const owners = yield* sql(
        "SELECT DISTINCT pg_get_userbyid(relowner) AS owner FROM pg_class WHERE relname LIKE 'history_p0%'"
      )
      assert.deepStrictEqual(owners, [{ owner: `owner ${role}` }])
      assert.isFalse(yield* Partitions.apply({ url, schema, partitions: 8 }))
      yield* Migrator.verify({ url, schema })
    })))

  it.live("later migrations work on it, and a reset removes it", () =>
    silently(Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* fill(sql, 20)
      yield* Partitions.apply({ url })
      const later = {
        ...Object.fromEntries(ours.map(({ name, sql }) => [name, sql])),
        "29990101000000_more": `ALTER TABLE history ADD COLUMN note TEXT NOT NULL DEFAULT 'none';
          CREATE INDEX history_note_idx ON history (note);
          UPDATE history SET event_type = 'Timer' WHERE event_type = 'TimerFired';`
      }
      assert.deepStrictEqual(yield* withMigrations(later)(Migrator.migrate({ url })), ["29990101000000_more"])
      assert.deepStrictEqual(yield* sql("SELECT DISTINCT note, event_type FROM history"), [{
        note: "none",
        event_type: "Timer"
      }])
      const removed = yield* withMigrations(later)(Migrator.reset({ url }))
      assert.include(removed.tables, "history")
      assert.lengthOf(yield* sql("SELECT FROM pg_class WHERE relname LIKE 'history%'"), 0)
    })))

  it.live("refuses an impossible number of partitions, and a schema of duroxide-pg", () =>
    silently(Effect.gen(function*() {
      const { url } = yield* PgServer.database
      for (const number of [1, 1025, 2.5]) {
        const error = yield* Effect.flip(Partitions.apply({ url, partitions: number }))
        assert.include(error.message, "partitions must be a whole number from 2 to 1024")
      }
      const theirs = yield* Duroxide.filled("Rust made")
      const error = yield* Effect.flip(Partitions.apply({ url: theirs.url }))
      assert.strictEqual(error.reason._tag, "ConfigurationInvalid")
      assert.include(error.message, "duroxide-pg owns the tables")
    })))
})
