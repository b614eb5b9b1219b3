/**
 * Events of a history as a person reads them.
 */
import * as ErrorDetails from "../model/ErrorDetails.ts"
import type * as Event from "../model/Event.ts"
import * as attributes from "../model/shared/attributes.ts"
import { explain, explainEnd } from "../model/shared/explained.ts"
import * as interruptSignal from "../model/shared/interruptSignal.ts"
import * as markers from "../model/shared/markers.ts"
import * as requestSignal from "../model/shared/requestSignal.ts"
import * as retrySignal from "../model/shared/retrySignal.ts"
import { shownValue } from "./attributes.ts"
import { time } from "./times.ts"

/** The kind of an event in the words of the guides. Stored types have the names of Duroxide. */
export const kindOf = (event: Event.Event, lostSignals: ReadonlySet<number>): string =>
  lostSignals.has(event.eventId)
    ? `${kindsOfTypes[event._tag]} lost`
    : markers.isMarker(event)
    ? kindsOfMarkers[event.name]!
    : event._tag === "ExternalEventPersistent" && event.name === retrySignal.name && retrySignal.isOfFork(event.data)
    ? "forked"
    : isCancellation(event)
    ? kindsOfCancellations[event._tag]!
    : isOfAttributes(event)
    ? "attributes changed"
    : isOfRequest(event)
    ? kindsOfRequests[event._tag]!
    : event._tag !== "ExternalEventPersistent"
    ? kindsOfTypes[event._tag]
    : kindsOfSignals[event.name] ?? kindsOfTypes[event._tag]

/** Whether it is a message of this package, which no program takes. */
export const isOwnSignal = ({ name }: { readonly name: string }): boolean => kindsOfSignals[name] !== undefined

/** Whether it records a change of attributes. */
export const isOfAttributes = (event: Event.Event): boolean =>
  event._tag === "KeyValueSet" && event.key === attributes.recordKey

/** Messages and values of requests. */
const kindsOfRequests: { readonly [type: string]: string } = {
  ExternalSubscribedPersistent: "request awaited",
  ExternalEventPersistent: "request",
  KeyValueSet: "request answered",
  KeyValueCleared: "answer removed"
}

export const kindsOfTypes: { readonly [Tag in Event.Event["_tag"]]: string } = {
  OrchestrationStarted: "started",
  OrchestrationCompleted: "completed",
  OrchestrationFailed: "failed",
  OrchestrationContinuedAsNew: "continued as new",
  OrchestrationCancelRequested: "terminated",
  OrchestrationChained: "detached start",
  ActivityScheduled: "activity scheduled",
  ActivityCompleted: "activity completed",
  ActivityFailed: "activity failed",
  ActivityCancelRequested: "activity given up",
  TimerCreated: "timer set",
  TimerFired: "timer fired",
  ExternalSubscribed: "lossy signal awaited",
  ExternalEvent: "lossy signal",
  ExternalSubscribedCancelled: "lossy signal given up",
  ExternalSubscribedPersistent: "signal awaited",
  ExternalEventPersistent: "signal",
  ExternalSubscribedPersistentCancelled: "wait given up",
  SubOrchestrationScheduled: "child started",
  SubOrchestrationCompleted: "child completed",
  SubOrchestrationFailed: "child failed",
  SubOrchestrationCancelRequested: "child given up",
  CustomStatusUpdated: "custom status",
  KeyValueSet: "key-value set",
  KeyValueCleared: "key-value cleared",
  KeyValuesCleared: "key-values cleared"
}

/** Signals of this package. */
const kindsOfSignals: { readonly [name: string]: string } = {
  [interruptSignal.name]: "interrupted",
  [retrySignal.name]: "retried"
}

/** Duroxide stores a cancellation as a failure. */
const kindsOfCancellations: { readonly [type: string]: string } = {
  OrchestrationFailed: "cancelled",
  ActivityFailed: "activity cancelled",
  SubOrchestrationFailed: "child cancelled"
}

const reasonOf = (event: Event.Event): string | undefined =>
  "details" in event ? ErrorDetails.cancellationOf(event.details) : undefined

const isCancellation = (event: Event.Event): boolean => reasonOf(event) !== undefined

const kindsOfMarkers: { readonly [name: string]: string } = {
  [markers.changed]: "change recorded",
  [markers.setAside]: "signal set aside"
}

/** Whether payloads are among what is shown: inputs, results, data of signals, values. */
export interface Visibility {
  readonly hidesPayloads: boolean
}

/** What people read after the kind of an event: `describe` without what the kind says. */
export const shown = (event: Event.Event, visibility: Visibility = all): string => {
  const reason = reasonOf(event)
  if (reason === undefined) return describe(event, visibility)
  return event.sourceEventId === null ? reason : `#${event.sourceEventId} ${reason}`
}

/** What an event says besides its stored type. Completions name the event that they answer, as `#4`. */
export const describe = (event: Event.Event, { hidesPayloads }: Visibility = all): string => {
  const payload = (text: string) => hidesPayloads ? "" : text
  const answered = event.sourceEventId === null ? "" : `#${event.sourceEventId}`
  switch (event._tag) {
    case "OrchestrationStarted":
      return `${event.name} ${event.version} ${payload(event.input)}`.trimEnd()
    case "OrchestrationCompleted":
      return payload(event.output)
    case "OrchestrationFailed":
      return explain(event.details)
    case "OrchestrationContinuedAsNew":
      return payload(event.input)
    case "OrchestrationCancelRequested":
      return event.reason
    case "OrchestrationChained":
    case "SubOrchestrationScheduled":
      return `${event.name} ${event.instance} ${payload(event.input)}`.trimEnd()
    case "ActivityScheduled":
      if (event.name === markers.changed) return markers.changeOf(event.input) ?? event.input
      if (event.name === markers.setAside) return `#${event.input}`
      return [
        event.name,
        ...(event.tag === undefined ? [] : [`tag ${event.tag}`]),
        ...(event.sessionId === undefined ? [] : [`session ${event.sessionId}`]),
        payload(event.input)
      ].join(" ").trimEnd()
    case "ActivityCompleted":
    case "SubOrchestrationCompleted":
      return `${answered} ${payload(event.result)}`.trimEnd()
    case "ActivityFailed":
    case "SubOrchestrationFailed":
      return `${answered} ${explainEnd(event.details)}`
    case "ActivityCancelRequested":
    case "SubOrchestrationCancelRequested":
    case "ExternalSubscribedCancelled":
    case "ExternalSubscribedPersistentCancelled":
      return `${answered} ${event.reason}`
    case "TimerCreated":
      return `due ${time(event.fireAtMs)}`
    case "TimerFired":
      return `${answered} due ${time(event.fireAtMs)}`
    case "ExternalSubscribed":
    case "ExternalSubscribedPersistent":
      return requestSignal.isName(event.name) ? requestSignal.requestOf(event.name) : event.name
    case "ExternalEventPersistent":
      if (event.name === interruptSignal.name) return interruptSignal.decode(event.data)
      if (event.name === retrySignal.name) return retrySignal.describe(event.data)
      if (requestSignal.isName(event.name)) {
        const question = requestSignal.decode(event.data) ?? { id: "", payload: event.data }
        return [requestSignal.requestOf(event.name), question.id, payload(question.payload)]
          .filter((text) => text !== "").join(" ")
      }
      return `${event.name} ${payload(event.data)}`.trimEnd()
    case "ExternalEvent":
      return `${event.name} ${payload(event.data)}`.trimEnd()
    case "CustomStatusUpdated":
      return event.status ?? "removed"
    case "KeyValueSet":
      if (event.key === attributes.recordKey) return changesOf(event.value)
      return `${keyOf(event.key)} ${payload(event.value)}`.trimEnd()
    case "KeyValueCleared":
      return keyOf(event.key)
    case "KeyValuesCleared":
      return ""
  }
}

// internal

/** Whether it is a question, a wait for one, or an answer. */
const isOfRequest = (event: Event.Event): boolean =>
  "name" in event ? requestSignal.isName(event.name) : "key" in event && requestSignal.isAnswerKey(event.key)

/** The id of a request, for the key of an answer. */
const keyOf = (key: string): string => requestSignal.isAnswerKey(key) ? requestSignal.idOfAnswer(key) : key

const all: Visibility = { hidesPayloads: false }

/** Such as `amount 12, coupon removed`. */
const changesOf = (text: string): string =>
  Object.entries(attributes.readChanges(text)).map(([name, value]) =>
    `${name} ${value === null ? "removed" : shownValue(attributes.decode(value))}`
  ).join(", ")
