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
  /** Event ids of waits that no arrival has answered and nothing has cancelled, ascending. */
  readonly openSubscriptions: Set<number>
  /** Event ids of waits with a cancel event. */
  readonly cancelledSubscriptions: Set<number>
}

export const bookkeeping = (events: ReadonlyArray<Event.Event>): Books => {
  const openActivities = new Set<number>()
  const openSubscriptions = new Set<number>()
  const cancelledSubscriptions = new Set<number>()
  const waiting = new Map<string, Array<number>>()
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
      case "ExternalSubscribed": {
        openSubscriptions.add(event.eventId)
        const ids = waiting.get(event.name)
        if (ids === undefined) waiting.set(event.name, [event.eventId])
        else ids.push(event.eventId)
        break
      }
      case "ExternalSubscribedCancelled":
        openSubscriptions.delete(event.sourceEventId!)
        cancelledSubscriptions.add(event.sourceEventId!)
        break
      case "ExternalEvent": {
        // The oldest wait that is still open gets the arrival.
        const ids = waiting.get(event.name) ?? []
        for (let id = ids.shift(); id !== undefined; id = ids.shift()) {
          if (openSubscriptions.delete(id)) break
        }
      }
    }
  }
  return { openActivities, openSubscriptions, cancelledSubscriptions }
}

type Append = (fields: Recorded, sourceEventId?: number | null) => Event.Event

type Completion = WorkItem.Of<"ActivityCompleted"> | WorkItem.Of<"ActivityFailed"> | WorkItem.Of<"TimerFired">

const scheduledBy = {
  ActivityCompleted: "ActivityScheduled",
  ActivityFailed: "ActivityScheduled",
  TimerFired: "TimerCreated"
} as const

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
    if (message.executionId !== executionId) {
      warnings.push(`${message._tag} for execution ${message.executionId} is dropped, ${executionId} runs now`)
      return
    }
    if (answered.has(message.id)) {
      warnings.push(`${message._tag} for event ${message.id} is dropped, it was answered before`)
      return
    }
    const schedule = schedules.get(message.id)
    const expected = scheduledBy[message._tag]
    if (schedule?._tag !== expected) {
      abort ??= ErrorDetails.nondeterminism(
        schedule === undefined
          ? `no matching schedule for ${message._tag === "TimerFired" ? "timer" : "completion"} id=${message.id}`
          : `completion kind mismatch for id=${message.id}, expected '${nouns[schedule._tag]}', got '${
            nouns[expected]
          }'`
      )
      return
    }
    answered.add(message.id)
    switch (message._tag) {
      case "ActivityCompleted":
        append({ _tag: "ActivityCompleted", result: message.result }, message.id)
        break
      case "ActivityFailed":
        append({ _tag: "ActivityFailed", details: message.details }, message.id)
        // Code only ever sees failures of handlers; a failing system is not its to handle.
        if (message.details._tag !== "Application") abort ??= message.details
        break
      case "TimerFired":
        append({ _tag: "TimerFired", fireAtMs: message.fireAtMs }, message.id)
    }
  }

  for (const message of messages) {
    switch (message._tag) {
      case "ActivityCompleted":
      case "ActivityFailed":
      case "TimerFired":
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
