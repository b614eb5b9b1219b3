/**
 * A schema that duroxide-pg made, with rows that its processes wrote.
 */
import * as Effect from "effect/Effect"
import { readFile } from "node:fs/promises"
import * as pg from "pg"
import * as PgServer from "./PgServer.ts"

const folder = new URL("../recordings/", import.meta.url)

/** Recorded scenarios of Duroxide: some that end, and one that waits forever. */
export const scenarios = ["timer", "kv", "fan-out-5", "sub-orchestration-ok", "continue-as-new", "version-too-new"]

/** Made by duroxide-pg alone, without rows. */
export const empty = Effect.fnUntraced(function*(schema: string) {
  const test = yield* PgServer.emptyDatabase
  const quoted = pg.escapeIdentifier(schema)
  yield* Effect.addFinalizer(() => test.sql(`DROP SCHEMA IF EXISTS ${quoted} CASCADE`))
  const text = yield* Effect.promise(() => readFile(new URL("duroxide-pg-schema.sql", import.meta.url), "utf8"))
  yield* test.sql(`CREATE SCHEMA ${quoted}; SET search_path = ${quoted}; ${text}`)
  const url = new URL(test.url)
  url.searchParams.set("schema", schema)
  return { ...test, schema, url: url.toString(), quoted }
})

interface Recording {
  readonly [table: string]: ReadonlyArray<Record<string, unknown>>
}

/** With the rows of `scenarios`. */
export const filled = Effect.fnUntraced(function*(schema: string) {
  const test = yield* empty(schema)
  for (const scenario of scenarios) {
    const recording = JSON.parse(
      yield* Effect.promise(() => readFile(new URL(`duroxide/${scenario}.json`, folder), "utf8"))
    ) as Recording
    for (const table of ["instances", "executions", "history", "kv_store", "kv_delta"]) {
      // The recordings leave out when an event was stored.
      const rows = (recording[table] ?? []).map((row) => ({ created_at: "2026-11-21T01:00:00Z", ...row }))
      yield* test.sql(
        `INSERT INTO ${table} SELECT * FROM jsonb_populate_recordset(NULL::${table}, $1)`,
        [JSON.stringify(rows)]
      )
    }
  }
  return test
})

/** Everything in the schema except rows; what is not ours must not change. */
export const objects = (sql: PgServer.TestDatabase["sql"], schema: string) =>
  Effect.map(
    sql<{ object: string }>(
      `SELECT 'relation ' || relname || ' ' || relkind::text || coalesce(' ' || reloptions::text, '') AS object
       FROM pg_class WHERE relnamespace = $1::regnamespace
       UNION ALL
       SELECT 'function ' || p.oid::regprocedure || ' ' || md5(pg_get_functiondef(p.oid))
       FROM pg_proc AS p WHERE pronamespace = $1::regnamespace
       UNION ALL
       SELECT 'column ' || attrelid::regclass || '.' || attname || ' ' || format_type(atttypid, atttypmod) || attnotnull
       FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped
         AND attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind = 'r')
       UNION ALL
       SELECT 'trigger ' || tgrelid::regclass || '.' || tgname || ' ' || tgfoid::regproc
       FROM pg_trigger WHERE NOT tgisinternal
         AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = $1::regnamespace)
       ORDER BY 1`,
      [pg.escapeIdentifier(schema)]
    ),
    (rows) => rows.map(({ object }) => object)
  )
