/**
 * Events as readable text: one line each, and a text to compare decisions by.
 */
import * as Event from "../model/Event.ts"
import * as attributes from "../model/shared/attributes.ts"
import { explain, explainEnd } from "../model/shared/explained.ts"
import * as interruptSignal from "../model/shared/interruptSignal.ts"
import * as markers from "../model/shared/markers.ts"
import * as requestSignal from "../model/shared/requestSignal.ts"
import * as retrySignal from "../model/shared/retrySignal.ts"
import * as taskSignal from "../model/shared/taskSignal.ts"
import { describeEvent, isRequest } from "./action.ts"

/** Kind, name and payload, without the id; long payloads are cut. */
export const eventText = (event: Event.Event): string => {
  const source = event.sourceEventId
  switch (event._tag) {
    case "OrchestrationStarted":
      return `start of "${event.name}" ${event.version} with ${cut(event.input)}`
    case "OrchestrationCompleted":
      return `the end: completed with ${cut(event.output)}`
    case "OrchestrationFailed":
      return `the end: failed with ${cut(explain(event.details))}`
    case "OrchestrationContinuedAsNew":
      return `the end: continues as new with ${cut(event.input)}`
    case "OrchestrationCancelRequested":
      return `cancellation: ${cut(event.reason)}`
    case "OrchestrationChained":
      return `detached start of "${event.name}" as ${event.instance} with ${cut(event.input)}`
    case "ActivityScheduled": {
      if (event.name === markers.changed) return `change ${event.input}`
      if (event.name === markers.setAside) return `signal ${event.input} set aside`
      const on = event.sessionId === undefined ? "" : `, session ${event.sessionId}`
      return `activity "${event.name}" with ${cut(event.input)}${on}${
        event.tag === undefined ? "" : `, tag ${event.tag}`
      }`
    }
    case "ActivityCompleted":
    case "SubOrchestrationCompleted":
      return `answer to ${source}: ${cut(event.result)}`
    case "ActivityFailed":
    case "SubOrchestrationFailed":
      return `failure of ${source}: ${cut(explainEnd(event.details))}`
    case "ActivityCancelRequested":
    case "SubOrchestrationCancelRequested":
    case "ExternalSubscribedCancelled":
    case "ExternalSubscribedPersistentCancelled":
      return `${source} is given up: ${event.reason}`
    case "TimerCreated":
      return `timer of ${new Date(event.fireAtMs).toISOString()}`
    case "TimerFired":
      return `timer ${source} fires`
    case "ExternalSubscribed":
    case "ExternalSubscribedPersistent":
      return describeEvent(event)
    case "ExternalEvent":
    case "ExternalEventPersistent":
      return `${signal(event)}: ${cut(signalData(event))}`
    case "SubOrchestrationScheduled":
      return `child orchestration "${event.name}" as ${event.instance} with ${cut(event.input)}`
    case "CustomStatusUpdated":
      return event.status === null ? "no custom status" : `custom status ${JSON.stringify(cut(event.status))}`
    case "KeyValueSet":
      if (event.key === attributes.recordKey) return `change of attributes: ${cut(event.value)}`
      return `value of "${event.key}": ${cut(event.value)}`
    case "KeyValueCleared":
      return `removal of "${event.key}"`
    case "KeyValuesCleared":
      return "removal of all values"
  }
}

/** Kind and name, never a payload; requests in the words of `mismatch`. */
export const eventName = (event: Event.Event): string => {
  if (isRequest(event)) return describeEvent(event)
  switch (event._tag) {
    case "OrchestrationStarted":
      return `start of "${event.name}" ${event.version}`
    case "OrchestrationCompleted":
      return "the end: completed"
    case "OrchestrationFailed":
      return "the end: failed"
    case "OrchestrationContinuedAsNew":
      return "the end: continues as new"
    case "OrchestrationCancelRequested":
      return "cancellation"
    case "ActivityCompleted":
    case "SubOrchestrationCompleted":
      return `answer to ${event.sourceEventId}`
    case "ActivityFailed":
    case "SubOrchestrationFailed":
      return `failure of ${event.sourceEventId}`
    case "ExternalEvent":
    case "ExternalEventPersistent":
      return signal(event)
    case "TimerFired":
      return `timer ${event.sourceEventId} fires`
    default:
      return `${event.sourceEventId} is given up`
  }
}

/**
 * A text that is equal for two events of the same decision. It leaves out what every replay computes anew (times, the
 * id of a child, the writer), and the text of a status.
 */
export const decisionText = (event: Event.Event): string => {
  const fields = JSON.parse(Event.encode(event)) as Record<string, unknown>
  for (const field of computed) delete fields[field]
  if (event._tag === "SubOrchestrationScheduled") delete fields["instance"]
  if (event._tag === "CustomStatusUpdated") delete fields["status"]
  // Programs of Rust fail with bare texts, programs of this package with JSON. Rust records an exceeded limit as a
  // failure of the program.
  if (event._tag === "OrchestrationFailed" && event.details._tag === "Application") {
    const { kind, message } = event.details
    return JSON.stringify([event._tag, exceededLimit.test(message) ? "Limit" : kind, bare(message)])
  }
  return JSON.stringify(fields)
}

/** Where two payloads differ: `input.lines[2].sku: "a" in the history, "b" in the code`; the first place only. */
export const payloadDifference = (history: Event.Event, code: Event.Event): string | undefined => {
  const theirs = history as unknown as Record<string, unknown>
  const ours = code as unknown as Record<string, unknown>
  const field = payloads.find((field) => theirs[field] !== ours[field])
  const isSame = history._tag === code._tag && ["name", "key"].every((field) => theirs[field] === ours[field])
  return !isSame || field === undefined
    ? undefined
    : firstDifference(field, parsed(theirs[field]), parsed(ours[field]))
}

// internal

interface Message {
  readonly name: string
  readonly data: string
}

/** Some messages of ours travel as signals. */
const signal = ({ data, name }: Message): string =>
  name === interruptSignal.name
    ? "interruption"
    : name === retrySignal.name
    ? retrySignal.isOfFork(data) ? "fork" : "retry"
    : requestSignal.isName(name)
    ? `request "${requestSignal.requestOf(name)}"`
    : taskSignal.isName(name)
    ? "end of a task"
    : `signal "${name}"`

const signalData = ({ data, name }: Message): string =>
  name === interruptSignal.name
    ? interruptSignal.decode(data)
    : name === retrySignal.name
    ? retrySignal.describe(data)
    : data

const computed = ["event_id", "timestamp_ms", "duroxide_version", "fire_at_ms", "last_updated_at_ms"]

const exceededLimit = / exceeds limit \(\d+/

const payloads = ["input", "value", "output", "sessionId", "tag"]

const longest = 100

const cut = (text: string) => text.length > longest ? `${text.slice(0, longest)}…` : text

const bare = (text: string): unknown => {
  const value = parsed(text)
  return typeof value === "string" ? value : text
}

const parsed = (text: unknown): unknown => {
  if (typeof text !== "string") return text
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null

const firstDifference = (path: string, history: unknown, code: unknown): string | undefined => {
  if (isRecord(history) && isRecord(code) && Array.isArray(history) === Array.isArray(code)) {
    for (const key of new Set([...Object.keys(history), ...Object.keys(code)])) {
      const below = Array.isArray(history) ? `${path}[${key}]` : `${path}.${key}`
      const found = firstDifference(below, history[key], code[key])
      if (found !== undefined) return found
    }
    return undefined
  }
  if (Object.is(history, code)) return undefined
  const shown = (value: unknown) => value === undefined ? "nothing" : cut(JSON.stringify(value))
  return `${path}: ${shown(history)} in the history, ${shown(code)} in the code`
}
