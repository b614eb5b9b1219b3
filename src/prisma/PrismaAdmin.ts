/**
 * Management of the store on PostgreSQL, in SQL: models would load Prisma's query compiler into a process that runs
 * orchestrations, which stops it for some hundred milliseconds.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { ExecutionStatus } from "../model/Instance.ts"
import type { PauseTarget } from "../model/Pause.ts"
import { keyOf } from "../model/shared/pauses.ts"
import { AdminDriver } from "../provider/AdminDriver.ts"
import type {
  ActivityLoad,
  CutOutcome,
  DeleteOutcome,
  HistoryCut,
  LimitWait,
  OperatorAction,
  OrchestrationLoad,
  PauseOutcome,
  QueuedActivity,
  Selection,
  StoredMessage
} from "../provider/AdminDriver.ts"
import { ProviderDriver } from "../provider/ProviderDriver.ts"
import { DataCorrupted, ProviderError } from "../provider/ProviderError.ts"
import { Database } from "./Database.ts"
import { Prisma } from "./internal/client.ts"
import { listStreams } from "./internal/driver/streams.ts"
import { limits } from "./internal/limits.ts"
import * as lists from "./internal/lists.ts"
import { attributeRow, bigint, json, processInfo } from "./internal/rows.ts"
import type { ProcessInfoRow } from "./internal/rows.ts"
import * as statements from "./internal/statements.ts"
import { plain, timeless } from "./internal/statements.ts"
import type { Options } from "./PrismaDriver.ts"

/**
 * The management driver for an open database and its driver.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make: (
  options?: Options
) => Effect.Effect<AdminDriver["Service"], never, Database | ProviderDriver> = Effect.fnUntraced(function*(options) {
  const store = yield* openStore(options)
  return AdminDriver.of({
    ...reads(store),
    ...lists.make(store),
    ...queues(store),
    ...pauses(store),
    ...limits(store),
    ...actions(store),
    ...deletions(store)
  })
})

/**
 * Provides the management driver over a `Database`.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options?: Options): Layer.Layer<AdminDriver, never, Database | ProviderDriver> =>
  Layer.effect(AdminDriver, make(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

type Store = Effect.Success<ReturnType<typeof openStore>>

const openStore = Effect.fnUntraced(function*(options?: Options) {
  const database = yield* Database
  const { query, schemaSql } = database
  const { answer, rows } = statements.make(database, options)
  const { readChunks, readHistory, readInstances, readPaused } = yield* ProviderDriver
  const nowMs: Effect.Effect<number | null> = options?.clock === "effect"
    ? Effect.map(Clock.currentTimeMillis, Math.floor)
    : Effect.succeed(null)

  const only = <Row>(operation: string, sql: Prisma.Sql) => Effect.map(query<Row>(operation, sql), (rows) => rows[0]!)

  return { answer, nowMs, only, query, readChunks, readHistory, readInstances, readPaused, rows, schemaSql }
})

const reads = ({ only, query, readChunks, readHistory, readInstances, rows, schemaSql }: Store) => ({
  readInstances,

  readChunks,

  listStreams: listStreams(rows),

  readHistory,

  listExecutions: (instanceId) =>
    Effect.flatMap(
      query<{ readonly execution_id: bigint }>(
        "listExecutions",
        Prisma.sql`
          SELECT e.execution_id FROM ${schemaSql}.executions AS e WHERE e.instance_id = ${instanceId}
          ORDER BY e.execution_id`
      ),
      (rows) => Effect.forEach(rows, ({ execution_id }) => toNumber("listExecutions", instanceId, execution_id))
    ),

  readExecution: ({ executionId, instanceId }) =>
    Effect.map(
      query<ExecutionRow>(
        "readExecution",
        Prisma.sql`
          SELECT
            e.status, e.output,
            floor(extract(epoch FROM e.started_at) * 1000)::float8 AS "startedAtMs",
            floor(extract(epoch FROM e.completed_at) * 1000)::float8 AS "completedAtMs",
            (
              SELECT count(*)::float8 FROM ${schemaSql}.history AS h
              WHERE h.instance_id = e.instance_id AND h.execution_id = e.execution_id
            ) AS "eventCount",
            e.duroxide_version_major AS major, e.duroxide_version_minor AS minor, e.duroxide_version_patch AS patch
          FROM ${schemaSql}.executions AS e
          WHERE e.instance_id = ${instanceId} AND e.execution_id = ${executionId}::bigint`
      ),
      ([row]) => {
        if (row === undefined) return null
        const { major, minor, patch, ...execution } = row
        const isPinned = major !== null && minor !== null && patch !== null
        return { executionId, ...execution, pinnedVersion: isPinned ? { major, minor, patch } : null }
      }
    ),

  // Five counts of the same moment, one of them over a join.
  systemMetrics: Effect.map(
    only<MetricsRow>(
      "systemMetrics",
      Prisma.sql`
        SELECT
          count(*) AS total_instances,
          count(*) FILTER (WHERE e.status = 'Running') AS running_instances,
          count(*) FILTER (WHERE e.status = 'Completed') AS completed_instances,
          count(*) FILTER (WHERE e.status = 'Failed') AS failed_instances,
          (SELECT count(*) FROM ${schemaSql}.executions) AS total_executions,
          (SELECT count(*) FROM ${schemaSql}.history) AS total_events
        FROM ${schemaSql}.instances AS i
        LEFT JOIN ${schemaSql}.executions AS e
          ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id`
    ),
    (row) => ({
      totalInstances: Number(row.total_instances),
      totalExecutions: Number(row.total_executions),
      runningInstances: Number(row.running_instances),
      completedInstances: Number(row.completed_instances),
      failedInstances: Number(row.failed_instances),
      totalEvents: Number(row.total_events)
    })
  ),

  listChildren: (instanceIds) =>
    instanceIds.length === 0 ? Effect.succeed([]) : Effect.map(
      query<{ readonly instance_id: string }>(
        "listChildren",
        Prisma.sql`
          SELECT i.instance_id FROM ${schemaSql}.instances AS i
          WHERE i.parent_instance_id = ANY (${[...instanceIds]}::text[])
          ORDER BY i.created_at, i.instance_id`
      ),
      (rows) => rows.map(({ instance_id }) => instance_id)
    ),

  selectInstances: (selection) =>
    Effect.map(
      query<{ readonly instance_id: string }>("selectInstances", selectSql(schemaSql, selection)),
      (rows) => rows.map(({ instance_id }) => instance_id)
    )
} satisfies Partial<AdminDriver["Service"]>)

// Each look compares with one time of the database's clock.
const queues = ({ nowMs, only, query, rows, schemaSql }: Store) => ({
  queueDepths: Effect.flatMap(nowMs, (now) =>
    Effect.map(
      only<{ readonly orchestrator_queue: bigint; readonly worker_queue: bigint }>(
        "queueDepths",
        Prisma.sql`
          WITH clock AS MATERIALIZED (
            SELECT COALESCE(${now}::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now_ms
          )
          SELECT
            (
              SELECT count(*)
              FROM ${schemaSql}.orchestrator_queue AS q
              WHERE q.visible_at <= to_timestamp(clock.now_ms::float8 / 1000)
                AND (q.lock_token IS NULL OR q.locked_until <= clock.now_ms)
            ) AS orchestrator_queue,
            (
              SELECT count(*)
              FROM ${schemaSql}.worker_queue AS w
              WHERE w.visible_at <= to_timestamp(clock.now_ms::float8 / 1000)
                AND (w.lock_token IS NULL OR w.locked_until <= clock.now_ms)
            ) AS worker_queue
          FROM clock`
      ),
      (row) => ({ orchestratorQueue: Number(row.orchestrator_queue), workerQueue: Number(row.worker_queue) })
    )),

  countMessagesBeforeStart: Effect.map(
    only<Counted>(
      "countMessagesBeforeStart",
      Prisma.sql`SELECT count(*)::float8 AS count FROM ${schemaSql}.orchestrator_queue AS q WHERE q.route = ''`
    ),
    ({ count }) => count
  ),

  readMessagesBeforeStart: ({ limit, maxBytes }) =>
    Effect.flatMap(nowMs, (now) =>
      query<StoredMessage & { readonly instanceId: string }>(
        "readMessagesBeforeStart",
        Prisma.sql`
          SELECT item.instance_id AS "instanceId", ${messageSql(maxBytes)}, ${placeSql(now)}
          FROM ${schemaSql}.orchestrator_queue AS item
          WHERE item.route = ''
          ORDER BY item.visible_at, item.id
          LIMIT ${limit}::bigint`
      )),

  readOrchestrationLoads: Effect.flatMap(nowMs, (now) =>
    query<OrchestrationLoad>(
      "readOrchestrationLoads",
      Prisma.sql`
        SELECT item.orchestration, item.version, item."isOfRust", ${loadSql(now)}
        FROM (
          SELECT
            -- "1000.1.0 =1.0.0 Name"; empty: it waits for a start.
            NULLIF(regexp_replace(q.route, '^\\S+ \\S+ ', ''), '') AS orchestration,
            CASE left(split_part(q.route, ' ', 2), 1)
              WHEN '=' THEN substr(split_part(q.route, ' ', 2), 2)
              WHEN '>' THEN '>=' || substr(split_part(q.route, ' ', 2), 2)
            END AS version,
            q.route ~ '^[0-9]{1,3}[.]' AS "isOfRust",
            q.visible_at,
            -- A pause is a lock without a token.
            q.visible_at <= ${timeSql(now)} AND NOT starts_with(q.route, '~') -- it waits for a limit
              AND (l.locked_until > ${epochMs(now)} AND l.lock_token = '') IS NOT TRUE
              AS is_due,
            q.locked_until > ${epochMs(now)} OR l.locked_until > ${epochMs(now)} AS is_locked
          FROM ${schemaSql}.orchestrator_queue AS q
          LEFT JOIN ${schemaSql}.instance_locks AS l ON l.instance_id = q.instance_id
        ) AS item
        GROUP BY item.orchestration, item.version, item."isOfRust"
        ORDER BY item.orchestration NULLS LAST, item.version NULLS FIRST, item."isOfRust"`
    )),

  readActivityLoads: Effect.flatMap(nowMs, (now) =>
    query<ActivityLoad>(
      "readActivityLoads",
      Prisma.sql`
        SELECT
          item.activity, item.tag, ${loadSql(now)},
          count(*) FILTER (WHERE item.is_limited)::float8 AS limited
        FROM (
          SELECT
            CASE WHEN ${schemaSql}.dx_tag(w.tag) IS NULL THEN w.route
              ELSE left(w.route, -length(' #' || w.tag)) END AS activity,
            ${schemaSql}.dx_tag(w.tag) AS tag,
            w.visible_at,
            w.visible_at <= ${timeSql(now)} AS is_due,
            w.locked_until > ${epochMs(now)} AS is_locked,
            w.limit_name IS NOT NULL AND w.visible_at = 'infinity' AS is_limited
          FROM ${schemaSql}.worker_queue AS w
        ) AS item
        GROUP BY item.activity, item.tag
        ORDER BY item.activity, item.tag NULLS FIRST`
    )),

  listProcesses: Effect.map(
    rows<ProcessInfoRow>("listProcesses", "dx_read_processes", [], plain),
    (found) => found.map(processInfo)
  ),

  readMessages: ({ instanceId, limit, maxBytes }) =>
    Effect.flatMap(nowMs, (now) =>
      query<StoredMessage>(
        "readMessages",
        Prisma.sql`
          SELECT
            ${messageSql(maxBytes)},
            ${placeSql(now)}
          FROM (
            SELECT timer.*
            FROM ${schemaSql}.orchestrator_queue AS timer
            WHERE timer.instance_id = ${instanceId}
              AND timer.work_item LIKE '{"TimerFired"%'
            UNION ALL
            (
              SELECT other.*
              FROM ${schemaSql}.orchestrator_queue AS other
              WHERE other.instance_id = ${instanceId}
                AND other.work_item NOT LIKE '{"TimerFired"%'
              ORDER BY other.visible_at, other.id
              LIMIT ${limit}::bigint
            )
          ) AS item
          ORDER BY item.visible_at, item.id`
      )),

  readLimitWait: (instanceId) =>
    Effect.map(
      query<NonNullable<LimitWait>>(
        "readLimitWait",
        Prisma.sql`
          SELECT item.limit_key AS key, (
            SELECT count(*)::float8
            FROM ${schemaSql}.instances AS other
            WHERE (other.status = 'Running') IS TRUE
              AND other.limit_route IS NOT NULL
              AND other.limit_name = item.limit_name
              AND other.limit_key = item.limit_key
              AND other.limit_place < item.limit_place
          ) AS ahead
          FROM ${schemaSql}.instances AS item
          WHERE item.instance_id = ${instanceId} AND item.limit_route IS NOT NULL`
      ),
      ([row]) => row ?? null
    ),

  readActivities: (instanceId) =>
    Effect.flatMap(nowMs, (now) =>
      query<QueuedActivity>(
        "readActivities",
        Prisma.sql`
          SELECT item.execution_id::float8 AS "executionId", item.activity_id::float8 AS "eventId", ${placeSql(now)},
            CASE WHEN item.limit_name IS NOT NULL AND item.visible_at = 'infinity' THEN json_build_object(
              'key', item.limit_key,
              'ahead', (
                SELECT count(*)
                FROM ${schemaSql}.worker_queue AS other
                WHERE other.limit_name IS NOT NULL
                  AND other.visible_at = 'infinity'
                  AND other.limit_name = item.limit_name
                  AND other.limit_key = item.limit_key
                  AND other.id < item.id
              )
            ) END AS "waitsForLimit"
          FROM ${schemaSql}.worker_queue AS item
          WHERE item.instance_id = ${instanceId}`
      ))
} satisfies Partial<AdminDriver["Service"]>)

// Stored functions: each is one transaction, which announces what it has done.
const pauses = ({ answer, only, readPaused, schemaSql }: Store) => ({
  pause: ({ reason, target }) =>
    answer<PauseOutcome>("pause", "dx_pause", [...keySql(target), Prisma.sql`${reason}::text`], plain)
      .pipe(Effect.retry(deadlocked)),

  resume: (target) => answer<boolean>("resume", "dx_resume", keySql(target), timeless).pipe(Effect.retry(deadlocked)),

  readPaused,

  countPausedInstances: Effect.map(
    only<Counted>(
      "countPausedInstances",
      Prisma.sql`SELECT count(*)::float8 AS count FROM ${schemaSql}.paused AS p WHERE p.target = 'instance'`
    ),
    ({ count }) => count
  )
} satisfies Partial<AdminDriver["Service"]>)

const actions = ({ nowMs, query, schemaSql }: Store) => ({
  recordAction: ({ action, actor, details, outcome, target }) =>
    Effect.flatMap(nowMs, (now) =>
      Effect.asVoid(query(
        "recordAction",
        Prisma.sql`
          INSERT INTO ${schemaSql}.operator_actions (at, actor, action, target, details, outcome)
          VALUES (
            COALESCE(to_timestamp(${now}::float8 / 1000), clock_timestamp()),
            ${actor}, ${action}, ${target}, ${details}, ${outcome}
          )`
      ))),

  listActions: ({ before, limit }) =>
    query<OperatorAction>(
      "listActions",
      Prisma.sql`
        SELECT
          a.id::text AS id, floor(extract(epoch FROM a.at) * 1000)::float8 AS "atMs", a.actor, a.action, a.target,
          a.details, a.outcome
        FROM ${schemaSql}.operator_actions AS a
        WHERE a.id < COALESCE(${before}::bigint, 9223372036854775807)
        ORDER BY a.id DESC
        LIMIT ${limit}::bigint`
    )
} satisfies Partial<AdminDriver["Service"]>)

const keySql = (target: PauseTarget) => {
  const key = keyOf(target)
  return [key.target, key.name, key.version].map((text) => Prisma.sql`${text}::text`)
}

const deletions = ({ rows }: Store) => ({
  // A stored function: one transaction that locks in the same order as all other statements.
  holdInstances: Effect.fn("PrismaAdmin.holdInstances")(function*({ holdForMs, instanceIds, mustHaveEnded }) {
    const [row] = yield* rows<{
      readonly out_still_running: string | null
      readonly out_children: ReadonlyArray<string> | null
    }>("holdInstances", "dx_hold_instances", [...idsOf(instanceIds, mustHaveEnded), bigint(holdForMs)], plain).pipe(
      Effect.retry(deadlocked)
    )
    return row!.out_still_running === null
      ? { _tag: "Held" as const, childIds: row!.out_children ?? [] }
      : { _tag: "StillRunning" as const, instanceId: row!.out_still_running }
  }),

  // As above.
  cutHistory: (cut) =>
    Effect.map(
      rows<{ readonly dx_cut_history: CutOutcome }>("cutHistory", "dx_cut_history", [
        Prisma.sql`${cut.instanceId}::text`,
        bigint(cut.executionId),
        bigint(cut.lastEventId),
        Prisma.sql`${cut.status}::text`,
        bigint(cut.keep),
        json(eventRow(cut.event)),
        Prisma.sql`${cut.reason}::text`,
        Prisma.sql`${cut.customStatus}::text`,
        cut.stored === null
          ? Prisma.sql`NULL::jsonb`
          : json(cut.stored.map(storedRow)),
        json(cut.changed.map(changedRow)),
        Prisma.sql`${[...cut.messages]}::text[]`,
        Prisma.sql`${[...cut.cancelledActivities]}::bigint[]`,
        Prisma.sql`${[...cut.withdrawn]}::text[]`,
        json(cut.attributes.map(attributeRow)),
        json(cut.tasks)
      ], plain).pipe(Effect.retry(deadlocked)),
      ([row]) => row!.dx_cut_history
    ),

  forkInstance: (fork) =>
    Effect.map(
      rows<{ readonly dx_fork_instance: boolean }>("forkInstance", "dx_fork_instance", [
        Prisma.sql`${fork.instanceId}::text`,
        Prisma.sql`${fork.of}::text`,
        Prisma.sql`${fork.orchestrationName}::text`,
        Prisma.sql`${fork.orchestrationVersion}::text`,
        bigint(fork.executionId),
        Prisma.sql`${fork.pinnedVersion.major}::integer`,
        Prisma.sql`${fork.pinnedVersion.minor}::integer`,
        Prisma.sql`${fork.pinnedVersion.patch}::integer`,
        json(fork.history.map(eventRow)),
        Prisma.sql`${fork.customStatus}::text`,
        json(fork.stored.map(storedRow)),
        json(fork.changed.map(changedRow)),
        Prisma.sql`${[...fork.messages]}::text[]`,
        json(fork.attributes.map(attributeRow))
      ], plain).pipe(Effect.retry(deadlocked)),
      ([row]) => row!.dx_fork_instance
    ),

  // As above.
  deleteInstances: Effect.fn("PrismaAdmin.deleteInstances")(function*({ instanceIds, mustHaveEnded, updatedAtMs }) {
    const [row] = yield* rows<DeletedRow>(
      "deleteInstances",
      "dx_delete_instances",
      [
        ...idsOf(instanceIds, mustHaveEnded),
        ...(updatedAtMs === undefined ? [] : [Prisma.sql`${[...updatedAtMs]}::bigint[]`])
      ],
      timeless
    ).pipe(Effect.retry(deadlocked))
    return deleteOutcome(row!)
  }),

  pruneExecutions: Effect.fn("PrismaAdmin.pruneExecutions")(
    function*({ completedBeforeMs, instanceId, keepLast }) {
      const [row] = yield* rows<{ readonly out_executions_deleted: bigint; readonly out_events_deleted: bigint }>(
        "pruneExecutions",
        "dx_prune_executions",
        [Prisma.sql`${instanceId}::text`, bigint(keepLast), bigint(completedBeforeMs)],
        timeless
      )
      return {
        executionsDeleted: Number(row!.out_executions_deleted),
        eventsDeleted: Number(row!.out_events_deleted)
      }
    }
  )
} satisfies Partial<AdminDriver["Service"]>)

const idsOf = (...sets: ReadonlyArray<ReadonlyArray<string>>) => sets.map((ids) => Prisma.sql`${[...ids]}::text[]`)

/** Duroxide locks a message before its instance, we lock it after; PostgreSQL fails one of the two if they deadlock. */
const deadlocked = {
  times: 5,
  while: ({ reason }: ProviderError) => reason._tag === "Contention" && reason.sqlState === "40P01"
}

/** The time of the given clock, or of the statement. */
const timeSql = (now: number | null) =>
  now === null ? Prisma.sql`now()` : Prisma.sql`to_timestamp(${now}::float8 / 1000)`

const epochMs = (now: number | null) => Prisma.sql`extract(epoch FROM ${timeSql(now)}) * 1000`

/** `QueueLoad` of the rows of `item`, which have `visible_at`, `is_due` and `is_locked`. */
const loadSql = (now: number | null) =>
  Prisma.sql`
    count(*) FILTER (WHERE item.is_due AND item.is_locked IS NOT TRUE)::float8 AS waiting,
    count(*) FILTER (WHERE item.is_due AND item.is_locked)::float8 AS running,
    count(*) FILTER (WHERE NOT item.is_due)::float8 AS later,
    floor(extract(epoch FROM ${timeSql(now)} - min(item.visible_at)
      FILTER (WHERE item.is_due AND item.is_locked IS NOT TRUE)) * 1000)::float8 AS "oldestAgeMs"`

/** `QueuePlace` of the row `item`. */
const messageSql = (maxBytes: number) =>
  Prisma.sql`
    split_part(item.work_item, '"', 2) AS kind,
    CASE WHEN octet_length(item.work_item) <= ${maxBytes}::integer THEN item.work_item END AS "workItem"`

const placeSql = (now: number | null) =>
  Prisma.sql`
    floor(extract(epoch FROM CASE WHEN item.visible_at < 'infinity' THEN item.visible_at ELSE item.created_at END) * 1000)
      ::float8 AS "visibleAtMs",
    CASE WHEN item.locked_until > ${epochMs(now)} THEN item.locked_until::float8 END AS "lockedUntilMs",
    item.attempt_count AS "attemptCount",
    item.visible_at <= ${timeSql(now)} AS "isDue"`

interface Counted {
  readonly count: number
}

interface ExecutionRow {
  readonly status: ExecutionStatus
  readonly output: string | null
  readonly startedAtMs: number
  readonly completedAtMs: number | null
  readonly eventCount: number
  readonly major: number | null
  readonly minor: number | null
  readonly patch: number | null
}

const selectSql = (schemaSql: Prisma.Sql, selection: Selection) =>
  Prisma.sql`
    SELECT i.instance_id
    FROM ${schemaSql}.instances AS i
    LEFT JOIN ${schemaSql}.executions AS e
      ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
    WHERE (${selection.instanceIds === null} OR i.instance_id = ANY (${[...selection.instanceIds ?? []]}::text[]))
      AND (
        ${selection.completedBeforeMs}::bigint IS NULL
        OR e.completed_at < to_timestamp(${selection.completedBeforeMs}::float8 / 1000)
      )
      AND i.status = ANY (${lists.statusesOf(selection.status)}::text[])
      AND (NOT ${selection.exceptDuroxide} OR e.duroxide_version_major >= ${lists.firstOwnMajor}::integer)
      AND (
        NOT ${selection.endedRootsOnly}
        OR (
          i.parent_instance_id IS NULL
          AND (
            e.status IN ('Completed', 'Failed')
            OR (
              e.status = 'ContinuedAsNew'
              AND NOT EXISTS (
                SELECT FROM ${schemaSql}.orchestrator_queue AS q
                WHERE q.instance_id = i.instance_id
                  AND q.work_item LIKE '{"ContinueAsNew"%'
              )
            )
          )
        )
      )
    ORDER BY i.created_at, i.instance_id
    LIMIT ${selection.limit}::bigint`

interface MetricsRow {
  readonly total_instances: bigint
  readonly running_instances: bigint
  readonly completed_instances: bigint
  readonly failed_instances: bigint
  readonly total_executions: bigint
  readonly total_events: bigint
}

interface DeletedRow {
  readonly out_still_running: string | null
  readonly out_child_left_behind: string | null
  readonly out_instances_deleted: bigint
  readonly out_executions_deleted: bigint
  readonly out_events_deleted: bigint
  readonly out_queue_messages_deleted: bigint
}

const deleteOutcome = (row: DeletedRow): DeleteOutcome =>
  row.out_still_running !== null
    ? { _tag: "StillRunning", instanceId: row.out_still_running }
    : row.out_child_left_behind !== null
    ? { _tag: "ChildLeftBehind", instanceId: row.out_child_left_behind }
    : {
      _tag: "Deleted",
      deleted: {
        instancesDeleted: Number(row.out_instances_deleted),
        executionsDeleted: Number(row.out_executions_deleted),
        eventsDeleted: Number(row.out_events_deleted),
        queueMessagesDeleted: Number(row.out_queue_messages_deleted)
      }
    }

/** BIGINT has a larger range than a number. */
const toNumber = (operation: string, instanceId: string, value: bigint): Effect.Effect<number, ProviderError> => {
  if (value <= Number.MAX_SAFE_INTEGER) return Effect.succeed(Number(value))
  const reason = new DataCorrupted({ instanceId, problem: `the number ${value} is beyond 2^53 - 1` })
  return Effect.fail(new ProviderError({ operation, reason }))
}

const eventRow = ({ eventData, eventId, eventType }: HistoryCut["event"]) => ({
  event_id: eventId,
  event_type: eventType,
  event_data: eventData
})

const storedRow = ({ executionId, ...value }: NonNullable<HistoryCut["stored"]>[number]) => ({
  ...changedRow(value),
  execution_id: executionId
})

const changedRow = ({ key, lastUpdatedAtMs, value }: HistoryCut["changed"][number]) => ({
  key,
  value,
  last_updated_at_ms: lastUpdatedAtMs
})
