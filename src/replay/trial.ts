/**
 * Tries whether code can continue a stored execution that has not ended: by its next turn, of which nothing is stored.
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as References from "effect/References"
import type { BlockReason } from "../model/Block.ts"
import type { ErrorDetails } from "../model/ErrorDetails.ts"
import type * as Event from "../model/Event.ts"
import * as coreVersion from "../model/shared/coreVersion.ts"
import { describe } from "../model/shared/defect.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import { codeAfter, diesAfter } from "./codeAfter.ts"
import type { Code, StoredValue } from "./codeAfter.ts"
import * as historyDiff from "./historyDiff.ts"
import * as turns from "./turn.ts"

/** Why code cannot continue an execution. */
export interface Refusal {
  /** Whether the instance would be blocked, or would fail: when its program dies, or if it is of Duroxide. */
  readonly outcome: "block" | "fail"
  readonly reason: BlockReason | "Dies"
  /** What does not fit, for people; never a payload. */
  readonly problem: string
  /** The event at which the replay stops. */
  readonly eventId: number
  /** What the program died of: its message may have payloads. */
  readonly defect?: string
  /** The events around the place; of both sides, where the history differs. */
  readonly difference: historyDiff.Difference
}

/**
 * Undefined if the code fits. `events` are those of the execution, the first of them its start; `keyValues` the values
 * that ended executions have left; `messages` those that the next turn gets.
 */
export const refusalOf = (
  code: Code,
  events: readonly [Event.Of<"OrchestrationStarted">, ...ReadonlyArray<Event.Event>],
  keyValues: ReadonlyMap<string, StoredValue>,
  messages: ReadonlyArray<WorkItem.WorkItem> = []
): Refusal | undefined => {
  const [started] = events
  const { executionId, instanceId } = started
  const tried = turns.runOrBlock({
    instanceId,
    executionId,
    nowMs: events.at(-1)!.timestampMs,
    history: events,
    started,
    messages,
    keyValues,
    version: coreVersion.current,
    code,
    services: Context.make(References.CurrentLoggers, new Set()),
    onStray: () => {}
  })
  if (tried instanceof turns.Blocked) {
    const { diedOf, eventId, problem, reason } = tried
    const at = indexOf(eventId, events)
    const difference = reason === "HistoryDiffers" ? sides(code, events, at, keyValues) : around(events, at)
    const defect = diedOf && { defect: describe(Cause.squash(diedOf)).message }
    return { outcome: "block", reason, problem, eventId, ...defect, difference }
  }
  const failure = failureOf(tried.outcome)
  if (failure === undefined) return undefined
  if (failure._tag === "Configuration") {
    const problem = failure.message ?? ""
    const eventId = Number(/^event (\d+):/.exec(problem)?.[1] ?? Number.NaN)
    return Number.isNaN(eventId)
      ? {
        outcome: "fail",
        reason: "NotDurable",
        problem,
        eventId: events.at(-1)!.eventId,
        difference: around(events, events.length - 1)
      }
      : {
        outcome: "fail",
        reason: "HistoryDiffers",
        problem,
        eventId,
        difference: sides(code, events, indexOf(eventId, events), keyValues)
      }
  }
  const after = diesAfter(code, events, events.length, keyValues) ?? events.length
  const { eventId } = events[after - 1]!
  return {
    outcome: "fail",
    reason: "Dies",
    problem: `event ${eventId}: the program dies after it`,
    eventId,
    defect: failure.message,
    difference: around(events, after - 1)
  }
}

// internal

type Failure = Extract<ErrorDetails, { readonly _tag: "Configuration" | "Application" }>

/** A failure for another reason than an outcome of the program: it does not fit, or has died. */
const failureOf = (outcome: turns.Outcome): Failure | undefined => {
  if (outcome._tag !== "Failed") return undefined
  const { details } = outcome
  return details._tag === "Configuration" || details._tag === "Application" && details.kind === "Panicked"
    ? details
    : undefined
}

/** Where an event stands; the number of events, for one that is not among them. */
const indexOf = (eventId: number, events: ReadonlyArray<Event.Event>): number => {
  const index = events.findIndex((event) => event.eventId === eventId)
  return index < 0 ? events.length : index
}

/** The history from here, and what the code does in its place. */
const sides = (
  code: Code,
  events: ReadonlyArray<Event.Event>,
  at: number,
  keyValues: ReadonlyMap<string, StoredValue>
): historyDiff.Difference => {
  const instead = at < 1 ? undefined : codeAfter(code, events, at, keyValues)
  return historyDiff.make(events, at, instead?._tag === "Fits" ? instead.events : [])
}

/** The event that the code cannot take, among its neighbours. */
const around = (events: ReadonlyArray<Event.Event>, at: number): historyDiff.Difference => ({
  ...historyDiff.make(events, at + 1, []),
  history: []
})
