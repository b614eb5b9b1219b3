/**
 * The requests that orchestration code can make, and how each is recorded, matched in a replay, and carried out.
 */
import type * as Exit from "effect/Exit"
import type * as Event from "../model/Event.ts"
import * as attributes from "../model/shared/attributes.ts"
import type { OnInterrupt, ServedBy } from "../model/shared/definitions.ts"
import { childId } from "../model/shared/identifiers.ts"
import * as markers from "../model/shared/markers.ts"
import * as requestSignal from "../model/shared/requestSignal.ts"
import * as taskSignal from "../model/shared/taskSignal.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import { whereDifferent } from "./difference.ts"
import type { Decode } from "./difference.ts"

/** One try of a call. */
export interface TryOf {
  /** From 1. */
  readonly number: number
  readonly call: Call
}

/** Shared by all tries of a call: the event id of the first try, once it has one. */
export interface Call {
  firstTryId: number | undefined
}

/** What decodes the input or the value of a request. Not recorded. */
interface Decodes {
  readonly decode?: Decode
}

/** A wait for a signal. `read` says whether the code can read a payload. Not recorded; absent: it can read all. */
interface Wait {
  readonly name: string
  readonly read?: (data: string) => Exit.Exit<unknown, unknown>
}

/**
 * A request that a later event answers. `servedBy` is not recorded: a definition may move it between TypeScript and
 * Rust.
 */
export type Awaited =
  | Decodes & {
    readonly _tag: "CallActivity"
    readonly name: string
    readonly input: string
    readonly sessionId?: string
    readonly tag?: string
    readonly servedBy?: ServedBy
    /** By which a limit distinguishes calls. Not recorded: it follows from the input. */
    readonly limitKey?: string
    /** Set when the call may have further tries. Not recorded: a replay counts the tries again. */
    readonly tryOf?: TryOf
  }
  /** `fireAtMs` is absolute, milliseconds since the Unix epoch. */
  | { readonly _tag: "CreateTimer"; readonly fireAtMs: number }
  | Wait & { readonly _tag: "WaitExternal" }
  | Wait & { readonly _tag: "DequeueEvent" }
  /** Without `instance` the child is named after its parent and its event. */
  | Decodes & {
    readonly _tag: "StartSubOrchestration"
    readonly name: string
    readonly version: string | null
    readonly instance: string | null
    readonly input: string
    readonly servedBy?: ServedBy
    /** What happens to the child when its call is interrupted. Not recorded. Defaults to `interrupt`. */
    readonly onInterrupt?: OnInterrupt
    /** Those that the child begins with. Not recorded. */
    readonly attributes?: attributes.EncodedAttributes | undefined
    /** By which a limit distinguishes instances. Not recorded. */
    readonly limitKey?: string | undefined
  }

/** A request that is done as soon as it is recorded. */
export type Immediate =
  | Decodes & {
    readonly _tag: "StartOrchestrationDetached"
    readonly name: string
    readonly version: string | null
    readonly instance: string
    readonly input: string
    readonly servedBy?: ServedBy
    /** Those that the instance begins with. Not recorded. */
    readonly attributes?: attributes.EncodedAttributes | undefined
    readonly limitKey?: string | undefined
  }
  | { readonly _tag: "SetAttributes"; readonly changes: attributes.EncodedChanges }
  | { readonly _tag: "UpdateCustomStatus"; readonly status: string | null }
  | Decodes & { readonly _tag: "SetKeyValue"; readonly key: string; readonly value: string }
  | { readonly _tag: "ClearKeyValue"; readonly key: string }
  | { readonly _tag: "ClearKeyValues" }
  /** `Orchestration.changed` is true here, and was not recorded before. `id` is that of the change. */
  | { readonly _tag: "RecordChange"; readonly id: string }
  /** The program continues without a signal that it cannot read. */
  | { readonly _tag: "RecordSetAside"; readonly signalId: number; readonly name: string }

/** A request made by the code. It becomes an event when it is new, or is matched with one when it is replayed. */
export type Action = Awaited | Immediate

/**
 * The event that records each kind of request, and its noun in messages; for markers see `markers.ts`, for changes of
 * attributes `attributes.ts`.
 */
const kinds = {
  CallActivity: { event: "ActivityScheduled", noun: "activity" },
  CreateTimer: { event: "TimerCreated", noun: "timer" },
  WaitExternal: { event: "ExternalSubscribed", noun: "wait for lossy signal" },
  DequeueEvent: { event: "ExternalSubscribedPersistent", noun: "wait for signal" },
  StartSubOrchestration: { event: "SubOrchestrationScheduled", noun: "child orchestration" },
  StartOrchestrationDetached: { event: "OrchestrationChained", noun: "detached start of" },
  UpdateCustomStatus: { event: "CustomStatusUpdated", noun: "custom status" },
  SetKeyValue: { event: "KeyValueSet", noun: "value of" },
  ClearKeyValue: { event: "KeyValueCleared", noun: "removal of" },
  ClearKeyValues: { event: "KeyValuesCleared", noun: "removal of all values" }
} as const satisfies {
  readonly [T in Exclude<Action["_tag"], "RecordChange" | "RecordSetAside" | "SetAttributes">]: {
    readonly event: Event.Event["_tag"]
    readonly noun: string
  }
}

type RequestTag = (typeof kinds)[keyof typeof kinds]["event"]

/** An event that records a request of the code. */
export type RequestEvent = Event.Of<RequestTag>

const nouns: { readonly [tag: string]: string } = Object.fromEntries(
  Object.values(kinds).map(({ event, noun }) => [event, noun])
)

/** The fields of a new event without its envelope. */
export type Recorded<E extends Event.Event = Event.Event> = E extends unknown ? Omit<E, keyof Envelope> : never

type Envelope = Pick<
  Event.Event,
  "eventId" | "sourceEventId" | "instanceId" | "executionId" | "timestampMs" | "duroxideVersion"
>

export const isRequest = (event: Event.Event): event is RequestEvent => event._tag in nouns

/** Requests that may disappear from code of Duroxide unnoticed, when the code requests nothing else at that point. */
export const mayBeMissing = (event: RequestEvent): boolean =>
  event._tag === "CustomStatusUpdated" || event._tag.startsWith("KeyValue")

/** The event of a request; `eventId` and `executionId` name children, `nowMs` stamps values. */
export const record = (
  action: Action,
  at: { readonly eventId: number; readonly executionId: number; readonly nowMs: number }
): Recorded<RequestEvent> => {
  switch (action._tag) {
    case "CallActivity": {
      return { _tag: "ActivityScheduled", ...callOf(action) }
    }
    case "CreateTimer":
      return { _tag: "TimerCreated", fireAtMs: action.fireAtMs }
    case "WaitExternal":
      return { _tag: "ExternalSubscribed", name: action.name }
    case "DequeueEvent":
      return { _tag: "ExternalSubscribedPersistent", name: action.name }
    case "StartSubOrchestration": {
      const automatic = at.executionId === 1 ? `sub::${at.eventId}` : `sub::${at.executionId}_${at.eventId}`
      const { input, name } = action
      return { _tag: "SubOrchestrationScheduled", name, instance: action.instance ?? automatic, input }
    }
    case "StartOrchestrationDetached": {
      const { input, instance, name } = action
      return { _tag: "OrchestrationChained", name, instance, input }
    }
    case "UpdateCustomStatus":
      return { _tag: "CustomStatusUpdated", status: action.status }
    case "SetKeyValue":
      return { _tag: "KeyValueSet", key: action.key, value: action.value, lastUpdatedAtMs: at.nowMs }
    case "SetAttributes": {
      const value = attributes.writeChanges(action.changes)
      return { _tag: "KeyValueSet", key: attributes.recordKey, value, lastUpdatedAtMs: at.nowMs }
    }
    case "ClearKeyValue":
      return { _tag: "KeyValueCleared", key: action.key }
    case "ClearKeyValues":
      return { _tag: "KeyValuesCleared" }
    case "RecordChange":
      return { _tag: "ActivityScheduled", name: markers.changed, input: markers.inputOf(action.id) }
    case "RecordSetAside":
      return { _tag: "ActivityScheduled", name: markers.setAside, input: markers.inputOf(action.signalId) }
  }
}

/**
 * The message that carries out a new request; undefined when the request is done once it is recorded. `startedAtMs` is
 * the time of the execution's first event.
 */
export const dispatch = (
  action: Action,
  event: RequestEvent,
  { startedAtMs, traceparent }: { readonly startedAtMs: number; readonly traceparent: string | undefined }
): WorkItem.WorkItem | undefined => {
  const { eventId: id, executionId, instanceId: instance } = event
  switch (action._tag) {
    case "CallActivity": {
      const { tryOf } = action
      const firstTryId = tryOf?.call.firstTryId ?? id
      return {
        _tag: "ActivityExecute",
        instance,
        executionId,
        id,
        startedAtMs,
        ...callOf(action),
        ...(tryOf !== undefined && tryOf.number > 1 && { tryNumber: tryOf.number, firstTryId }),
        ...(action.limitKey !== undefined && { limitKey: action.limitKey }),
        ...(traceparent !== undefined && { traceparent })
      }
    }
    case "CreateTimer":
      return { _tag: "TimerFired", instance, executionId, id, fireAtMs: action.fireAtMs }
    case "StartSubOrchestration":
      return {
        _tag: "StartOrchestration",
        instance: event._tag === "SubOrchestrationScheduled" ? childId(event) : instance,
        orchestration: action.name,
        input: action.input,
        version: action.version,
        parentInstance: instance,
        parentId: id,
        parentExecutionId: executionId,
        executionId: 1,
        ...(traceparent !== undefined && { traceparent }),
        ...(action.attributes !== undefined && { attributes: action.attributes }),
        ...(action.limitKey !== undefined && { limitKey: action.limitKey })
      }
    case "StartOrchestrationDetached":
      return {
        _tag: "StartOrchestration",
        instance: action.instance,
        orchestration: action.name,
        input: action.input,
        version: action.version,
        parentInstance: null,
        parentId: null,
        executionId: 1,
        ...(traceparent !== undefined && { traceparent }),
        ...(action.attributes !== undefined && { attributes: action.attributes }),
        ...(action.limitKey !== undefined && { limitKey: action.limitKey })
      }
    default:
      return undefined
  }
}

/**
 * Why a request of the code is not the recorded one, or undefined when it is. Not compared: what every replay computes
 * anew (the due time of a timer, the id of a child, the time of a value); the version of a child, which history does
 * not hold; and, as in Duroxide, the text of a status.
 */
export const mismatch = (action: Action, event: RequestEvent): string | undefined => {
  const expected = describeEvent(event)
  const other = () => `history has ${expected}, the code asks for ${describeAction(action)}`
  const fields = record(action, { eventId: event.eventId, executionId: event.executionId, nowMs: 0 })
  if (fields._tag !== event._tag || subject(fields) !== subject(event)) return other()
  for (const field of compared) {
    const ours = (fields as Record<string, unknown>)[field]
    const theirs = (event as unknown as Record<string, unknown>)[field]
    if (ours === theirs) continue
    const where = typeof ours === "string" && typeof theirs === "string"
      ? whereDifferent(ours, theirs, hasValue(field) && "decode" in action ? action.decode : undefined)
      : ""
    if (where === undefined) continue
    const what = field === "sessionId" ? "session" : where === "" || !hasValue(field) ? field : `${field} at ${where}`
    return `history has ${expected}, the code asks for the same with another ${what}`
  }
  return event._tag === "OrchestrationChained" && (fields as typeof event).instance !== event.instance
    ? `history has ${expected}, the code asks for the same with another instance`
    : undefined
}

/** Kind and name, never a payload. */
export const describeEvent = (event: RequestEvent): string =>
  builtIn(event) ?? described(nouns[event._tag]!, subject(event))

// internal

/** Field by field: to leave out some of an object takes V8 a microsecond, at each turn of each call. */
const callOf = ({ input, name, sessionId, tag }: Extract<Action, { readonly _tag: "CallActivity" }>) =>
  sessionId === undefined && tag === undefined
    ? { name, input }
    : { name, input, ...(sessionId !== undefined && { sessionId }), ...(tag !== undefined && { tag }) }

const compared = ["input", "sessionId", "tag", "value"]

const hasValue = (field: string) => field === "input" || field === "value"

const subject = (fields: object): string | undefined =>
  "name" in fields ? String(fields.name) : "key" in fields ? String(fields.key) : undefined

const describeAction = (action: Action): string =>
  action._tag === "RecordChange"
    ? described("change", action.id)
    : action._tag === "RecordSetAside"
    ? described("set aside signal", action.name)
    : action._tag === "SetAttributes"
    ? attributesNoun
    : builtIn(action) ?? described(kinds[action._tag].noun, subject(action))

const attributesNoun = "change of attributes"

/** Calls of tasks and changes are activities of ours, whose input has the name of the task or the id of the change. */
const builtIn = (fields: object): string | undefined => {
  if ("key" in fields && fields.key === attributes.recordKey) return attributesNoun
  if ("key" in fields && requestSignal.isAnswerKey(String(fields.key))) {
    return described("answer to request", requestSignal.idOfAnswer(String(fields.key)))
  }
  if ("name" in fields && requestSignal.isName(String(fields.name))) {
    return described("wait for request", requestSignal.requestOf(String(fields.name)))
  }
  if (!("name" in fields && "input" in fields)) return undefined
  if (fields.name === markers.setAside) return `set aside signal ${String(fields.input)}`
  const [activity, input] = [String(fields.name), String(fields.input)]
  const name = taskSignal.creates(activity)
    ? taskSignal.taskOf(input)
    : activity === markers.changed
    ? markers.changeOf(input)
    : undefined
  return name === undefined ? undefined : described(activity === markers.changed ? "change" : "task", name)
}

const described = (noun: string, subject: string | undefined) => subject === undefined ? noun : `${noun} "${subject}"`
