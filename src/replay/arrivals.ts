/**
 * Turns the messages of a batch into events.
 */
import * as ErrorDetails from "../model/ErrorDetails.ts"
import type * as Event from "../model/Event.ts"
import * as interruptSignal from "../model/shared/interruptSignal.ts"
import type { Ledger, Schedule } from "../model/shared/ledger.ts"
import * as requestSignal from "../model/shared/requestSignal.ts"
import * as taskSignal from "../model/shared/taskSignal.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { Recorded } from "./action.ts"

type Append = (fields: Recorded, sourceEventId?: number | null) => Event.Event

type Completion = WorkItem.Of<
  "ActivityCompleted" | "ActivityFailed" | "TimerFired" | "SubOrchCompleted" | "SubOrchFailed"
>

const scheduledBy: { readonly [K in Completion["_tag"]]: Schedule } = {
  ActivityCompleted: "ActivityScheduled",
  ActivityFailed: "ActivityScheduled",
  TimerFired: "TimerCreated",
  SubOrchCompleted: "SubOrchestrationScheduled",
  SubOrchFailed: "SubOrchestrationScheduled"
}

const subjects = {
  ActivityCompleted: "completion",
  ActivityFailed: "completion",
  TimerFired: "timer",
  SubOrchCompleted: "sub-orchestration",
  SubOrchFailed: "sub-orchestration"
} as const

/** The execution and the request that a completion answers. */
const addressee = (message: Completion) =>
  "parentId" in message
    ? { id: message.parentId, of: message.parentExecutionId }
    : { id: message.id, of: message.executionId }

const nouns: { readonly [K in Schedule]: string } = {
  ActivityScheduled: "activity",
  TimerCreated: "timer",
  SubOrchestrationScheduled: "suborchestration"
}

/**
 * Appends the events of a batch, given the open work of its execution. `abort` is set when an arrival cannot belong to
 * this history, is a failure that code must not see, or calls off what has not begun: the turn then fails with it,
 * without running the code.
 *
 * `areRecorded`: the messages were made from the events of a history, so each becomes an event again. `isOwn`: the
 * execution is one of this package, whose histories may be cut. A result that was on its way then answers nothing.
 * `onSignal` is called with each signal and its event. `isAnswered` says of the id of a request whether its answer is
 * kept: the same question is not put again, nor one that has not been answered yet. `hasNotBegun`: no code of the
 * instance has run, so an interruption has nothing to clean up, and is a termination.
 */
export const toEvents = (
  executionId: number,
  ledger: Ledger,
  messages: ReadonlyArray<WorkItem.WorkItem>,
  append: Append,
  { areRecorded = false, hasNotBegun = false, isAnswered, isOwn = false, onSignal }: {
    readonly areRecorded?: boolean | undefined
    readonly isOwn?: boolean
    readonly hasNotBegun?: boolean
    readonly isAnswered: (requestId: string) => boolean
    readonly onSignal?: (message: WorkItem.WorkItem, event: Event.Event) => void
  }
): { readonly abort: ErrorDetails.ErrorDetails | undefined; readonly warnings: ReadonlyArray<string> } => {
  const answeredNow = new Set<number>()
  let cancelRequested = ledger.cancelRequest !== undefined
  /** Questions of this batch. */
  const asked = new Set<string>()
  const warnings: Array<string> = []
  let abort: ErrorDetails.ErrorDetails | undefined

  const signal = (message: WorkItem.WorkItem, fields: Recorded): void => {
    const event = append(fields)
    onSignal?.(message, event)
  }

  const completion = (message: Completion): void => {
    const { id, of } = addressee(message)
    if (of !== executionId) {
      warnings.push(`${message._tag} for execution ${of} is dropped, ${executionId} runs now`)
      return
    }
    if (ledger.answered.has(id) || answeredNow.has(id)) {
      warnings.push(`${message._tag} for event ${id} is dropped, it was answered before`)
      return
    }
    const schedule = ledger.unanswered.get(id)
    const expected = scheduledBy[message._tag]
    if (schedule === undefined && isOwn) {
      warnings.push(`${message._tag} for event ${id} is dropped, the history has no such request`)
      return
    }
    if (schedule !== expected) {
      abort ??= ErrorDetails.nondeterminism(
        schedule === undefined
          ? `no matching schedule for ${subjects[message._tag]} id=${id}`
          : `completion kind mismatch for id=${id}, expected '${nouns[schedule]}', got '${nouns[expected]}'`
      )
      return
    }
    answeredNow.add(id)
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
        // Code sees failures of handlers only; it cannot handle failures of the system.
        if (details._tag !== "Application") abort ??= details
        break
      }
      case "TimerFired":
        append({ _tag: "TimerFired", fireAtMs: message.fireAtMs }, id)
    }
  }

  const isAsked = (data: string): boolean => {
    const id = requestSignal.decode(data)?.id
    if (id === undefined) return false
    if (asked.has(id) || ledger.hasQuestion(id) || isAnswered(id)) return true
    asked.add(id)
    return false
  }

  const cancel = (reason: string): void => {
    if (cancelRequested) return
    cancelRequested = true
    append({ _tag: "OrchestrationCancelRequested", reason })
    // There is nothing to clean up.
    if (hasNotBegun) abort ??= ErrorDetails.cancelled(reason)
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
        signal(message, { _tag: "ExternalEvent", name: message.name, data: message.data })
        break
      case "CancelInstance":
        cancel(message.reason)
        break
      case "QueueMessage":
        if (hasNotBegun && message.name === interruptSignal.name) {
          cancel(interruptSignal.decode(message.data))
          break
        }
        // The call was given up, also with its execution: nothing will ever read the end of its task.
        if (taskSignal.isName(message.name) && !areRecorded && !ledger.expectsTaskEnd(message.name)) break
        if (requestSignal.isName(message.name) && !areRecorded && isAsked(message.data)) break
        signal(message, { _tag: "ExternalEventPersistent", name: message.name, data: message.data })
        break
      default:
        warnings.push(`${message._tag} is dropped, nothing waits for it`)
    }
  }
  return { abort, warnings }
}
