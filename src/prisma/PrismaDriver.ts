/**
 * The storage contract on PostgreSQL: every operation is one call of one stored function (`prisma/functions`), sent as
 * one statement, which is its own transaction.
 *
 * This file encodes arguments and maps rows. The head of each function states what it does to the tables, in which
 * order it locks, and the bound of its work.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import type { CoreVersion, ExecutionStatus, InstanceState, TagFilter } from "../model/Instance.ts"
import { ProviderDriver } from "../provider/ProviderDriver.ts"
import type {
  Abandon,
  ClaimedInstance,
  ClaimedWorkItem,
  EncodedActivity,
  EncodedEvent,
  EncodedMessage,
  FetchOrchestrationItems,
  FetchWorkItems,
  KeyValueChange,
  OrchestrationAck,
  Renewal,
  Settled
} from "../provider/ProviderDriver.ts"
import { DataCorrupted, ProviderError } from "../provider/ProviderError.ts"
import { Database } from "./Database.ts"
import { Prisma } from "./internal/client.ts"

/**
 * @category options
 * @since 0.1.0
 */
export interface Options {
  /**
   * The clock that decides what is visible and which lock is live: that of the database, which all processes share, or
   * Effect's `Clock`, which tests control. Defaults to `database`.
   */
  readonly clock?: "database" | "effect" | undefined
}

/**
 * The driver over an open database.
 *
 * **Gotchas**
 *
 * With `clock: "effect"` the clocks of all processes must agree: a process ahead of the others takes over their locks
 * too early.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = (options?: Options): Effect.Effect<ProviderDriver["Service"], never, Database> =>
  Effect.map(Database, ({ query, schemaSql }) => makeOver({ query, schemaSql, lockTimeoutMs }, options))

/**
 * The driver over any function that sends statements; it needs nothing else from a database.
 *
 * @internal
 */
export const makeOver = (
  { lockTimeoutMs, query, schemaSql }: Pick<Database["Service"], "query" | "schemaSql"> & {
    /**
     * Longest wait for a database lock in a statement that writes items, if the connection sets no `lock_timeout`.
     * Without this option, the setting of the connection applies.
     */
    readonly lockTimeoutMs?: number
  },
  options?: Options
): ProviderDriver["Service"] => {
  const nowMs: Effect.Effect<number | null> = options?.clock === "effect"
    ? Effect.map(Clock.currentTimeMillis, Math.floor)
    : Effect.succeed(null)

  /** One statement: the rows of `dx_…(arguments, now)`. */
  const call = <Row>(operation: string, name: string, args: ReadonlyArray<Prisma.Sql>) =>
    Effect.flatMap(nowMs, (now) =>
      query<Row>(
        operation,
        Prisma.sql`SELECT * FROM ${schemaSql}.${Prisma.raw(name)}(${Prisma.join([...args, bigint(now)])})`
      ))

  /** One statement with its result in one column. */
  const answer = <A>(
    operation: string,
    name: string,
    args: ReadonlyArray<Prisma.Sql>,
    wrap = (call: Prisma.Sql): Prisma.Sql => call
  ) =>
    Effect.flatMap(nowMs, (now) => {
      const call = wrap(Prisma.sql`${schemaSql}.${Prisma.raw(name)}(${Prisma.join([...args, bigint(now)])})`)
      return Effect.map(
        query<{ readonly answer: A }>(operation, Prisma.sql`SELECT ${call} AS answer`),
        (rows) => rows[0]!.answer
      )
    })

  /** `CASE` evaluates its condition first. The setting ends with the statement. */
  const withLockTimeout = (call: Prisma.Sql) =>
    lockTimeoutMs === undefined ? call : Prisma.sql`CASE WHEN set_config(
      'lock_timeout',
      COALESCE(NULLIF(current_setting('lock_timeout'), '0'), ${Prisma.raw(`'${lockTimeoutMs}'`)}),
      true
    ) IS NOT NULL THEN ${call} END`

  /** As `answer`, for sets of items: an item that another transaction holds fails the call soon. */
  const write = <A>(operation: string, name: string, args: ReadonlyArray<Prisma.Sql>) =>
    answer<A>(operation, name, args, withLockTimeout)

  const settle =
    <Item>(operation: string, name: string, encode: (item: Item) => object) => (items: ReadonlyArray<Item>) =>
      items.length === 0
        ? Effect.succeed<ReadonlyArray<Settled>>([])
        : write<ReadonlyArray<Settled>>(operation, name, [json(items.map(encode))])

  const insert =
    <Item>(operation: string, name: string, encode: (item: Item) => object) => (items: ReadonlyArray<Item>) =>
      items.length === 0
        ? Effect.void
        : Effect.asVoid(write<bigint>(operation, name, [json(items.map(encode))]))

  return ProviderDriver.of({
    name: "prisma",

    fetchOrchestrationItems: Effect.fnUntraced(
      function*(
        { historyLimit, limit, lockTimeoutMs, maxBytes, orphans, serves, suspects, takesOver, versions }:
          FetchOrchestrationItems
      ) {
        const programs = serves?.flatMap(({ name, versions }) => versions.map((version) => ({ name, version })))
        const rows = yield* call<ClaimedInstanceRow>("fetchOrchestrationItems", "dx_fetch_orchestration_items", [
          Prisma.sql`${limit}::integer`,
          bigint(lockTimeoutMs),
          versionTuple(versions?.min),
          versionTuple(versions?.max),
          Prisma.sql`${programs?.map(({ name }) => name) ?? null}::text[]`,
          Prisma.sql`${programs?.map(({ version }) => version) ?? null}::text[]`,
          Prisma.sql`${suspects ?? true}::boolean`,
          bigint(maxBytes ?? defaultMaxBytes),
          Prisma.sql`${orphans ?? false}::boolean`,
          Prisma.sql`${takesOver ?? true}::boolean`,
          Prisma.sql`${historyLimit ?? null}::integer`
        ])
        return yield* claimed("PrismaDriver.fetchOrchestrationItems", rows, Effect.forEach(rows, claimedInstance))
      }
    ),

    ackOrchestrationItems: Effect.fn("PrismaDriver.ackOrchestrationItems")(
      function*(acks: ReadonlyArray<OrchestrationAck>) {
        if (acks.length === 0) return []
        return yield* write<ReadonlyArray<Settled>>("ackOrchestrationItems", "dx_ack_orchestration_items", [
          json(acks.map(ackRow)),
          parts(acks, (ack) => ack.history, eventRow),
          parts(acks, (ack) => ack.keyValues, keyValueRow),
          parts(acks, (ack) => ack.workerItems, activityRow),
          parts(acks, (ack) => ack.cancelledActivities, (key) => ({
            instance_id: key.instanceId,
            execution_id: key.executionId,
            activity_id: key.activityId
          })),
          parts(acks, (ack) => ack.orchestratorItems, messageRow)
        ])
      }
    ),

    abandonOrchestrationItems: settle("abandonOrchestrationItems", "dx_abandon_orchestration_items", abandonRow),
    renewOrchestrationItemLocks: settle("renewOrchestrationItemLocks", "dx_renew_orchestration_item_locks", renewalRow),
    deferMessages: settle("deferMessages", "dx_defer_messages", (item) => ({
      token: item.lockToken,
      ids: item.ids,
      delay_ms: item.delayMs
    })),

    enqueueForOrchestrator: insert("enqueueForOrchestrator", "dx_enqueue_for_orchestrator", messageRow),
    enqueueForWorker: insert("enqueueForWorker", "dx_enqueue_for_worker", activityRow),

    startOrchestrations: Effect.fn("PrismaDriver.startOrchestrations")(function*(starts) {
      if (starts.length === 0) return []
      return yield* write<ReadonlyArray<"Started" | "AlreadyExists">>(
        "startOrchestrations",
        "dx_start_orchestrations",
        [json(starts.map((start) => ({
          instance_id: start.instanceId,
          orchestration_name: start.orchestrationName,
          orchestration_version: start.orchestrationVersion,
          work_item: start.workItem,
          ...start.pinnedVersion,
          delay_ms: start.delayMs
        })))]
      )
    }),

    sweepMessages: ({ after, limit, maxAgeMs }) =>
      Effect.map(
        call<{ readonly out_deleted: bigint; readonly out_next: string | null }>("sweepMessages", "dx_sweep_messages", [
          bigint(maxAgeMs),
          Prisma.sql`${limit}::integer`,
          Prisma.sql`${after}::text`
        ]),
        ([row]) => ({ deleted: Number(row!.out_deleted), next: row!.out_next })
      ),

    fetchWorkItems: Effect.fnUntraced(
      function*({ activities, limit, lockTimeoutMs, session, suspects, tags, takesOver }: FetchWorkItems) {
        if (tags._tag === "None") return []
        const rows = yield* call<ClaimedWorkItemRow>("fetchWorkItems", "dx_fetch_work_items", [
          Prisma.sql`${limit}::integer`,
          bigint(lockTimeoutMs),
          Prisma.sql`${tags._tag !== "Tags"}::boolean`,
          Prisma.sql`${acceptedTags(tags)}::text[]`,
          Prisma.sql`${session?.workerId ?? null}::text`,
          bigint(session?.lockTimeoutMs ?? null),
          Prisma.sql`${activities === undefined ? null : [...activities]}::text[]`,
          Prisma.sql`${suspects ?? true}::boolean`,
          Prisma.sql`${session?.maxNew ?? null}::integer`,
          Prisma.sql`${takesOver ?? true}::boolean`
        ])
        return yield* claimed("PrismaDriver.fetchWorkItems", rows, Effect.sync(() => rows.map(claimedWorkItem)))
      }
    ),

    ackWorkItems: settle("ackWorkItems", "dx_ack_work_items", (item) => ({
      token: item.lockToken,
      instance_id: item.completion?.instanceId ?? null,
      work_item: item.completion?.workItem ?? null
    })),
    abandonWorkItems: settle("abandonWorkItems", "dx_abandon_work_items", abandonRow),
    renewWorkItemLocks: settle("renewWorkItemLocks", "dx_renew_work_item_locks", (item) => ({
      ...renewalRow(item),
      sufficient_ms: item.sufficientMs
    })),

    readHistory: Effect.fnUntraced(function*({ executionId, instanceId }) {
      const texts: Array<string> = []
      let last: HistoryPageRow | undefined
      do {
        const rows: ReadonlyArray<HistoryPageRow> = yield* query<HistoryPageRow>(
          "readHistory",
          Prisma.sql`SELECT * FROM ${schemaSql}.dx_read_history(
            ${instanceId}::text,
            ${last?.out_execution_id ?? executionId}::bigint,
            ${last?.out_event_id ?? 0}::bigint,
            ${defaultMaxBytes}::bigint
          )`
        )
        for (const row of rows) texts.push(row.out_event_data)
        last = rows.at(-1)
      } while (last?.out_is_last === false)
      return texts
    }),

    appendHistory: ({ executionId, history, instanceId }) =>
      history.length === 0
        ? Effect.void
        : Effect.asVoid(answer<bigint>("appendHistory", "dx_append_history", [
          Prisma.sql`${instanceId}::text`,
          bigint(executionId),
          json(history.map(eventRow))
        ])),

    readInstances: Effect.fn("PrismaDriver.readInstances")(function*(instanceIds) {
      if (instanceIds.length === 0) return []
      const rows = yield* query<InstanceStateRow>(
        "readInstances",
        Prisma.sql`SELECT * FROM ${schemaSql}.dx_read_instances(${[...instanceIds]}::text[])`
      )
      return yield* Effect.forEach(rows, instanceState)
    }),

    readKeyValues: ({ instanceId, key }) =>
      Effect.map(
        query<{ readonly out_key: string; readonly out_value: string }>(
          "readKeyValues",
          Prisma.sql`SELECT * FROM ${schemaSql}.dx_read_key_values(${instanceId}::text, ${key}::text)`
        ),
        (rows) => rows.map((row) => ({ key: row.out_key, value: row.out_value }))
      ),

    readInstanceStats: (instanceId) =>
      Effect.map(
        query<StoredSizesRow>(
          "readInstanceStats",
          Prisma.sql`SELECT * FROM ${schemaSql}.dx_read_instance_stats(${instanceId}::text)`
        ),
        ([row]) =>
          row === undefined ? null : {
            eventCount: Number(row.out_event_count),
            historyBytes: Number(row.out_history_bytes),
            firstEvent: row.out_first_event,
            keyCount: Number(row.out_key_count),
            valueBytes: Number(row.out_value_bytes)
          }
      ),

    renewSessionLocks: ({ extendForMs, idleTimeoutMs, workerIds }) =>
      workerIds.length === 0 ? Effect.succeed(0) : Effect.map(
        answer<bigint>("renewSessionLocks", "dx_renew_session_locks", [
          Prisma.sql`${[...workerIds]}::text[]`,
          bigint(extendForMs),
          bigint(idleTimeoutMs)
        ]),
        Number
      ),

    cleanupOrphanedSessions: Effect.map(
      answer<bigint>("cleanupOrphanedSessions", "dx_cleanup_orphaned_sessions", []),
      Number
    ),

    wakeups: Stream.never
  })
}

/**
 * @category layers
 * @since 0.1.0
 */
export const layer = (options?: Options): Layer.Layer<ProviderDriver, never, Database> =>
  Layer.effect(ProviderDriver, make(options))

// -----------------------------------------------------------------------------
// internal: arguments
// -----------------------------------------------------------------------------

const bigint = (value: number | null) => Prisma.sql`${value}::bigint`

const json = (value: unknown) => Prisma.sql`${JSON.stringify(value)}::jsonb`

/** The parts of all acks in one list. Each names its ack by position, from 1. Null if no ack has such a part. */
const parts = <Part>(
  acks: ReadonlyArray<OrchestrationAck>,
  of: (ack: OrchestrationAck) => ReadonlyArray<Part>,
  encode: (part: Part) => object
) => {
  const rows = acks.flatMap((ack, index) => of(ack).map((part) => ({ ack: index + 1, ...encode(part) })))
  return Prisma.sql`${rows.length === 0 ? null : JSON.stringify(rows)}::jsonb`
}

const versionTuple = (version: CoreVersion | undefined) =>
  Prisma.sql`${version === undefined ? null : [version.major, version.minor, version.patch]}::integer[]`

/** Null means every tag. */
const acceptedTags = (filter: Exclude<TagFilter, { readonly _tag: "None" }>): ReadonlyArray<string> | null => {
  switch (filter._tag) {
    case "Any":
      return null
    case "DefaultOnly":
      return []
    default:
      return [...filter.tags]
  }
}

/**
 * Milliseconds. Long enough for the transactions of this package, which are short. A transaction that holds one row for
 * longer must not delay the other items of the call.
 */
const lockTimeoutMs = 200

/** Limit for the messages of one claim, and for the events of one page of a history. */
const defaultMaxBytes = 16 * 1024 * 1024

const ackRow = (ack: OrchestrationAck) => ({
  token: ack.lockToken,
  execution_id: ack.executionId,
  orchestration_name: ack.orchestrationName,
  orchestration_version: ack.orchestrationVersion,
  status: ack.status,
  output: ack.output,
  parent_instance_id: ack.parentInstanceId,
  ...(ack.nextVersion !== undefined && { next_version: ack.nextVersion }),
  ...ack.pinnedVersion,
  ...(ack.customStatus === null ? {} : { sets_custom_status: true, custom_status: ack.customStatus.value }),
  // Object keys, not array elements: PostgreSQL keeps keys sorted and finds one by binary search.
  ...(ack.cancelledTimers !== undefined && {
    cancelled_timers: Object.fromEntries(ack.cancelledTimers.map((workItem) => [workItem, null]))
  }),
  ...(ack.left !== undefined && { left_ids: ack.left })
})

const keyValueRow = (change: KeyValueChange) =>
  change.action === "set"
    ? { action: change.action, key: change.key, value: change.value, last_updated_at_ms: change.lastUpdatedAtMs }
    : change

const activityRow = (activity: EncodedActivity) => ({
  work_item: activity.workItem,
  name: activity.name,
  instance_id: activity.instanceId,
  execution_id: activity.executionId,
  activity_id: activity.activityId,
  session_id: activity.sessionId,
  tag: activity.tag,
  ...(activity.servedBy !== undefined && { served_by: activity.servedBy })
})

const eventRow = (event: EncodedEvent) => ({
  event_id: event.eventId,
  event_type: event.eventType,
  event_data: event.eventData
})

const messageRow = (message: EncodedMessage) => ({
  instance_id: message.instanceId,
  work_item: message.workItem,
  visible_at_ms: message.visibleAtMs,
  delay_ms: message.delayMs,
  ...(message.start !== undefined && {
    start: {
      orchestration_name: message.start.orchestrationName,
      orchestration_version: message.start.orchestrationVersion,
      parent_instance_id: message.start.parentInstanceId,
      ...message.start.pinnedVersion
    }
  })
})

const abandonRow = (item: Abandon) => ({
  token: item.lockToken,
  delay_ms: item.delayMs,
  ignore_attempt: item.ignoreAttempt
})

const renewalRow = (item: Renewal) => ({ token: item.lockToken, extend_for_ms: item.extendForMs })

// -----------------------------------------------------------------------------
// internal: rows
// -----------------------------------------------------------------------------

/** A span only for claims that find work, as a waiting process sends several claims a second. */
const claimed = <A, E>(name: string, rows: ReadonlyArray<unknown>, items: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  rows.length === 0 ? items : Effect.withSpan(items, name, { attributes: { claimed: rows.length } })

interface ClaimedInstanceRow {
  readonly out_instance_id: string
  readonly out_lock_token: string
  readonly out_now_ms: bigint
  readonly out_orchestration_name: string | null
  readonly out_orchestration_version: string | null
  readonly out_execution_id: bigint
  readonly out_history: ReadonlyArray<string> | null
  readonly out_is_whole_history: boolean
  readonly out_message_ids: ReadonlyArray<number>
  readonly out_messages: ReadonlyArray<string>
  readonly out_enqueued_at_ms: ReadonlyArray<number>
  readonly out_attempt_counts: ReadonlyArray<number>
  readonly out_key_values: ClaimedInstance["keyValues"] | null
}

const claimedInstance = (row: ClaimedInstanceRow): Effect.Effect<ClaimedInstance, ProviderError> =>
  safely("fetchOrchestrationItems", row.out_instance_id, {
    instanceId: row.out_instance_id,
    lockToken: row.out_lock_token,
    nowMs: Number(row.out_now_ms),
    instance: row.out_orchestration_name === null
      ? null
      : { orchestrationName: row.out_orchestration_name, orchestrationVersion: row.out_orchestration_version },
    executionId: Number(row.out_execution_id),
    history: row.out_history ?? [],
    isWholeHistory: row.out_is_whole_history,
    messages: row.out_message_ids.map((id, index) => ({
      id,
      workItem: row.out_messages[index]!,
      enqueuedAtMs: row.out_enqueued_at_ms[index]!,
      attemptCount: row.out_attempt_counts[index]!
    })),
    keyValues: row.out_key_values ?? []
  }, (claimed) => [
    claimed.executionId,
    ...claimed.messages.map((message) => message.id),
    ...claimed.keyValues.map((entry) => entry.lastUpdatedAtMs)
  ])

interface HistoryPageRow {
  readonly out_execution_id: bigint
  readonly out_event_id: bigint
  readonly out_event_data: string
  readonly out_is_last: boolean
}

interface ClaimedWorkItemRow {
  readonly out_work_item: string
  readonly out_lock_token: string
  readonly out_attempt_count: number
}

const claimedWorkItem = (row: ClaimedWorkItemRow): ClaimedWorkItem => ({
  workItem: row.out_work_item,
  lockToken: row.out_lock_token,
  attemptCount: row.out_attempt_count
})

interface InstanceStateRow {
  readonly out_instance_id: string
  readonly out_orchestration_name: string
  readonly out_orchestration_version: string | null
  readonly out_parent_instance_id: string | null
  readonly out_execution_id: bigint
  readonly out_status: ExecutionStatus
  readonly out_output: string | null
  readonly out_failure: string | null
  readonly out_custom_status: string | null
  readonly out_custom_status_version: number
  readonly out_created_at_ms: bigint
  readonly out_updated_at_ms: bigint
}

const instanceState = (row: InstanceStateRow): Effect.Effect<InstanceState, ProviderError> =>
  safely("readInstances", row.out_instance_id, {
    instanceId: row.out_instance_id,
    orchestrationName: row.out_orchestration_name,
    orchestrationVersion: row.out_orchestration_version,
    parentInstanceId: row.out_parent_instance_id,
    executionId: Number(row.out_execution_id),
    status: row.out_status,
    output: row.out_output,
    failure: row.out_failure,
    customStatus: row.out_custom_status,
    customStatusVersion: row.out_custom_status_version,
    createdAtMs: Number(row.out_created_at_ms),
    updatedAtMs: Number(row.out_updated_at_ms)
  }, (state) => [state.executionId, state.createdAtMs, state.updatedAtMs])

interface StoredSizesRow {
  readonly out_event_count: bigint
  readonly out_history_bytes: bigint
  readonly out_first_event: string | null
  readonly out_key_count: bigint
  readonly out_value_bytes: bigint
}

/** Rejects a value that JavaScript would round: BIGINT has a larger range than a number. */
const safely = <A>(
  operation: string,
  instanceId: string,
  value: A,
  numbers: (value: A) => ReadonlyArray<number>
): Effect.Effect<A, ProviderError> => {
  const beyond = numbers(value).find((number) => !Number.isSafeInteger(number))
  return beyond === undefined ? Effect.succeed(value) : Effect.fail(
    new ProviderError({
      operation,
      reason: new DataCorrupted({ instanceId, problem: `the number ${beyond} is beyond 2^53 - 1` })
    })
  )
}
