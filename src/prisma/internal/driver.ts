/**
 * The storage contract on PostgreSQL: every operation is one call of one stored function (`prisma/functions`), sent as
 * one statement, which is its own transaction.
 *
 * Arguments are encoded and rows are mapped by `rows.ts`. The head of each function states what it does to the tables,
 * in which order it locks, and the bound of its work.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { ProviderDriver } from "../../provider/ProviderDriver.ts"
import type {
  EndedInstance,
  FetchOrchestrationItems,
  FetchWorkItems,
  InstanceProgress,
  OptimisticAnswer,
  OptimisticTurn,
  OrchestrationAck,
  Settled,
  StartAnswer
} from "../../provider/ProviderDriver.ts"
import type { Database } from "../Database.ts"
import { Prisma } from "./client.ts"
import {
  abandonRow,
  acceptedTags,
  ackRow,
  activityRow,
  backlog,
  bigint,
  claimedInstance,
  claimedWorkItem,
  endedInstance,
  eventRow,
  instanceProgress,
  instanceState,
  json,
  liveLocks,
  makeWorkers,
  messageRow,
  nextDue,
  progressRow,
  renewalRow,
  turnParts,
  turnRow,
  versionTuple
} from "./rows.ts"
import type {
  BacklogRow,
  ClaimedInstanceRow,
  ClaimedWorkItemRow,
  EndedInstanceRow,
  HistoryPageRow,
  InstanceStateRow,
  LiveLocksRow,
  NextDueRow,
  ProgressRow,
  StoredSizesRow
} from "./rows.ts"
import * as statementSpans from "./statementSpans.ts"

type Driver = ProviderDriver["Service"]

export interface Options {
  /** Sends statements; the driver needs nothing else from a database. */
  readonly query: Database["Service"]["query"]
  readonly schemaSql: Database["Service"]["schemaSql"]
  /** Where the statements are sent, for their spans. */
  readonly place?: statementSpans.Place | undefined
  /** Absent: the clock of the database. */
  readonly clock?: "database" | "effect" | undefined
  /**
   * Longest wait for a database lock in a statement that writes items, if the connection sets no `lock_timeout`.
   * Without this option, the setting of the connection applies.
   */
  readonly lockTimeoutMs?: LockTimeoutMs
  /**
   * The process announces to others what it stores, after the commit. Otherwise the triggers notify them with the commit,
   * as they do for every other program.
   */
  readonly announces?: boolean
}

/** Milliseconds. */
export interface LockTimeoutMs {
  /** Of a set of items. */
  readonly set: number
  /** Of one item alone. */
  readonly alone: number
}

export const make = (options: Options): Driver => {
  const statements = makeStatements(options)
  return ProviderDriver.of({
    name: "prisma",
    ...orchestrations(statements),
    ...activities(statements),
    ...reads(statements)
  })
}

/**
 * Long enough for the transactions of this package, which are short. A transaction that holds one row for longer must not
 * delay the other items of the set. One item alone is tried again anyway (`coalescer.ts`): it must not delay the next one.
 */
export const lockTimeoutMs: LockTimeoutMs = { set: 200, alone: 50 }

// -- statements ------------------------------------------------------------------------------------

type Statements = ReturnType<typeof makeStatements>

const makeStatements = ({ announces, clock, lockTimeoutMs, place, query: send, schemaSql }: Options) => {
  const spans = statementSpans.make(place)
  const query = <Row>(operation: string, sql: Prisma.Sql, items = 1) =>
    spans.statement(operation, items, send<Row>(operation, sql))

  const nowMs: Effect.Effect<number | null> = clock === "effect"
    ? Effect.map(Clock.currentTimeMillis, Math.floor)
    : Effect.succeed(null)

  /** One statement: the rows of `dx_…(arguments, now)`. */
  const call = <Row>(operation: string, name: string, args: ReadonlyArray<Prisma.Sql>, sendBy = query) =>
    Effect.flatMap(nowMs, (now) =>
      sendBy<Row>(
        operation,
        Prisma.sql`SELECT * FROM ${schemaSql}.${Prisma.raw(name)}(${Prisma.join([...args, bigint(now)])})`
      ))

  /** As `call`, for rows that are claimed. */
  const claim = <Row>(operation: string, name: string, args: ReadonlyArray<Prisma.Sql>) =>
    call<Row>(
      operation,
      name,
      args,
      <R>(operation: string, sql: Prisma.Sql) => spans.claim(operation, send<R>(operation, sql))
    )

  /** One statement with its result in one column. */
  const answer = <A>(
    operation: string,
    name: string,
    args: ReadonlyArray<Prisma.Sql>,
    wrap = (call: Prisma.Sql): Prisma.Sql => call,
    items = 1
  ) =>
    Effect.flatMap(nowMs, (now) => {
      const call = wrap(Prisma.sql`${schemaSql}.${Prisma.raw(name)}(${Prisma.join([...args, bigint(now)])})`)
      return Effect.map(
        query<{ readonly answer: A }>(operation, Prisma.sql`SELECT ${call} AS answer`, items),
        (rows) => rows[0]!.answer
      )
    })

  /** `CASE` evaluates its condition first. The settings end with the statement. */
  const withSettings = (items: number) => (call: Prisma.Sql) => {
    const settings = [
      ...(lockTimeoutMs === undefined ? [] : [Prisma.sql`set_config(
        'lock_timeout',
        COALESCE(
          NULLIF(current_setting('lock_timeout'), '0'),
          ${String(items > 1 ? lockTimeoutMs.set : lockTimeoutMs.alone)}::text
        ),
        true
      ) IS NOT NULL`]),
      // The triggers that notify leave such a statement out.
      ...(announces === true ? [Prisma.sql`set_config('duroxide.quiet', 'on', true) IS NOT NULL`] : [])
    ]
    return settings.length === 0 ? call : Prisma.sql`CASE WHEN ${Prisma.join(settings, " AND ")} THEN ${call} END`
  }

  /**
   * Lets the statement commit without waiting for the disk: what a crash of the server undoes is a lock, and a lock that
   * is lost is one that ran out. Only for calls of `fetch…`, `renew…` and `deferMessages`, which no transaction of an
   * application sends. The setting ends with the statement.
   */
  const withoutFlush = (value: Prisma.Sql) =>
    Prisma.sql`CASE WHEN set_config('synchronous_commit', 'off', true) IS NOT NULL THEN ${value} END`

  /** As `answer`, for a statement that writes this number of items. One that another transaction holds fails it soon. */
  const write = <A>(
    operation: string,
    name: string,
    items: number,
    args: ReadonlyArray<Prisma.Sql>,
    wrap = (call: Prisma.Sql): Prisma.Sql => call
  ) => answer<A>(operation, name, args, (call) => withSettings(items)(wrap(call)), items)

  const settle =
    <Item>(operation: string, name: string, encode: (item: Item) => object, wrap?: (call: Prisma.Sql) => Prisma.Sql) =>
    (items: ReadonlyArray<Item>) =>
      items.length === 0
        ? Effect.succeed<ReadonlyArray<Settled>>([])
        : write<ReadonlyArray<Settled>>(operation, name, items.length, [json(items.map(encode))], wrap)

  const insert =
    <Item>(operation: string, name: string, encode: (item: Item) => object) => (items: ReadonlyArray<Item>) =>
      items.length === 0
        ? Effect.void
        : Effect.asVoid(write<bigint>(operation, name, items.length, [json(items.map(encode))]))

  return { answer, call, claim, insert, query, schemaSql, settle, withoutFlush, write }
}

/** Limit for the messages of one claim, and for the events of one page of a history. */
const defaultMaxBytes = 16 * 1024 * 1024

// -- operations ------------------------------------------------------------------------------------

const orchestrations = ({ call, claim, insert, settle, withoutFlush, write }: Statements) => ({
  fetchOrchestrationItems: Effect.fnUntraced(
    function*(
      { historyLimit, limit, lockTimeoutMs, maxBytes, orphans, serves, suspects, takesOver, versions }:
        FetchOrchestrationItems
    ) {
      const programs = serves?.flatMap(({ name, versions }) => versions.map((version) => ({ name, version })))
      const rows = yield* claim<ClaimedInstanceRow>("fetchOrchestrationItems", "dx_fetch_orchestration_items", [
        withoutFlush(Prisma.sql`${limit}::integer`),
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
      return yield* Effect.forEach(rows, claimedInstance)
    }
  ),

  ackOrchestrationItems: Effect.fnUntraced(
    function*(acks: ReadonlyArray<OrchestrationAck>) {
      if (acks.length === 0) return []
      return yield* write<ReadonlyArray<Settled>>("ackOrchestrationItems", "dx_ack_orchestration_items", acks.length, [
        json(acks.map(ackRow)),
        ...turnParts(acks)
      ])
    }
  ),

  advanceOrchestrations: Effect.fnUntraced(
    function*(turns: ReadonlyArray<OptimisticTurn>) {
      if (turns.length === 0) return []
      const workers = makeWorkers()
      const rows = turns.map(({ handOver, instanceId, lastEventId, results, turn }) => ({
        instance_id: instanceId,
        last_event_id: lastEventId,
        results: results.length,
        ...turnRow(turn),
        ...workers.row(handOver)
      }))
      const results = turns.flatMap(({ instanceId, results }, index) =>
        results.map(({ lockToken, workItem }) => ({
          ack: index + 1,
          token: lockToken,
          instance_id: instanceId,
          work_item: workItem
        }))
      )
      return yield* write<ReadonlyArray<OptimisticAnswer>>(
        "advanceOrchestrations",
        "dx_advance_orchestrations",
        turns.length,
        [json(rows), json(results), ...turnParts(turns.map(({ turn }) => turn)), workers.sql()]
      )
    }
  ),

  abandonOrchestrationItems: settle("abandonOrchestrationItems", "dx_abandon_orchestration_items", abandonRow),
  renewOrchestrationItemLocks: settle(
    "renewOrchestrationItemLocks",
    "dx_renew_orchestration_item_locks",
    renewalRow,
    withoutFlush
  ),
  deferMessages: settle("deferMessages", "dx_defer_messages", (item) => ({
    token: item.lockToken,
    ids: item.ids,
    delay_ms: item.delayMs
  }), withoutFlush),

  enqueueForOrchestrator: insert("enqueueForOrchestrator", "dx_enqueue_for_orchestrator", messageRow),
  enqueueForWorker: insert("enqueueForWorker", "dx_enqueue_for_worker", activityRow),

  startOrchestrations: Effect.fnUntraced(function*(starts) {
    if (starts.length === 0) return []
    const workers = makeWorkers()
    const turns = starts.map(({ firstTurn }) => firstTurn?.turn)
    const rows = starts.map(({ firstTurn }) =>
      firstTurn === undefined ? {} : { ...turnRow(firstTurn.turn), ...workers.row(firstTurn.handOver) }
    )
    return yield* write<ReadonlyArray<StartAnswer>>(
      "startOrchestrations",
      "dx_start_orchestrations",
      starts.length,
      [
        json(starts.map((start) => ({
          instance_id: start.instanceId,
          orchestration_name: start.orchestrationName,
          orchestration_version: start.orchestrationVersion,
          work_item: start.workItem,
          ...start.pinnedVersion,
          delay_ms: start.delayMs
        }))),
        json(turns.some((turn) => turn !== undefined) ? rows : null),
        ...turnParts(turns),
        workers.sql()
      ]
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
    )
} satisfies Partial<Driver>)

const activities = ({ answer, claim, settle, withoutFlush }: Statements) => ({
  fetchWorkItems: Effect.fnUntraced(
    function*({ activities, limit, lockTimeoutMs, session, suspects, tags, takesOver }: FetchWorkItems) {
      if (tags._tag === "None") return []
      const rows = yield* claim<ClaimedWorkItemRow>("fetchWorkItems", "dx_fetch_work_items", [
        withoutFlush(Prisma.sql`${limit}::integer`),
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
      return rows.map(claimedWorkItem)
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
  }), withoutFlush),

  renewSessionLocks: ({ extendForMs, idleTimeoutMs, workerIds }) =>
    workerIds.length === 0 ? Effect.succeed(0) : Effect.map(
      answer<bigint>("renewSessionLocks", "dx_renew_session_locks", [
        Prisma.sql`${[...workerIds]}::text[]`,
        bigint(extendForMs),
        bigint(idleTimeoutMs)
      ], withoutFlush),
      Number
    ),

  cleanupOrphanedSessions: Effect.map(
    answer<bigint>("cleanupOrphanedSessions", "dx_cleanup_orphaned_sessions", []),
    Number
  )
} satisfies Partial<Driver>)

const reads = ({ answer, call, query, schemaSql }: Statements) => ({
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

  readInstances: Effect.fnUntraced(function*(instanceIds) {
    if (instanceIds.length === 0) return []
    const rows = yield* query<InstanceStateRow>(
      "readInstances",
      Prisma.sql`SELECT * FROM ${schemaSql}.dx_read_instances(${[...instanceIds]}::text[])`
    )
    return yield* Effect.forEach(rows, instanceState)
  }),

  readEnds: Effect.fnUntraced(function*(instanceIds) {
    const ended: Array<EndedInstance> = []
    let asked = instanceIds
    while (asked.length > 0) {
      const rows = yield* query<EndedInstanceRow>(
        "readEnds",
        Prisma.sql`SELECT * FROM ${schemaSql}.dx_read_ends(${[...asked]}::text[], ${defaultMaxBytes}::bigint)`
      )
      const found = rows.map(endedInstance)
      ended.push(...found)
      if (rows.at(-1)?.out_is_last !== false) break
      const known = new Set(found.map(({ instanceId }) => instanceId))
      asked = asked.filter((instanceId) => !known.has(instanceId))
    }
    return ended
  }),

  readProgress: Effect.fnUntraced(function*(items) {
    const found: Array<InstanceProgress | null> = items.map(() => null)
    let asked = items.map((item, index) => ({ ...item, index }))
    while (asked.length > 0) {
      const rows: ReadonlyArray<ProgressRow> = yield* query<ProgressRow>(
        "readProgress",
        Prisma.sql`SELECT * FROM ${schemaSql}.dx_read_progress(
          ${json(asked.map(progressRow))},
          ${defaultMaxBytes}::bigint
        )`
      )
      const last = rows.at(-1)
      for (const row of rows) {
        const { index, instanceId } = asked[row.out_index - 1]!
        found[index] = yield* instanceProgress(instanceId, row)
      }
      if (last?.out_is_last !== false) break
      asked = asked.slice(last.out_index)
    }
    return found
  }),

  readKeyValues: ({ instanceId, key }) =>
    Effect.map(
      query<{ readonly out_key: string; readonly out_value: string }>(
        "readKeyValues",
        Prisma.sql`SELECT * FROM ${schemaSql}.dx_read_key_values(${instanceId}::text, ${key}::text)`
      ),
      (rows) => rows.map((row) => ({ key: row.out_key, value: row.out_value }))
    ),

  readBacklog: ({ limit }) =>
    Effect.map(
      call<BacklogRow>("readBacklog", "dx_read_backlog", [Prisma.sql`${limit}::integer`]),
      ([row]) => backlog(row!)
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

  readNextDue: Effect.map(
    call<NextDueRow>("readNextDue", "dx_read_next_due", []),
    ([row]) => nextDue(row!)
  ),

  readLocks: Effect.map(
    call<LiveLocksRow>("readLocks", "dx_read_locks", []),
    ([row]) => liveLocks(row!)
  )
} satisfies Partial<Driver>)
