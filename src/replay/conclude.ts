/**
 * Concludes a turn: from its outcome follow the last events, and what is enqueued and cancelled.
 */
import * as ErrorDetails from "../model/ErrorDetails.ts"
import type * as Event from "../model/Event.ts"
import type { CoreVersion, ExecutionStatus } from "../model/Instance.ts"
import * as attributes from "../model/shared/attributes.ts"
import { anyRust, isOwn } from "../model/shared/coreVersion.ts"
import { childId } from "../model/shared/identifiers.ts"
import * as interruptSignal from "../model/shared/interruptSignal.ts"
import type { Ledger } from "../model/shared/ledger.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { Turn } from "../provider/Provider.ts"
import * as action from "./action.ts"
import type { Dropped } from "./interpreter.ts"

/** The execution of a turn. */
export interface Execution {
  readonly instanceId: string
  readonly executionId: number
  /** The store's clock at the claim, milliseconds since the Unix epoch. */
  readonly nowMs: number
  /** Id of the last stored event; 0 before the first turn. */
  readonly lastEventId: number
  /** Stamp of new events, and the pinned version of a new execution. */
  readonly version: CoreVersion
  /** The trace context that activities and children of this turn get. Defaults to that of the execution. */
  readonly traceparent?: string | undefined
}

export type Outcome =
  | { readonly _tag: "Waiting" }
  | { readonly _tag: "Completed"; readonly output: string }
  | { readonly _tag: "Failed"; readonly details: ErrorDetails.ErrorDetails }
  | {
    readonly _tag: "ContinuedAsNew"
    readonly input: string
    readonly version: string | null
    /** Signals that the code has not taken, oldest first. */
    readonly carried: ReadonlyArray<Event.Of<"ExternalEventPersistent">>
    readonly customStatus: string | null
    readonly attributes: attributes.EncodedAttributes
  }

/** What ends an execution, if it ends: its code, a cancellation, or the runtime while the code still runs. */
export type End = "code" | "cancellation" | "runtime"

export interface Result {
  readonly outcome: Outcome
  readonly turn: Turn
  /** Messages that were dropped, in words. */
  readonly warnings: ReadonlyArray<string>
}

/** A new request of the code with the event that records it. */
export interface Request {
  readonly action: action.Action
  readonly event: action.RequestEvent
}

export interface Recorder {
  readonly added: Array<Event.Event>
  readonly nextId: () => number
  readonly append: (fields: action.Recorded, sourceEventId?: number | null) => Event.Event
  readonly truncate: (count: number) => void
}

export const record = (execution: Execution): Recorder => {
  const { executionId, instanceId, lastEventId, nowMs, version } = execution
  const firstId = lastEventId + 1
  const duroxideVersion = `${version.major}.${version.minor}.${version.patch}`
  const added: Array<Event.Event> = []
  return {
    added,
    nextId: () => firstId + added.length,
    append: (fields, sourceEventId = null) => {
      const eventId = firstId + added.length
      // V8 takes a microsecond for each field that follows a spread, so the spread is last.
      const event = {
        eventId,
        sourceEventId,
        instanceId,
        executionId,
        timestampMs: nowMs,
        duroxideVersion,
        ...fields
      } as Event.Event
      added.push(event)
      return event
    },
    truncate: (count) => void added.splice(count)
  }
}

/** `ledger` holds all events so far; new events are added to it. */
export const conclude = (
  execution: Execution,
  recorder: Recorder,
  ledger: Ledger,
  outcome: Outcome,
  { dropped, end, openRequest = () => undefined, requests, started }: {
    /** Null when the first event cannot be read. */
    readonly started: Event.Of<"OrchestrationStarted"> | null
    readonly requests: ReadonlyArray<Request>
    /** Handles that the code dropped, ascending by event id. */
    readonly dropped: ReadonlyArray<Dropped>
    readonly end: End
    /** An open request as the code made it. Defaults to none: no code has run. */
    readonly openRequest?: (eventId: number) => action.Awaited | undefined
  }
): Omit<Result, "warnings"> => {
  const { executionId, instanceId } = execution
  const append: Recorder["append"] = (fields, sourceEventId) => {
    const event = recorder.append(fields, sourceEventId)
    ledger.add(event)
    return event
  }
  const isOfDuroxide = started === null || !isOwn(started.duroxideVersion)
  // Requests of this turn are sent only if the execution continues. A child that is not started need not be ended.
  const neverStarted = new Set(
    outcome._tag !== "Waiting"
      ? requests.map(({ event }) => event.eventId)
      : isOfDuroxide
      ? []
      : dropped.flatMap(({ action, awaitsEnd, eventId }) =>
        action._tag === "StartSubOrchestration" && awaitsEnd === undefined &&
          requests.some(({ event }) => event.eventId === eventId)
          ? eventId
          : []
      )
  )
  const cancelledActivities: Array<number> = []
  const endedChildren: Array<WorkItem.WorkItem> = []
  const isCodeEnd = end === "code"
  /** Waits that were given up and have no cancel event yet. */
  const waits = (tag: "WaitExternal" | "DequeueEvent") =>
    dropped.flatMap(({ action, eventId }) =>
      action._tag === tag && !ledger.cancelledSubscriptions.has(eventId) ? eventId : []
    )

  // Handles count as dropped only if the code itself dropped them. Any other end closes all open requests anyway,
  // except children, which must be cancelled here.
  for (const { eventId } of isCodeEnd ? dropped : []) {
    if (!ledger.openActivities.has(eventId)) continue
    append({ _tag: "ActivityCancelRequested", reason: "dropped_future" }, eventId)
    cancelledActivities.push(eventId)
  }
  for (const { action, awaitsEnd, eventId } of end === "cancellation" ? [] : dropped) {
    const child = ledger.openChildren.get(eventId)
    if (child === undefined) continue
    const reason = awaitsEnd === undefined ? "dropped_future" : interruptSignal.ofChild
    append({ _tag: "SubOrchestrationCancelRequested", reason }, eventId)
    if (neverStarted.has(eventId)) continue
    endedChildren.push(
      isOfDuroxide ? terminate(child, "parent dropped sub-orchestration future") : endChild(
        child,
        action,
        ledger.interruptRequest === undefined
          ? "its parent no longer waits for it"
          : interruptSignal.decode(ledger.interruptRequest.data)
      )
    )
  }
  // Also waits whose signal came after the drop in the same batch: it was not delivered.
  for (const eventId of isCodeEnd ? waits("WaitExternal") : []) {
    append({ _tag: "ExternalSubscribedCancelled", reason: "dropped_future" }, eventId)
  }
  for (const eventId of isCodeEnd ? waits("DequeueEvent") : []) {
    append({ _tag: "ExternalSubscribedPersistentCancelled", reason: "dropped_future" }, eventId)
  }

  if (outcome._tag !== "Waiting") {
    for (const eventId of [...ledger.openSubscriptions, ...waits("WaitExternal")].sort(ascending)) {
      append({ _tag: "ExternalSubscribedCancelled", reason: "orchestration_terminal" }, eventId)
    }
    for (const eventId of [...ledger.openDequeues, ...waits("DequeueEvent")].sort(ascending)) {
      append({ _tag: "ExternalSubscribedPersistentCancelled", reason: "orchestration_terminal" }, eventId)
    }
    append(lastEvent(outcome))
    for (const eventId of ledger.openActivities) {
      append({ _tag: "ActivityCancelRequested", reason: terminalReason[outcome._tag] }, eventId)
      cancelledActivities.push(eventId)
    }
    const children = [...ledger.openChildren.values()].filter(({ eventId }) => !neverStarted.has(eventId))
    if (end === "cancellation") {
      const left = isOfDuroxide ? children : [...children, ...ledger.interruptedChildren.values()]
      for (const child of left) endedChildren.push(terminate(child, "parent canceled"))
    } else if (!isOfDuroxide && isCodeEnd) {
      for (const child of children) {
        append({ _tag: "SubOrchestrationCancelRequested", reason: terminalReason[outcome._tag] }, child.eventId)
        endedChildren.push(endChild(child, openRequest(child.eventId), "its parent has ended"))
      }
    }
  }

  // A timer that no fiber waits for would wake the instance for nothing. The store deletes the timers of an ended
  // execution.
  const cancelledTimers = outcome._tag !== "Waiting"
    ? []
    : dropped.flatMap(({ action, eventId: id }) =>
      action._tag === "CreateTimer" && ledger.unanswered.has(id)
        ? { _tag: "TimerFired" as const, instance: instanceId, executionId, id, fireAtMs: action.fireAtMs }
        : []
    )

  const { forRust, messages, startsPinnedTo, workerItems } = started === null
    ? nothingSent
    : send(
      requests.filter(({ event }) => outcome._tag !== "Waiting" || !neverStarted.has(event.eventId)),
      started,
      outcome,
      execution
    )
  return {
    outcome,
    turn: {
      executionId,
      historyDelta: recorder.added,
      workerItems,
      orchestratorItems: [
        ...messages,
        ...endedChildren,
        ...(started === null ? [] : followUp(started, outcome))
      ],
      cancelledActivities: cancelledActivities.map((activityId) => ({ instanceId, executionId, activityId })),
      metadata: {
        ...status(outcome),
        ...(execution.lastEventId === 0 && started !== null && {
          orchestrationName: started.name,
          orchestrationVersion: started.version,
          pinnedVersion: execution.version,
          ...(started.parentInstance !== null && { parentInstanceId: started.parentInstance })
        })
      },
      ...(forRust.size > 0 && { forRust }),
      ...(startsPinnedTo.size > 0 && { startsPinnedTo }),
      ...(cancelledTimers.length > 0 && { cancelledTimers })
    }
  }
}

// internal

interface Sent {
  readonly workerItems: ReadonlyArray<WorkItem.Of<"ActivityExecute">>
  /** Activities among them that Duroxide in Rust runs. */
  readonly forRust: ReadonlySet<WorkItem.Of<"ActivityExecute">>
  readonly messages: ReadonlyArray<WorkItem.WorkItem>
  /** Starts among the messages, and the version that each child is pinned to. */
  readonly startsPinnedTo: ReadonlyMap<WorkItem.WorkItem, CoreVersion>
}

const nothingSent: Sent = { workerItems: [], forRust: new Set(), messages: [], startsPinnedTo: new Map() }

/** What the requests of a turn enqueue. */
const send = (
  requests: ReadonlyArray<Request>,
  started: Event.Of<"OrchestrationStarted">,
  outcome: Outcome,
  { traceparent = started.traceparent, version }: Pick<Execution, "traceparent" | "version">
): Sent => {
  const workerItems: Array<WorkItem.Of<"ActivityExecute">> = []
  const forRust = new Set<WorkItem.Of<"ActivityExecute">>()
  const messages: Array<WorkItem.WorkItem> = []
  const startsPinnedTo = new Map<WorkItem.WorkItem, CoreVersion>()
  for (const request of requests) {
    // Detached starts are independent of this execution, so they are sent however it ends.
    if (outcome._tag !== "Waiting" && request.action._tag !== "StartOrchestrationDetached") continue
    const item = action.dispatch(request.action, request.event, { startedAtMs: started.timestampMs, traceparent })
    if (item === undefined) continue
    const isForRust = "servedBy" in request.action && request.action.servedBy === "rust"
    if (item._tag === "ActivityExecute") {
      workerItems.push(item)
      if (isForRust) forRust.add(item)
    } else {
      messages.push(item)
      if (item._tag === "StartOrchestration") startsPinnedTo.set(item, isForRust ? anyRust : version)
    }
  }
  return { workerItems, forRust, messages, startsPinnedTo }
}

const ascending = (a: number, b: number) => a - b

type Ended = Exclude<Outcome, { readonly _tag: "Waiting" }>

const terminalReason = {
  Completed: "orchestration_terminal_completed",
  Failed: "orchestration_terminal_failed",
  ContinuedAsNew: "orchestration_terminal_continued_as_new"
} as const

const terminate = (child: Event.Of<"SubOrchestrationScheduled">, reason: string): WorkItem.WorkItem => ({
  _tag: "CancelInstance",
  instance: childId(child),
  reason
})

/** Interrupts or terminates a child; `request` is its call, if that is known. Duroxide knows termination only. */
const endChild = (
  child: Event.Of<"SubOrchestrationScheduled">,
  request: action.Action | undefined,
  reason: string
): WorkItem.WorkItem =>
  request?._tag === "StartSubOrchestration" && (request.servedBy === "rust" || request.onInterrupt === "terminate")
    ? terminate(child, reason)
    : {
      _tag: "QueueMessage",
      instance: childId(child),
      name: interruptSignal.name,
      data: interruptSignal.encode(reason)
    }

const lastEvent = (outcome: Ended): action.Recorded => {
  switch (outcome._tag) {
    case "Completed":
      return { _tag: "OrchestrationCompleted", output: outcome.output }
    case "Failed":
      return { _tag: "OrchestrationFailed", details: outcome.details }
    case "ContinuedAsNew":
      return { _tag: "OrchestrationContinuedAsNew", input: outcome.input }
  }
}

const status = (outcome: Outcome): { readonly status?: ExecutionStatus; readonly output?: string } => {
  switch (outcome._tag) {
    case "Waiting":
      return {}
    case "Completed":
      return { status: "Completed", output: outcome.output }
    case "Failed":
      return { status: "Failed", output: ErrorDetails.display(outcome.details) }
    case "ContinuedAsNew":
      return { status: "ContinuedAsNew", output: outcome.input }
  }
}

/** The notice to the parent, or the message that starts the next execution. */
const followUp = (
  started: Event.Of<"OrchestrationStarted">,
  outcome: Outcome
): ReadonlyArray<WorkItem.WorkItem> => {
  if (outcome._tag === "Waiting") return []
  const { parentExecutionId, parentId, parentInstance } = started
  if (outcome._tag === "ContinuedAsNew") {
    return [{
      _tag: "ContinueAsNew",
      instance: started.instanceId,
      orchestration: started.name,
      input: outcome.input,
      version: outcome.version,
      ...(parentInstance !== null && { parentInstance }),
      ...(parentId !== null && { parentId }),
      ...(parentExecutionId !== undefined && { parentExecutionId }),
      carryForwardEvents: outcome.carried.map(({ data, name }) => [name, data]),
      ...(outcome.customStatus !== null && { initialCustomStatus: outcome.customStatus }),
      // Not that of this turn, so that the turns of all executions are siblings.
      ...(started.traceparent !== undefined && { traceparent: started.traceparent }),
      ...(attributes.hasAny(outcome.attributes) && { attributes: outcome.attributes })
    }]
  }
  if (parentInstance === null || parentId === null) return []
  const parent = { parentInstance, parentExecutionId: parentExecutionId ?? 1, parentId }
  return [
    outcome._tag === "Completed"
      ? { _tag: "SubOrchCompleted", ...parent, result: outcome.output }
      : { _tag: "SubOrchFailed", ...parent, details: outcome.details }
  ]
}
