/**
 * Instances that have not ended, and what their next turns replay, for checks of new code. Only reads.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { supported } from "../../model/shared/coreVersion.ts"
import * as retrySignal from "../../model/shared/retrySignal.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { Database } from "../Database.ts"
import { Prisma } from "../internal/client.ts"

export interface RunningInstance {
  readonly instanceId: string
  readonly orchestrationName: string
  /** Null before the first turn. */
  readonly orchestrationVersion: string | null
  readonly isBlocked: boolean
}

export interface Replayable {
  /** Whether the current execution has not ended. */
  readonly isRunning: boolean
  readonly executionId: number
  /** Texts of the events of the current execution, in their order. */
  readonly history: ReadonlyArray<string>
  /** The values that ended executions have left. */
  readonly keyValues: ReadonlyArray<{ readonly key: string; readonly value: string; readonly lastUpdatedAtMs: number }>
  /** Texts of messages that may be those of a retry, which has cut the history. */
  readonly retries: ReadonlyArray<string>
}

/** Selects those of the given instances that have not ended, newest first, without those that Duroxide runs. */
export const readRunning = (
  instanceIds: ReadonlyArray<string>
): Effect.Effect<ReadonlyArray<RunningInstance>, ProviderError, Database> =>
  Effect.flatMap(Database, ({ query, schemaSql }) =>
    query<RunningInstance>(
      "readRunningInstances",
      Prisma.sql`
        SELECT
          i.instance_id AS "instanceId",
          i.orchestration_name AS "orchestrationName",
          i.orchestration_version AS "orchestrationVersion",
          EXISTS (
            SELECT FROM ${schemaSql}.blocked_instances AS b
            WHERE b.instance_id = i.instance_id
              AND ${schemaSql}.dx_is_blocked(b, i.current_execution_id, i.created_at)
          ) AS "isBlocked"
        FROM ${schemaSql}.instances AS i
        JOIN ${schemaSql}.executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
        WHERE i.instance_id = ANY (${instanceIds}::text[])
          AND e.status = 'Running'
          AND COALESCE(e.duroxide_version_major, ${supported.min.major}::integer) >= ${supported.min.major}::integer
        ORDER BY i.created_at DESC, i.instance_id`
    ))

/** What the next turn of an instance replays, at one moment; none for an unknown instance. */
export const readReplayable = (
  instanceId: string
): Effect.Effect<Option.Option<Replayable>, ProviderError, Database> =>
  Effect.flatMap(Database, ({ query, schemaSql }) =>
    Effect.map(
      query<Omit<Replayable, Lists> & { readonly [K in Lists]: Replayable[K] | null }>(
        "readReplayable",
        Prisma.sql`
          SELECT
            e.status = 'Running' AS "isRunning",
            e.execution_id::float8 AS "executionId",
            (
              SELECT json_agg(h.event_data ORDER BY h.event_id) FROM ${schemaSql}.history AS h
              WHERE h.instance_id = i.instance_id AND h.execution_id = i.current_execution_id
            ) AS history,
            (
              SELECT json_agg(json_build_object('key', s.key, 'value', s.value, 'lastUpdatedAtMs', s.last_updated_at_ms))
              FROM ${schemaSql}.kv_store AS s WHERE s.instance_id = i.instance_id
            ) AS "keyValues",
            (
              SELECT json_agg(q.work_item ORDER BY q.id) FROM ${schemaSql}.orchestrator_queue AS q
              WHERE q.instance_id = i.instance_id AND strpos(q.work_item, ${retrySignal.name}) > 0
            ) AS retries
          FROM ${schemaSql}.instances AS i
          JOIN ${schemaSql}.executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
          WHERE i.instance_id = ${instanceId}`
      ),
      ([row]) =>
        Option.map(Option.fromUndefinedOr(row), ({ history, keyValues, retries, ...rest }) => ({
          ...rest,
          history: history ?? [],
          keyValues: keyValues ?? [],
          retries: retries ?? []
        }))
    ))

// internal

/** Null where there is nothing to list. */
type Lists = "history" | "keyValues" | "retries"
