/**
 * Everything a driver stores, as comparable rows: without tokens and row ids, in a fixed order.
 */
import * as Effect from "effect/Effect"
import * as memory from "../../../src/provider/memory/tables.ts"
import type { TestDatabase } from "../../utils/PgServer.ts"

type Row = ReadonlyArray<string | number | boolean | null>

export type Tables = Readonly<Record<string, ReadonlyArray<Row>>>

export const ofMemory = (tables: memory.Tables): Effect.Effect<Tables> =>
  Effect.sync(() => ({
    instances: sorted([...tables.instances].map(([instanceId, row]) => [
      instanceId,
      row.name,
      row.version,
      row.executionId,
      row.createdAtMs,
      row.updatedAtMs,
      row.parentInstanceId,
      row.customStatus,
      row.customStatusVersion,
      memory.statusOf(tables, instanceId)
    ])),
    executions: sorted(
      nested(tables.executions).map(([instanceId, executionId, row]) => [
        instanceId,
        executionId,
        row.status,
        row.output,
        row.startedAtMs,
        row.completedAtMs,
        row.pinned?.major ?? null,
        row.pinned?.minor ?? null,
        row.pinned?.patch ?? null
      ])
    ),
    history: sorted(
      nested(tables.history).flatMap(([instanceId, executionId, events]) =>
        [...events].map(([eventId, eventData]) => [instanceId, executionId, eventId, eventData])
      )
    ),
    orchestrator_queue: [...tables.messages].sort(([a], [b]) => a - b)
      .map(([, row]) => [row.instanceId, row.workItem, ...queued(row)]),
    worker_queue: [...tables.activities.values()].map((row) => [
      row.workItem,
      ...queued(row),
      row.instanceId,
      row.executionId,
      row.activityId,
      row.sessionId,
      row.tag,
      row.limitName ?? null
    ]),
    limits: sorted(
      limitsOf(tables).map(([kind, name, { eachKey, lastKey, sinceMs, total }]) => [
        kind,
        name,
        ...[total, eachKey].flatMap((bound) => [
          bound?.concurrency ?? null,
          bound?.rate ?? null,
          bound?.rateMs ?? null,
          bound?.burst ?? null
        ]),
        sinceMs,
        lastKey
      ])
    ),
    limit_keys: sorted(
      limitsOf(tables).flatMap(([kind, name, { keyFreeMs, own }]) =>
        [...new Set([...own.keys(), ...keyFreeMs.keys()])].map((key) => {
          const bound = own.get(key)
          return [
            kind,
            name,
            key,
            bound !== undefined,
            bound?.concurrency ?? null,
            bound?.rate ?? null,
            bound?.rateMs ?? null,
            bound?.burst ?? null,
            keyFreeMs.get(key) ?? 0
          ]
        })
      )
    ),
    instance_locks: sorted([...tables.locks].map(([instanceId, lock]) => [instanceId, lock.untilMs])),
    blocked_instances: sorted([...tables.blocks].map(([instanceId, row]) => [
      instanceId,
      row.executionId,
      row.lastEventId,
      row.reason,
      row.problem,
      row.eventId,
      row.build,
      row.sinceMs,
      row.triedAtMs,
      row.tries
    ])),
    paused: sorted([...tables.paused.values()].map((row) => [
      row.target,
      row.name,
      row.version,
      row.reason,
      row.sinceMs
    ])),
    sessions: sorted([...tables.sessions].map(([sessionId, row]) => [
      sessionId,
      row.workerId,
      row.untilMs,
      row.lastActivityAtMs
    ])),
    kv_store: sorted(
      nested(tables.stored).map(([instanceId, key, row]) => [
        instanceId,
        key,
        row.value,
        row.executionId,
        row.lastUpdatedAtMs
      ])
    ),
    kv_delta: sorted(
      nested(tables.changed).map(([instanceId, key, row]) => [
        instanceId,
        key,
        row.value,
        row.lastUpdatedAtMs
      ])
    ),
    attributes: sorted(
      nested(tables.attributes).map(([instanceId, name, value]) => [
        instanceId,
        name,
        typeof value === "string" ? value : null,
        typeof value === "number" ? value : null,
        typeof value === "object" ? value.timeMs : null,
        tables.instances.get(instanceId)?.createdAtMs ?? null
      ])
    ),
    progress_streams: sorted(
      nested(tables.streams).map(([instanceId, name, row]) => [
        instanceId,
        name,
        row.chunks[0]?.offset ?? row.nextOffset,
        row.nextOffset,
        row.bytes,
        row.appendedAtMs
      ])
    ),
    progress_chunks: sorted(
      nested(tables.streams).flatMap(([instanceId, name, { chunks }]) =>
        chunks.map(({ appendedAtMs, chunk, offset, writer }) => [
          instanceId,
          name,
          offset,
          writer,
          chunk,
          appendedAtMs
        ])
      )
    )
  }))

export const ofPostgres = ({ sql }: Pick<TestDatabase, "sql">): Effect.Effect<Tables> =>
  Effect.map(
    sql<{ tables: Readonly<Record<string, ReadonlyArray<Row> | null>> }>(
      `SELECT json_build_object(${
        Object.entries(columns).map(([table, { by, of }]) =>
          `'${table}', (SELECT json_agg(json_build_array(${of}) ORDER BY ${by}) FROM ${table})`
        ).join()
      }) AS tables`
    ),
    (rows) =>
      Object.fromEntries(
        Object.entries(rows[0]!.tables).map(([table, rows]) => [
          table,
          table.endsWith("queue") ? rows ?? [] : sorted(rows ?? [])
        ])
      )
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const ms = (column: string) => `extract(epoch FROM ${column}) * 1000`

/** Null for infinity: the row waits for a slot of a limit. */
const visible = `CASE WHEN visible_at < 'infinity' THEN ${ms("visible_at")} END`

const queue = `${visible}, lock_token IS NOT NULL, locked_until, attempt_count`

const columns = {
  instances: {
    by: "instance_id",
    of: `instance_id, orchestration_name, orchestration_version, current_execution_id, ${ms("created_at")},
         ${ms("updated_at")}, parent_instance_id, custom_status, custom_status_version, status`
  },
  executions: {
    by: "instance_id, execution_id",
    of: `instance_id, execution_id, status, output, ${ms("started_at")}, ${ms("completed_at")},
         duroxide_version_major, duroxide_version_minor, duroxide_version_patch`
  },
  history: { by: "instance_id, execution_id, event_id", of: "instance_id, execution_id, event_id, event_data" },
  orchestrator_queue: { by: "id", of: `instance_id, work_item, ${queue}` },
  worker_queue: {
    by: "id",
    of: `work_item, ${queue}, instance_id, execution_id, activity_id, session_id, tag, limit_name`
  },
  limits: {
    by: "kind, name",
    of: `kind, name, concurrency, rate, rate_ms, burst, key_concurrency, key_rate, key_rate_ms, key_burst, ${
      ms("since")
    },
         last_key`
  },
  limit_keys: { by: "kind, name, key", of: "kind, name, key, is_own, concurrency, rate, rate_ms, burst, free_ms" },
  instance_locks: { by: "instance_id", of: "instance_id, locked_until" },
  blocked_instances: {
    by: "instance_id",
    of: `instance_id, execution_id, last_event_id, reason, problem, event_id, build, ${ms("since")}, ${ms("tried_at")},
         tries`
  },
  paused: { by: "target, name, version", of: `target, name, version, reason, ${ms("since")}` },
  sessions: { by: "session_id", of: "session_id, worker_id, locked_until, last_activity_at" },
  kv_store: { by: "instance_id, key", of: "instance_id, key, value, execution_id, last_updated_at_ms" },
  kv_delta: { by: "instance_id, key", of: "instance_id, key, value, last_updated_at_ms" },
  attributes: {
    by: "instance_id, name",
    of: `instance_id, name, text_value, number_value, ${ms("time_value")}, ${ms("created_at")}`
  },
  progress_streams: {
    by: "instance_id, name",
    of: `instance_id, name, first_offset, next_offset, next_bytes - first_bytes, ${ms("appended_at")}`
  },
  progress_chunks: {
    by: "stream_id, chunk_offset",
    of: `(SELECT instance_id FROM progress_streams WHERE id = stream_id),
         (SELECT name FROM progress_streams WHERE id = stream_id), chunk_offset, writer, chunk, ${ms("appended_at")}`
  }
}

const queued = (row: memory.Queued): Row => [
  row.visibleAtMs === Infinity ? null : row.visibleAtMs,
  row.lock !== null,
  row.lock?.untilMs ?? null,
  row.attemptCount
]

const limitsOf = ({ limits }: memory.Tables) =>
  Object.entries(limits).flatMap(([kind, byName]) => [...byName].map(([name, limit]) => [kind, name, limit] as const))

const nested = <Key, Value>(map: ReadonlyMap<string, ReadonlyMap<Key, Value>>) =>
  [...map].flatMap(([outer, inner]) => [...inner].map(([key, value]) => [outer, key, value] as const))

const sorted = (rows: ReadonlyArray<Row>): ReadonlyArray<Row> =>
  [...rows].sort((a, b) => JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)
