/**
 * The messages that the events of a history were made from.
 */
import type * as Event from "../Event.ts"
import type * as WorkItem from "../WorkItem.ts"
import * as markers from "./markers.ts"

/** Whether an event of these was made from a message, so that the code resumes with it. */
export const isArrival = (event: Event.Event, events: ReadonlyArray<Event.Event>): boolean =>
  messageOf(event) !== undefined && !markers.isPart(event, events)

type Signal = WorkItem.Of<"QueueMessage"> | WorkItem.Of<"ExternalRaised">

/** The signals that were set aside, by event id. */
export const setAsideMessages = (events: ReadonlyArray<Event.Event>): ReadonlyMap<number, Signal> => {
  const setAside = markers.signalsSetAside(events)
  return new Map(events.flatMap((event) => {
    const message = setAside.has(event.eventId) ? messageOf(event) : undefined
    return message?._tag === "QueueMessage" || message?._tag === "ExternalRaised"
      ? [[event.eventId, message] as const]
      : []
  }))
}

/** The message that an event was made from; undefined for an event that no message has brought. */
export const messageOf = (event: Event.Event): WorkItem.WorkItem | undefined => {
  const { executionId, instanceId: instance } = event
  const id = event.sourceEventId ?? 0
  const parent = { parentInstance: instance, parentExecutionId: executionId, parentId: id }
  switch (event._tag) {
    case "ActivityCompleted":
      return { _tag: "ActivityCompleted", instance, executionId, id, result: event.result }
    case "ActivityFailed":
      return { _tag: "ActivityFailed", instance, executionId, id, details: event.details }
    case "TimerFired":
      return { _tag: "TimerFired", instance, executionId, id, fireAtMs: event.fireAtMs }
    case "SubOrchestrationCompleted":
      return { _tag: "SubOrchCompleted", ...parent, result: event.result }
    case "SubOrchestrationFailed":
      return { _tag: "SubOrchFailed", ...parent, details: event.details }
    case "ExternalEvent":
      return { _tag: "ExternalRaised", instance, name: event.name, data: event.data }
    case "ExternalEventPersistent":
      return { _tag: "QueueMessage", instance, name: event.name, data: event.data }
    case "OrchestrationCancelRequested":
      return { _tag: "CancelInstance", instance, reason: event.reason }
    default:
      return undefined
  }
}
