/**
 * The target: what an import writes, each batch in one transaction together with its progress.
 *
 * Until the end, each imported instance has a lock that no process holds and that does not expire, and no message or
 * activity of the file is there. So no instance runs before all of them can.
 */
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as CoreVersion from "../../model/shared/coreVersion.ts"
import type * as MigrationError from "../../prisma/MigrationError.ts"
import * as Migrator from "../../prisma/Migrator.ts"
import * as Session from "../../prisma/shared/directSession.ts"
import type * as ProviderError from "../../provider/ProviderError.ts"
import * as SqliteError from "../SqliteError.ts"
import type { Row } from "./rows.ts"
import type * as Tables from "./tables.ts"

export interface Options {
  /** Directly to the server: the lock of an import belongs to its session, which a pooler shares. */
  readonly url: string | Redacted.Redacted<string>
  /** Defaults to the URL's `schema` parameter, then to `public`. */
  readonly schema?: string | undefined
}

export type Target = Session.Session

/** Open for the current scope; fails unless the schema has the migrations of this version. */
export const open = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<Target, MigrationError.Reason, Scope.Scope> {
  yield* Effect.mapError(Migrator.verify(options), ({ reason }) => reason)
  const target = yield* Session.openDirect(options)
  // Every statement finds its rows by ids. Without statistics, PostgreSQL might read a whole table for each batch.
  yield* target.run("SET enable_seqscan = off")
  return target
})

/**
 * Excludes other imports until the session ends. A killed process is gone for the server within these seconds, a host
 * that vanished within a minute.
 */
export const lock = ({ run, schema }: Target) =>
  run(
    `SET lock_timeout = '10s';
     SELECT pg_advisory_lock(hashtextextended('duroxide-prisma:sqlite_imports:' || current_schema(), 0));
     RESET lock_timeout`
  ).pipe(
    Effect.catchIf(
      (reason) => reason._tag === "Contention",
      () => Effect.fail(new SqliteError.ImportRunning({ schema }))
    )
  )

/** A transaction in which triggers announce nothing. Rolled back if the effect fails or is interrupted. */
export const transaction = <A, E, R>({ run }: Target, effect: Effect.Effect<A, E, R>) =>
  Effect.uninterruptibleMask((restore) =>
    run("BEGIN; SET LOCAL duroxide.quiet = on").pipe(
      Effect.andThen(restore(effect)),
      Effect.tap(() => run("COMMIT")),
      Effect.onError(() => Effect.ignore(run("ROLLBACK")))
    )
  )

/** The row of an import in `sqlite_imports`. */
export interface Import {
  readonly fingerprint: string
  readonly file: string
  readonly onConflict: string
  readonly served: ReadonlyArray<string>
  readonly startedAt: Date
  readonly finishedAt: Date | null
  /** All instances up to this one are copied; null before the first batch. */
  readonly lastInstanceId: string | null
  /** Ids of the file that were left out. */
  readonly kept: ReadonlyArray<string>
  readonly replaced: number
  /** Rows that were written, by table. */
  readonly counts: Readonly<Partial<Record<Tables.Name, number>>>
}

export const imports = ({ run }: Target) =>
  Effect.map(
    run(
      `SELECT fingerprint, file, on_conflict AS "onConflict", served, started_at AS "startedAt",
         finished_at AS "finishedAt", last_instance_id AS "lastInstanceId", kept, replaced, counts
       FROM sqlite_imports ORDER BY started_at`
    ),
    (rows) => rows as ReadonlyArray<unknown> as ReadonlyArray<Import>
  )

/** Sets the status of instances that were inserted with their executions. */
export const setStatuses = ({ run }: Target, ids: ReadonlyArray<string>) => run("SELECT dx_set_statuses($1)", [ids])

export const begin = ({ run }: Target, one: Pick<Import, "fingerprint" | "file" | "onConflict" | "served">) =>
  run(
    `INSERT INTO sqlite_imports (fingerprint, file, on_conflict, served, started_at, kept, counts)
     VALUES ($1, $2, $3, $4, clock_timestamp(), '{}', '{}')`,
    [one.fingerprint, one.file, one.onConflict, one.served]
  )

export const saveProgress = (
  { run }: Target,
  fingerprint: string,
  { counts, kept, lastInstanceId, replaced }: Pick<Import, "counts" | "kept" | "lastInstanceId" | "replaced">
) =>
  run(
    // A column that does not change is not written again.
    `UPDATE sqlite_imports SET last_instance_id = $2, kept = kept || $3::text[], replaced = replaced + $4, counts = $5
     WHERE fingerprint = $1`,
    [fingerprint, lastInstanceId, kept, replaced, JSON.stringify(counts)]
  )

/** Adds names to those that this package serves. */
export const serve = ({ run }: Target, fingerprint: string, served: ReadonlyArray<string>) =>
  run("UPDATE sqlite_imports SET served = $2 WHERE fingerprint = $1", [fingerprint, served])

/** Finds which of the ids the target has. */
export const taken = ({ run }: Target, ids: ReadonlyArray<string>) =>
  Effect.map(
    run(
      `SELECT one.id FROM unnest($1::text[]) AS one (id)
       WHERE EXISTS (SELECT FROM instances AS i WHERE i.instance_id = one.id)
         OR EXISTS (SELECT FROM executions AS e WHERE e.instance_id = one.id)
         OR EXISTS (SELECT FROM history AS h WHERE h.instance_id = one.id)`,
      [ids]
    ),
    (rows) => rows.map(({ id }) => String(id))
  )

/** The locks that exclude claims until the transaction ends, in the order of their keys. */
export const advisory = (
  run: Target["run"],
  ids: ReadonlyArray<string>
): Effect.Effect<unknown, ProviderError.Reason> =>
  run(
    `SELECT pg_advisory_xact_lock(one.key)::text
     FROM (SELECT DISTINCT hashtext(id) AS key FROM unnest($1::text[]) AS given (id) ORDER BY key) AS one`,
    [ids]
  )

/** Takes the instances: no claim gets them before `release`. */
export const hold = ({ run }: Target, fingerprint: string, ids: ReadonlyArray<string>) =>
  Effect.andThen(
    advisory(run, ids),
    run(
      `INSERT INTO instance_locks (instance_id, lock_token, locked_until, locked_at)
       SELECT one.id, $2, $3, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
       FROM unnest($1::text[]) AS one (id)
       ORDER BY one.id COLLATE "C"
       ON CONFLICT (instance_id) DO UPDATE
       SET lock_token = excluded.lock_token, locked_until = excluded.locked_until, locked_at = excluded.locked_at`,
      [ids, tokenOf(fingerprint), endOfTime]
    )
  )

/** Deletes all rows of the instances. A turn or an activity that runs then finds its lock lost. */
export const remove = Effect.fnUntraced(function*({ run }: Target, ids: ReadonlyArray<string>) {
  if (ids.length === 0) return
  yield* advisory(run, ids)
  for (const table of [...tables, ...ownTables]) {
    yield* run(`DELETE FROM ${table} WHERE instance_id = ANY($1)`, [ids])
  }
  yield* run("DELETE FROM paused WHERE target = 'instance' AND name = ANY($1)", [ids])
})

/** Inserts rows with strings for texts; messages of an instance from the last to the first. */
export const insert = ({ run }: Target, table: Tables.Table, rows: ReadonlyArray<Row["values"]>) => {
  const types = { text: "text", number: "bigint", time: "bigint" }
  const { columns, name } = table
  const names = columns.map((column) => column.name)
  const values = columns.map((column) =>
    column.kind === "time" ? `to_timestamp(r.${column.name}::float8 / 1000)` : `r.${column.name}`
  )
  if (name === "orchestrator_queue") {
    // Without a route, a trigger would choose the place of the message among those that are there. Batches are in order
    // of the ids, so these are negative: what the file has is older than what was sent here before.
    names.push("route", "id")
    values.push("dx_message_route(r.instance_id, r.work_item)", "-nextval('orchestrator_queue_id_seq')")
  }
  const arrays = columns.map(({ kind }, index) => `$${index + 1}::${types[kind]}[]`)
  return run(
    `INSERT INTO ${name} (${names.join(", ")})
     SELECT ${values.join(", ")}
     FROM (
       SELECT one.*
       FROM unnest(${arrays.join(", ")}) WITH ORDINALITY
         AS one (${columns.map((column) => column.name).join(", ")}, position)
       ORDER BY one.position
     ) AS r
     ${name === "sessions" ? "ON CONFLICT DO NOTHING" : ""}`,
    columns.map((_, index) => rows.map((row) => row[index]))
  )
}

/** Ends the import: the imported instances can be claimed after this transaction. Returns how many were pinned. */
export const release = Effect.fnUntraced(function*({ run }: Target, fingerprint: string, counts: Import["counts"]) {
  const token = tokenOf(fingerprint)
  // Messages that arrived for unknown ids waited for a start.
  yield* run(
    `UPDATE orchestrator_queue AS q SET route = dx_message_route(q.instance_id, q.work_item)
     FROM instance_locks AS l
     WHERE l.lock_token = $1 AND q.instance_id = l.instance_id AND q.route = ''`,
    [token]
  )
  const [row] = yield* run(
    `SELECT count(*)::int AS pinned FROM instance_locks AS l
     JOIN executions AS e USING (instance_id)
     WHERE l.lock_token = $1 AND e.duroxide_version_major = $2`,
    [token, CoreVersion.current.major]
  )
  yield* run("DELETE FROM instance_locks WHERE lock_token = $1", [token])
  yield* run(
    "UPDATE sqlite_imports SET finished_at = clock_timestamp(), counts = $2 WHERE fingerprint = $1",
    [fingerprint, JSON.stringify(counts)]
  )
  yield* run("SELECT dx_notify('orch_work', ARRAY[now()])::text, dx_notify('worker_work', ARRAY[now()])::text")
  return Number(row!["pinned"])
})

/** Lets the plans of processes fit what is there now. Needs the owner of the tables; others leave it to autovacuum. */
export const analyze = ({ run }: Target) => Effect.ignore(run(`ANALYZE ${tables.join(", ")}`))

/** Removes what an import has copied that did not end. */
export const discard = Effect.fnUntraced(function*(target: Target, fingerprint: string) {
  const { run } = target
  for (;;) {
    const held = yield* run(`SELECT instance_id AS id FROM instance_locks WHERE lock_token = $1 LIMIT 1000`, [
      tokenOf(fingerprint)
    ])
    if (held.length === 0) break
    yield* transaction(target, remove(target, held.map(({ id }) => String(id))))
  }
  yield* run("DELETE FROM sqlite_imports WHERE fingerprint = $1", [fingerprint])
})

/** What the column `tag` contains for an activity without a tag. */
export const noTag = ({ run }: Target) =>
  Effect.map(run("SELECT dx_no_tag() AS tag"), ([row]) => row!["tag"] as string | null)

// internal

/** What the file does not have. */
const ownTables = ["attributes", "removed_events", "blocked_instances"]

/** Those with rows of an instance. */
const tables = [
  "instance_locks",
  "instances",
  "executions",
  "history",
  "kv_delta",
  "kv_store",
  "worker_queue",
  "orchestrator_queue"
]

/** The end of the year 9999, as PostgreSQL and JavaScript both read it. */
const endOfTime = 253_402_300_799_999

const tokenOf = (fingerprint: string) => `sqlite-import.${fingerprint}`
