/**
 * What operators ask that no service answers: one statement each, which only reads.
 *
 * Bounds: all instances with their current executions; all rows of the queues. Payloads are read of one instance only.
 */
import * as Effect from "effect/Effect"
import type { CoreVersion } from "../../model/Instance.ts"
import { Database } from "../../prisma/Database.ts"
import * as Channels from "../../prisma/internal/channels.ts"
import { Prisma } from "../../prisma/internal/client.ts"

const ask = <Row>(operation: string, sql: (schema: Prisma.Sql) => Prisma.Sql) =>
  Effect.flatMap(Database, ({ query, schemaSql }) => query<Row>(operation, sql(schemaSql)))

const one = <Row>(operation: string, sql: (schema: Prisma.Sql) => Prisma.Sql) =>
  Effect.map(ask<Row>(operation, sql), ([row]) => row!)

/** Instances by the status of their current execution; cancelled ones as `Client.status` reports them. */
export const instancesByStatus = ask<{ readonly status: string; readonly instances: number }>(
  "instancesByStatus",
  (schema) =>
    Prisma.sql`
      SELECT
        CASE
          WHEN e.status = 'Failed' AND starts_with(e.output, 'canceled: ') THEN 'Cancelled'
          ELSE COALESCE(e.status, 'Running')
        END AS status,
        count(*)::float8 AS instances
      FROM ${schema}.instances AS i
      LEFT JOIN ${schema}.executions AS e
        ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
      GROUP BY 1
      ORDER BY 1`
)

export interface Server {
  readonly version: string
  readonly bytes: number
  /** Processes that listen, and what they serve. */
  readonly listening: number
  readonly orchestrators: number
  readonly workers: number
}

/** The server, the size of all tables of the schema, and who listens on it. */
export const server = Effect.flatMap(Database, ({ schema }) => {
  const listener = `duroxide-prisma listener ${Channels.hashOf(schema).slice(0, 16)}`
  return one<Server>("server", () =>
    Prisma.sql`
      SELECT
        split_part(current_setting('server_version'), ' ', 1) AS version,
        (
          SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::float8
          FROM pg_class AS c
          WHERE c.relnamespace = (SELECT n.oid FROM pg_namespace AS n WHERE n.nspname = ${schema})
            AND c.relkind = 'r'
        ) AS bytes,
        count(*)::integer AS listening,
        count(*) FILTER (WHERE a.application_name LIKE '% orchestrator%')::integer AS orchestrators,
        count(*) FILTER (WHERE a.application_name LIKE '% worker%')::integer AS workers
      FROM pg_stat_activity AS a
      WHERE a.datname = current_database()
        AND starts_with(a.application_name, ${listener})`)
})

/** A row of the listing of a queue; times in milliseconds. */
export interface Depth {
  /** Could be claimed now. */
  readonly waiting: number
  /** Held by a process. */
  readonly running: number
  /** Not due yet: timers, delays, pauses. */
  readonly later: number
  /** How long the oldest that waits has been visible; null without one. */
  readonly oldestAgeMs: number | null
}

const depth = Prisma.sql`
  count(*) FILTER (WHERE item.state = 'waiting')::float8 AS waiting,
  count(*) FILTER (WHERE item.state = 'running')::float8 AS running,
  count(*) FILTER (WHERE item.state = 'later')::float8 AS later,
  floor(extract(epoch FROM now() - min(item.visible_at) FILTER (WHERE item.state = 'waiting')) * 1000)::float8
    AS "oldestAgeMs"`

/** Messages to instances, by orchestration. A message is held by the turn of its instance. */
export const messages = ask<Depth & { readonly orchestration: string | null }>("messages", (schema) =>
  Prisma.sql`
    SELECT item.orchestration, ${depth}
    FROM (
      SELECT
        -- "1000.1.0 =1.0.0 Name"; empty: it waits for a start.
        NULLIF(regexp_replace(q.route, '^\\S+ \\S+ ', ''), '') AS orchestration,
        q.visible_at,
        CASE
          WHEN q.visible_at > now() THEN 'later'
          WHEN q.locked_until > extract(epoch FROM now()) * 1000
            OR l.locked_until > extract(epoch FROM now()) * 1000 THEN 'running'
          ELSE 'waiting'
        END AS state
      FROM ${schema}.orchestrator_queue AS q
      LEFT JOIN ${schema}.instance_locks AS l ON l.instance_id = q.instance_id
    ) AS item
    GROUP BY item.orchestration
    ORDER BY item.orchestration NULLS LAST`)

/** Messages that no process can claim before the start of their instance. */
export const messagesBeforeStart = Effect.map(
  one<{ readonly messages: number }>(
    "messagesBeforeStart",
    (schema) => Prisma.sql`SELECT count(*)::float8 AS messages FROM ${schema}.orchestrator_queue WHERE route = ''`
  ),
  ({ messages }) => messages
)

/** Activities, by name and tag. */
export const activities = ask<Depth & { readonly activity: string; readonly tag: string | null }>(
  "activities",
  (schema) =>
    Prisma.sql`
      SELECT item.activity, item.tag, ${depth}
      FROM (
        SELECT
          CASE WHEN ${schema}.dx_tag(w.tag) IS NULL THEN w.route
            ELSE left(w.route, -length(' #' || w.tag)) END AS activity,
          ${schema}.dx_tag(w.tag) AS tag,
          w.visible_at,
          CASE
            WHEN w.visible_at > now() THEN 'later'
            WHEN w.locked_until > extract(epoch FROM now()) * 1000 THEN 'running'
            ELSE 'waiting'
          END AS state
        FROM ${schema}.worker_queue AS w
      ) AS item
      GROUP BY item.activity, item.tag
      ORDER BY item.activity, item.tag NULLS FIRST`
)

/** Queues of `PgQueue` that have messages or dead letters. */
export const queues = ask<Depth & { readonly queue: string; readonly dead: number }>("queues", (schema) =>
  Prisma.sql`
    SELECT item.queue, ${depth}, count(*) FILTER (WHERE item.state = 'dead')::float8 AS dead
    FROM (
      SELECT
        m.queue,
        m.visible_at,
        CASE WHEN m.visible_at <= now() THEN 'waiting' WHEN m.lease_token IS NULL THEN 'later' ELSE 'running' END AS state
      FROM ${schema}.queue_messages AS m
      UNION ALL
      SELECT d.queue, d.died_at, 'dead'
      FROM ${schema}.queue_dead AS d
    ) AS item
    GROUP BY item.queue
    ORDER BY item.queue`)

export interface Outbox {
  readonly waiting: number
  readonly later: number
  readonly failing: number
  /** Since the oldest that waits was due, or that fails was written; null without one. */
  readonly oldestAgeMs: number | null
}

/** Of the oldest 10,000 messages. */
export const outbox = one<Outbox>("outbox", (schema) =>
  Prisma.sql`
    SELECT
      o.out_waiting::float8 AS waiting,
      o.out_delayed::float8 AS later,
      o.out_failing::float8 AS failing,
      CASE WHEN o.out_waiting + o.out_failing > 0 THEN o.out_oldest_age_ms::float8 END AS "oldestAgeMs"
    FROM ${schema}.dx_read_outbox(10000) AS o`)

export interface TaskCounts {
  readonly task: string
  readonly pending: number
  readonly running: number
  readonly completed: number
  readonly dead: number
  readonly cancelled: number
}

export const tasks = ask<TaskCounts>("tasks", (schema) =>
  Prisma.sql`
    SELECT
      t.name AS task,
      count(*) FILTER (WHERE t.status = 'Pending')::float8 AS pending,
      count(*) FILTER (WHERE t.status = 'Running')::float8 AS running,
      count(*) FILTER (WHERE t.status = 'Completed')::float8 AS completed,
      count(*) FILTER (WHERE t.status = 'Dead')::float8 AS dead,
      count(*) FILTER (WHERE t.status = 'Cancelled')::float8 AS cancelled
    FROM ${schema}.queue_tasks AS t
    GROUP BY t.name
    ORDER BY t.name`)

/** The version of the runtime that the current execution of an instance is pinned to; null without one. */
export const pinOf = (instanceId: string) =>
  Effect.map(
    ask<CoreVersion>("pinOf", (schema) =>
      Prisma.sql`
        SELECT
          e.duroxide_version_major::integer AS major,
          e.duroxide_version_minor::integer AS minor,
          e.duroxide_version_patch::integer AS patch
        FROM ${schema}.instances AS i
        JOIN ${schema}.executions AS e
          ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
        WHERE i.instance_id = ${instanceId}
          AND e.duroxide_version_major IS NOT NULL`),
    ([version]) => version ?? null
  )

/** How far the delivery of a message or an activity is. */
export interface Delivery {
  readonly visibleAtMs: number
  /** Until when a process holds it, milliseconds since the Unix epoch; null when free. */
  readonly heldUntilMs: number | null
  readonly deliveries: number
  readonly isDue: boolean
}

const delivery = Prisma.sql`
  floor(extract(epoch FROM item.visible_at) * 1000)::float8 AS "visibleAtMs",
  CASE WHEN item.locked_until > extract(epoch FROM now()) * 1000 THEN item.locked_until::float8 END AS "heldUntilMs",
  item.attempt_count AS deliveries,
  item.visible_at <= now() AS "isDue"`

export interface MessageRow extends Delivery {
  /** The variant of `WorkItem`. */
  readonly kind: string
  /** Null if it has more than 64 KiB. */
  readonly workItem: string | null
}

/** Messages to one instance, in order of delivery: all timers, and at most 50 others. */
export const messagesOf = (instanceId: string) =>
  ask<MessageRow>("messagesOf", (schema) =>
    Prisma.sql`
      SELECT
        split_part(item.work_item, '"', 2) AS kind,
        CASE WHEN octet_length(item.work_item) <= 65536 THEN item.work_item END AS "workItem",
        ${delivery}
      FROM (
        SELECT timer.*
        FROM ${schema}.orchestrator_queue AS timer
        WHERE timer.instance_id = ${instanceId}
          AND timer.work_item LIKE '{"TimerFired"%'
        UNION ALL
        (
          SELECT other.*
          FROM ${schema}.orchestrator_queue AS other
          WHERE other.instance_id = ${instanceId}
            AND other.work_item NOT LIKE '{"TimerFired"%'
          ORDER BY other.visible_at, other.id
          LIMIT 50
        )
      ) AS item
      ORDER BY item.visible_at, item.id`)

export interface ActivityRow extends Delivery {
  readonly executionId: number
  /** Of the event that scheduled it. */
  readonly eventId: number
}

/** Activities of one instance that are in the worker queue. */
export const activitiesOf = (instanceId: string) =>
  ask<ActivityRow>("activitiesOf", (schema) =>
    Prisma.sql`
      SELECT item.execution_id::float8 AS "executionId", item.activity_id::float8 AS "eventId", ${delivery}
      FROM ${schema}.worker_queue AS item
      WHERE item.instance_id = ${instanceId}`)
