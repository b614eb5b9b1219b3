/**
 * What instances try again: the activity, when, and why.
 *
 * Bounds: one statement; of each instance the rows of its queues, and the last 50 events before the new try.
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Event from "../../model/Event.ts"
import { explainEnd } from "../../model/shared/explained.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { Database } from "../Database.ts"
import { Prisma } from "../internal/client.ts"

export interface Retry {
  /** Null if its event cannot be read. */
  readonly activity: string | null
  /** From 1; null before the next try. */
  readonly tryNumber: number | null
  /** How often workers have claimed this try; null before the next try. */
  readonly deliveries: number | null
  /** Why the last try failed; null without a failure. */
  readonly error: string | null
  /** When the next try, or its delivery, is due: milliseconds since the Unix epoch. */
  readonly atMs: number
  readonly isRunning: boolean
}

/** By the ids of the instances; those that try nothing again are left out. */
export const read = (
  instanceIds: ReadonlyArray<string>
): Effect.Effect<ReadonlyMap<string, Retry>, ProviderError, Database> =>
  Effect.flatMap(Database, ({ query, schemaSql }) =>
    Effect.map(
      query<Row>("readRetries", retriesSql(schemaSql, instanceIds)),
      (rows) => new Map(rows.map((row) => [row.instanceId, retryOf(row)]))
    ))

// internal

interface Row extends Omit<Retry, "activity" | "error"> {
  readonly instanceId: string
  /** Texts of events. */
  readonly scheduled: string | null
  readonly failure: string | null
}

const retryOf = ({ failure, instanceId: _instanceId, scheduled, ...retry }: Row): Retry => {
  const activity = eventOf(scheduled)
  const failed = eventOf(failure)
  return {
    ...retry,
    activity: activity?._tag === "ActivityScheduled" ? activity.name : null,
    error: failed?._tag === "ActivityFailed" ? explainEnd(failed.details) : null
  }
}

const eventOf = (text: string | null) => text === null ? undefined : Result.getOrUndefined(Event.decode(text))

const retriesSql = (schemaSql: Prisma.Sql, instanceIds: ReadonlyArray<string>) =>
  Prisma.sql`
    SELECT
      i.instance_id AS "instanceId", retry.try_number AS "tryNumber", retry.deliveries,
      floor(extract(epoch FROM retry.at) * 1000)::float8 AS "atMs", retry.is_running AS "isRunning",
      failure.event_data AS failure, scheduled.event_data AS scheduled
    FROM ${schemaSql}.instances AS i
    CROSS JOIN LATERAL (
      (
        SELECT
          w.activity_id::bigint AS event_id, w.visible_at AS at, w.attempt_count AS deliveries,
          COALESCE(substring(w.work_item FROM '"try_number":([0-9]+)')::float8, 1) AS try_number,
          (to_timestamp(w.locked_until::float8 / 1000) > now()) IS TRUE AS is_running
        FROM ${schemaSql}.worker_queue AS w
        WHERE w.instance_id = i.instance_id AND w.execution_id = i.current_execution_id
          AND (w.attempt_count > 1 OR strpos(w.work_item, '"try_number":') > 0)
        ORDER BY w.visible_at, w.id
        LIMIT 1
      )
      UNION ALL
      (
        SELECT timer.event_id, q.visible_at, NULL, NULL, false
        FROM ${schemaSql}.orchestrator_queue AS q
        CROSS JOIN LATERAL (SELECT substring(q.work_item FROM '"id":([0-9]+)')::bigint AS event_id) AS timer
        CROSS JOIN LATERAL (
          SELECT h.event_data LIKE '%"type":"ActivityFailed"%' AS is_failure
          FROM ${schemaSql}.history AS h
          WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
            AND h.event_id < timer.event_id AND h.event_data NOT LIKE '%"type":"TimerCreated"%'
          ORDER BY h.event_id DESC
          LIMIT 1
        ) AS before
        WHERE q.instance_id = i.instance_id AND q.work_item LIKE '{"TimerFired"%' AND before.is_failure
        ORDER BY q.visible_at, q.id
        LIMIT 1
      )
      LIMIT 1
    ) AS retry
    LEFT JOIN LATERAL (
      SELECT last.event_data, substring(last.event_data FROM '"source_event_id":([0-9]+)')::bigint AS source
      FROM (
        SELECT h.event_id, h.event_data
        FROM ${schemaSql}.history AS h
        WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
          AND h.event_id < retry.event_id
        ORDER BY h.event_id DESC
        LIMIT 50
      ) AS last
      WHERE last.event_data LIKE '%"type":"ActivityFailed"%' AND COALESCE(retry.try_number, 2) > 1
      ORDER BY last.event_id DESC
      LIMIT 1
    ) AS failure ON true
    LEFT JOIN ${schemaSql}.history AS scheduled
      ON scheduled.instance_id = i.instance_id AND scheduled.execution_id = i.current_execution_id
      AND scheduled.event_id = CASE WHEN retry.deliveries IS NULL THEN failure.source ELSE retry.event_id END
    WHERE i.instance_id = ANY (${[...instanceIds]}::text[])`
