/**
 * Which messages of a batch become events, and what a history leaves open.
 */
import * as ErrorDetails from "../../ErrorDetails.ts"
import type * as Event from "../../Event.ts"
import type * as WorkItem from "../../WorkItem.ts"
import type { Recorded } from "./action.ts"

/** What of a history still waits for an answer. */
export interface Books {
  /** Event ids of activities without a result and without a cancel request, ascending. */
  readonly openActivities: Set<number>
  /** Children without a notice and without a cancel request, by event id, ascending. */
  readonly openChildren: Map<number, Event.Of<"SubOrchestrationScheduled">>
  /** Event ids of waits for signals that no arrival has answered and nothing has cancelled, ascending. */
  readonly openSubscriptions: Set<number>
  /** The same for waits for mailboxes. */
  readonly openDequeues: Set<number>
  /** Event ids of waits of both kinds with a cancel event. */
  readonly cancelledSubscriptions: Set<number>
}

/** `dropped` are schedules that get their cancel event only now. */
export const bookkeeping = (events: ReadonlyArray<Event.Event>, dropped: ReadonlyArray<number> = []): Books => {
  const openActivities = new Set<number>()
  const openSubscriptions = new Set<number>()
  const openChildren = new Map<number, Event.Of<"SubOrchestrationScheduled">>()
  const openDequeues = new Set<number>()
  const cancelledSubscriptions = new Set(
    events.flatMap((event) => isSubscriptionCancel(event) ? event.sourceEventId! : [])
  )
  // A wait that was given up was never answered, whatever arrived before its cancel event was written.
  const givenUp = new Set([...cancelledSubscriptions, ...dropped])
  const waiting = new Map<string, Array<number>>()
  const dequeues = new Map<string, Array<number>>()
  const unread = new Map<string, number>()
  // The oldest wait that is still open gets the arrival.
  const pair = (ids: Array<number> | undefined, open: Set<number>): boolean => {
    for (let id = ids?.shift(); id !== undefined; id = ids!.shift()) if (open.delete(id)) return true
    return false
  }
  for (const event of events) {
    switch (event._tag) {
      case "ActivityScheduled":
        openActivities.add(event.eventId)
        break
      case "ActivityCompleted":
      case "ActivityFailed":
      case "ActivityCancelRequested":
        openActivities.delete(event.sourceEventId!)
        break
      case "SubOrchestrationScheduled":
        openChildren.set(event.eventId, event)
        break
      case "SubOrchestrationCompleted":
      case "SubOrchestrationFailed":
      case "SubOrchestrationCancelRequested":
        openChildren.delete(event.sourceEventId!)
        break
      case "ExternalSubscribed":
        if (givenUp.has(event.eventId)) break
        openSubscriptions.add(event.eventId)
        waiting.set(event.name, [...waiting.get(event.name) ?? [], event.eventId])
        break
      case "ExternalSubscribedPersistent": {
        if (givenUp.has(event.eventId)) break
        const messages = unread.get(event.name) ?? 0
        if (messages > 0) unread.set(event.name, messages - 1)
        else {
          openDequeues.add(event.eventId)
          dequeues.set(event.name, [...dequeues.get(event.name) ?? [], event.eventId])
        }
        break
      }
      case "ExternalEvent":
        pair(waiting.get(event.name), openSubscriptions)
        break
      case "ExternalEventPersistent":
        if (!pair(dequeues.get(event.name), openDequeues)) unread.set(event.name, (unread.get(event.name) ?? 0) + 1)
    }
  }
  return { openActivities, openChildren, openSubscriptions, openDequeues, cancelledSubscriptions }
}

const isSubscriptionCancel = (event: Event.Event) =>
  event._tag === "ExternalSubscribedCancelled" || event._tag === "ExternalSubscribedPersistentCancelled"

type Append = (fields: Recorded, sourceEventId?: number | null) => Event.Event

type Completion = WorkItem.Of<
  "ActivityCompleted" | "ActivityFailed" | "TimerFired" | "SubOrchCompleted" | "SubOrchFailed"
>

const scheduledBy = {
  ActivityCompleted: "ActivityScheduled",
  ActivityFailed: "ActivityScheduled",
  TimerFired: "TimerCreated",
  SubOrchCompleted: "SubOrchestrationScheduled",
  SubOrchFailed: "SubOrchestrationScheduled"
} as const

const subjects = {
  ActivityCompleted: "completion",
  ActivityFailed: "completion",
  TimerFired: "timer",
  SubOrchCompleted: "sub-orchestration",
  SubOrchFailed: "sub-orchestration"
} as const

/** The execution and the schedule a completion is for. */
const addressee = (message: Completion) =>
  "parentId" in message
    ? { id: message.parentId, of: message.parentExecutionId }
    : { id: message.id, of: message.executionId }

const nouns: { readonly [tag: string]: string } = {
  ActivityScheduled: "activity",
  TimerCreated: "timer",
  SubOrchestrationScheduled: "suborchestration"
}

/**
 * Appends the events of a batch. `abort` is set when an arrival cannot belong to this history, or is a failure that
 * code must not see: the turn then fails with it, without running the code.
 */
export const toEvents = (
  executionId: number,
  history: ReadonlyArray<Event.Event>,
  messages: ReadonlyArray<WorkItem.WorkItem>,
  append: Append
): { readonly abort: ErrorDetails.ErrorDetails | undefined; readonly warnings: ReadonlyArray<string> } => {
  const schedules = new Map<number, Event.Event>()
  const answered = new Set<number>()
  let cancelRequested = false
  for (const event of history) {
    if (event._tag in nouns) schedules.set(event.eventId, event)
    else if (event.sourceEventId !== null && !event._tag.endsWith("CancelRequested")) answered.add(event.sourceEventId)
    if (event._tag === "OrchestrationCancelRequested") cancelRequested = true
  }
  const warnings: Array<string> = []
  let abort: ErrorDetails.ErrorDetails | undefined

  const completion = (message: Completion): void => {
    const { id, of } = addressee(message)
    if (of !== executionId) {
      warnings.push(`${message._tag} for execution ${of} is dropped, ${executionId} runs now`)
      return
    }
    if (answered.has(id)) {
      warnings.push(`${message._tag} for event ${id} is dropped, it was answered before`)
      return
    }
    const schedule = schedules.get(id)
    const expected = scheduledBy[message._tag]
    if (schedule?._tag !== expected) {
      abort ??= ErrorDetails.nondeterminism(
        schedule === undefined
          ? `no matching schedule for ${subjects[message._tag]} id=${id}`
          : `completion kind mismatch for id=${id}, expected '${nouns[schedule._tag]}', got '${nouns[expected]}'`
      )
      return
    }
    answered.add(id)
    switch (message._tag) {
      case "ActivityCompleted":
        append({ _tag: "ActivityCompleted", result: message.result }, id)
        break
      case "SubOrchCompleted":
        append({ _tag: "SubOrchestrationCompleted", result: message.result }, id)
        break
      case "ActivityFailed":
      case "SubOrchFailed": {
        const { details } = message
        append({ _tag: message._tag === "ActivityFailed" ? "ActivityFailed" : "SubOrchestrationFailed", details }, id)
        // Code only ever sees failures of handlers; a failing system is not its to handle.
        if (details._tag !== "Application") abort ??= details
        break
      }
      case "TimerFired":
        append({ _tag: "TimerFired", fireAtMs: message.fireAtMs }, id)
    }
  }

  for (const message of messages) {
    switch (message._tag) {
      case "ActivityCompleted":
      case "ActivityFailed":
      case "TimerFired":
      case "SubOrchCompleted":
      case "SubOrchFailed":
        completion(message)
        break
      case "ExternalRaised":
        append({ _tag: "ExternalEvent", name: message.name, data: message.data })
        break
      case "CancelInstance":
        if (cancelRequested) break
        cancelRequested = true
        append({ _tag: "OrchestrationCancelRequested", reason: message.reason })
        break
      case "QueueMessage":
        append({ _tag: "ExternalEventPersistent", name: message.name, data: message.data })
        break
      default:
        warnings.push(`${message._tag} is dropped, nothing waits for it`)
    }
  }
  return { abort, warnings }
}
