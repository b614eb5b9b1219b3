/**
 * How the events of a history show the end of an execution.
 */
import type * as Event from "../Event.ts"

export const isEnd = (event: Event.Event): boolean =>
  event._tag === "OrchestrationCompleted" || event._tag === "OrchestrationFailed" ||
  event._tag === "OrchestrationContinuedAsNew"

/** Whether the event closes an open request because of an end. */
export const isClosing = (event: Event.Event): boolean =>
  "reason" in event && event.reason.startsWith("orchestration_terminal")

/** Whether the event records that an activity or a child has failed. */
export const isFailedAnswer = (event: Event.Event): event is Event.Of<"ActivityFailed" | "SubOrchestrationFailed"> =>
  event._tag === "ActivityFailed" || event._tag === "SubOrchestrationFailed"

/** Whether the program caused the end, itself or through an answer among these events, and not the runtime. */
export const isOwnEnd = (end: Event.Event, events: ReadonlyArray<Event.Event>): boolean => {
  if (end._tag !== "OrchestrationFailed" || end.details._tag === "Application") return true
  const details = JSON.stringify(end.details)
  return events.some((event) => isFailedAnswer(event) && JSON.stringify(event.details) === details)
}
