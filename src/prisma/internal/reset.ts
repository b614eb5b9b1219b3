/**
 * Removes from a schema what the migrations created, in one transaction.
 */
import * as Effect from "effect/Effect"
import * as MigrationError from "../MigrationError.ts"
import { duroxideBooks, hasTable, type Session, transaction, withAdvice } from "../shared/directSession.ts"
import * as Connection from "./connection.ts"
import type { Release, Table } from "./migration.ts"
import { created } from "./migrations.ts"

export interface Options extends Release {
  readonly lockTimeoutMs: number
  readonly force: boolean
}

/** Names of the removed objects, without those that are dropped together with their table. */
export interface Removed {
  readonly tables: ReadonlyArray<string>
  /** Each is `table.column`. */
  readonly columns: ReadonlyArray<string>
  readonly indexes: ReadonlyArray<string>
  readonly functions: ReadonlyArray<string>
  readonly schema: boolean
}

export const nothing: Removed = { tables: [], columns: [], indexes: [], functions: [], schema: false }

export const remove = (session: Session, options: Options) =>
  transaction(session, options.lockTimeoutMs, removing(session, options)).pipe(
    (effect) => withAdvice(effect, "Reset with the role that owns the tables"),
    Effect.mapError((reason) =>
      reason._tag === "Unexpected" && reason.sqlState === "2BP01"
        ? new MigrationError.ObjectsDepend({ schema: session.schema, problem: reason.problem })
        : reason
    )
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const removing = Effect.fnUntraced(function*(session: Session, { force, migrations, shared: layout }: Options) {
  const { run, schema } = session
  const shared = yield* hasTable(session, duroxideBooks)
  const tables = yield* present(session, "tables", migrations)
  // From here on no process can take a lock, so the check stays true until the commit.
  if (tables.length > 0) yield* run(`LOCK TABLE ${tables.join(", ")} IN ACCESS EXCLUSIVE MODE`)
  if (!force) yield* refuseLive(session, tables)

  // Triggers before the functions they call.
  const triggers = yield* run(
    `SELECT tgname::text AS name, tgrelid::regclass::text AS relation FROM pg_trigger
     WHERE tgrelid = ANY($1::regclass[]) AND tgname = ANY($2) AND NOT tgisinternal`,
    [tables, created("triggers", migrations)]
  )
  for (const { name, relation } of triggers) yield* run(`DROP TRIGGER ${String(name)} ON ${String(relation)}`)

  const functions = yield* run(
    `SELECT oid::regprocedure::text AS signature, proname::text AS name FROM pg_proc
     WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND proname = ANY($2)
     ORDER BY 1`,
    [schema, created("functions", migrations)]
  )
  for (const { signature } of functions) yield* run(`DROP FUNCTION ${String(signature)}`)
  // Types of their arguments.
  for (const name of created("types", migrations)) yield* run(`DROP TYPE IF EXISTS ${name}`)

  // One by one, so that the message about a dependent object names the table it depends on.
  const indexes = shared ? yield* present(session, "indexes", migrations) : []
  for (const name of indexes) yield* run(`DROP INDEX ${name}`)
  const ours = shared ? yield* present(session, "tables", migrations.slice(1)) : tables
  for (const name of ours) yield* run(`DROP TABLE ${name}`)
  const columns = shared ? yield* presentColumns(session, migrations.flatMap(({ manifest }) => manifest.columns)) : []
  for (const { column, table } of columns) yield* run(`ALTER TABLE ${table} DROP COLUMN ${column}`)
  if (shared) yield* resetStorage(session, layout.tables)

  yield* run("DELETE FROM _prisma_migrations WHERE migration_name = ANY($1)", [migrations.map(({ name }) => name)])
  const others = yield* run("SELECT FROM _prisma_migrations LIMIT 1")
  if (others.length === 0) yield* run("DROP TABLE _prisma_migrations")
  const schemaGone = schema !== "public" && (yield* dropWhenEmpty(session))
  return {
    tables: ours,
    columns: columns.map(({ column, table }) => `${table}.${column}`),
    indexes,
    functions: functions.map(({ name }) => String(name)),
    schema: schemaGone
  } satisfies Removed
})

/** Which of the created tables, or of their indexes, still exist. */
const present = (
  { run, schema }: Session,
  kind: "tables" | "indexes",
  migrations: Parameters<typeof created>[1]
) =>
  Effect.map(
    run(
      `SELECT relname::text AS name FROM pg_class
       WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relname = ANY($2)
         AND relkind = ANY($3::"char"[])
       ORDER BY array_position($2::text[], relname::text)`,
      [schema, created(kind, migrations), kind === "tables" ? ["r", "p"] : ["i", "I"]]
    ),
    (rows) => rows.map(({ name }) => String(name))
  )

/** Which of the added columns still exist. */
const presentColumns = Effect.fnUntraced(function*(
  { run, schema }: Session,
  added: Release["migrations"][number]["manifest"]["columns"]
) {
  const rows = yield* run(
    `SELECT table_name::text AS table, column_name::text AS column FROM information_schema.columns
     WHERE table_schema = $1 AND table_name = ANY($2)`,
    [schema, added.map(({ table }) => table)]
  )
  return added.filter(({ column, table }) => rows.some((row) => row.table === table && row.column === column))
})

const refuseLive = Effect.fnUntraced(function*({ run, schema }: Session, tables: ReadonlyArray<string>) {
  const count = (table: keyof typeof live) =>
    tables.includes(table)
      ? Effect.map(
        run(`SELECT count(*)::int AS live FROM ${table} WHERE ${live[table]}`),
        ([row]) => Number(row?.live)
      )
      : Effect.succeed(0)
  const instances = yield* count("instance_locks")
  const activities = yield* count("worker_queue")
  const sessions = yield* count("sessions")
  const leases = (yield* count("queue_tasks")) + (yield* count("queue_messages")) + (yield* count("queue_outbox"))
  if (instances + activities + sessions + leases > 0) {
    return yield* new MigrationError.LocksLive({ schema, instances, activities, sessions, leases })
  }
})

const nowMs = "extract(epoch FROM clock_timestamp()) * 1000"

/** By table, what a process works on. */
const live = {
  // A lock with an empty token is a pause: no process runs its instance.
  instance_locks: `locked_until > ${nowMs} AND lock_token <> ''`,
  worker_queue: `locked_until > ${nowMs}`,
  sessions: `locked_until > ${nowMs}`,
  queue_tasks: `lease_until > ${nowMs}`,
  queue_messages: "lease_token IS NOT NULL AND visible_at > clock_timestamp()",
  queue_outbox: `lease_until > ${nowMs}`
}

/** Leaves parameters that were changed since. */
const resetStorage = Effect.fnUntraced(function*({ run, schema }: Session, tables: ReadonlyArray<Table>) {
  for (const { name, storage } of tables) {
    if (storage.length === 0) continue
    const unchanged = yield* run(
      `SELECT FROM pg_class
       WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relname = $2 AND reloptions = $3`,
      [schema, name, storage.map((one) => one.replaceAll(" ", ""))]
    )
    const names = storage.map((one) => one.replace(/ =.*$/, ""))
    if (unchanged.length > 0) yield* run(`ALTER TABLE ${name} RESET (${names.join(", ")})`)
  }
})

/** The server decides whether the schema is empty. A schema that belongs to another role stays. */
const dropWhenEmpty = ({ run, schema }: Session) =>
  run("SAVEPOINT empty").pipe(
    Effect.andThen(run(`DROP SCHEMA ${Connection.quoted(schema)}`)),
    Effect.as(true),
    Effect.catchIf(
      (reason) => reason._tag === "PermissionDenied" || (reason._tag === "Unexpected" && reason.sqlState === "2BP01"),
      () => Effect.as(run("ROLLBACK TO SAVEPOINT empty"), false)
    )
  )
