/**
 * The layout of a file: which tables and columns it has. Older versions of Duroxide lack the later ones.
 */
import * as Effect from "effect/Effect"
import * as SqliteError from "../SqliteError.ts"
import type { SqliteFile } from "./sqliteFile.ts"

/** Whether the file has a column. */
export type Has = (table: string, column: string) => boolean

/** Fails unless every table and column is one that this version knows, and those that Duroxide always had are there. */
export const read = Effect.fnUntraced(function*(file: SqliteFile) {
  const found = yield* file.reading(() =>
    new Map([...known.keys()].map((table) => [
      table,
      new Set(
        Array.from(file.rows("SELECT name FROM pragma_table_info(?)", table), ([column]) => String(column))
      )
    ]))
  )
  const has: Has = (table, column) => found.get(table)?.has(column) ?? false

  const missing: Array<string> = []
  const differences: Array<string> = []
  for (const [table, { always, later }] of known) {
    const columns = found.get(table)!
    if (columns.size === 0) {
      if (always.length > 0) missing.push(`table ${table}`)
      continue
    }
    for (const column of always) if (!columns.has(column)) missing.push(`column ${table}.${column}`)
    for (const column of columns) {
      if (!always.includes(column) && !later.includes(column)) differences.push(`column ${table}.${column} is unknown`)
    }
  }
  if (missing.length > 0) return yield* new SqliteError.NotDuroxide({ file: file.path, missing })

  // Without this table, Duroxide has made the tables without its migrations.
  const migrations = yield* file.reading(() =>
    Array.from(file.rows("SELECT name FROM pragma_table_info('_sqlx_migrations')")).length === 0
      ? []
      : Array.from(file.rows(
        "SELECT version, description, success FROM _sqlx_migrations WHERE version > ? OR NOT success",
        newestMigration
      ))
  )
  for (const [version, description, success] of migrations) {
    differences.push(`migration ${String(version)} (${String(description)}) ${success ? "is unknown" : "did not end"}`)
  }
  if (differences.length > 0) return yield* new SqliteError.LayoutUnknown({ file: file.path, differences })
  return has
})

// internal

/** `add kv delta`, of core 0.1.27 to 0.1.30. */
const newestMigration = 20240112000000

interface Known {
  /** Columns since the first migration; none for a table that was added later. */
  readonly always: ReadonlyArray<string>
  readonly later: ReadonlyArray<string>
}

const known: ReadonlyMap<string, Known> = new Map([
  ["instances", {
    always: [
      "instance_id",
      "orchestration_name",
      "orchestration_version",
      "current_execution_id",
      "created_at",
      "updated_at"
    ],
    later: ["parent_instance_id", "custom_status", "custom_status_version"]
  }],
  ["executions", {
    always: ["instance_id", "execution_id", "status", "output", "started_at", "completed_at"],
    later: ["duroxide_version_major", "duroxide_version_minor", "duroxide_version_patch"]
  }],
  ["history", {
    always: ["instance_id", "execution_id", "event_id", "event_type", "event_data", "created_at"],
    later: []
  }],
  ["orchestrator_queue", {
    always: ["id", "instance_id", "work_item", "visible_at", "lock_token", "locked_until", "created_at"],
    later: ["attempt_count"]
  }],
  ["worker_queue", {
    always: ["id", "work_item", "lock_token", "locked_until", "created_at"],
    later: ["attempt_count", "visible_at", "instance_id", "execution_id", "activity_id", "session_id", "tag"]
  }],
  ["instance_locks", { always: ["instance_id", "lock_token", "locked_until", "locked_at"], later: [] }],
  ["timer_queue", {
    always: [],
    later: ["id", "work_item", "fire_at", "lock_token", "locked_until", "created_at"]
  }],
  ["sessions", { always: [], later: ["session_id", "worker_id", "locked_until", "last_activity_at"] }],
  ["kv_store", { always: [], later: ["instance_id", "key", "value", "execution_id", "last_updated_at_ms"] }],
  ["kv_delta", { always: [], later: ["instance_id", "key", "value", "last_updated_at_ms"] }]
])
