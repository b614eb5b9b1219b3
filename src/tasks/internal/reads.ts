/**
 * Reads of single tasks, for people and programs that look.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Database } from "../../prisma/Database.ts"
import { Prisma } from "../../prisma/internal/client.ts"
import * as failures from "./failure.ts"

/**
 * A task that has not ended, or how it ended. Texts of JSON are encoded by the Schemas of the task.
 *
 * @category models
 * @since 0.2.0
 */
export type Status =
  | { readonly _tag: "NotFound" }
  | { readonly _tag: "Pending"; readonly attempts: number; readonly runAt: Date }
  | {
    readonly _tag: "Running"
    readonly attempt: number
    readonly workerId: string
    readonly startedAt: Date
    /** When the worker last renewed its lease, and when the lease ends without another renewal. */
    readonly heartbeatAt: Date
    readonly leaseUntil: Date
  }
  | { readonly _tag: "Completed"; readonly attempts: number; readonly result: string; readonly endedAt: Date }
  | { readonly _tag: "Dead"; readonly attempts: number; readonly failure: Failure; readonly diedAt: Date }
  | { readonly _tag: "Cancelled"; readonly attempts: number; readonly reason: string; readonly endedAt: Date }

/**
 * How an attempt failed: a typed failure (`error` is JSON text of the task's error Schema), a defect, an outage of what it
 * needed, a timeout, or the loss of its worker.
 *
 * @category models
 * @since 0.2.0
 */
export type Failure =
  | { readonly _tag: "Failed"; readonly error: string }
  | { readonly _tag: "Died"; readonly problem: string }
  | { readonly _tag: "Unavailable"; readonly problem: string }
  | { readonly _tag: "TimedOut"; readonly timeoutMs: number }
  | { readonly _tag: "Lost" }

/**
 * An attempt at a task. `GivenBack` was ended by a shutdown of its worker, and does not count.
 *
 * @category models
 * @since 0.2.0
 */
export interface AttemptRecord {
  /** From 1. */
  readonly attempt: number
  readonly workerId: string
  readonly startedAt: Date
  /** `none` while it runs. A lost attempt ends when the next claim finds it. */
  readonly endedAt: Option.Option<Date>
  readonly outcome:
    | "Running"
    | "Completed"
    | "Failed"
    | "Died"
    | "Unavailable"
    | "TimedOut"
    | "Lost"
    | "Cancelled"
    | "GivenBack"
  readonly failure: Option.Option<Failure>
}

/**
 * A dead task: its last attempt failed, and there is no further one unless it is redriven.
 *
 * @category models
 * @since 0.2.0
 */
export interface DeadTask {
  readonly taskId: string
  readonly name: string
  readonly key: Option.Option<string>
  readonly attempts: number
  readonly failure: Failure
  readonly diedAt: Date
}

export const readsOf = ({ query, schemaSql }: Database["Service"]) => ({
  status: (taskId: string) =>
    Effect.map(
      query<TaskRow>(
        "readTask",
        Prisma.sql`SELECT status, attempt, run_at, worker_id, started_at, heartbeat_at, lease_until, result, error,
            COALESCE(dead_at, ended_at) AS ended_at
          FROM ${schemaSql}.queue_tasks WHERE id = ${taskId}::uuid`
      ),
      ([row]): Status => row === undefined ? { _tag: "NotFound" } : statusOf(row)
    ),

  attempts: (taskId: string) =>
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
      (rows) => rows.map(attemptOf)
    ),

  /** As a sweep counts them: those that need a look first, and the first that died. */
  backlog: Effect.map(
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
        ) AS one`
    ),
    ([row]) => ({
      pending: row!.pending,
      running: row!.running,
      dead: row!.dead,
      oldestAgeMs: Math.round(row!.oldest_age_ms)
    })
  ),

  dead: (name: string | null, limit: number) =>
    Effect.map(
      query<DeadRow>(
        "listDeadTasks",
        Prisma.sql`SELECT id::text, name, key, attempt, error, dead_at
          FROM ${schemaSql}.queue_tasks
          WHERE dead_at IS NOT NULL AND (${name}::text IS NULL OR name = ${name}::text)
          ORDER BY dead_at DESC, id DESC
          LIMIT ${limit}::integer`
      ),
      (rows) =>
        rows.map(({ attempt, dead_at, error, id, key, name }): DeadTask => ({
          taskId: id,
          name,
          key: Option.fromNullOr(key),
          attempts: attempt,
          failure: failureOf(error),
          diedAt: dead_at
        }))
    )
})

// internal

interface TaskRow {
  readonly status: "Pending" | "Running" | "Completed" | "Dead" | "Cancelled"
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
  readonly outcome: AttemptRecord["outcome"]
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

const statusOf = (row: TaskRow): Status => {
  const attempts = row.attempt
  switch (row.status) {
    case "Pending":
      return { _tag: "Pending", attempts, runAt: row.run_at }
    case "Running":
      return {
        _tag: "Running",
        attempt: row.attempt,
        workerId: row.worker_id!,
        startedAt: row.started_at!,
        heartbeatAt: row.heartbeat_at!,
        leaseUntil: new Date(Number(row.lease_until))
      }
    case "Completed":
      return { _tag: "Completed", attempts, result: row.result ?? "null", endedAt: row.ended_at! }
    case "Dead":
      return { _tag: "Dead", attempts, failure: failureOf(row.error), diedAt: row.ended_at! }
    case "Cancelled": {
      const failure = failures.decode(row.error)
      const reason = failure._tag === "Cancelled" ? failure.reason : ""
      return { _tag: "Cancelled", attempts, reason, endedAt: row.ended_at! }
    }
  }
}

/** A dead task, or a failed attempt, is not cancelled. */
const failureOf = (text: string | null): Failure => failures.decode(text) as Failure

const attemptOf = (row: AttemptRow): AttemptRecord => ({
  attempt: row.attempt,
  workerId: row.worker_id,
  startedAt: row.started_at,
  endedAt: Option.fromNullOr(row.ended_at),
  outcome: row.outcome,
  failure: row.error === null ? Option.none() : Option.some(failureOf(row.error))
})
