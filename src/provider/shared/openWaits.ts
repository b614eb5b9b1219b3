/**
 * What the current execution of an instance waits for, from its history and its rows of the queues.
 *
 * The history shows which waits are open, except for timers: a program that gives a timer up leaves no event, but its
 * message is deleted. So a timer counts while its message is in the queue.
 */
import type * as Event from "../../model/Event.ts"
import * as completion from "../../model/shared/completion.ts"
import { childId } from "../../model/shared/identifiers.ts"
import * as interruptSignal from "../../model/shared/interruptSignal.ts"
import { Ledger } from "../../model/shared/ledger.ts"
import * as requestSignal from "../../model/shared/requestSignal.ts"
import * as retrySignal from "../../model/shared/retrySignal.ts"
import * as taskSignal from "../../model/shared/taskSignal.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import type { QueuedMessage, QueuedWork } from "../Admin.ts"
import type { QueuedActivity, QueuePlace } from "../AdminDriver.ts"
import type { Wait } from "../Explanation.ts"

/** A message that no turn has read. */
export interface Message {
  readonly kind:
    | "start"
    | "signal"
    | "request"
    | "timer"
    | "activity"
    | "child"
    | "interruption"
    | "termination"
    | "retry"
    | "unknown"
  /** Name of the signal, request or orchestration; null for other kinds, and in a message too large to be read here. */
  readonly name: string | null
  /** The event of the current execution that it answers; null for messages that answer none. */
  readonly answers: number | null
  readonly place: QueuePlace
}

/** Open waits in the order they began, and the messages of the queue; timers count as waits. */
export const of = (
  events: ReadonlyArray<Event.Event>,
  queued: QueuedWork
): {
  readonly waits: ReadonlyArray<Wait>
  readonly messages: ReadonlyArray<Message>
  /** Signals of the history that the program has not taken, oldest first. */
  readonly untaken: ReadonlyArray<{ readonly name: string; readonly eventId: number; readonly sinceMs: number }>
  /** Since when it is interrupted, and why. */
  readonly interruption: { readonly sinceMs: number; readonly reason: string } | undefined
} => {
  const ledger = Ledger.of(events)
  const executionId = events[0]?.executionId
  const activities = new Map<string, QueuedActivity>(
    queued.activities.map((activity) => [`${activity.executionId} ${activity.eventId}`, activity])
  )
  const timers = new Map<string, QueuedMessage>(
    queued.messages.flatMap((message) =>
      message.item?._tag === "TimerFired" ? [[`${message.item.executionId} ${message.item.id}`, message] as const] : []
    )
  )
  const listed = new Set<QueuedMessage>()
  const again = carriedOutAgain(events)
  const waits = events.flatMap((event): ReadonlyArray<Wait> => {
    if (!ledger.isOpen(event.eventId)) return []
    const wait = {
      name: null,
      instanceId: null,
      tag: null,
      eventId: event.eventId,
      sinceMs: again.get(event.eventId) ?? event.timestampMs,
      place: null
    }
    const id = `${event.executionId} ${event.eventId}`
    switch (event._tag) {
      case "ExternalSubscribed":
      case "ExternalSubscribedPersistent":
        return [
          requestSignal.isName(event.name)
            ? { ...wait, kind: "request", name: requestSignal.requestOf(event.name) }
            : { ...wait, kind: "signal", name: event.name }
        ]
      case "ActivityScheduled":
        return [{
          ...wait,
          kind: "activity",
          name: event.name,
          tag: event.tag ?? null,
          place: activities.get(id) ?? null
        }]
      case "SubOrchestrationScheduled":
        return [{
          ...wait,
          kind: "child",
          name: event.name,
          instanceId: childId(event),
          ...(ledger.interruptedChildren.has(event.eventId) && { isInterrupted: true })
        }]
      case "TimerCreated": {
        const message = timers.get(id)
        if (message === undefined) return []
        listed.add(message)
        return [{ ...wait, kind: "timer", place: message }]
      }
      default:
        return []
    }
  })
  const { interruptRequest } = ledger
  return {
    waits,
    untaken: ledger.unread().filter(({ name }) => !isOwnSignal(name)).map(({ eventId, name, timestampMs }) => ({
      name: requestSignal.isName(name) ? `request ${requestSignal.requestOf(name)}` : name,
      eventId,
      sinceMs: timestampMs
    })),
    interruption: interruptRequest === undefined ? undefined : {
      sinceMs: interruptRequest.timestampMs,
      reason: interruptSignal.decode(interruptRequest.data)
    },
    messages: queued.messages.flatMap((message) => listed.has(message) ? [] : [messageOf(message, executionId)])
  }
}

/** When requests were carried out again after a retry, by their events: milliseconds since the Unix epoch. */
export const carriedOutAgain = (events: ReadonlyArray<Event.Event>): ReadonlyMap<number, number> =>
  new Map(events.flatMap((event) =>
    event._tag === "ExternalEventPersistent" && event.name === retrySignal.name
      ? retrySignal.decode(event.data).map((eventId) => [eventId, event.timestampMs] as const)
      : []
  ))

/** What a message is, and which event of this execution it answers. */
export const messageOf = (queued: QueuedMessage, executionId?: number): Message => {
  const { item, kind } = queued
  const message = { kind: isKind(kind) ? kinds[kind] : "unknown", name: null, answers: null, place: queued }
  switch (item?._tag) {
    case "StartOrchestration":
    case "ContinueAsNew":
      return { ...message, name: item.orchestration }
    case "QueueMessage":
      if (item.name === interruptSignal.name) return { ...message, kind: "interruption" }
      if (item.name === retrySignal.name) return { ...message, kind: "retry" }
      if (requestSignal.isName(item.name)) {
        return { ...message, kind: "request", name: requestSignal.requestOf(item.name) }
      }
      return { ...message, name: item.name }
    case "ExternalRaised":
      return { ...message, name: item.name }
    case "ActivityCompleted":
    case "ActivityFailed":
    case "TimerFired":
      return { ...message, answers: item.executionId === executionId ? item.id : null }
    case "SubOrchCompleted":
    case "SubOrchFailed":
      return { ...message, answers: item.parentExecutionId === executionId ? item.parentId : null }
    default:
      return message
  }
}

// internal

const kinds: { readonly [Tag in WorkItem.WorkItem["_tag"]]: Message["kind"] } = {
  StartOrchestration: "start",
  ContinueAsNew: "start",
  ExternalRaised: "signal",
  QueueMessage: "signal",
  TimerFired: "timer",
  ActivityExecute: "activity",
  ActivityCompleted: "activity",
  ActivityFailed: "activity",
  SubOrchCompleted: "child",
  SubOrchFailed: "child",
  CancelInstance: "termination"
}

/** Signals of this package. */
const isOwnSignal = (name: string) =>
  name === interruptSignal.name || name === retrySignal.name || taskSignal.isName(name) ||
  completion.isName(name)

const isKind = (kind: string): kind is keyof typeof kinds => Object.hasOwn(kinds, kind)
