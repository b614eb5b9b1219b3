/**
 * Typed turns and items to the encoded rows of a driver, and back.
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Event from "../../model/Event.ts"
import * as attributes from "../../model/shared/attributes.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { ExecutionMetadata, Turn } from "../Provider.ts"
import type {
  AttributeChange,
  EncodedActivity,
  EncodedEvent,
  KeyValueChange,
  OrchestrationAck,
  StartedInstance,
  UnclaimedTurn
} from "../ProviderDriver.ts"
import { DataCorrupted, ProviderError } from "../ProviderError.ts"

export const decodeHistory = (instanceId: string, rows: ReadonlyArray<string>) =>
  Effect.forEach(rows, (row) => {
    const event = Event.decode(row)
    return Result.isSuccess(event) ? Effect.succeed(event.success) : Effect.fail(
      new ProviderError({
        operation: "read",
        reason: new DataCorrupted({ instanceId, problem: event.failure.problem })
      })
    )
  })

export const carriedMessages = (firstEvent: string | null): number => {
  const event = firstEvent === null ? undefined : Result.getOrUndefined(Event.decode(firstEvent))
  return event?._tag === "OrchestrationStarted" ? event.carryForwardEvents?.length ?? 0 : 0
}

/**
 * How long rows that this version cannot read are hidden: long enough not to spin, short enough to meet the deployment
 * that can read them.
 */
export const unreadablePauseMs = 60_000

/** Thrown by encoders for values no store can represent: NaN, invalid Unicode. */
export class Unstorable {
  readonly problem: string
  constructor(problem: string) {
    this.problem = problem
  }
}

export const encodeEvent = (event: Event.Event): EncodedEvent => ({
  eventId: event.eventId,
  eventType: event._tag,
  eventData: storable(event, Event.encode)
})

export const encodeItem = (item: WorkItem.WorkItem) => storable(item, WorkItem.encode)

export const encodeActivity = (item: WorkItem.Of<"ActivityExecute">): EncodedActivity => ({
  workItem: encodeItem(item),
  name: item.name,
  instanceId: item.instance,
  executionId: item.executionId,
  activityId: item.id,
  sessionId: item.sessionId ?? null,
  tag: item.tag ?? null,
  ...(item.limitKey !== undefined && { limitKey: item.limitKey })
})

export const encodeMessage = (item: WorkItem.WorkItem) => ({
  instanceId: WorkItem.target(item),
  workItem: encodeItem(item),
  visibleAtMs: item._tag === "TimerFired" && item.fireAtMs > 0 ? item.fireAtMs : null,
  delayMs: null
})

export const emptyAck = (lockToken: string): OrchestrationAck => ({
  ...encodeMetadata({}),
  lockToken,
  executionId: null,
  history: [],
  customStatus: null,
  keyValues: [],
  workerItems: [],
  orchestratorItems: [],
  cancelledActivities: []
})

const encodeMetadata = (metadata: ExecutionMetadata) => ({
  status: metadata.status ?? null,
  output: metadata.output ?? null,
  orchestrationName: metadata.orchestrationName ?? null,
  orchestrationVersion: metadata.orchestrationVersion ?? null,
  parentInstanceId: metadata.parentInstanceId ?? null,
  pinnedVersion: metadata.pinnedVersion ?? null
})

export const encodeTurn = (lockToken: string, turn: Turn): OrchestrationAck => ({
  lockToken,
  ...encodeUnclaimedTurn(turn),
  ...(turn.left !== undefined && turn.left.length > 0 && { left: turn.left })
})

/** Its spreads are last, because V8 takes a microsecond for each field that follows one. */
export const encodeUnclaimedTurn = (turn: Turn, clockMs?: () => number): UnclaimedTurn => ({
  executionId: turn.executionId,
  clockMs,
  history: turn.historyDelta.map(encodeEvent),
  customStatus: lastCustomStatus(turn.historyDelta),
  keyValues: turn.historyDelta.flatMap(keyValueChange),
  workerItems: turn.workerItems.map((item) =>
    turn.forRust?.has(item) === true ? { ...encodeActivity(item), servedBy: "rust" as const } : encodeActivity(item)
  ),
  orchestratorItems: turn.orchestratorItems.map((item) =>
    item._tag === "StartOrchestration" ? { ...encodeMessage(item), ...startedBy(turn, item) } : encodeMessage(item)
  ),
  cancelledActivities: turn.cancelledActivities,
  ...encodeMetadata(turn.metadata),
  ...attributesOf(turn.historyDelta),
  ...nextVersion(turn),
  ...(turn.chunks !== undefined && turn.chunks.length > 0 && { chunks: turn.chunks }),
  ...(turn.cancelledTimers !== undefined && turn.cancelledTimers.length > 0 && {
    cancelledTimers: turn.cancelledTimers.map(encodeItem)
  }),
  ...(turn.requeued !== undefined && turn.requeued.length > 0 && { requeued: turn.requeued })
})

const nextVersion = ({ orchestratorItems }: Turn): { readonly nextVersion?: string | null } => {
  const next = orchestratorItems.find((item) => item._tag === "ContinueAsNew")
  return next === undefined ? {} : { nextVersion: next.version }
}

/** What a start among the messages of a turn writes of its instance. */
const startedBy = (
  { startsPinnedTo }: Turn,
  item: WorkItem.Of<"StartOrchestration">
): { readonly start?: StartedInstance } => {
  const pinnedVersion = startsPinnedTo?.get(item)
  return pinnedVersion === undefined ? {} : {
    start: {
      orchestrationName: item.orchestration,
      orchestrationVersion: item.version,
      parentInstanceId: item.parentInstance,
      pinnedVersion,
      ...(item.attributes !== undefined && { attributes: changesOf(item.attributes) }),
      ...(item.limitKey !== undefined && { limitKey: item.limitKey })
    }
  }
}

/** What the turn of these events makes of the status; null: it leaves it alone. */
export const lastCustomStatus = (events: ReadonlyArray<Event.Event>) => {
  const event = events.findLast((event) => event._tag === "CustomStatusUpdated")
  return event === undefined ? null : { value: event.status }
}

/** The rows of attributes, or of their changes. */
export const changesOf = (changes: attributes.EncodedChanges): ReadonlyArray<AttributeChange> =>
  Object.entries(changes).map(([name, value]) => ({ name, value }))

/** Later executions begin with the attributes that are stored already. */
const attributesOf = (events: ReadonlyArray<Event.Event>): { readonly attributes?: ReadonlyArray<AttributeChange> } => {
  let changes: ReadonlyArray<AttributeChange> | undefined
  for (const event of events) {
    const more = event._tag === "OrchestrationStarted" && event.executionId === 1
      ? event.attributes
      : event._tag === "KeyValueSet" && event.key === attributes.recordKey
      ? attributes.readChanges(event.value)
      : undefined
    if (more !== undefined) changes = [...changes ?? [], ...changesOf(more)]
  }
  return changes === undefined ? {} : { attributes: changes }
}

export const keyValueChange = (event: Event.Event): ReadonlyArray<KeyValueChange> => {
  switch (event._tag) {
    case "KeyValueSet":
      if (event.key === attributes.recordKey) return []
      return [{ action: "set", key: event.key, value: event.value, lastUpdatedAtMs: event.lastUpdatedAtMs ?? 0 }]
    case "KeyValueCleared":
      return [{ action: "clear_key", key: event.key }]
    case "KeyValuesCleared":
      return [{ action: "clear_all" }]
    default:
      return []
  }
}

/** Roughly, in bytes. */
export const sizeOfItem = ({ workItem }: { readonly workItem: string }) => workItem.length

/** Roughly, in bytes. */
export const sizeOfAck = (ack: UnclaimedTurn | OrchestrationAck) => {
  let size = ack.output?.length ?? 0
  for (const { eventData } of ack.history) size += eventData.length
  for (const item of ack.workerItems) size += sizeOfItem(item)
  for (const item of ack.orchestratorItems) size += sizeOfItem(item)
  for (const { chunk } of ack.chunks ?? []) size += chunk.length
  for (const change of ack.keyValues) size += change.action === "set" ? change.value.length : 0
  return size
}

// internal

// JSON writes what PostgreSQL and Rust refuse as escapes: NUL, and lone halves of surrogate pairs. The lookbehind keeps
// out an escaped backslash before the letter u.
const unstorable = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f][0-9a-f]{2})/

const storable = <A>(value: A, encode: (value: A) => string): string => {
  let text: string
  try {
    text = encode(value)
  } catch (thrown) {
    const message = thrown instanceof Error ? thrown.message : "it has no known kind"
    throw new Unstorable(`it cannot be encoded: ${message.replace(/\s*\n\s*/g, " ").slice(0, 300)}`)
  }
  if (text.includes("\\u") && unstorable.test(text)) {
    throw new Unstorable("a text in it holds a NUL character or half of a surrogate pair, which cannot be stored")
  }
  return text
}
