/**
 * Events that record a decision of a program, so that every replay decides the same. Each is an activity of ours that
 * has ended: every reader of histories, also one in Rust, knows it, and sees nothing open. No worker ever runs it.
 */
import type * as Event from "../Event.ts"

/** `Orchestration.changed` was true. The input is the id of the change. */
export const changed = "duroxide-prisma/changed"

/** A signal that no build could read was set aside. The input is the number of its event. */
export const setAside = "duroxide-prisma/set-aside"

/** The result of each. */
export const result = "true"

export const isName = (activity: string): boolean => activity === changed || activity === setAside

export const isMarker = (event: Event.Event): event is Event.Of<"ActivityScheduled"> =>
  event._tag === "ActivityScheduled" && isName(event.name)

export const inputOf = (subject: string | number): string => JSON.stringify(subject)

/** The id of a change by the input of its marker; undefined if it cannot be read. */
export const changeOf = (input: string): string | undefined => {
  const id = parsed(input)
  return typeof id === "string" ? id : undefined
}

/** The event id of the signal that this event sets aside. */
export const setAsideBy = (event: Event.Event): number | undefined => {
  if (event._tag !== "ActivityScheduled" || event.name !== setAside) return undefined
  const id = parsed(event.input)
  return typeof id === "number" ? id : undefined
}

/** The event ids of signals that were set aside. */
export const signalsSetAside = (events: ReadonlyArray<Event.Event>): ReadonlySet<number> =>
  new Set(events.flatMap((event) => setAsideBy(event) ?? []))

/** Whether an event of these is a marker, or its end. */
export const isPart = (event: Event.Event, events: ReadonlyArray<Event.Event>): boolean => {
  if (event._tag !== "ActivityCompleted") return isMarker(event)
  const request = events.find(({ eventId }) => eventId === event.sourceEventId)
  return request !== undefined && isMarker(request)
}

// internal

const parsed = (input: string): unknown => {
  try {
    return JSON.parse(input)
  } catch {
    return undefined
  }
}
