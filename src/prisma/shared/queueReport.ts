/**
 * What is in the queues of `PgQueue`, and which tasks there are, for operators.
 *
 * Bounds: all messages of the queues, all tasks; what says otherwise less.
 */
import * as Effect from "effect/Effect"
import type { QueueLoad } from "../../provider/AdminDriver.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { Database } from "../Database.ts"
import { Prisma } from "../internal/client.ts"

export interface PgQueueLoad extends QueueLoad {
  readonly queue: string
  readonly dead: number
}

export interface TaskCounts {
  readonly task: string
  readonly pending: number
  readonly running: number
  readonly completed: number
  readonly dead: number
  readonly cancelled: number
}

/** Queues that have messages or dead letters. */
export const readQueues: Effect.Effect<ReadonlyArray<PgQueueLoad>, ProviderError, Database> = Effect.flatMap(
  Database,
  ({ query, schemaSql }) =>
    query<PgQueueLoad>(
      "readQueueLoads",
      Prisma.sql`
        SELECT
          item.queue,
          count(*) FILTER (WHERE item.state = 'waiting')::float8 AS waiting,
          count(*) FILTER (WHERE item.state = 'running')::float8 AS running,
          count(*) FILTER (WHERE item.state = 'later')::float8 AS later,
          floor(extract(epoch FROM now() - min(item.visible_at) FILTER (WHERE item.state = 'waiting')) * 1000)::float8
            AS "oldestAgeMs",
          count(*) FILTER (WHERE item.state = 'dead')::float8 AS dead
        FROM (
          SELECT
            m.queue,
            m.visible_at,
            CASE WHEN m.visible_at <= now() THEN 'waiting' WHEN m.lease_token IS NULL THEN 'later' ELSE 'running' END
              AS state
          FROM ${schemaSql}.queue_messages AS m
          UNION ALL
          SELECT d.queue, d.died_at, 'dead'
          FROM ${schemaSql}.queue_dead AS d
        ) AS item
        GROUP BY item.queue
        ORDER BY item.queue`
    )
)

export interface DeadLetter {
  readonly id: string
  /** Null for a payload that has none. */
  readonly kind: string | null
  readonly attempts: number
  /** Null for a message that was delivered too often. */
  readonly reason: string | null
  readonly diedAtMs: number
}

export const countDead = (queue: string): Effect.Effect<number, ProviderError, Database> =>
  Effect.flatMap(Database, ({ query, schemaSql }) =>
    Effect.map(
      query<{ readonly count: number }>(
        "countDeadMessages",
        Prisma.sql`SELECT count(*)::float8 AS count FROM ${schemaSql}.queue_dead AS d WHERE d.queue = ${queue}`
      ),
      ([row]) => row!.count
    ))

export interface DeadLetters {
  readonly queue: string
  readonly dead: number
}

/** Queues with dead letters; of all queues together, at most `mostDead` letters are counted. */
export const countDeadByQueue: Effect.Effect<ReadonlyArray<DeadLetters>, ProviderError, Database> = Effect.flatMap(
  Database,
  ({ query, schemaSql }) =>
    query<DeadLetters>(
      "countDeadMessages",
      Prisma.sql`
        SELECT item.queue, count(*)::float8 AS dead
        FROM (SELECT d.queue FROM ${schemaSql}.queue_dead AS d LIMIT ${mostDead}::bigint) AS item
        GROUP BY item.queue
        ORDER BY item.queue`
    )
)

export const mostDead = 10_000

/** The dead letters of a queue, the oldest first. */
export const listDead = (
  queue: string,
  limit: number
): Effect.Effect<ReadonlyArray<DeadLetter>, ProviderError, Database> =>
  Effect.flatMap(Database, ({ query, schemaSql }) =>
    query<DeadLetter>(
      "listDeadMessages",
      Prisma.sql`
        SELECT
          d.id::text AS id, d.payload ->> 'kind' AS kind, d.attempts, d.last_error AS reason,
          floor(extract(epoch FROM d.died_at) * 1000)::float8 AS "diedAtMs"
        FROM ${schemaSql}.queue_dead AS d
        WHERE d.queue = ${queue}
        ORDER BY d.died_at, d.id
        LIMIT ${limit}::bigint`
    ))

export const countTasks: Effect.Effect<ReadonlyArray<TaskCounts>, ProviderError, Database> = Effect.flatMap(
  Database,
  ({ query, schemaSql }) =>
    query<TaskCounts>(
      "countTasks",
      Prisma.sql`
        SELECT
          t.name AS task,
          count(*) FILTER (WHERE t.status = 'Pending')::float8 AS pending,
          count(*) FILTER (WHERE t.status = 'Running')::float8 AS running,
          count(*) FILTER (WHERE t.status = 'Completed')::float8 AS completed,
          count(*) FILTER (WHERE t.status = 'Dead')::float8 AS dead,
          count(*) FILTER (WHERE t.status = 'Cancelled')::float8 AS cancelled
        FROM ${schemaSql}.queue_tasks AS t
        GROUP BY t.name
        ORDER BY t.name`
    )
)
