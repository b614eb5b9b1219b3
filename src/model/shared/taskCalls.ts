/**
 * Calls of tasks in the events of a history.
 */
import type * as Event from "../Event.ts"
import * as taskSignal from "./taskSignal.ts"

/** A call whose task was created, and whose end is not in the events. */
export interface OpenCall {
  readonly created: Event.Of<"ActivityScheduled">
  /** Brings the end; empty if it cannot be read. */
  readonly signal: string
}

/**
 * Calls that wait for the ends of their tasks, or would come to wait; not those that the program has given up. Answers
 * may be sealed: then the name of the wait says which task it is.
 */
export const openIn = (events: ReadonlyArray<Event.Event>): ReadonlyArray<OpenCall> => {
  const creating = new Map<number, Event.Of<"ActivityScheduled">>()
  const waits = new Map<number, string>()
  const open = new Map<string, OpenCall>()
  const unread: Array<Event.Of<"ActivityScheduled">> = []
  for (const event of events) {
    if (event._tag === "ActivityScheduled") {
      if (taskSignal.creates(event.name)) creating.set(event.eventId, event)
      else if (event.name === taskSignal.cancelTask) {
        open.delete(taskSignal.nameOf(String(taskSignal.fieldOf(event.input, "taskId"))))
      }
    } else if (event._tag === "ActivityCompleted") {
      const created = creating.get(event.sourceEventId!)
      const signal = created === undefined ? undefined : taskSignal.signalIn(event.result)
      if (created === undefined) continue
      if (signal !== undefined) open.set(signal, { created, signal })
      else if (taskSignal.fieldOf(event.result, "status") === undefined) unread.push(created)
    } else if (event._tag === "ExternalSubscribedPersistent") {
      waits.set(event.eventId, event.name)
      const creates = taskSignal.isOfOneCall(event.name) ? taskSignal.createTask : taskSignal.runTask
      const index = unread.findIndex(({ name }) => taskSignal.isName(event.name) && name === creates)
      if (index >= 0) open.set(event.name, { created: unread.splice(index, 1)[0]!, signal: event.name })
    } else if (event._tag === "ExternalSubscribedPersistentCancelled") {
      open.delete(waits.get(event.sourceEventId!) ?? "")
    }
  }
  // An end may come before the answer of the activity that has created the task.
  for (const event of events) if (event._tag === "ExternalEventPersistent") open.delete(event.name)
  return [
    ...open.values(),
    // A shared one may have answered with the end of its task.
    ...unread.flatMap((created) => created.name === taskSignal.createTask ? { created, signal: "" } : [])
  ]
}

/** Whether the event says that a task has died or was cancelled. */
export const isFailedEnd = (event: Event.Event, events: ReadonlyArray<Event.Event>): boolean =>
  event._tag === "ExternalEventPersistent"
    ? taskSignal.isName(event.name) && taskSignal.isFailedEnd(event.data)
    : event._tag === "ActivityCompleted" && taskSignal.isFailedEnd(event.result) &&
      events.some((other) =>
        other.eventId === event.sourceEventId && other._tag === "ActivityScheduled" &&
        other.name === taskSignal.runTask
      )
