/**
 * One turn as a pure call: a claimed item and the code in, what to store out.
 *
 * Steps: messages become events, the code is replayed over all of them, what it newly asks for gets events of its own,
 * and the way it ended decides what is enqueued.
 */
import * as ErrorDetails from "../../ErrorDetails.ts"
import type * as Event from "../../Event.ts"
import type * as WorkItem from "../../WorkItem.ts"
import * as action from "./action.ts"
import * as arrivals from "./arrivals.ts"
import { conclude, record } from "./conclude.ts"
import type { Execution, Outcome, Request, Result } from "./conclude.ts"
import { limitExceeded } from "./limits.ts"
import * as replay from "./replay.ts"

export interface Input extends Execution, Omit<replay.Options, "strict"> {
  /** Messages in order of arrival, without start messages. */
  readonly messages: ReadonlyArray<WorkItem.WorkItem>
}

export type StartedFields = action.Recorded<Event.Of<"OrchestrationStarted">>

export type { Outcome, Result } from "./conclude.ts"

/** Executions of ours are pinned in a version space no Rust runtime asks for; only they follow our stricter rules. */
export const isOwn = (duroxideVersion: string): boolean => Number(duroxideVersion.split(".", 1)[0]) >= 1000

export const run = (input: Input): Result => {
  const { executionId, history, nowMs } = input
  const recorder = record(input)
  const { added, append } = recorder
  const started = (history[0] ?? append(input.started)) as Event.Of<"OrchestrationStarted">
  // What the execution before left unread comes before everything else.
  const carried = history.length === 0 ? started.carryForwardEvents ?? [] : []
  for (const [name, data] of carried) append({ _tag: "ExternalEventPersistent", name, data })
  const arrived = arrivals.toEvents(executionId, history, input.messages, append)
  const arrivedCount = added.length

  const engine = replay.make({ ...input, strict: isOwn(started.duroxideVersion) })
  const requests: Array<Request> = []
  let failure = arrived.abort
  if (failure === undefined) {
    try {
      feed(engine, history, added.slice())
      for (let next = engine.nextAction(); next !== undefined; next = engine.nextAction()) {
        const eventId = recorder.nextId()
        const event = append(action.record(next, { eventId, executionId, nowMs })) as action.RequestEvent
        requests.push({ action: next, event })
        engine.bind(eventId)
      }
      if (engine.ended() === undefined && engine.continued() === undefined && !engine.isWaiting()) {
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
  const { warnings } = arrived
  // A turn that went wrong leaves nothing behind but what had arrived.
  if (failure !== undefined) {
    recorder.truncate(arrivedCount)
    return { ...conclude(input, recorder, { _tag: "Failed", details: failure }, nothing), warnings }
  }

  const cancelRequest = [...history, ...added].find((event) => event._tag === "OrchestrationCancelRequested")
  const violation = limitExceeded(requests, engine)
  const continued = engine.continued()
  const outcome: Outcome = cancelRequest !== undefined
    ? { _tag: "Failed", details: ErrorDetails.cancelled(cancelRequest.reason) }
    : violation !== undefined
    ? { _tag: "Failed", details: ErrorDetails.application("OrchestrationFailed", violation) }
    : continued !== undefined
    ? { _tag: "ContinuedAsNew", ...continued, carried: engine.unread(), customStatus: engine.customStatus() }
    : ended === undefined
    ? { _tag: "Waiting" }
    : ended._tag === "Succeeded"
    ? { _tag: "Completed", output: ended.output }
    : {
      _tag: "Failed",
      details: ErrorDetails.application("OrchestrationFailed", ended._tag === "Failed" ? ended.error : ended.problem)
    }
  const cancelled = cancelRequest !== undefined
  // Handles count as dropped only where the code itself let go of them. An end that is not the code's own closes what is
  // open anyway, all but children: nobody else would ever tell them.
  const dropped = cancelled
    ? []
    : violation !== undefined || continued !== undefined
    ? engine.dropped().filter((handle) => handle.action._tag === "StartSubOrchestration")
    : engine.dropped()
  return { ...conclude(input, recorder, outcome, { requests, dropped, cancelled }), warnings }
}

/** Ends an execution without running its code. `unreadable` history keeps its rows; the failure goes behind them. */
export const fail = (
  execution: Execution,
  details: ErrorDetails.ErrorDetails,
  options: { readonly unreadable: boolean }
): Result => {
  const recorder = record(execution, options.unreadable ? unreadableEventId : undefined)
  if (execution.history.length === 0 && !options.unreadable) recorder.append(execution.started)
  return { ...conclude(execution, recorder, { _tag: "Failed", details }, nothing), warnings: [] }
}

// internal

/** Where the reference puts the failure of an execution whose events cannot be counted. */
const unreadableEventId = 99_999

const nothing = { requests: [], dropped: [], cancelled: false }

const breadcrumbs: ReadonlySet<string> = new Set<Event.Event["_tag"]>([
  "ActivityCancelRequested",
  "SubOrchestrationCancelRequested",
  "ExternalSubscribedCancelled",
  "ExternalSubscribedPersistentCancelled"
])

/** Hands over stored events, then new ones; stops where the code has ended. */
const feed = (
  engine: replay.Replay,
  history: ReadonlyArray<Event.Event>,
  arrived: ReadonlyArray<Event.Event>
): void => {
  for (const [index, event] of history.entries()) {
    forbidEnd(engine, history, index)
    if (engine.ended() !== undefined) return
    engine.apply(event, true)
  }
  forbidEnd(engine, history, history.length)
  const dropped = new Set(engine.dropped().map(({ eventId }) => eventId))
  for (const event of history) {
    if (
      breadcrumbs.has(event._tag) && "reason" in event && event.reason === "dropped_future" &&
      !dropped.has(event.sourceEventId!)
    ) {
      throw new replay.Nondeterminism(
        `event ${event.eventId}: history says the code gave up event ${event.sourceEventId}, now it did not`
      )
    }
  }
  for (const event of arrived) {
    // The next execution gets what nobody has read.
    if (engine.ended() !== undefined && engine.continued() === undefined) break
    engine.apply(event, false)
  }
}

/**
 * Code that has ended or continued as new within its history has changed, for its turns stored no end. Executions of the
 * reference are not held to that; and code that died says more than we could.
 */
const forbidEnd = (engine: replay.Replay, history: ReadonlyArray<Event.Event>, index: number): void => {
  const ended = engine.ended()
  if (ended === undefined ? engine.continued() === undefined : ended._tag === "Died") return
  if (history.length === 0 || !isOwn(history[0]!.duroxideVersion)) return
  const expected = history.slice(index).find(action.isRequest)
  throw new replay.Nondeterminism(
    expected === undefined
      ? `event ${history.at(-1)!.eventId}: history has the code waiting for more, the code has already ended`
      : `event ${expected.eventId}: history has ${action.describeEvent(expected)}, the code has already ended`
  )
}

const notDurable = (name: string) =>
  `orchestration "${name}" awaits something that is not durable (a promise, a callback, a real timer): ` +
  `nothing recorded can ever wake it. Put it into an activity`
