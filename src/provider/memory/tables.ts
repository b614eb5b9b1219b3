/**
 * The tables of the memory driver: plain maps, and the look-ups both drivers over them need.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { Block, BlockReport } from "../../model/Block.ts"
import type { CoreVersion, ExecutionStatus, InstanceState, InstanceStatus } from "../../model/Instance.ts"
import type { LimitKind } from "../../model/Limit.ts"
import { PauseTarget } from "../../model/Pause.ts"
import type { Pause } from "../../model/Pause.ts"
import type { Encoded } from "../../model/shared/attributes.ts"
import type { BoundRow } from "../../model/shared/limits.ts"
import * as pauses from "../../model/shared/pauses.ts"
import type { PausedKey, PausedRow } from "../../model/shared/pauses.ts"
import type { OperatorAction } from "../AdminDriver.ts"
import type { AttributeChange, EncodedActivity, EncodedEvent, ProcessRegistration } from "../ProviderDriver.ts"
import * as texts from "./texts.ts"

export interface Lock {
  readonly token: string
  untilMs: number
}

export interface Instance {
  name: string
  version: string | null
  parentInstanceId: string | null
  executionId: number
  customStatus: string | null
  customStatusVersion: number
  /** The version its next turn asks for; null: any. */
  asksFor: string | null
  /** Whether newer ones serve as well, after a continue-as-new that asks for none. */
  takesNewer: boolean
  readonly createdAtMs: number
  updatedAtMs: number
  /** Its name, if it has a limit, and the key of its start. */
  limitName?: string
  readonly limitKey?: string
  /** Until its first turn: its place among those that wait for a slot, and whether it does. */
  place?: { readonly dueAtMs: number; readonly number: number; isParked: boolean }
}

export interface Execution {
  status: ExecutionStatus
  output: string | null
  readonly startedAtMs: number
  completedAtMs: number | null
  pinned: CoreVersion | null
}

export interface Queued {
  visibleAtMs: number
  createdAtMs: number
  lock: Lock | null
  attemptCount: number
}

export interface Message extends Queued {
  readonly instanceId: string
  readonly workItem: string
  /** It waits with its instance for a slot of a limit. */
  waits?: true
}

export interface Activity extends Queued, EncodedActivity {
  /** Its name, if it has a limit. While it waits for a slot, it is visible at `Infinity`. */
  limitName?: string
}

/** The limits of a name. */
export interface Limit {
  total: BoundRow | null
  eachKey: BoundRow | null
  /** Bounds of single keys. */
  readonly own: Map<string, BoundRow>
  sinceMs: number
  /** When all used tokens are back, also by key. */
  freeMs: number
  /** When the next token is back that something waits for. */
  nextMs: number | undefined
  readonly keyFreeMs: Map<string, number>
  /** The key that was served last. */
  lastKey: string
}

export interface Session {
  readonly workerId: string
  untilMs: number
  lastActivityAtMs: number
}

export interface StoredValue {
  readonly value: string
  readonly lastUpdatedAtMs: number
  readonly executionId: number
}

export interface ChangedValue {
  /** Null marks a removed key. */
  readonly value: string | null
  readonly lastUpdatedAtMs: number
}

/** A block, and where its instance was. */
export interface StoredBlock extends Block {
  readonly executionId: number
  readonly lastEventId: number
}

export interface ChunkStream {
  readonly id: string
  appendedAtMs: number
  nextOffset: number
  /** UTF-8 bytes of the chunks that are kept. */
  bytes: number
  /** Those that are kept, the oldest first. */
  readonly chunks: Array<StoredChunk>
}

export interface StoredChunk {
  readonly offset: number
  readonly writer: string
  readonly number: number
  readonly chunk: string
  readonly appendedAtMs: number
}

export interface Process extends ProcessRegistration {
  readonly sinceMs: number
}

/** The end of a lock that an operator sets: the end of the year 9999. */
export const noEndMs = 253_402_300_799_999

export interface Tables {
  readonly instances: Map<string, Instance>
  readonly executions: Map<string, Map<number, Execution>>
  /** Event texts by instance, execution and event id; tools may add some where there is no execution. */
  readonly history: Map<string, Map<number, Map<number, string>>>
  readonly messages: Map<number, Message>
  readonly activities: Map<number, Activity>
  /** By the name of their activities. */
  readonly limits: { readonly [kind in LimitKind]: Map<string, Limit> }
  /** Locks of instances, with their pauses, whose token is empty. */
  readonly locks: Map<string, Lock>
  readonly blocks: Map<string, StoredBlock>
  readonly processes: Map<string, Process>
  /** By the texts of their keys. */
  readonly paused: Map<string, PausedRow>
  /** Called when something was paused or resumed, or when a slot of a limit may be free. */
  readonly pauseListeners: Set<() => void>
  /** What operators did, the newest last. */
  readonly actions: Array<OperatorAction>
  readonly sessions: Map<string, Session>
  /** Key-values that ended executions left, and what the current execution changed. */
  readonly stored: Map<string, Map<string, StoredValue>>
  readonly changed: Map<string, Map<string, ChangedValue>>
  /** By instance and name. */
  readonly attributes: Map<string, Map<string, Encoded>>
  /** By instance and name. */
  readonly streams: Map<string, Map<string, ChunkStream>>
  /** Newest row id of both queues. */
  lastRowId: number
  lastToken: number
}

export const make = (): Tables => ({
  instances: new Map(),
  executions: new Map(),
  history: new Map(),
  messages: new Map(),
  activities: new Map(),
  limits: { activity: new Map(), orchestration: new Map(), task: new Map() },
  locks: new Map(),
  blocks: new Map(),
  processes: new Map(),
  paused: new Map(),
  pauseListeners: new Set(),
  actions: [],
  sessions: new Map(),
  stored: new Map(),
  changed: new Map(),
  attributes: new Map(),
  streams: new Map(),
  lastRowId: 0,
  lastToken: 0
})

/** Says that work may be claimed that could not be claimed before. */
export const announce = ({ pauseListeners }: Tables): void => {
  for (const listener of pauseListeners) listener()
}

/** One statement: everything it does happens at one time of the clock. */
export const statement = <A>(f: (now: number) => A): Effect.Effect<A> =>
  Effect.map(Clock.currentTimeMillis, (now) => f(Math.floor(now)))

export const entry = <K, V>(map: Map<K, V>, key: K, make: () => V): V => {
  const found = map.get(key)
  if (found !== undefined) return found
  const made = make()
  map.set(key, made)
  return made
}

/** The current execution of an instance. */
export const currentOf = (tables: Tables, instanceId: string): Execution | undefined =>
  executionOf(tables, instanceId, tables.instances.get(instanceId)?.executionId ?? 0)

export const executionOf = (tables: Tables, instanceId: string, executionId: number): Execution | undefined =>
  tables.executions.get(instanceId)?.get(executionId)

/** Running, unless it is there already. */
export const createExecution = (tables: Tables, instanceId: string, executionId: number, now: number): Execution => {
  const ofInstance = entry(tables.executions, instanceId, () => new Map<number, Execution>())
  return entry(ofInstance, executionId, (): Execution => ({
    status: "Running",
    output: null,
    startedAtMs: now,
    completedAtMs: null,
    pinned: null
  }))
}

export const newInstance = (name: string, now: number): Instance => ({
  name,
  version: null,
  parentInstanceId: null,
  executionId: 1,
  customStatus: null,
  customStatusVersion: 0,
  asksFor: null,
  takesNewer: false,
  createdAtMs: now,
  updatedAtMs: now
})

/** Id of the newest execution; 0 for an unknown instance. */
export const newestExecution = (tables: Tables, instanceId: string): number =>
  Math.max(0, ...(tables.executions.get(instanceId)?.keys() ?? []))

/** Event texts by event id. */
export const historyOf = (tables: Tables, instanceId: string, executionId: number): ReadonlyArray<string> =>
  [...tables.history.get(instanceId)?.get(executionId) ?? []].sort(([a], [b]) => a - b).map(([, eventData]) =>
    eventData
  )

/** No event makes no history. */
export const addEvents = (
  tables: Tables,
  instanceId: string,
  executionId: number,
  events: ReadonlyArray<EncodedEvent>
): void => {
  if (events.length === 0) return
  const ofInstance = entry(tables.history, instanceId, () => new Map<number, Map<number, string>>())
  const ofExecution = entry(ofInstance, executionId, () => new Map<number, string>())
  for (const { eventData, eventId } of events) ofExecution.set(eventId, eventData)
}

export const changeAttributes = (
  { attributes }: Tables,
  instanceId: string,
  changes: ReadonlyArray<AttributeChange> = []
): void => {
  if (changes.length === 0) return
  const ofInstance = entry(attributes, instanceId, () => new Map<string, Encoded>())
  for (const { name, value } of changes) {
    if (value === null) ofInstance.delete(name)
    else ofInstance.set(name, value)
  }
}

/** Whether one of the event ids is in the history, or twice among the new ones. */
export const hasTaken = (
  tables: Tables,
  instanceId: string,
  executionId: number,
  events: ReadonlyArray<EncodedEvent>
): boolean => {
  const known = tables.history.get(instanceId)?.get(executionId)
  const ids = events.map(({ eventId }) => eventId)
  return new Set(ids).size < ids.length || ids.some((id) => known?.has(id))
}

/** 0 where there is no event. */
export const lastEventId = (tables: Tables, instanceId: string, executionId: number): number =>
  Math.max(0, ...tables.history.get(instanceId)?.get(executionId)?.keys() ?? [])

export const abandon = (row: Queued, ignoreAttempt: boolean): void => {
  row.lock = null
  if (ignoreAttempt) row.attemptCount = Math.max(0, row.attemptCount - 1)
}

/** It would not have to wait with a `createdAtMs` later than now, which a clock that was set back leaves. */
export const delay = (row: Queued, delayMs: number, now: number): void => {
  row.visibleAtMs = now + delayMs
  row.createdAtMs = Math.min(row.createdAtMs, now)
}

/** When it may be delivered. What is not to wait is due since ever, whatever the clock does. */
export const dueAtMs = ({ createdAtMs, visibleAtMs }: Queued): number =>
  visibleAtMs > createdAtMs ? visibleAtMs : -Infinity

export const isDue = (row: Queued, now: number): boolean => dueAtMs(row) <= now

/** Sorts rows in the order of delivery: those that are not to wait by their ids, and negative ids before all others. */
export const inPlace = <Row extends Queued>(rows: Iterable<readonly [number, Row]>): ReadonlyArray<[number, Row]> => {
  let latest = -Infinity
  return [...rows].sort(([a], [b]) => a - b).map(([id, row]) => {
    const waits = row.visibleAtMs > row.createdAtMs
    if (!waits && id > 0) latest = Math.max(latest, row.visibleAtMs)
    return { id, row, place: waits ? row.visibleAtMs : latest }
  }).sort((one, other) => one.place - other.place || one.id - other.id).map(({ id, row }) => [id, row])
}

export const isFree = ({ lock }: Queued, now: number): boolean => lock === null || lock.untilMs <= now

/** Key-values as a reader sees them: what the current execution changed decides. */
export const visibleValues = (tables: Tables, instanceId: string): ReadonlyMap<string, string> => {
  const visible = new Map<string, string>()
  for (const [key, { value }] of tables.stored.get(instanceId) ?? []) visible.set(key, value)
  for (const [key, { value }] of tables.changed.get(instanceId) ?? []) {
    if (value === null) visible.delete(key)
    else visible.set(key, value)
  }
  return visible
}

export const stateOf = (tables: Tables, instanceId: string, now = Infinity): InstanceState | undefined => {
  const instance = tables.instances.get(instanceId)
  if (instance === undefined) return undefined
  const execution = executionOf(tables, instanceId, instance.executionId)
  const end = execution?.status === "Failed"
    ? historyOf(tables, instanceId, instance.executionId).findLast((eventData) => !texts.isCancelRequested(eventData))
    : undefined
  return {
    instanceId,
    orchestrationName: instance.name,
    orchestrationVersion: instance.version,
    parentInstanceId: instance.parentInstanceId,
    executionId: instance.executionId,
    status: execution?.status ?? "Running",
    output: execution?.output ?? null,
    failure: end !== undefined && texts.isFailure(end) ? end : null,
    customStatus: instance.customStatus,
    customStatusVersion: instance.customStatusVersion,
    block: blockOf(tables, instanceId) ?? null,
    pause: execution?.status === "Completed" || execution?.status === "Failed" ? null : pauseIn(tables, instanceId),
    // The first turn writes the version.
    startsAtMs: instance.version === null && (execution?.status ?? "Running") === "Running"
      ? startsAt(tables, instanceId, now)
      : null,
    createdAtMs: instance.createdAtMs,
    updatedAtMs: instance.updatedAtMs
  }
}

/** When its start is due, if it is to wait. */
const startsAt = ({ messages }: Tables, instanceId: string, now: number): number | null => {
  const earliest = Math.min(
    ...[...messages.values()].flatMap((message) =>
      message.instanceId === instanceId && texts.isStart(message.workItem) ? message.visibleAtMs : []
    )
  )
  return earliest > now && earliest !== Infinity ? earliest : null
}

export const statusOf = (tables: Tables, instanceId: string): InstanceStatus => {
  const executionId = tables.instances.get(instanceId)?.executionId ?? 0
  const { output, status } = executionOf(tables, instanceId, executionId) ?? { output: null, status: "Running" }
  return status === "Failed" && output?.startsWith("canceled: ") === true
    ? "Cancelled"
    : status === "ContinuedAsNew"
    ? "Running"
    : status
}

/** Notes that no turn could be run. A block counts on while its instance stays where it is. */
export const block = (tables: Tables, instanceId: string, report: BlockReport, now: number): void => {
  const executionId = tables.instances.get(instanceId)?.executionId
  if (executionId === undefined) return
  const { sinceMs, tries } = blockOf(tables, instanceId) ?? { sinceMs: now, tries: 0 }
  tables.blocks.set(instanceId, {
    ...report,
    sinceMs,
    triedAtMs: now,
    tries: tries + 1,
    executionId,
    lastEventId: lastEventId(tables, instanceId, executionId)
  })
}

/** The block of an instance, unless it has continued. */
export const blockOf = (tables: Tables, instanceId: string): Block | undefined => {
  const stored = tables.blocks.get(instanceId)
  const current = tables.instances.get(instanceId)?.executionId
  if (stored === undefined || current !== stored.executionId) return undefined
  const { executionId, lastEventId: last, ...block } = stored
  return last === lastEventId(tables, instanceId, executionId) ? block : undefined
}

export const pausedKey = ({ name, target, version }: PausedKey): string => JSON.stringify([target, name, version])

/** The narrowest pause of an instance that has not ended. */
const pauseIn = ({ instances, paused }: Tables, instanceId: string): Pause | null => {
  const { asksFor, name, version: current } = instances.get(instanceId)!
  const version = current ?? asksFor
  const [found] = [
    PauseTarget.Instance({ instanceId }),
    ...(version === null ? [] : [PauseTarget.Orchestration({ name, version })]),
    PauseTarget.Orchestration({ name }),
    PauseTarget.Everything()
  ].flatMap((target) => paused.get(pausedKey(pauses.keyOf(target))) ?? [])
  return found === undefined ? null : pauses.pauseOf(found) ?? null
}

/** What is paused besides single instances, the oldest pause first. */
export const pausesOf = ({ paused }: Tables): ReadonlyArray<Pause> =>
  [...paused.values()]
    .filter(({ target }) => target !== "instance")
    .sort((a, b) => a.sinceMs - b.sinceMs || (pausedKey(a) < pausedKey(b) ? -1 : 1))
    .flatMap((row) => pauses.pauseOf(row) ?? [])

export const bytesOf = (texts: ReadonlyArray<string>): number =>
  texts.reduce((sum, text) => sum + new TextEncoder().encode(text).length, 0)
