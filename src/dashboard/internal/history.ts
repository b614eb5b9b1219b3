/**
 * Events as the dashboard shows them.
 */
import type * as Event from "../../model/Event.ts"
import { explainEnd } from "../../model/shared/explained.ts"
import { childId } from "../../model/shared/identifiers.ts"
import * as markers from "../../model/shared/markers.ts"
import * as Events from "../../operating/events.ts"
import type * as Api from "../Api.ts"

type Shown = typeof Api.HistoryEvent.Type

export const of = (
  events: ReadonlyArray<Event.Event>,
  { lostSignals, seesPayloads }: { readonly lostSignals: ReadonlySet<number>; readonly seesPayloads: boolean }
): ReadonlyArray<Shown> =>
  events.map((event) => {
    const parts = partsOf(event)
    return {
      eventId: event.eventId,
      atMs: event.timestampMs,
      type: event._tag,
      kind: Events.kindOf(event, lostSignals),
      answers: event.sourceEventId,
      name: null,
      tag: null,
      instanceId: null,
      fireAtMs: null,
      problem: null,
      isFailure: failures.has(event._tag),
      ...parts,
      payload: seesPayloads ? parts.payload ?? null : null
    }
  })

// internal

const failures: ReadonlySet<Event.Event["_tag"]> = new Set([
  "OrchestrationFailed",
  "ActivityFailed",
  "SubOrchestrationFailed"
])

const partsOf = (event: Event.Event): Partial<Shown> => {
  switch (event._tag) {
    case "OrchestrationStarted":
      return { name: `${event.name} ${event.version}`, payload: event.input }
    case "OrchestrationCompleted":
      return { payload: event.output }
    case "OrchestrationContinuedAsNew":
      return { payload: event.input }
    case "OrchestrationFailed":
    case "ActivityFailed":
    case "SubOrchestrationFailed":
      return { problem: explainEnd(event.details) }
    case "OrchestrationCancelRequested":
    case "ActivityCancelRequested":
    case "SubOrchestrationCancelRequested":
    case "ExternalSubscribedCancelled":
    case "ExternalSubscribedPersistentCancelled":
      return { problem: event.reason }
    case "OrchestrationChained":
      return { name: event.name, instanceId: event.instance, payload: event.input }
    case "SubOrchestrationScheduled":
      return { name: event.name, instanceId: childId(event), payload: event.input }
    case "ActivityScheduled":
      return event.name === markers.changed || event.name === markers.setAside
        ? { problem: Events.shown(event) }
        : { name: event.name, tag: event.tag ?? null, payload: event.input }
    case "ActivityCompleted":
    case "SubOrchestrationCompleted":
      return { payload: event.result }
    case "TimerCreated":
    case "TimerFired":
      return { fireAtMs: event.fireAtMs }
    case "ExternalSubscribed":
    case "ExternalSubscribedPersistent":
      return { name: event.name }
    case "ExternalEvent":
      return { name: event.name, payload: event.data }
    case "ExternalEventPersistent":
      return Events.isOwnSignal(event)
        ? { problem: Events.shown(event) }
        : { name: event.name, payload: event.data }
    case "CustomStatusUpdated":
      return { problem: event.status ?? "removed" }
    case "KeyValueSet":
      return Events.isOfAttributes(event)
        ? { problem: Events.shown(event) }
        : { name: event.key, payload: event.value }
    case "KeyValueCleared":
      return { name: event.key }
    case "KeyValuesCleared":
      return {}
  }
}
