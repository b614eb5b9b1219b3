/**
 * Encodes the input of the driver as arguments of the stored functions, and maps their rows to its results.
 */
import * as Effect from "effect/Effect"
import type { Block } from "../../model/Block.ts"
import type { CoreVersion, ExecutionStatus, InstanceState, TagFilter } from "../../model/Instance.ts"
import type { Pause } from "../../model/Pause.ts"
import { pauseOf } from "../../model/shared/pauses.ts"
import type { PausedRow } from "../../model/shared/pauses.ts"
import type { ProcessInfo } from "../../provider/AdminDriver.ts"
import type { Backlog } from "../../provider/Backlog.ts"
import type {
  Abandon,
  AttributeChange,
  ClaimedInstance,
  ClaimedWorkItem,
  EncodedActivity,
  EncodedEvent,
  EncodedMessage,
  EndedInstance,
  HandOver,
  InstanceProgress,
  KeyValueChange,
  LiveLocks,
  NewChunk,
  NextDue,
  OrchestrationAck,
  ProcessRegistration,
  ProviderDriver,
  ReadProgress,
  Renewal
} from "../../provider/ProviderDriver.ts"
import { DataCorrupted, ProviderError } from "../../provider/ProviderError.ts"
import { Prisma } from "./client.ts"
import { Late } from "./late.ts"
import type { Texts } from "./texts.ts"

// -- arguments -------------------------------------------------------------------------------------

export const bigint = (value: number | null) => Prisma.sql`${value}::bigint`

/** Null is the null of SQL. */
export const json = (value: unknown) => Prisma.sql`${value === null ? null : JSON.stringify(value)}::jsonb`

/** `json` of a value that is computed when the connection is there. */
export const lateJson = (value: () => unknown) => Prisma.sql`${new Late(value)}::jsonb`

/** What a set of turns stores beside its rows of `turnRow`, in the order of the functions' arguments. */
export const turnParts = (turns: ReadonlyArray<Parts | undefined>, texts: Texts) => [
  parts(turns, (turn) => turn.history, eventRow(texts)),
  parts(turns, changesOf, changeRow),
  parts(turns, (turn) => turn.workerItems, activityRow(texts)),
  parts(turns, (turn) => turn.cancelledActivities, (key) => ({
    instance_id: key.instanceId,
    execution_id: key.executionId,
    activity_id: key.activityId
  })),
  parts(turns, (turn) => turn.orchestratorItems, messageRow(texts))
]

type Parts = Pick<
  OrchestrationAck,
  "history" | "keyValues" | "attributes" | "chunks" | "workerItems" | "cancelledActivities" | "orchestratorItems"
>

/** The parts of all turns in one list. Each names its turn by position, from 1. Null if no turn has such a part. */
const parts = <Turn, Part>(
  turns: ReadonlyArray<Turn | undefined>,
  of: (turn: Turn) => ReadonlyArray<Part>,
  encode: (part: Part) => object
) => {
  const rows = turns.flatMap((turn, index) =>
    turn === undefined ? [] : of(turn).map((part) => ({ ack: index + 1, ...encode(part) }))
  )
  return json(rows.length === 0 ? null : rows)
}

/** The workers that a set of turns hands activities over to, each once, and what a turn says of its own. */
export const makeWorkers = () => {
  const positions = new Map<string, number>()
  return {
    /** Null without a worker. */
    sql: () => Prisma.sql`${positions.size === 0 ? null : `[${[...positions.keys()].join()}]`}::jsonb`,
    row: (handOver: HandOver | null) => {
      if (handOver === null || handOver.tags._tag === "None") return undefined
      const worker = JSON.stringify({
        lock_timeout_ms: handOver.lockTimeoutMs,
        names: handOver.activities,
        untagged: handOver.tags._tag !== "Tags",
        tags: acceptedTags(handOver.tags)
      })
      const position = positions.get(worker) ?? positions.size + 1
      positions.set(worker, position)
      return { worker: position, handover_limit: handOver.limit, spare: handOver.spare }
    }
  }
}

export const versionTuple = (version: CoreVersion | undefined) =>
  Prisma.sql`${version === undefined ? null : [version.major, version.minor, version.patch]}::integer[]`

/** Null means every tag. */
export const acceptedTags = (filter: Exclude<TagFilter, { readonly _tag: "None" }>): ReadonlyArray<string> | null => {
  switch (filter._tag) {
    case "Any":
      return null
    case "DefaultOnly":
      return []
    default:
      return [...filter.tags]
  }
}

/** A field of a row, unless its text is large: then its position is in `text_at`. */
export const placed = (text: string | null, textAt: number | undefined) => textAt === undefined ? text : undefined

export const ackRow = (texts: Texts) => (ack: OrchestrationAck) => ({
  token: ack.lockToken,
  ...turnRow(ack, texts),
  ...(ack.left !== undefined && { left_ids: ack.left })
})

export const turnRow = (turn: Omit<OrchestrationAck, "lockToken" | "left">, texts: Texts) => {
  const textAt = texts.add(turn.output)
  return ({
    execution_id: turn.executionId,
    orchestration_name: turn.orchestrationName,
    orchestration_version: turn.orchestrationVersion,
    status: turn.status,
    output: placed(turn.output, textAt),
    text_at: textAt,
    parent_instance_id: turn.parentInstanceId,
    ...(turn.nextVersion !== undefined && { next_version: turn.nextVersion }),
    ...turn.pinnedVersion,
    ...(turn.customStatus === null ? {} : { sets_custom_status: true, custom_status: turn.customStatus.value }),
    // Object keys, not array elements: PostgreSQL keeps keys sorted and finds one by binary search.
    ...(turn.cancelledTimers !== undefined && {
      cancelled_timers: Object.fromEntries(turn.cancelledTimers.map((workItem) => [workItem, null]))
    }),
    ...(turn.requeued !== undefined && { requeued: turn.requeued })
  })
}

/** Whether the events of a turn continue a history without a gap, so that none of their ids can be taken. */
export const appends = ({ history }: Pick<Parts, "history">, lastEventId: number) =>
  history.every(({ eventId }, index) => eventId === lastEventId + 1 + index)

/** One argument has all three: so a turn without any costs one look at a null. */
const changesOf = ({ attributes, chunks, keyValues }: Parts): ReadonlyArray<Change> =>
  attributes === undefined && chunks === undefined ? keyValues : [...keyValues, ...attributes ?? [], ...chunks ?? []]

type Change = KeyValueChange | AttributeChange | NewChunk

const changeRow = (change: Change) =>
  "stream" in change
    ? { action: "chunk", stream: change.stream, ...keptRow(change), chunk: change.chunk }
    : !("action" in change)
    ? { action: "attribute", ...attributeRow(change) }
    : change.action === "set"
    ? { action: change.action, key: change.key, value: change.value, last_updated_at_ms: change.lastUpdatedAtMs }
    : change

/** What a stream keeps. */
export const keptRow = ({ keepBytes, keepChunks }: Pick<NewChunk, "keepBytes" | "keepChunks">) => ({
  keep_chunks: keepChunks,
  keep_bytes: keepBytes
})

/** JSON leaves out what is undefined. */
export const attributeRow = ({ name, value }: AttributeChange) => ({
  name,
  text: typeof value === "string" ? value : undefined,
  number: typeof value === "number" ? value : undefined,
  time_ms: typeof value === "object" ? value?.timeMs : undefined
})

/** The work item of a row. */
export const workItemOf = (workItem: string | null, texts: Texts) => {
  const textAt = texts.add(workItem)
  return { work_item: placed(workItem, textAt), text_at: textAt }
}

// Spreads are last in rows: V8 takes a microsecond for each field that follows one. JSON leaves out what is undefined.

export const activityRow = (texts: Texts) => (activity: EncodedActivity) => ({
  name: activity.name,
  instance_id: activity.instanceId,
  execution_id: activity.executionId,
  activity_id: activity.activityId,
  session_id: activity.sessionId,
  tag: activity.tag,
  served_by: activity.servedBy,
  limit_key: activity.limitKey,
  ...workItemOf(activity.workItem, texts)
})

export const eventRow = (texts: Texts) => (event: EncodedEvent) => {
  const textAt = texts.add(event.eventData)
  return {
    event_id: event.eventId,
    event_type: event.eventType,
    event_data: placed(event.eventData, textAt),
    text_at: textAt
  }
}

export const messageRow = (texts: Texts) => (message: EncodedMessage) => ({
  instance_id: message.instanceId,
  visible_at_ms: message.visibleAtMs,
  delay_ms: message.delayMs,
  most_waiting: message.bounds?.mostWaiting,
  most_events: message.bounds?.mostEvents,
  start: message.start === undefined ? undefined : {
    orchestration_name: message.start.orchestrationName,
    orchestration_version: message.start.orchestrationVersion,
    parent_instance_id: message.start.parentInstanceId,
    attributes: message.start.attributes?.map(attributeRow),
    limit_key: message.start.limitKey,
    ...message.start.pinnedVersion
  },
  ...workItemOf(message.workItem, texts)
})

export type Completion = Parameters<ProviderDriver["Service"]["ackWorkItems"]>[0][number]

export const completionRow = (texts: Texts) => ({ completion, lockToken }: Completion) => ({
  token: lockToken,
  instance_id: completion?.instanceId ?? null,
  ...workItemOf(completion?.workItem ?? null, texts)
})

export const abandonRow = (item: Abandon) => ({
  token: item.lockToken,
  delay_ms: item.delayMs,
  ignore_attempt: item.ignoreAttempt,
  ...(item.beginsFirst === true && { begins_first: true }),
  ...(item.block !== undefined && { block: item.block })
})

export const processRow = (process: ProcessRegistration) => ({
  id: process.id,
  build: process.build,
  host: process.host,
  pid: process.pid,
  orchestrations: process.orchestrations,
  activities: process.activities,
  untagged: process.tags._tag !== "Tags" && process.tags._tag !== "None",
  tags: process.tags._tag === "None" ? [] : acceptedTags(process.tags),
  orchestration_slots: process.orchestrationSlots,
  activity_slots: process.activitySlots,
  listens: process.isListening,
  slots_in_use: process.slotsInUse()
})

export const progressRow = (item: ReadProgress) => ({
  instance_id: item.instanceId,
  key: item.key,
  execution_id: item.executionId,
  last_event_id: item.lastEventId
})

export const renewalRow = (item: Renewal) => ({ token: item.lockToken, extend_for_ms: item.extendForMs })

// -- rows ------------------------------------------------------------------------------------------

/** What a claim returns besides, while a later one may find more: once a slot is freed, at that time, or any time. */
export interface HeldRow {
  readonly out_lock_token: null
  readonly out_is_limited?: boolean | null
  readonly out_next_ms?: bigint | null
}

/** The claimed rows. For each other one, calls the functions for its reasons why a later claim may find more. */
export const claimedRows = <Row extends { readonly out_lock_token: string }>(
  rows: ReadonlyArray<Row | HeldRow>,
  onLocked: (() => void) | undefined,
  onNext?: (timeMs: number) => void,
  onAwaited?: () => void
): ReadonlyArray<Row> => {
  const claimed: Array<Row> = []
  for (const row of rows) {
    if (isClaimed(row)) {
      claimed.push(row)
      continue
    }
    const hasTime = row.out_next_ms !== undefined && row.out_next_ms !== null
    if (row.out_is_limited === true) onAwaited?.()
    else if (!hasTime) onLocked?.()
    if (hasTime) onNext?.(Number(row.out_next_ms))
  }
  return claimed
}

const isClaimed = <Row extends { readonly out_lock_token: string }>(row: Row | HeldRow): row is Row =>
  row.out_lock_token !== null

export interface ClaimedInstanceRow {
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

export const claimedInstance = (row: ClaimedInstanceRow): Effect.Effect<ClaimedInstance, ProviderError> =>
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

export interface HistoryPageRow {
  readonly out_execution_id: bigint
  readonly out_event_id: bigint
  readonly out_event_data: string
  readonly out_is_last: boolean
}

export interface ClaimedWorkItemRow {
  readonly out_work_item: string
  readonly out_lock_token: string
  readonly out_attempt_count: number
  readonly out_is_limited: boolean
}

export const claimedWorkItem = (row: ClaimedWorkItemRow): ClaimedWorkItem => ({
  workItem: row.out_work_item,
  lockToken: row.out_lock_token,
  attemptCount: row.out_attempt_count,
  ...(row.out_is_limited && { isLimited: true })
})

export interface InstanceStateRow {
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
  /** The fields of `Block`. */
  readonly out_block: Block | null
  readonly out_pause: PausedRow | null
  readonly out_starts_at_ms: bigint | null
  readonly out_created_at_ms: bigint
  readonly out_updated_at_ms: bigint
}

export const instanceState = (row: InstanceStateRow): Effect.Effect<InstanceState, ProviderError> =>
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
    block: row.out_block,
    pause: row.out_pause === null ? null : pauseOf(row.out_pause) ?? null,
    startsAtMs: row.out_starts_at_ms === null ? null : Number(row.out_starts_at_ms),
    createdAtMs: Number(row.out_created_at_ms),
    updatedAtMs: Number(row.out_updated_at_ms)
  }, (state) => [state.executionId, state.createdAtMs, state.updatedAtMs])

export interface EndedInstanceRow {
  readonly out_instance_id: string
  readonly out_status: EndedInstance["status"]
  readonly out_output: string | null
  readonly out_failure: string | null
  readonly out_is_last: boolean
}

export const endedInstance = (row: EndedInstanceRow): EndedInstance => ({
  instanceId: row.out_instance_id,
  status: row.out_status,
  output: row.out_output,
  failure: row.out_failure
})

export interface ProgressRow {
  /** Among the items, from 1. */
  readonly out_index: number
  readonly out_execution_id: bigint
  readonly out_last_event_id: bigint
  readonly out_custom_status: string | null
  readonly out_custom_status_version: number
  readonly out_value: string | null
  readonly out_has_ended: boolean
  readonly out_is_of_rust: boolean
  readonly out_is_last: boolean
}

export const instanceProgress = (
  instanceId: string,
  row: ProgressRow
): Effect.Effect<InstanceProgress, ProviderError> =>
  safely("readProgress", instanceId, {
    executionId: Number(row.out_execution_id),
    lastEventId: Number(row.out_last_event_id),
    customStatus: row.out_custom_status,
    customStatusVersion: row.out_custom_status_version,
    value: row.out_value,
    hasEnded: row.out_has_ended,
    isOfRust: row.out_is_of_rust
  }, (progress) => [progress.executionId, progress.lastEventId])

export interface StoredSizesRow {
  readonly out_event_count: bigint
  readonly out_history_bytes: bigint
  readonly out_first_event: string | null
  readonly out_key_count: bigint
  readonly out_value_bytes: bigint
}

export interface NextDueRow {
  readonly out_now_ms: bigint
  readonly out_orchestrator_ms: bigint | null
  readonly out_worker_ms: bigint | null
  readonly out_paused: ReadonlyArray<PausedRow>
}

export const nextDue = (row: NextDueRow): NextDue => ({
  nowMs: Number(row.out_now_ms),
  orchestratorMs: milliseconds(row.out_orchestrator_ms),
  workerMs: milliseconds(row.out_worker_ms),
  paused: pauses(row.out_paused)
})

export const pauses = (rows: ReadonlyArray<PausedRow>): ReadonlyArray<Pause> =>
  rows.flatMap((row) => pauseOf(row) ?? [])

export interface LiveLocksRow {
  readonly out_now_ms: bigint
  readonly out_orchestrator_first_ms: bigint | null
  readonly out_orchestrator_last_ms: bigint | null
  readonly out_worker_first_ms: bigint | null
  readonly out_worker_last_ms: bigint | null
}

export const liveLocks = (row: LiveLocksRow): LiveLocks => ({
  nowMs: Number(row.out_now_ms),
  orchestrator: lockTimes(row.out_orchestrator_first_ms, row.out_orchestrator_last_ms),
  worker: lockTimes(row.out_worker_first_ms, row.out_worker_last_ms)
})

const lockTimes = (first: bigint | null, last: bigint | null) =>
  first === null ? null : { firstMs: Number(first), lastMs: Number(last) }

const milliseconds = (value: bigint | null) => value === null ? null : Number(value)

export interface ProcessInfoRow {
  readonly out_id: string
  readonly out_build: string
  readonly out_host: string
  readonly out_pid: number
  readonly out_orchestrations: ReadonlyArray<string>
  readonly out_activities: ReadonlyArray<string>
  readonly out_untagged: boolean
  readonly out_tags: ReadonlyArray<string> | null
  readonly out_orchestration_slots: number | null
  readonly out_activity_slots: number | null
  readonly out_since_ms: bigint
  readonly out_seen_ms: bigint
  readonly out_listens: boolean
  readonly out_is_alive: boolean
  readonly out_orchestrations_in_use: number | null
  readonly out_activities_in_use: number | null
  readonly out_in_use_ms: bigint | null
}

export const processInfo = (row: ProcessInfoRow): ProcessInfo => ({
  id: row.out_id,
  build: row.out_build,
  host: row.out_host,
  pid: row.out_pid,
  orchestrations: row.out_orchestrations,
  activities: row.out_activities,
  tags: tagFilter(row.out_untagged, row.out_tags),
  orchestrationSlots: row.out_orchestration_slots,
  activitySlots: row.out_activity_slots,
  sinceMs: Number(row.out_since_ms),
  seenMs: Number(row.out_seen_ms),
  isListening: row.out_listens,
  isAlive: row.out_is_alive,
  slotsInUse: row.out_in_use_ms === null ? null : {
    orchestrations: row.out_orchestrations_in_use ?? 0,
    activities: row.out_activities_in_use ?? 0,
    atMs: Number(row.out_in_use_ms)
  }
})

const tagFilter = (untagged: boolean, tags: ReadonlyArray<string> | null): TagFilter =>
  tags === null
    ? { _tag: "Any" }
    : tags.length === 0
    ? { _tag: untagged ? "DefaultOnly" : "None" }
    : { _tag: untagged ? "DefaultAnd" : "Tags", tags }

export interface BacklogRow {
  readonly out_now_ms: bigint
  readonly out_messages: bigint
  readonly out_oldest_message_ms: bigint | null
  readonly out_activities: ReadonlyArray<
    { readonly tag: string | null; readonly depth: number; readonly oldest_ms: number }
  >
  readonly out_active_instances: bigint
  readonly out_blocked_instances: bigint
  readonly out_limited_activities: bigint
  readonly out_limited_instances: bigint
}

export const backlog = (row: BacklogRow): Backlog => {
  const nowMs = Number(row.out_now_ms)
  const oldestMs = row.out_oldest_message_ms
  return {
    orchestrator: {
      depth: Number(row.out_messages),
      oldestAgeMs: oldestMs === null ? null : nowMs - Number(oldestMs)
    },
    worker: row.out_activities.map(({ depth, oldest_ms, tag }) => ({ tag, depth, oldestAgeMs: nowMs - oldest_ms })),
    activeInstances: Number(row.out_active_instances),
    blockedInstances: Number(row.out_blocked_instances),
    limitedActivities: Number(row.out_limited_activities),
    limitedInstances: Number(row.out_limited_instances)
  }
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
