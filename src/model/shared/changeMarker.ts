/**
 * How a history has that `Orchestration.changed` was true: as an activity of ours that has ended. So every reader of
 * histories, also one in Rust, knows the events, and sees nothing open. No worker ever runs it.
 */
import type * as Event from "../Event.ts"

/** The name of the activity. Its input is the id of the change. */
export const activity = "duroxide-prisma/changed"

export const inputOf = (id: string): string => JSON.stringify(id)

/** The result of the activity. */
export const result = "true"

export const isMarker = (event: Event.Event): boolean => event._tag === "ActivityScheduled" && event.name === activity

/** The id of a change by the input of its marker; undefined if it cannot be read. */
export const idOf = (input: string): string | undefined => {
  try {
    const id = JSON.parse(input)
    return typeof id === "string" ? id : undefined
  } catch {
    return undefined
  }
}

/** Whether an event of these only records a change: the marker, or its end. */
export const isPart = (event: Event.Event, events: ReadonlyArray<Event.Event>): boolean => {
  if (event._tag !== "ActivityCompleted") return isMarker(event)
  const request = events.find(({ eventId }) => eventId === event.sourceEventId)
  return request !== undefined && isMarker(request)
}
