/**
 * Reads a recording of Duroxide's runtime and returns, turn by turn, its input and what was stored.
 *
 * A recording holds the rows of `history`, each with the turn that wrote it, and a log of every row the two queues ever
 * got. Both determine the input of each turn: the history of the turns before it, the values that ended executions
 * left, and the messages that its own rows answer, in the order in which they lay in the queue. Messages that left no
 * row are handed over as well, because deciding nothing is a decision, too.
 */
import { ErrorDetails, Event, WorkItem } from "duroxide-prisma/provider"
import type { ProviderDriver } from "duroxide-prisma/provider"
import * as Result from "effect/Result"
import { readFileSync } from "node:fs"
import { isDeepStrictEqual } from "node:util"

export interface Recording {
  readonly scenario: string
  /** A description of the code. */
  readonly orchestration: string
  readonly instances: ReadonlyArray<{
    readonly instance_id: string
    readonly orchestration_name: string
    readonly orchestration_version: string
    readonly current_execution_id: number
    readonly parent_instance_id: string | null
    readonly custom_status: string | null
    readonly custom_status_version: number
  }>
  readonly executions: ReadonlyArray<{
    readonly instance_id: string
    readonly execution_id: number
    readonly status: string
    readonly output: string | null
    readonly duroxide_version_major: number | null
    readonly duroxide_version_minor: number | null
    readonly duroxide_version_patch: number | null
  }>
  readonly history: ReadonlyArray<{
    readonly instance_id: string
    readonly execution_id: number
    readonly event_id: number
    readonly turn: number
    readonly event_data: string
  }>
  readonly work_items: ReadonlyArray<QueueRow>
  readonly left_in_queues?: ReadonlyArray<{ readonly work_item: string }>
  /** What ended executions have left. */
  readonly kv_store?: ReadonlyArray<{
    readonly instance_id: string
    readonly key: string
    readonly value: string
    readonly last_updated_at_ms: string
  }>
}

/** A queue row as it was inserted; times in ISO 8601. */
export interface QueueRow {
  readonly queue: "orchestrator" | "worker"
  readonly instance_id: string
  readonly execution_id?: number
  readonly activity_id?: number
  readonly session_id?: string | null
  readonly tag?: string | null
  readonly visible_at: string
  readonly work_item: string
}

/** The result of one claim. */
export interface Batch {
  readonly instanceId: string
  readonly executionId: number
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number
  readonly attemptCount: number
  /** Null before the first turn. */
  readonly instance: { readonly orchestrationName: string; readonly orchestrationVersion: string } | null
  readonly history: ReadonlyArray<string>
  readonly messages: ReadonlyArray<string>
  readonly keyValues: ProviderDriver.ClaimedInstance["keyValues"]
}

/** What a turn stored. */
export interface Stored {
  readonly executionId: number
  readonly events: ReadonlyArray<string>
  readonly activities: ReadonlyArray<QueueRow>
  readonly messages: ReadonlyArray<QueueRow>
  /** Event ids of the activities whose cancellation was recorded. */
  readonly cancelled: ReadonlyArray<number>
  /** Set by the turn that ends the execution. */
  readonly end: { readonly status: string; readonly output: string | null } | undefined
  /** Set by the first turn. */
  readonly identity:
    | {
      readonly name: string
      readonly version: string
      readonly parent: string | null
      /** Whether the execution was pinned to a runtime version. */
      readonly pinned: boolean
    }
    | undefined
}

/** One delivery and its expected outcome. */
export type Step =
  | { readonly _tag: "Turn"; readonly turn: number; readonly batch: Batch; readonly stored: Stored }
  /** The batch is settled, nothing else: no event, no message, the same state. */
  | { readonly _tag: "Nothing"; readonly batch: Batch }
  /**
   * The instance has ended: the batch is deleted without a turn; parents of children that cannot start are notified.
   */
  | { readonly _tag: "Dropped"; readonly batch: Batch; readonly messages: ReadonlyArray<QueueRow> }
  | {
    readonly _tag: "GivenBack"
    readonly batch: Batch
    readonly delayMs: number
    /** Whether the delivery counts as an attempt. */
    readonly counted: boolean
  }
  /** An activity is offered to a worker; null for `completion` says that it is given back for `delayMs`. */
  | {
    readonly _tag: "Activity"
    readonly workItem: string
    readonly attemptCount: number
    readonly completion: string | null
    readonly delayMs?: number
  }
  /** The claims ask for a range of versions that excludes this one. */
  | { readonly _tag: "NotAskedFor"; readonly version: readonly [number, number, number] }

/** The recording does not say what happened, or contradicts itself. */
export class RecordingError extends Error {}

export const read = (file: URL): Recording => JSON.parse(readFileSync(file, "utf8")) as Recording

/** Every delivery of the recording, in order of time. */
export const steps = (recording: Recording): ReadonlyArray<Step> => {
  const log = new Log(recording)
  const turns = groupTurns(recording).map((rows) => readTurn(recording, log, rows))
  const silent = [...log.silentMessages(turns)].map((message) => readSilent(recording, log, turns, message))
  log.checkOutputs()
  checkState(recording)
  return [...turns, ...silent].toSorted((a, b) => a.batch.nowMs - b.batch.nowMs)
}

// internal

type Turn = Extract<Step, { readonly _tag: "Turn" }>
type Delivery = Extract<Step, { readonly batch: Batch }>

/** The recorder polled every 30 milliseconds: a message that waited longer was taken in a separate turn. */
const idleCycleMs = 100

/** Duroxide reads its clock for every event it makes; a turn takes a few milliseconds, one that panics fifty. */
const turnMs = 50

const groupTurns = ({ history }: Recording) => {
  const turns = new Map<string, Array<Recording["history"][number]>>()
  for (const row of history) {
    const key = JSON.stringify([row.instance_id, row.execution_id, row.turn])
    const rows = turns.get(key)
    if (rows === undefined) turns.set(key, [row])
    else rows.push(row)
  }
  return [...turns.values()]
}

const readTurn = (recording: Recording, log: Log, rows: ReadonlyArray<Recording["history"][number]>): Turn => {
  const { execution_id: executionId, instance_id: instanceId, turn } = rows[0]!
  const events = rows.map(decode)
  const nowMs = events[0]!.timestampMs
  const isOfTheTurn = (timeMs: number) => timeMs >= nowMs && timeMs <= nowMs + turnMs
  for (const [index, event] of events.entries()) {
    const before = events[index - 1] ?? event
    const setMs = event._tag === "KeyValueSet" ? event.lastUpdatedAtMs! : nowMs
    if (event.timestampMs < before.timestampMs || !isOfTheTurn(event.timestampMs) || !isOfTheTurn(setMs)) {
      throw new RecordingError(`${instanceId} turn ${turn}: event ${event.eventId} is not of the turn's time`)
    }
  }
  const ofExecution = (id: number) =>
    recording.history.filter((row) => row.instance_id === instanceId && row.execution_id === id)
  const earlier = ofExecution(executionId).filter((row) => row.turn < turn)
  const instance = recording.instances.find((row) => row.instance_id === instanceId)
  const execution = recording.executions.find((row) =>
    row.instance_id === instanceId && row.execution_id === executionId
  )
  const [first] = events
  // An instance that failed on its first turn may have no row.
  if ((instance === undefined && first!._tag !== "OrchestrationFailed") || execution === undefined) {
    throw new RecordingError(`${instanceId} has no row`)
  }
  const version = instance?.current_execution_id !== executionId && first!._tag === "OrchestrationStarted"
    ? first.version
    : instance?.orchestration_version
  const carried = first!._tag === "OrchestrationStarted" ? first.carryForwardEvents?.length ?? 0 : 0
  const arrived = events.toSpliced(1, carried).flatMap((event) => log.consumed(event) ?? [])
  const ended = events.some(isTerminal)
  const later = ofExecution(executionId).some((row) => row.turn > turn)
  if (ended && later) throw new RecordingError(`${instanceId} turn ${turn}: the execution continues after its end`)
  if (ended) checkEnd(events, execution)
  else if (!later && execution.status !== "Running") throw new RecordingError(`${instanceId} ends nowhere`)
  // What continues an execution is claimed with the one before it.
  const claimed = turn === 1 && executionId > 1 ? executionId - 1 : executionId
  const history = claimed === executionId ? earlier : ofExecution(claimed)
  return {
    _tag: "Turn",
    turn,
    batch: {
      instanceId,
      executionId: claimed,
      nowMs,
      attemptCount: 1,
      ...known(recording, instanceId, history.map((row) => row.event_data)),
      messages: arrived.toSorted((a, b) => a.index - b.index).map((message) => message.text),
      keyValues: keyValuesOf(recording, instanceId, executionId)
    },
    stored: {
      executionId,
      events: rows.map((row) => row.event_data),
      activities: log.activitiesOf(instanceId, executionId, events),
      messages: log.messagesOf([...earlier.map(decode), ...events], events),
      cancelled: events.flatMap((event) => event._tag === "ActivityCancelRequested" ? event.sourceEventId! : []),
      end: ended ? { status: execution.status, output: execution.output } : undefined,
      identity: turn > 1 || instance === undefined ? undefined : {
        name: instance.orchestration_name,
        version: version!,
        parent: instance.parent_instance_id,
        pinned: pinOf(execution) !== undefined
      }
    }
  }
}

/** A message that left no row: it belongs to the batch of a turn close to it, else it was alone. */
const readSilent = (recording: Recording, log: Log, turns: ReadonlyArray<Turn>, message: Message): Delivery => {
  const instanceId = message.row.instance_id
  const visibleMs = Date.parse(message.row.visible_at)
  const before = turns.filter(({ batch }) => batch.instanceId === instanceId && batch.nowMs <= visibleMs)
  const executionId = before.at(-1)?.stored.executionId ?? 1
  const own = before.filter(({ stored }) => stored.executionId === executionId)
  const batch: Batch = {
    instanceId,
    executionId,
    nowMs: visibleMs,
    attemptCount: 1,
    ...known(recording, instanceId, own.flatMap(({ stored }) => stored.events)),
    messages: [message.text],
    keyValues: keyValuesOf(recording, instanceId, executionId)
  }
  return own.length === 0 || own.some(({ stored }) => stored.end !== undefined)
    ? { _tag: "Dropped", batch, messages: log.refusalOf(message.item) }
    : { _tag: "Nothing", batch }
}

/** History, and the instance row as it was then. */
const known = (recording: Recording, instanceId: string, history: ReadonlyArray<string>): Known => {
  const instance = recording.instances.find((row) => row.instance_id === instanceId)
  if (history.length === 0 || instance === undefined) return { instance: null, history }
  const started = Result.getOrThrow(Event.decode(history[0]!)) as Event.Of<"OrchestrationStarted">
  return { instance: { orchestrationName: started.name, orchestrationVersion: started.version }, history }
}

type Known = Pick<Batch, "instance" | "history">

/** What the executions before this one have left. */
const keyValuesOf = (recording: Recording, instanceId: string, executionId: number): Batch["keyValues"] => {
  const values = new Map<string, Batch["keyValues"][number]>()
  for (const row of recording.history) {
    if (row.instance_id !== instanceId || row.execution_id >= executionId) continue
    const event = decode(row)
    if (event._tag === "KeyValueSet") {
      values.set(event.key, { key: event.key, value: event.value, lastUpdatedAtMs: event.lastUpdatedAtMs! })
    }
    if (event._tag === "KeyValueCleared") values.delete(event.key)
    if (event._tag === "KeyValuesCleared") values.clear()
  }
  return [...values.values()]
}

/** Custom statuses and values are taken from the events; the rows must say the same. */
const checkState = (recording: Recording): void => {
  for (const { custom_status, custom_status_version, instance_id } of recording.instances) {
    const rows = recording.history.filter((row) => row.instance_id === instance_id)
    const status = rows.map((row) => ({ row, event: decode(row) })).filter(({ event }) =>
      event._tag === "CustomStatusUpdated"
    )
    const last = status.at(-1)?.event
    const turns = new Set(status.map(({ row }) => `${row.execution_id} ${row.turn}`))
    if (
      custom_status !== (last?._tag === "CustomStatusUpdated" ? last.status : null) ||
      custom_status_version !== turns.size
    ) throw new RecordingError(`${instance_id}: the row does not say the last custom status`)
    const running = recording.executions.find((row) => row.instance_id === instance_id && row.status === "Running")
    const values = keyValuesOf(recording, instance_id, running?.execution_id ?? Infinity)
    const stored = (recording.kv_store ?? []).filter((row) => row.instance_id === instance_id)
    if (
      !isDeepStrictEqual(
        values.toSorted((a, b) => a.key < b.key ? -1 : 1),
        stored.map((row) => ({ key: row.key, value: row.value, lastUpdatedAtMs: Number(row.last_updated_at_ms) }))
      )
    ) throw new RecordingError(`${instance_id}: the rows do not say the values`)
  }
}

interface Message {
  readonly index: number
  readonly row: QueueRow
  readonly text: string
  readonly item: WorkItem.WorkItem
}

/** The log of both queues, and which of its rows are accounted for. */
class Log {
  private readonly messages: ReadonlyArray<Message>
  private readonly unread: Set<Message>
  /** Rows that no client and no worker has inserted, so some turn has. */
  private readonly unexplained: Set<QueueRow>

  constructor(recording: Recording) {
    const left = new Set(recording.left_in_queues?.map((row) => row.work_item))
    this.messages = recording.work_items.flatMap((row, index) =>
      row.queue === "worker"
        ? []
        : { index, row, text: row.work_item, item: Result.getOrThrow(WorkItem.decode(row.work_item)) }
    )
    this.unread = new Set(this.messages.filter(({ text }) => !left.has(text)))
    this.unexplained = new Set(
      recording.work_items.filter((row) => row.queue === "worker" || isTurnText(row.work_item))
    )
  }

  /** The message an event answers; undefined for events that answer none. */
  consumed(event: Event.Event): Message | undefined {
    const isOne = recordedAs(event)
    if (isOne === undefined) return undefined
    for (const message of this.unread) {
      if (WorkItem.target(message.item) !== event.instanceId || !isOne(message.item)) continue
      this.unread.delete(message)
      return message
    }
    throw new RecordingError(`${event.instanceId}: no message in the log is the one of event ${event.eventId}`)
  }

  activitiesOf(instanceId: string, executionId: number, events: ReadonlyArray<Event.Event>): ReadonlyArray<QueueRow> {
    const ids = new Set(events.flatMap((event) => event._tag === "ActivityScheduled" ? event.eventId : []))
    return this.explain((row) =>
      row.queue === "worker" && row.instance_id === instanceId && row.execution_id === executionId &&
      ids.has(row.activity_id!)
    )
  }

  /** What a turn enqueued: `events` are its own, `execution` holds them and all before them. */
  messagesOf(execution: ReadonlyArray<Event.Event>, events: ReadonlyArray<Event.Event>): ReadonlyArray<QueueRow> {
    return this.explain((row) => {
      if (row.queue === "worker") return false
      const item = Result.getOrThrow(WorkItem.decode(row.work_item))
      return events.some((event) => isCauseOf(event, item, execution))
    })
  }

  /** The notice to a parent about a child that could not start. */
  refusalOf(start: WorkItem.WorkItem): ReadonlyArray<QueueRow> {
    return this.explain((row) => {
      if (row.queue === "worker" || start._tag !== "StartOrchestration") return false
      const item = Result.getOrThrow(WorkItem.decode(row.work_item))
      return item._tag === "SubOrchFailed" && item.parentInstance === start.parentInstance &&
        item.parentId === start.parentId && item.parentExecutionId === start.parentExecutionId
    })
  }

  /** Messages that were taken from the queue and left no row; those close to a turn are put into its batch. */
  *silentMessages(turns: Array<Turn>): Generator<Message> {
    for (const message of this.unread) {
      const visibleMs = Date.parse(message.row.visible_at)
      const index = turns.findIndex(({ batch }) =>
        batch.instanceId === message.row.instance_id && batch.nowMs >= visibleMs &&
        batch.nowMs < visibleMs + idleCycleMs
      )
      if (index < 0) {
        yield message
        continue
      }
      const turn = turns[index]!
      const order = new Map(this.messages.map(({ index, text }) => [text, index]))
      const messages = [...turn.batch.messages, message.text].toSorted((a, b) => order.get(a)! - order.get(b)!)
      turns[index] = { ...turn, batch: { ...turn.batch, messages } }
    }
  }

  checkOutputs(): void {
    for (const row of this.unexplained) {
      throw new RecordingError(`${row.instance_id}: no turn wrote the queue row ${row.work_item}`)
    }
  }

  private explain(isOne: (row: QueueRow) => boolean): ReadonlyArray<QueueRow> {
    const rows = [...this.unexplained].filter(isOne)
    for (const row of rows) this.unexplained.delete(row)
    return rows
  }
}

/** Turn commits pass through `jsonb`, which puts a space after every colon; clients and workers write compact text. */
const isTurnText = (text: string) => /^\{"\w+": /.test(text)

const recordedAs = (event: Event.Event): ((item: WorkItem.WorkItem) => boolean) | undefined => {
  switch (event._tag) {
    case "OrchestrationStarted":
      return (item) =>
        item._tag === (event.executionId === 1 ? "StartOrchestration" : "ContinueAsNew") &&
        item.orchestration === event.name && item.input === event.input
    case "ActivityCompleted":
      return (item) =>
        item._tag === "ActivityCompleted" && item.id === event.sourceEventId && item.executionId === event.executionId
    case "ActivityFailed":
      return (item) =>
        item._tag === "ActivityFailed" && item.id === event.sourceEventId && item.executionId === event.executionId
    case "TimerFired":
      return (item) =>
        item._tag === "TimerFired" && item.id === event.sourceEventId && item.executionId === event.executionId
    case "SubOrchestrationCompleted":
      return (item) =>
        item._tag === "SubOrchCompleted" && item.parentId === event.sourceEventId &&
        item.parentExecutionId === event.executionId
    case "SubOrchestrationFailed":
      return (item) =>
        item._tag === "SubOrchFailed" && item.parentId === event.sourceEventId &&
        item.parentExecutionId === event.executionId
    case "ExternalEventPersistent":
      return (item) => item._tag === "QueueMessage" && item.name === event.name && item.data === event.data
    case "ExternalEvent":
      return (item) => item._tag === "ExternalRaised" && item.name === event.name && item.data === event.data
    case "OrchestrationCancelRequested":
      return (item) => item._tag === "CancelInstance" && item.reason === event.reason
    default:
      return undefined
  }
}

/** Whether the turn that recorded the event enqueued the message because of it. */
const isCauseOf = (event: Event.Event, item: WorkItem.WorkItem, execution: ReadonlyArray<Event.Event>): boolean => {
  const { eventId, executionId, instanceId } = event
  const [started] = execution
  const isNotice = (item: WorkItem.Of<"SubOrchCompleted" | "SubOrchFailed">) =>
    started?._tag === "OrchestrationStarted" && item.parentInstance === started.parentInstance &&
    item.parentId === started.parentId && item.parentExecutionId === started.parentExecutionId
  const isChild = (id: string, scheduledBy?: number | null) =>
    execution.some((event) =>
      event._tag === "SubOrchestrationScheduled" && (scheduledBy === undefined || event.eventId === scheduledBy) &&
      id === (event.instance.startsWith("sub::") ? `${instanceId}::${event.instance}` : event.instance)
    )
  switch (item._tag) {
    case "TimerFired":
      return event._tag === "TimerCreated" && item.instance === instanceId && item.executionId === executionId &&
        item.id === eventId
    case "StartOrchestration":
      return event._tag === "OrchestrationChained"
        ? item.parentInstance === null && item.instance === event.instance
        : event._tag === "SubOrchestrationScheduled" && item.parentInstance === instanceId &&
          item.parentExecutionId === executionId && item.parentId === eventId
    case "CancelInstance":
      return event._tag === "SubOrchestrationCancelRequested"
        ? isChild(item.instance, event.sourceEventId)
        : event._tag === "OrchestrationCancelRequested" && isChild(item.instance)
    case "ContinueAsNew":
      return event._tag === "OrchestrationContinuedAsNew" && item.instance === instanceId && item.input === event.input
    case "SubOrchCompleted":
      return event._tag === "OrchestrationCompleted" && isNotice(item)
    case "SubOrchFailed":
      return event._tag === "OrchestrationFailed" && isNotice(item)
    default:
      return false
  }
}

const decode = (row: Recording["history"][number]): Event.Event => {
  const event = Event.decode(row.event_data)
  if (Result.isSuccess(event)) return event.success
  // One row of one recording was made unreadable on purpose: what counts here is its envelope.
  const { event_id: eventId, timestamp_ms: timestampMs } = JSON.parse(row.event_data) as Record<string, number>
  return { ...unreadable, eventId: eventId!, timestampMs: timestampMs!, instanceId: row.instance_id }
}

const unreadable = {
  _tag: "ExternalSubscribed",
  name: "",
  sourceEventId: null,
  executionId: 1,
  duroxideVersion: ""
} as const

const isTerminal = ({ _tag }: Event.Event) =>
  _tag === "OrchestrationCompleted" || _tag === "OrchestrationFailed" || _tag === "OrchestrationContinuedAsNew"

const checkEnd = (events: ReadonlyArray<Event.Event>, execution: Recording["executions"][number]): void => {
  const end = events.findLast(isTerminal)!
  const [status, output] = end._tag === "OrchestrationCompleted"
    ? ["Completed", end.output]
    : end._tag === "OrchestrationContinuedAsNew"
    ? ["ContinuedAsNew", end.input]
    : ["Failed", end._tag === "OrchestrationFailed" ? ErrorDetails.display(end.details) : ""]
  if (execution.status !== status || execution.output !== output) {
    throw new RecordingError(`${end.instanceId}: the row of the execution does not say how its history ends`)
  }
}

const pinOf = (execution: Recording["executions"][number]) =>
  execution.duroxide_version_major === null ? undefined : [
    execution.duroxide_version_major,
    execution.duroxide_version_minor!,
    execution.duroxide_version_patch!
  ] as const

/** The runtime version an execution is pinned to. */
export const pinnedVersion = ({ executions }: Recording): readonly [number, number, number] => {
  const pin = executions[0] && pinOf(executions[0])
  if (pin === undefined) throw new RecordingError("no execution of this recording is pinned")
  return pin
}
