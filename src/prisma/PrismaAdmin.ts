/**
 * Management of the store on PostgreSQL: Prisma's models where they suffice, SQL for the rest.
 *
 * The models have no relations, as the tables have no foreign keys. So a query is SQL if it joins an instance with its
 * current execution, compares with the database's clock, or must be one transaction.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { ExecutionStatus } from "../model/Instance.ts"
import { AdminDriver } from "../provider/AdminDriver.ts"
import type { DeleteOutcome, Listing, Selection } from "../provider/AdminDriver.ts"
import { ProviderDriver } from "../provider/ProviderDriver.ts"
import { DataCorrupted, ProviderError } from "../provider/ProviderError.ts"
import * as SqlFault from "../provider/SqlFault.ts"
import { Database } from "./Database.ts"
import { Prisma } from "./internal/client.ts"
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
  return AdminDriver.of({ ...reads(store), ...deletions(store) })
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
  const { client, query, schemaSql } = yield* Database
  const { readInstances } = yield* ProviderDriver
  const nowMs: Effect.Effect<number | null> = options?.clock === "effect"
    ? Effect.map(Clock.currentTimeMillis, Math.floor)
    : Effect.succeed(null)

  /** Runs model queries. Errors that `run` throws are classified like the failures of statements. */
  const models = <A>(operation: string, run: () => Promise<A>) =>
    Effect.tryPromise({
      try: run,
      catch: (thrown) =>
        thrown instanceof ProviderError
          ? thrown
          : new ProviderError({ operation, reason: SqlFault.classify(thrown) })
    })

  const only = <Row>(operation: string, sql: Prisma.Sql) => Effect.map(query<Row>(operation, sql), (rows) => rows[0]!)

  return { client, models, nowMs, only, query, readInstances, schemaSql }
})

const reads = ({ client, models, nowMs, only, query, readInstances, schemaSql }: Store) => ({
  listInstances: (listing) =>
    Effect.map(
      query<{ readonly instance_id: string }>("listInstances", listSql(schemaSql, listing)),
      (rows) => rows.map(({ instance_id }) => instance_id)
    ),

  readInstances,

  listExecutions: (instanceId) =>
    models("listExecutions", async () => {
      const rows = await client.execution.findMany({
        where: { instanceId },
        select: { executionId: true },
        orderBy: { executionId: "asc" }
      })
      return rows.map(({ executionId }) => toNumber("listExecutions", instanceId, executionId))
    }),

  readExecution: ({ executionId, instanceId }) =>
    models("readExecution", async () => {
      const key = { instanceId, executionId: BigInt(executionId) }
      const [execution, eventCount] = await client.$transaction([
        client.execution.findUnique({ where: { instanceId_executionId: key } }),
        client.historyEvent.count({ where: key })
      ])
      return execution === null ? null : {
        executionId,
        status: execution.status as ExecutionStatus,
        output: execution.output,
        startedAtMs: execution.startedAt.getTime(),
        completedAtMs: execution.completedAt?.getTime() ?? null,
        eventCount
      }
    }),

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

  // Both depths at the same time of the database's clock.
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

  listChildren: (instanceIds) =>
    instanceIds.length === 0 ? Effect.succeed([]) : models("listChildren", async () => {
      const rows = await client.instance.findMany({
        where: { parentInstanceId: { in: [...instanceIds] } },
        select: { instanceId: true },
        orderBy: [{ createdAt: "asc" }, { instanceId: "asc" }]
      })
      return rows.map(({ instanceId }) => instanceId)
    }),

  selectInstances: (selection) =>
    Effect.map(
      query<{ readonly instance_id: string }>("selectInstances", selectSql(schemaSql, selection)),
      (rows) => rows.map(({ instance_id }) => instance_id)
    )
} satisfies Partial<AdminDriver["Service"]>)

const deletions = ({ nowMs, only, schemaSql }: Store) => ({
  // A stored function: one transaction that locks in the same order as all other statements.
  holdInstances: Effect.fn("PrismaAdmin.holdInstances")(function*({ holdForMs, instanceIds, mustHaveEnded }) {
    const row = yield* only<{
      readonly out_still_running: string | null
      readonly out_children: ReadonlyArray<string> | null
    }>(
      "holdInstances",
      Prisma.sql`SELECT * FROM ${schemaSql}.dx_hold_instances(
        ${[...instanceIds]}::text[], ${[...mustHaveEnded]}::text[], ${holdForMs}::bigint, ${yield* nowMs}::bigint)`
    ).pipe(Effect.retry(deadlocked))
    return row.out_still_running === null
      ? { _tag: "Held" as const, childIds: row.out_children ?? [] }
      : { _tag: "StillRunning" as const, instanceId: row.out_still_running }
  }),

  // As above.
  deleteInstances: Effect.fn("PrismaAdmin.deleteInstances")(function*({ instanceIds, mustHaveEnded }) {
    const row = yield* only<DeletedRow>(
      "deleteInstances",
      Prisma.sql`SELECT * FROM ${schemaSql}.dx_delete_instances(
        ${[...instanceIds]}::text[], ${[...mustHaveEnded]}::text[])`
    ).pipe(Effect.retry(deadlocked))
    return deleteOutcome(row)
  }),

  // One statement over two tables.
  pruneExecutions: Effect.fn("PrismaAdmin.pruneExecutions")(
    function*({ completedBeforeMs, instanceId, keepLast }) {
      const row = yield* only<{ readonly out_executions_deleted: bigint; readonly out_events_deleted: bigint }>(
        "pruneExecutions",
        Prisma.sql`SELECT * FROM ${schemaSql}.dx_prune_executions(
          ${instanceId}::text, ${keepLast}::bigint, ${completedBeforeMs}::bigint)`
      )
      return {
        executionsDeleted: Number(row.out_executions_deleted),
        eventsDeleted: Number(row.out_events_deleted)
      }
    }
  )
} satisfies Partial<AdminDriver["Service"]>)

/** Duroxide locks a message before its instance, we lock it after; PostgreSQL fails one of the two if they deadlock. */
const deadlocked = {
  times: 5,
  while: ({ reason }: ProviderError) => reason._tag === "Contention" && reason.sqlState === "40P01"
}

/** Only the conditions that are given: each costs a look at every row. */
const listSql = (schemaSql: Prisma.Sql, listing: Listing) => {
  const { idPrefix, limit, orchestrationName, parentInstanceId, status } = listing
  const conditions = [
    ...(status === null ? [] : [Prisma.sql`e.status = ${status}`]),
    ...(orchestrationName === null ? [] : [Prisma.sql`i.orchestration_name = ${orchestrationName}`]),
    ...(parentInstanceId === null ? [] : [Prisma.sql`i.parent_instance_id = ${parentInstanceId}`]),
    ...(idPrefix === null ? [] : [Prisma.sql`starts_with(i.instance_id, ${idPrefix})`])
  ]
  return Prisma.sql`
    SELECT i.instance_id
    FROM ${schemaSql}.instances AS i
    ${
    status === null
      ? Prisma.empty
      : Prisma.sql`
        JOIN ${schemaSql}.executions AS e
          ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id`
  }
    ${conditions.length === 0 ? Prisma.empty : Prisma.sql`WHERE ${Prisma.join(conditions, " AND ")}`}
    ORDER BY i.created_at DESC, i.instance_id
    LIMIT ${limit}::bigint`
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
const toNumber = (operation: string, instanceId: string, value: bigint): number => {
  if (value > Number.MAX_SAFE_INTEGER) {
    const reason = new DataCorrupted({ instanceId, problem: `the number ${value} is beyond 2^53 - 1` })
    throw new ProviderError({ operation, reason })
  }
  return Number(value)
}
