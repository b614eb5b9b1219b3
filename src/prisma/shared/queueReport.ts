/**
 * What is in the queues of `PgQueue`, in the outbox, and which tasks there are, for operators.
 *
 * Bounds: all messages of the queues, all tasks, the oldest 10,000 messages of the outbox.
 */
import * as Effect from "effect/Effect"
import type { QueueLoad } from "../../provider/AdminDriver.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { Database } from "../Database.ts"
import { Prisma } from "../internal/client.ts"
import { models } from "../internal/modelQueries.ts"

export interface PgQueueLoad extends QueueLoad {
  readonly queue: string
  readonly dead: number
}

export interface OutboxLoad {
  readonly waiting: number
  readonly later: number
  readonly failing: number
  /** Age of the oldest: since it was due if it waits, since it was written if it fails. Null without one. */
  readonly oldestAgeMs: number | null
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

export const readOutbox: Effect.Effect<OutboxLoad, ProviderError, Database> = Effect.flatMap(
  Database,
  ({ query, schemaSql }) =>
    Effect.map(
      query<OutboxLoad>(
        "readOutbox",
        Prisma.sql`
          SELECT
            o.out_waiting::float8 AS waiting,
            o.out_delayed::float8 AS later,
            o.out_failing::float8 AS failing,
            CASE WHEN o.out_waiting + o.out_failing > 0 THEN o.out_oldest_age_ms::float8 END AS "oldestAgeMs"
          FROM ${schemaSql}.dx_read_outbox(10000) AS o`
      ),
      ([row]) => row!
    )
)

export const countTasks: Effect.Effect<ReadonlyArray<TaskCounts>, ProviderError, Database> = Effect.flatMap(
  Database,
  ({ client }) =>
    Effect.map(
      models(
        "countTasks",
        () => client.task.groupBy({ by: ["name", "status"], _count: true, orderBy: { name: "asc" } })
      ),
      (groups) =>
        [...new Set(groups.map(({ name }) => name))].map((task) => {
          const count = (status: string) =>
            groups.find((group) => group.name === task && group.status === status)?._count ?? 0
          return {
            task,
            pending: count("Pending"),
            running: count("Running"),
            completed: count("Completed"),
            dead: count("Dead"),
            cancelled: count("Cancelled")
          }
        })
    )
)
