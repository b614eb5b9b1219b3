/**
 * One turn as a pure call: a claimed item and the code in, what to store out.
 *
 * Steps: messages become events, the code is replayed over all of them, what it newly asks for gets events of its own,
 * and the way it ended decides what is enqueued. Limits of what a turn may do are the runtime's concern, not this one's.
 */
import * as ErrorDetails from "../../ErrorDetails.ts"
import type * as Event from "../../Event.ts"
import type { Turn } from "../../Provider.ts"
import type { CoreVersion, ExecutionStatus } from "../../ProviderDriver.ts"
import type * as WorkItem from "../../WorkItem.ts"
import * as action from "./action.ts"
import * as arrivals from "./arrivals.ts"
import * as replay from "./replay.ts"

/** The execution a turn is about. */
export interface Execution {
  readonly instanceId: string
  readonly executionId: number
  /** The store's clock at the claim, milliseconds since the Unix epoch. */
  readonly nowMs: number
  /** Stored events; empty on the first turn. */
  readonly history: ReadonlyArray<Event.Event>
  /** Written as event 1 when there is no history. */
  readonly started: StartedFields
  /** Stamp of new events, and the pinned version of a new execution. */
  readonly version: CoreVersion
}

export interface Input extends Execution, replay.Options {
  /** Messages in order of arrival, without start messages. */
  readonly messages: ReadonlyArray<WorkItem.WorkItem>
}

export type StartedFields = action.Recorded<Event.Of<"OrchestrationStarted">>

export type Outcome =
  | { readonly _tag: "Waiting" }
  | { readonly _tag: "Completed"; readonly output: string }
  | { readonly _tag: "Failed"; readonly details: ErrorDetails.ErrorDetails }

export interface Result {
  readonly outcome: Outcome
  readonly turn: Turn
  /** Messages that led to nothing, in words. */
  readonly warnings: ReadonlyArray<string>
}

/** Executions of ours are pinned in a version space no Rust runtime asks for; only they follow our stricter rules. */
export const isOwn = (duroxideVersion: string): boolean => Number(duroxideVersion.split(".", 1)[0]) >= 1000

export const run = (input: Input): Result => {
  const { history } = input
  const recorder = record(input)
  const { added, append } = recorder
  const started = (history[0] ?? append(input.started)) as Event.Of<"OrchestrationStarted">
  const arrived = arrivals.toEvents(input.executionId, history, input.messages, append)
  const arrivedCount = added.length

  const engine = replay.make(input)
  const scheduled: Array<action.ScheduleEvent> = []
  let failure = arrived.abort
  if (failure === undefined) {
    try {
      feed(engine, history, added.slice())
      for (let next = engine.nextAction(); next !== undefined; next = engine.nextAction()) {
        const event = append(next) as action.ScheduleEvent
        scheduled.push(event)
        engine.bind(event.eventId)
      }
      if (engine.ended() === undefined && !engine.isWaiting()) {
        failure = ErrorDetails.nondeterminism(notDurable(started.name))
      }
    } catch (problem) {
      if (!(problem instanceof replay.Nondeterminism)) throw problem
      failure = ErrorDetails.nondeterminism(problem.message)
    }
  }
  const ended = engine.ended()
  if (failure === undefined && ended?._tag === "Died") {
    failure = ErrorDetails.application("Panicked", ended.problem)
  }
  // A turn that went wrong leaves nothing behind but what had arrived.
  if (failure !== undefined) {
    recorder.truncate(arrivedCount)
    return { ...conclude(input, recorder, { _tag: "Failed", details: failure }, [], []), warnings: arrived.warnings }
  }

  const cancelRequest = [...history, ...added].find((event) => event._tag === "OrchestrationCancelRequested")
  const outcome: Outcome = cancelRequest !== undefined
    ? { _tag: "Failed", details: ErrorDetails.cancelled(cancelRequest.reason) }
    : ended === undefined
    ? { _tag: "Waiting" }
    : ended._tag === "Succeeded"
    ? { _tag: "Completed", output: ended.output }
    : {
      _tag: "Failed",
      details: ErrorDetails.application("OrchestrationFailed", ended._tag === "Failed" ? ended.error : ended.problem)
    }
  // Handles count as dropped only where the code itself let go of them.
  const dropped = cancelRequest === undefined ? engine.dropped() : []
  return { ...conclude(input, recorder, outcome, scheduled, dropped), warnings: arrived.warnings }
}

/** Ends an execution without running its code. `unreadable` history keeps its rows; the failure goes behind them. */
export const fail = (
  execution: Execution,
  details: ErrorDetails.ErrorDetails,
  options: { readonly unreadable: boolean }
): Result => {
  const recorder = record(execution, options.unreadable ? unreadableEventId : undefined)
  if (execution.history.length === 0 && !options.unreadable) recorder.append(execution.started)
  return { ...conclude(execution, recorder, { _tag: "Failed", details }, [], []), warnings: [] }
}

// internal

/** Where the reference puts the failure of an execution whose events cannot be counted. */
const unreadableEventId = 99_999

interface Recorder {
  readonly added: Array<Event.Event>
  readonly append: (fields: action.Recorded, sourceEventId?: number | null) => Event.Event
  readonly truncate: (count: number) => void
}

const record = (execution: Execution, firstId = (execution.history.at(-1)?.eventId ?? 0) + 1): Recorder => {
  const { executionId, instanceId, nowMs, version } = execution
  const duroxideVersion = `${version.major}.${version.minor}.${version.patch}`
  const added: Array<Event.Event> = []
  return {
    added,
    append: (fields, sourceEventId = null) => {
      const eventId = firstId + added.length
      const envelope = { eventId, sourceEventId, instanceId, executionId, timestampMs: nowMs, duroxideVersion }
      const event = { ...envelope, ...fields, ...envelope } as Event.Event
      added.push(event)
      return event
    },
    truncate: (count) => void added.splice(count)
  }
}

/** Writes what follows from the outcome, and lists what is enqueued and cancelled. */
const conclude = (
  execution: Execution,
  { added, append }: Recorder,
  outcome: Outcome,
  scheduled: ReadonlyArray<action.ScheduleEvent>,
  dropped: ReadonlyArray<{ readonly eventId: number; readonly action: action.Action }>
): Omit<Result, "warnings"> => {
  const { executionId, history, instanceId } = execution
  const { cancelledSubscriptions, openActivities, openSubscriptions } = arrivals.bookkeeping([...history, ...added])
  const cancelled: Array<number> = []
  for (const { eventId } of dropped) {
    if (!openActivities.delete(eventId)) continue
    append({ _tag: "ActivityCancelRequested", reason: "dropped_future" }, eventId)
    cancelled.push(eventId)
  }
  for (const { action: { _tag }, eventId } of dropped) {
    // Also when an arrival came behind the drop in the same batch: nobody has got it.
    if (_tag !== "WaitExternal" || cancelledSubscriptions.has(eventId)) continue
    openSubscriptions.delete(eventId)
    append({ _tag: "ExternalSubscribedCancelled", reason: "dropped_future" }, eventId)
  }
  if (outcome._tag !== "Waiting") {
    for (const eventId of openSubscriptions) {
      append({ _tag: "ExternalSubscribedCancelled", reason: "orchestration_terminal" }, eventId)
    }
    append(
      outcome._tag === "Completed"
        ? { _tag: "OrchestrationCompleted", output: outcome.output }
        : { _tag: "OrchestrationFailed", details: outcome.details }
    )
    const reason = outcome._tag === "Completed" ? "orchestration_terminal_completed" : "orchestration_terminal_failed"
    for (const eventId of openActivities) {
      append({ _tag: "ActivityCancelRequested", reason }, eventId)
      cancelled.push(eventId)
    }
  }

  const started = (history[0] ?? added[0]) as Event.Event
  const items = outcome._tag === "Waiting" ? scheduled.flatMap((event) => action.dispatch(event) ?? []) : []
  const notice = started._tag === "OrchestrationStarted" ? parentNotice(started, outcome) : undefined
  return {
    outcome,
    turn: {
      executionId,
      historyDelta: added,
      workerItems: items.filter((item) => item._tag === "ActivityExecute"),
      orchestratorItems: [
        ...items.filter((item) => item._tag !== "ActivityExecute"),
        ...(notice === undefined ? [] : [notice])
      ],
      cancelledActivities: cancelled.map((activityId) => ({ instanceId, executionId, activityId })),
      metadata: {
        ...status(outcome),
        ...(history.length === 0 && started._tag === "OrchestrationStarted" && {
          orchestrationName: started.name,
          orchestrationVersion: started.version,
          pinnedVersion: execution.version,
          ...(started.parentInstance !== null && { parentInstanceId: started.parentInstance })
        })
      }
    }
  }
}

/** Hands over stored events, then new ones; stops where the code has ended. */
const feed = (
  engine: replay.Replay,
  history: ReadonlyArray<Event.Event>,
  arrived: ReadonlyArray<Event.Event>
): void => {
  for (const [index, event] of history.entries()) {
    if (engine.ended() !== undefined) return forbidEnd(engine, history, index)
    engine.apply(event, true)
  }
  if (engine.ended() !== undefined) forbidEnd(engine, history, history.length)
  const dropped = new Set(engine.dropped().map(({ eventId }) => eventId))
  for (const event of history) {
    if (
      (event._tag === "ActivityCancelRequested" || event._tag === "ExternalSubscribedCancelled") &&
      event.reason === "dropped_future" && !dropped.has(event.sourceEventId!)
    ) {
      throw new replay.Nondeterminism(
        `event ${event.eventId}: history says the code gave up event ${event.sourceEventId}, now it did not`
      )
    }
  }
  for (const event of arrived) {
    if (engine.ended() !== undefined) break
    engine.apply(event, false)
  }
}

/**
 * Code that has ended within its history has changed, for its turns stored no end. Executions of the reference are not
 * held to that; and code that died says more than we could.
 */
const forbidEnd = (engine: replay.Replay, history: ReadonlyArray<Event.Event>, index: number): void => {
  if (history.length === 0 || !isOwn(history[0]!.duroxideVersion) || engine.ended()?._tag === "Died") return
  const expected = history.slice(index).find(action.isSchedule)
  throw new replay.Nondeterminism(
    expected === undefined
      ? `event ${history.at(-1)!.eventId}: history has the code waiting for more, the code has already ended`
      : `event ${expected.eventId}: history has ${action.describeEvent(expected)}, the code has already ended`
  )
}

const notDurable = (name: string) =>
  `orchestration "${name}" awaits something that is not durable (a promise, a callback, a real timer): ` +
  `nothing recorded can ever wake it. Put it into an activity`

const status = (
  outcome: Outcome
): { readonly status?: ExecutionStatus; readonly output?: string } =>
  outcome._tag === "Waiting"
    ? {}
    : outcome._tag === "Completed"
    ? { status: "Completed", output: outcome.output }
    : { status: "Failed", output: ErrorDetails.display(outcome.details) }

const parentNotice = (
  started: Event.Of<"OrchestrationStarted">,
  outcome: Outcome
): WorkItem.WorkItem | undefined => {
  if (outcome._tag === "Waiting" || started.parentInstance === null || started.parentId === null) return undefined
  const parent = {
    parentInstance: started.parentInstance,
    parentExecutionId: started.parentExecutionId ?? 1,
    parentId: started.parentId
  }
  return outcome._tag === "Completed"
    ? { _tag: "SubOrchCompleted", ...parent, result: outcome.output }
    : { _tag: "SubOrchFailed", ...parent, details: outcome.details }
}
