/**
 * Indexes of our tables: those that are missing or broken, and those of others that slow every write.
 */
import * as Effect from "effect/Effect"
import { age, count, counted } from "../../../model/shared/quantities.ts"
import { quoted } from "../connection.ts"
import type { Migration } from "../migration.ts"
import { created } from "../migrations.ts"
import type { Examined } from "./examined.ts"
import { advice, ok, problem } from "./finding.ts"
import type { Answer } from "./finding.ts"

export const examine = Effect.fnUntraced(function*(
  { direct: { one }, isShared, schema }: Examined,
  migrations: ReadonlyArray<Migration>
) {
  const tables = created("tables", migrations)
  const found = (yield* one.run(
    `SELECT c.relname::text AS name, t.relname::text AS table, i.indisvalid AND i.indisready AS "isValid",
       i.indisprimary AS "isPrimary", i.indisunique AS "isUnique", s.idx_scan::float8 AS scans,
       pg_relation_size(c.oid)::float8 AS bytes,
       ARRAY(
         SELECT a.attname::text FROM pg_attribute AS a
         WHERE a.attrelid = t.oid AND a.attnum = ANY (i.indkey::smallint[])
       ) AS columns
     FROM pg_index AS i
     JOIN pg_class AS c ON c.oid = i.indexrelid
     JOIN pg_class AS t ON t.oid = i.indrelid
     LEFT JOIN pg_stat_user_indexes AS s ON s.indexrelid = i.indexrelid
     WHERE t.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND t.relname = ANY ($2)
     ORDER BY t.relname, c.relname`,
    [schema, tables]
  )) as ReadonlyArray<unknown> as ReadonlyArray<IndexRow>
  const [since] = yield* one.run(
    `SELECT extract(epoch FROM now() - stats_reset)::float8 * 1000 AS ms FROM pg_stat_database
     WHERE datname = current_database()`
  )
  const sql = Object.assign({}, ...migrations.map(({ manifest }) => manifest.indexSql)) as Readonly<
    Record<string, string>
  >
  const ours = new Set([...Object.keys(sql), ...tables.map((table) => `${table}_pkey`)])
  return [
    ...missing(found, sql, schema),
    ...withoutKey(found, tables, schema),
    ...found.filter(({ isValid }) => !isValid).map(({ name, table }) => broken(name, table, ours.has(name), schema)),
    ...(isShared
      // Those of duroxide-pg are of use to its own processes.
      ? [ok("other indexes", "not judged: the tables are those of duroxide-pg, too")]
      : foreign(found.filter(({ isPrimary, name }) => !isPrimary && !ours.has(name)), schema)),
    usage(found.filter(({ name }) => ours.has(name)), since?.["ms"] ?? null)
  ]
})

// internal

interface IndexRow {
  readonly name: string
  readonly table: string
  readonly isValid: boolean
  readonly isPrimary: boolean
  readonly isUnique: boolean
  /** Null: not counted. */
  readonly scans: number | null
  readonly bytes: number
  readonly columns: ReadonlyArray<string>
}

const missing = (
  found: ReadonlyArray<IndexRow>,
  sql: Readonly<Record<string, string>>,
  schema: string
): ReadonlyArray<Answer> => {
  const present = new Set(found.map(({ name }) => name))
  return Object.entries(sql).filter(([name]) => !present.has(name)).map(([name, statement]) =>
    problem(
      "missing index",
      `${name} is missing: statements read their whole table instead`,
      `Create it again: ${inSchema(statement, schema)}`
    )
  )
}

const withoutKey = (
  found: ReadonlyArray<IndexRow>,
  tables: ReadonlyArray<string>,
  schema: string
): ReadonlyArray<Answer> => {
  const keyed = new Set(found.filter(({ isPrimary }) => isPrimary).map(({ table }) => table))
  return tables.filter((table) => !keyed.has(table)).map((table) =>
    problem(
      "missing key",
      `${table} has no primary key`,
      `Restore it as the migrations create it: ALTER TABLE ${quoted(schema)}.${table} ADD PRIMARY KEY (…)`
    )
  )
}

const broken = (name: string, table: string, isOurs: boolean, schema: string): Answer => {
  const found = `${name} on ${table} is invalid: its creation has failed`
  return isOurs
    ? problem("broken index", found, `REINDEX INDEX CONCURRENTLY ${quoted(schema)}.${quoted(name)}`)
    : advice("broken index", found, `DROP INDEX CONCURRENTLY ${quoted(schema)}.${quoted(name)}`)
}

const foreign = (found: ReadonlyArray<IndexRow>, schema: string): ReadonlyArray<Answer> => {
  const answers = found.filter(({ isValid }) => isValid).flatMap(({ bytes, columns, isUnique, name, scans, table }) => {
    const todo = `Drop it unless you need it: DROP INDEX CONCURRENTLY ${quoted(schema)}.${quoted(name)}`
    const hot = columns.filter((column) => changed[table]?.includes(column) === true)
    return hot.length > 0
      ? [advice("other index", `${name} on ${table} covers ${hot.join(", ")}, which every claim changes`, todo)]
      : scans === 0 && !isUnique
      ? [advice("other index", `${name} on ${table} was never used, ${count(Math.ceil(bytes / 1000))} kB`, todo)]
      : []
  })
  return answers.length > 0
    ? answers
    : [
      ok(
        "other indexes",
        found.length === 0 ? "none" : `${counted(found.length, "index", "indexes")} of others, in use`
      )
    ]
}

/** What claims and renewals change, so that an index on it costs each of them an entry. */
const changed: Readonly<Record<string, ReadonlyArray<string>>> = {
  orchestrator_queue: ["lock_token", "locked_until", "attempt_count"],
  worker_queue: ["lock_token", "locked_until", "attempt_count"],
  instance_locks: ["lock_token", "locked_at"],
  instances: ["updated_at", "custom_status"],
  sessions: ["locked_until", "last_activity_at"],
  queue_outbox: ["lease_token", "lease_until", "attempts"],
  queue_tasks: ["attempt", "lease_until", "heartbeat_at", "updated_at"]
}

const usage = (found: ReadonlyArray<IndexRow>, sinceMs: unknown): Answer => {
  const unused = found.filter(({ scans }) => scans === 0)
  return ok(
    "our indexes",
    `${count(found.length)}, of which ${count(unused.length)} were not used${
      typeof sinceMs === "number" ? ` for ${age(sinceMs)}` : " yet"
    }; drop none of them`
  )
}

/** Migrations name tables without a schema. A table in use is not locked meanwhile. */
const inSchema = (statement: string, schema: string) =>
  statement
    .replace(/^CREATE (UNIQUE )?INDEX /, (_, unique = "") => `CREATE ${unique}INDEX CONCURRENTLY `)
    .replace(/ ON (\w+) /, (_, table) => ` ON ${quoted(schema)}.${table} `)
