/**
 * Dead rows: how many there are, how far the tables have grown, and what keeps vacuum from removing them.
 */
import * as Effect from "effect/Effect"
import * as pg from "pg"
import { age, count } from "../../../model/shared/quantities.ts"
import { quoted } from "../connection.ts"
import { mostDeadRows } from "../horizon.ts"
import type { Migration } from "../migration.ts"
import type { Examined } from "./examined.ts"
import { advice, ok, problem } from "./finding.ts"
import type { Answer } from "./finding.ts"

/** Parameters of tables that a migration has set and that are missing now. */
export const storage = Effect.fnUntraced(function*(
  { direct: { one }, schema }: Examined,
  migrations: ReadonlyArray<Migration>
) {
  const name = "table settings"
  const wanted = Object.assign(
    {},
    ...migrations.map(({ manifest }) => manifest.storage)
  ) as Migration["manifest"]["storage"]
  const rows = yield* one.run(
    `SELECT relname::text AS name, COALESCE(reloptions, '{}') AS options FROM pg_class
     WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relname = ANY ($2) AND relkind = 'r'`,
    [schema, Object.keys(wanted)]
  )
  const disabled: Array<string> = []
  const missing: Array<readonly [table: string, parameters: ReadonlyArray<string>]> = []
  for (const row of rows) {
    const table = String(row["name"])
    const options = row["options"] as ReadonlyArray<string>
    const set = new Set(options.map((option) => option.split("=")[0]))
    if (options.some((option) => /^autovacuum_enabled=(?:false|off|0|no)$/.test(option))) disabled.push(table)
    // Another value may be a choice of the operator.
    const lacks = (wanted[table] ?? []).filter((parameter) => !set.has(parameter.split(" ")[0]))
    if (lacks.length > 0) missing.push([table, lacks])
  }
  return disabled.length > 0
    ? problem(
      name,
      `autovacuum is off for ${disabled.join(", ")}`,
      disabled.map((table) => `ALTER TABLE ${quoted(schema)}.${table} RESET (autovacuum_enabled)`).join("; ")
    )
    : missing.length > 0
    ? advice(
      name,
      `${missing.map(([table]) => table).join(", ")} lack what the migrations have set`,
      missing.map(([table, lacks]) => `ALTER TABLE ${quoted(schema)}.${table} SET (${lacks.join(", ")})`).join("; ")
    )
    : ok(name, "as the migrations have set them")
})

/** Dead rows by the statistics, and the size of tables whose rows are replaced every few seconds. */
export const tables = Effect.fnUntraced(function*({ direct: { one }, schema }: Examined): Effect.fn.Return<
  ReadonlyArray<Answer>,
  Effect.Error<ReturnType<typeof one.run>>
> {
  const rows = (yield* one.run(
    `SELECT s.relname::text AS name, s.n_live_tup::float8 AS live, s.n_dead_tup::float8 AS dead,
       pg_relation_size(s.relid)::float8 AS bytes, pg_indexes_size(s.relid)::float8 AS "indexBytes",
       extract(epoch FROM now() - greatest(s.last_autovacuum, s.last_vacuum))::float8 * 1000 AS "vacuumedMs"
     FROM pg_stat_user_tables AS s
     WHERE s.schemaname = $1 AND s.relname = ANY ($2)`,
    [schema, hot]
  )) as ReadonlyArray<unknown> as ReadonlyArray<TableRow>
  const worst = [...rows].sort((one, other) => other.dead - one.dead)[0]
  const vacuumed = (ms: number | null) => ms === null ? "never vacuumed" : `vacuumed ${age(ms)} ago`
  const dead = worst === undefined ? [] : [
    worst.dead > mostDeadRows && worst.dead > worst.live
      ? advice(
        "dead rows",
        `${worst.name} has ${count(worst.dead)}, and ${count(worst.live)} live ones; ${vacuumed(worst.vacuumedMs)}`,
        `VACUUM ${quoted(schema)}.${worst.name}, once nothing keeps them (oldest transaction)`
      )
      : ok(
        "dead rows",
        worst.dead === 0 ? "none" : `${count(worst.dead)} in ${worst.name}; ${vacuumed(worst.vacuumedMs)}`
      )
  ]
  const grown = rows.filter(({ indexBytes, live }) => isGrown(indexBytes, live, indexBytesPerRow))
  const files = rows.filter(({ bytes, live }) => isGrown(bytes, live, bytesPerRow))
  return [
    ...dead,
    ...grown.map(({ indexBytes, live, name }) =>
      advice(
        "size",
        `the indexes of ${name} have ${megabytes(indexBytes)} for ${count(live)} rows`,
        `REINDEX TABLE CONCURRENTLY ${quoted(schema)}.${name}: claims read these indexes`
      )
    ),
    ...(grown.length > 0 ? [] : [
      ok(
        "size",
        files.length === 0
          ? "the queues are as large as their rows"
          : `${
            files.map(({ bytes, name }) => `${name} has ${megabytes(bytes)}`).join(", ")
          }: most of it is free, and used again`
      )
    ])
  ]
})

/** What keeps dead rows the longest, if anything does. */
export const horizon = Effect.fnUntraced(function*({ direct: { one }, schema }: Examined) {
  const name = "oldest transaction"
  const [row] = yield* one.run(
    `SELECT out_kind AS kind, out_id AS id, out_application_name AS application, out_transactions AS transactions,
       out_dead_rows::float8 AS dead, extract(epoch FROM now() - out_since)::float8 * 1000 AS "openMs"
     FROM ${quoted(schema)}.dx_read_horizon()`
  )
  if (row === undefined) return ok(name, "none keeps dead rows")
  const { application, dead, id, kind, openMs, transactions } = row as unknown as HorizonRow
  const found = `${kind} ${id}${application === null ? "" : ` (${application})`}${
    openMs === null ? "" : `, open for ${age(openMs)}`
  }; ${count(transactions)} began since, ${count(dead)} dead rows in the queues`
  const todo = kind === "transaction"
    ? `End it: SELECT pg_terminate_backend(${id})`
    : kind === "prepared transaction"
    ? `COMMIT PREPARED or ROLLBACK PREPARED ${pg.escapeLiteral(id)}`
    : kind === "replication slot"
    ? `Let its reader catch up, or drop it: SELECT pg_drop_replication_slot('${id}')`
    : "Switch hot_standby_feedback off on the standby, or end its long queries"
  // A transaction that is about to end keeps rows as well.
  const stays = kind !== "transaction" || (openMs ?? 0) > shortMs || transactions > fewTransactions
  return dead >= mostDeadRows && stays
    ? problem(name, found, todo)
    : (openMs ?? 0) > longestMs || transactions > mostTransactions
    ? advice(name, found, todo)
    : ok(name, found)
})

/** Slots without a reader keep the log of the server, until its disk is full. */
export const slots = Effect.fnUntraced(function*({ direct: { one } }: Examined) {
  const name = "replication slots"
  const rows = yield* one.run(
    `SELECT slot_name::text AS name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::float8 AS bytes
     FROM pg_replication_slots WHERE NOT active ORDER BY 2 DESC NULLS LAST`
  )
  const [worst] = rows
  if (worst === undefined) return ok(name, "none without a reader")
  const slot = String(worst["name"])
  return advice(
    name,
    `${slot} has no reader, and keeps ${megabytes(Number(worst["bytes"]))} of the log`,
    `Start its reader, or drop it: SELECT pg_drop_replication_slot('${slot}')`
  )
})

/** How far the database is from the point where it takes no more writes. */
export const wraparound = Effect.fnUntraced(function*({ direct: { one } }: Examined) {
  const name = "wraparound"
  const [row] = yield* one.run(
    `SELECT age(datfrozenxid) AS transactions, mxid_age(datminmxid) AS multixacts,
       current_setting('autovacuum_freeze_max_age')::integer AS frozen
     FROM pg_database WHERE datname = current_database()`
  )
  const oldest = Math.max(Number(row!["transactions"]), Number(row!["multixacts"]))
  const found = `the oldest row is ${count(oldest)} transactions old, of 2 billion`
  const todo = "VACUUM FREEZE the oldest tables, once nothing keeps their rows; it stops writes at 2 billion"
  return oldest > 1_500_000_000
    ? problem(name, found, todo)
    : oldest > 2 * Number(row!["frozen"])
    ? advice(name, found, todo)
    : ok(name, found)
})

// internal

interface TableRow {
  readonly name: string
  readonly live: number
  readonly dead: number
  readonly bytes: number
  readonly indexBytes: number
  readonly vacuumedMs: number | null
}

interface HorizonRow {
  readonly kind: string
  readonly id: string
  readonly application: string | null
  readonly transactions: number
  readonly dead: number
  readonly openMs: number | null
}

/** Tables that are replaced every few seconds. */
const hot = ["orchestrator_queue", "worker_queue", "instance_locks", "queue_messages", "queue_outbox"]

const isGrown = (bytes: number, live: number, perRow: number) => bytes > smallest && bytes > perRow * live

/** What a table of this size costs a claim is not worth a word. */
const smallest = 100_000_000

/** Far more than a row takes with its fill factor; larger values are stored apart. */
const bytesPerRow = 20_000

/** Far more than the entries of a row in all indexes of its table. */
const indexBytesPerRow = 5000

const shortMs = 60_000
const fewTransactions = 100_000

const longestMs = 600_000
const mostTransactions = 1_000_000

const megabytes = (bytes: number) => `${count(Math.round(bytes / 1_000_000))} MB`
