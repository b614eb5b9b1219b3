/**
 * What code does after a piece of history: the one place here that runs a turn.
 */
import * as Context from "effect/Context"
import * as References from "effect/References"
import type { ErrorDetails } from "../../model/ErrorDetails.ts"
import type * as Event from "../../model/Event.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import type { Code } from "../../replay/interpreter.ts"
import * as turns from "../../replay/turn.ts"

export type { Code } from "../../replay/interpreter.ts"

export type Continuation =
  /** The code goes along with the events, and then does this. */
  | { readonly _tag: "Fits"; readonly events: ReadonlyArray<Event.Event> }
  /** It does not, for a reason in words. */
  | { readonly _tag: "Differs"; readonly problem: string }

/** A value that earlier executions have left behind. */
export interface Kept {
  readonly value: string
  readonly lastUpdatedAtMs: number
}

/** `known` is the beginning of an execution; it need not end where a turn did. */
export const codeAfter = (
  code: Code,
  known: ReadonlyArray<Event.Event>,
  keyValues: ReadonlyMap<string, Kept>
): Continuation => {
  let first: Continuation | undefined
  for (const count of beginnings(known)) {
    const result = turns.run(input(code, known, count, keyValues))
    const { outcome, turn } = result
    if (outcome._tag !== "Failed" || outcome.details._tag !== "Configuration" || isPassedOn(outcome.details, known)) {
      return { _tag: "Fits", events: turn.historyDelta.slice(known.length - count) }
    }
    first ??= { _tag: "Differs", problem: outcome.details.message ?? "" }
  }
  return first!
}

/** Whether the event came from outside, so that the code goes on with it. */
export const isArrival = (event: Event.Event): boolean => toMessage(event) !== undefined

// internal

/**
 * How many of the events may be told as history, the likeliest first. The rest arrived and is told as news: one arrival,
 * or as many as came together in the last turn.
 */
const beginnings = (known: ReadonlyArray<Event.Event>): ReadonlyArray<number> => {
  const counts: Array<number> = []
  let count = known.length
  while (count > 1 && isArrival(known[count - 1]!)) {
    count--
    // A failure that no code may see ends the execution, when it is news.
    if (isUnseen(known[count]!)) counts.splice(0)
    counts.push(count)
  }
  if (count === known.length) counts.push(count)
  return count === 1 ? [...counts, 0] : counts
}

/** A child's nondeterminism becomes its parent's failure as it is. */
const isPassedOn = (details: ErrorDetails, known: ReadonlyArray<Event.Event>) =>
  known.some((event) => isUnseen(event) && "details" in event && event.details === details)

const isUnseen = (event: Event.Event) => "details" in event && event.details._tag !== "Application"

const input = (
  code: Code,
  known: ReadonlyArray<Event.Event>,
  count: number,
  keyValues: ReadonlyMap<string, Kept>
): turns.Input => {
  const started = known[0] as Event.Of<"OrchestrationStarted">
  const { executionId, instanceId } = started
  const [major, minor, patch] = started.duroxideVersion.split(/[.+-]/).map(Number)
  // A first turn tells itself how it began, and what was carried over to it.
  const told = count === 0 ? 1 + (started.carryForwardEvents?.length ?? 0) : count
  return {
    instanceId,
    executionId,
    nowMs: known.at(-1)!.timestampMs,
    history: known.slice(0, count),
    started,
    messages: known.slice(told).flatMap((event) => toMessage(event) ?? []),
    keyValues,
    version: { major: major!, minor: minor!, patch: patch! },
    code,
    services: Context.make(References.CurrentLoggers, new Set()),
    onStray: () => {}
  }
}

/** The message that an event was made of. */
const toMessage = (event: Event.Event): WorkItem.WorkItem | undefined => {
  const { executionId, instanceId: instance } = event
  const id = event.sourceEventId ?? 0
  const parent = { parentInstance: instance, parentExecutionId: executionId, parentId: id }
  switch (event._tag) {
    case "ActivityCompleted":
      return { _tag: "ActivityCompleted", instance, executionId, id, result: event.result }
    case "ActivityFailed":
      return { _tag: "ActivityFailed", instance, executionId, id, details: event.details }
    case "TimerFired":
      return { _tag: "TimerFired", instance, executionId, id, fireAtMs: event.fireAtMs }
    case "SubOrchestrationCompleted":
      return { _tag: "SubOrchCompleted", ...parent, result: event.result }
    case "SubOrchestrationFailed":
      return { _tag: "SubOrchFailed", ...parent, details: event.details }
    case "ExternalEvent":
      return { _tag: "ExternalRaised", instance, name: event.name, data: event.data }
    case "ExternalEventPersistent":
      return { _tag: "QueueMessage", instance, name: event.name, data: event.data }
    case "OrchestrationCancelRequested":
      return { _tag: "CancelInstance", instance, reason: event.reason }
    default:
      return undefined
  }
}
