/**
 * What orchestration code can ask for, and how each request is recorded, recognised and carried out.
 */
import type * as Event from "../../Event.ts"
import type * as WorkItem from "../../WorkItem.ts"

/** A request made by the code. It becomes a schedule event when it is new, or is matched with one when it is replayed. */
export type Action =
  | {
    readonly _tag: "CallActivity"
    readonly name: string
    readonly input: string
    readonly sessionId?: string
    readonly tag?: string
  }
  /** `fireAtMs` is absolute, milliseconds since the Unix epoch. */
  | { readonly _tag: "CreateTimer"; readonly fireAtMs: number }
  | { readonly _tag: "WaitExternal"; readonly name: string }

type ScheduleTag = "ActivityScheduled" | "TimerCreated" | "ExternalSubscribed"

export type ScheduleEvent = Event.Of<ScheduleTag>

/** The fields of a new event without its envelope. */
export type Recorded<E extends Event.Event = Event.Event> = E extends unknown ? Omit<E, keyof Envelope> : never

type Envelope = Pick<
  Event.Event,
  "eventId" | "sourceEventId" | "instanceId" | "executionId" | "timestampMs" | "duroxideVersion"
>

/** How a kind of action is named to people, and which event records it. */
const kinds: { readonly [T in Action["_tag"]]: { readonly event: ScheduleTag; readonly noun: string } } = {
  CallActivity: { event: "ActivityScheduled", noun: "activity" },
  CreateTimer: { event: "TimerCreated", noun: "timer" },
  WaitExternal: { event: "ExternalSubscribed", noun: "wait for signal" }
}

const nouns = Object.fromEntries(Object.values(kinds).map(({ event, noun }) => [event, noun])) as {
  readonly [T in ScheduleTag]: string
}

export const isSchedule = (event: Event.Event): event is ScheduleEvent => event._tag in nouns

export const record = (action: Action): Recorded<ScheduleEvent> => {
  switch (action._tag) {
    case "CallActivity": {
      const { _tag: _, ...call } = action
      return { _tag: "ActivityScheduled", ...call }
    }
    case "CreateTimer":
      return { _tag: "TimerCreated", fireAtMs: action.fireAtMs }
    case "WaitExternal":
      return { _tag: "ExternalSubscribed", name: action.name }
  }
}

/** The message that carries the action out; none for waits. */
export const dispatch = (event: ScheduleEvent): WorkItem.WorkItem | undefined => {
  const { eventId: id, executionId, instanceId: instance } = event
  switch (event._tag) {
    case "ActivityScheduled":
      return {
        _tag: "ActivityExecute",
        instance,
        executionId,
        id,
        name: event.name,
        input: event.input,
        ...(event.sessionId !== undefined && { sessionId: event.sessionId }),
        ...(event.tag !== undefined && { tag: event.tag })
      }
    case "TimerCreated":
      return { _tag: "TimerFired", instance, executionId, id, fireAtMs: event.fireAtMs }
    case "ExternalSubscribed":
      return undefined
  }
}

/**
 * Why a replayed action is not the recorded one, or undefined when it is. A timer matches any timer: its due time is
 * computed anew on every replay, and the recorded one counts.
 */
export const mismatch = (action: Action, event: ScheduleEvent): string | undefined => {
  const expected = describeEvent(event)
  const differs = (field: string) =>
    `event ${event.eventId}: history has ${expected}, the code asks for the same with another ${field}`
  if (kinds[action._tag].event !== event._tag) {
    return `event ${event.eventId}: history has ${expected}, the code asks for ${describeAction(action)}`
  }
  if (action._tag === "CallActivity" && event._tag === "ActivityScheduled") {
    if (action.name !== event.name) {
      return `event ${event.eventId}: history has ${expected}, the code asks for ${describeAction(action)}`
    }
    if (action.input !== event.input) return differs("input")
    if (action.sessionId !== event.sessionId) return differs("session")
    if (action.tag !== event.tag) return differs("tag")
  }
  if (action._tag === "WaitExternal" && event._tag === "ExternalSubscribed" && action.name !== event.name) {
    return `event ${event.eventId}: history has ${expected}, the code asks for ${describeAction(action)}`
  }
  return undefined
}

/** Kind and name, never a payload. */
export const describeEvent = (event: ScheduleEvent): string =>
  "name" in event ? `${nouns[event._tag]} "${event.name}"` : nouns[event._tag]

const describeAction = (action: Action): string =>
  "name" in action ? `${kinds[action._tag].noun} "${action.name}"` : kinds[action._tag].noun
