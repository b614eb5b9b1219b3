/**
 * Executions of a file that are under way: which of them only processes of Duroxide continue, and how they are given to
 * this package.
 */
import * as Effect from "effect/Effect"
import * as CoreVersion from "../../model/shared/coreVersion.ts"
import * as SqliteError from "../SqliteError.ts"
import type { SqliteFile } from "./sqliteFile.ts"
import * as Tables from "./tables.ts"
import * as Target from "./target.ts"

/** Fails unless the file has an execution or a queued start of each name. */
export const checkNames = Effect.fnUntraced(function*(file: SqliteFile, names: ReadonlyArray<string>) {
  if (names.length === 0) return
  const listed = (sql: string) => file.reading(() => Array.from(file.rows(sql), ([name]) => String(name)))
  const known = yield* listed(
    `SELECT DISTINCT CAST(i.orchestration_name AS TEXT) FROM instances AS i
     WHERE EXISTS (SELECT 1 FROM executions AS e WHERE e.instance_id = i.instance_id) ORDER BY 1`
  )
  if (names.every((name) => known.includes(name))) return
  const starts = yield* listed(
    `SELECT DISTINCT json_extract(work_item, '$.StartOrchestration.orchestration') FROM orchestrator_queue
     WHERE work_item LIKE '{"StartOrchestration"%' AND json_valid(work_item)`
  )
  const unknown = names.filter((name) => !known.includes(name) && !starts.includes(name))
  if (unknown.length === 0) return
  const all = known.length === 0 ? "none" : known.slice(0, 20).join(", ") + (known.length > 20 ? ", …" : "")
  return yield* new SqliteError.InvalidInput({
    field: "serve",
    problem: `the file has no execution of ${unknown.join(", ")}; orchestrations of the file: ${all}`
  })
})

/** What is known of an import that has ended. */
export interface Options {
  readonly file: SqliteFile
  readonly target: Target.Target
  readonly kept: ReadonlySet<string>
}

/** How many executions only processes of Duroxide continue, by orchestration. */
export const staying = Effect.fnUntraced(function*(options: Options) {
  const found: Record<string, number> = {}
  yield* forEachChunk(options, (chunk) =>
    Effect.map(
      options.target.run(
        `SELECT i.orchestration_name AS name, count(*)::int AS executions ${ofFile}
           AND e.duroxide_version_major < $4
         GROUP BY i.orchestration_name ORDER BY i.orchestration_name`,
        [...chunk, CoreVersion.supported.min.major]
      ),
      (rows) => {
        for (const { executions, name } of rows) found[String(name)] = (found[String(name)] ?? 0) + Number(executions)
      }
    ))
  return found
})

/**
 * Pins executions of these names to this package, except those that have a lock; another call finds the rest. Returns
 * how many.
 */
export const pin = Effect.fnUntraced(function*(options: Options, names: ReadonlyArray<string>) {
  const { target } = options
  const { run } = target
  const noTag = yield* Target.noTag(target)
  const { major, minor, patch } = CoreVersion.current
  let count = 0
  yield* forEachChunk(options, (chunk) =>
    Target.transaction(
      target,
      Effect.gen(function*() {
        const [ids] = chunk
        yield* Target.advisory(run, ids)
        // Waits for turns that are being stored: their locks are gone afterwards.
        yield* run(
          `SELECT FROM instance_locks WHERE instance_id = ANY($1) ORDER BY instance_id COLLATE "C" FOR UPDATE`,
          [
            ids
          ]
        )
        const pinned = yield* run(
          `UPDATE executions AS pinned
           SET duroxide_version_major = $4, duroxide_version_minor = $5, duroxide_version_patch = $6
           FROM (
             SELECT e.instance_id, e.execution_id ${ofFile}
               AND i.orchestration_name = ANY($7)
               AND COALESCE(e.duroxide_version_major < $8, true)
               AND NOT EXISTS (
                 SELECT FROM instance_locks AS l WHERE l.instance_id = e.instance_id
                   AND l.locked_until > extract(epoch FROM clock_timestamp()) * 1000
               )
           ) AS free
           WHERE pinned.instance_id = free.instance_id AND pinned.execution_id = free.execution_id
           RETURNING pinned.instance_id AS id`,
          [...chunk, major, minor, patch, names, CoreVersion.supported.min.major]
        )
        if (pinned.length === 0) return
        count += pinned.length
        const own = [pinned.map(({ id }) => String(id))]
        // A process whose lock has expired must not renew it.
        yield* run("DELETE FROM instance_locks WHERE instance_id = ANY($1)", own)
        yield* run(
          `UPDATE orchestrator_queue AS q SET route = dx_message_route(q.instance_id, q.work_item)
           WHERE q.instance_id = ANY($1)`,
          own
        )
        if (noTag !== null) {
          yield* run("UPDATE worker_queue SET tag = $2 WHERE instance_id = ANY($1) AND tag IS NULL", [...own, noTag])
        }
        yield* run("SELECT dx_notify('orch_work', ARRAY[now()])::text, dx_notify('worker_work', ARRAY[now()])::text")
      })
    ))
  return count
})

// internal

/** Ids of instances, numbers of executions, and when these began, in milliseconds. */
type Chunk = readonly [ids: ReadonlyArray<string>, executions: ReadonlyArray<number>, startedAt: ReadonlyArray<number>]

/**
 * Executions of a chunk that are still the current ones, and those of the file: an id may have been deleted and used
 * again.
 */
const ofFile = `
  FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS given (instance_id, execution_id, started_at)
  JOIN instances AS i ON i.instance_id = given.instance_id AND i.current_execution_id = given.execution_id
  JOIN executions AS e ON e.instance_id = given.instance_id AND e.execution_id = given.execution_id
  WHERE e.status IN ('Running', 'ContinuedAsNew')
    AND round(extract(epoch FROM e.started_at) * 1000) = given.started_at`

const chunkSize = 1000

const forEachChunk = Effect.fnUntraced(function*<E>(
  { file, kept }: Options,
  use: (chunk: Chunk) => Effect.Effect<void, E>
) {
  for (let after = "", ended = false; !ended;) {
    const rows = yield* file.reading(() =>
      Array.from(
        file.rows(
          `SELECT CAST(t.instance_id AS TEXT), t.execution_id, COALESCE(${Tables.milliseconds("t.started_at")}, 0)
           FROM executions AS t JOIN instances AS i
             ON i.instance_id = t.instance_id AND i.current_execution_id = t.execution_id
           WHERE t.instance_id > ? AND t.status IN ('Running', 'ContinuedAsNew')
           ORDER BY t.instance_id LIMIT ${chunkSize}`,
          after
        ),
        ([id, execution, startedAt]) => [String(id), Number(execution), Number(startedAt)] as const
      )
    )
    ended = rows.length < chunkSize
    after = rows.at(-1)?.[0] ?? after
    const chunk = rows.filter(([id]) => !kept.has(id))
    if (chunk.length > 0) yield* use([chunk.map(([id]) => id), chunk.map(([, n]) => n), chunk.map(([, , at]) => at)])
  }
})
