/**
 * Reads of single tasks, for people and programs that look.
 */
import * as Effect from "effect/Effect"
import type { AttemptState, TaskDriver, TaskState } from "../../../tasks/TaskDriver.ts"
import type { Database } from "../../Database.ts"
import { Prisma } from "../client.ts"

export const make = (
  { query, schemaSql }: Database["Service"]
): Pick<TaskDriver["Service"], "readTask" | "readAttempts" | "readDead" | "readBacklog"> => ({
  readTask: (taskId) =>
    Effect.map(
      query<TaskRow>(
        "readTask",
        Prisma.sql`SELECT status, attempt, run_at, worker_id, started_at, heartbeat_at, lease_until, result, error,
            COALESCE(dead_at, ended_at) AS ended_at
          FROM ${schemaSql}.queue_tasks WHERE id = ${taskId}::uuid`
      ),
      ([row]) =>
        row === undefined ? null : {
          status: row.status,
          attempt: row.attempt,
          runAt: row.run_at,
          workerId: row.worker_id,
          startedAt: row.started_at,
          heartbeatAt: row.heartbeat_at,
          leaseUntil: row.lease_until === null ? null : new Date(Number(row.lease_until)),
          result: row.result,
          error: row.error,
          endedAt: row.ended_at
        }
    ),

  readAttempts: (taskId) =>
    Effect.map(
      query<AttemptRow>(
        "readTaskAttempts",
        Prisma.sql`SELECT attempt, worker_id, started_at, ended_at, outcome, error
          FROM ${schemaSql}.queue_task_attempts WHERE task_id = ${taskId}::uuid
          UNION ALL
          SELECT attempt, worker_id, started_at, ended_at, status, NULL
          FROM ${schemaSql}.queue_tasks WHERE id = ${taskId}::uuid AND status IN ('Running', 'Completed')
          ORDER BY 1`
      ),
      (rows) =>
        rows.map(({ attempt, ended_at, error, outcome, started_at, worker_id }) => ({
          attempt,
          workerId: worker_id,
          startedAt: started_at,
          endedAt: ended_at,
          outcome,
          error
        }))
    ),

  readDead: (name, limit) =>
    Effect.map(
      query<DeadRow>(
        "listDeadTasks",
        Prisma.sql`SELECT id::text, name, key, attempt, error, dead_at
          FROM ${schemaSql}.queue_tasks
          WHERE dead_at IS NOT NULL AND (${name}::text IS NULL OR name = ${name}::text)
          ORDER BY dead_at DESC, id DESC
          LIMIT ${limit}::integer`
      ),
      (rows) => rows.map(({ dead_at, ...dead }) => ({ ...dead, diedAt: dead_at }))
    ),

  /** Counts what a sweep counts: tasks that need a look first, and the first that died. */
  readBacklog: Effect.map(
    query<BacklogRow>(
      "readTaskBacklog",
      Prisma.sql`SELECT
          count(*) FILTER (WHERE status = 'Pending')::integer AS pending,
          count(*) FILTER (WHERE status = 'Running')::integer AS running,
          (SELECT count(*)::integer FROM (
            SELECT FROM ${schemaSql}.queue_tasks WHERE dead_at IS NOT NULL ORDER BY dead_at LIMIT 1000
          ) AS dead) AS dead,
          COALESCE(extract(epoch FROM clock_timestamp() - min(GREATEST(run_at, 'epoch'))
            FILTER (WHERE status = 'Pending' AND run_at <= clock_timestamp())) * 1000, 0)::float8 AS oldest_age_ms
        FROM (
          SELECT status, run_at FROM ${schemaSql}.queue_tasks WHERE look_at IS NOT NULL ORDER BY look_at LIMIT 1000
        ) AS task`
    ),
    ([row]) => ({
      pending: row!.pending,
      running: row!.running,
      dead: row!.dead,
      oldestAgeMs: Math.round(row!.oldest_age_ms)
    })
  )
})

// internal

interface TaskRow {
  readonly status: TaskState["status"]
  readonly attempt: number
  readonly run_at: Date
  readonly worker_id: string | null
  readonly started_at: Date | null
  readonly heartbeat_at: Date | null
  readonly lease_until: bigint | null
  readonly result: string | null
  readonly error: string | null
  readonly ended_at: Date | null
}

interface AttemptRow {
  readonly attempt: number
  readonly worker_id: string
  readonly started_at: Date
  readonly ended_at: Date | null
  readonly outcome: AttemptState["outcome"]
  readonly error: string | null
}

interface BacklogRow {
  readonly pending: number
  readonly running: number
  readonly dead: number
  readonly oldest_age_ms: number
}

interface DeadRow {
  readonly id: string
  readonly name: string
  readonly key: string | null
  readonly attempt: number
  readonly error: string | null
  readonly dead_at: Date
}
