/**
 * Runs code over the beginning of a recorded history, and returns what it does next.
 */
import * as Context from "effect/Context"
import * as References from "effect/References"
import type { ErrorDetails } from "../model/ErrorDetails.ts"
import type * as Event from "../model/Event.ts"
import { isArrival, messageOf } from "../model/shared/recordedArrivals.ts"
import type { Code } from "./interpreter.ts"
import * as turns from "./turn.ts"

export type { Code } from "./interpreter.ts"

export type Continuation =
  /** The code fits the events, and continues with these. The events of requests are among them. */
  | {
    readonly _tag: "Fits"
    readonly events: ReadonlyArray<Event.Event>
    readonly requests: turns.Ran["requests"]
  }
  /** The code does not fit the events; `problem` says why. */
  | { readonly _tag: "Differs"; readonly problem: string }

/** A value that ended executions have left. */
export interface StoredValue {
  readonly value: string
  readonly lastUpdatedAtMs: number
}

/** What code does after the first `end` events of an execution; these need not end at the end of a turn. */
export const codeAfter = (
  code: Code,
  events: ReadonlyArray<Event.Event>,
  end: number,
  keyValues: ReadonlyMap<string, StoredValue>
): Continuation => {
  const recorded = events.slice(0, end)
  let first: Continuation | undefined
  for (const count of beginnings(recorded)) {
    const result = turns.run({ ...input(code, recorded, count, keyValues), recorded: events })
    const { outcome, turn } = result
    if (
      outcome._tag !== "Failed" || outcome.details._tag !== "Configuration" || isPassedOn(outcome.details, recorded)
    ) {
      return { _tag: "Fits", events: turn.historyDelta.slice(recorded.length - count), requests: result.requests }
    }
    first ??= { _tag: "Differs", problem: outcome.details.message ?? "" }
  }
  return first!
}

/**
 * After how many of the first `most` events the code has died; undefined if it lives. Code that has died stays dead,
 * whatever follows.
 */
export const diesAfter = (
  code: Code,
  events: ReadonlyArray<Event.Event>,
  most: number,
  keyValues: ReadonlyMap<string, StoredValue>
): number | undefined => {
  const isDead = (count: number) => {
    const after = codeAfter(code, events, count, keyValues)
    return after._tag === "Fits" && after.events.some(isDeath)
  }
  if (!isDead(most)) return undefined
  let low = 1
  let high = most
  while (low < high) {
    const middle = (low + high) >>> 1
    if (isDead(middle)) high = middle
    else low = middle + 1
  }
  return low
}

export const isDeath = (event: Event.Event): event is Event.Of<"OrchestrationFailed"> =>
  event._tag === "OrchestrationFailed" && event.details._tag === "Application" && event.details.kind === "Panicked"

// internal

/**
 * How many of the events to replay as history, the likeliest number first. The others are arrivals, and are delivered
 * as messages: one, or as many as arrived together in the last turn.
 */
const beginnings = (recorded: ReadonlyArray<Event.Event>): ReadonlyArray<number> => {
  const counts: Array<number> = []
  let count = recorded.length
  while (count > 1 && isArrival(recorded[count - 1]!, recorded)) {
    count--
    // A failure that code must not see would end the execution if it were delivered.
    if (isUnseen(recorded[count]!)) counts.splice(0)
    counts.push(count)
  }
  if (count === recorded.length) counts.push(count)
  return count === 1 ? [...counts, 0] : counts
}

/** The nondeterminism of a child becomes the failure of its parent, unchanged. */
const isPassedOn = (details: ErrorDetails, recorded: ReadonlyArray<Event.Event>) =>
  recorded.some((event) => isUnseen(event) && "details" in event && event.details === details)

const isUnseen = (event: Event.Event) => "details" in event && event.details._tag !== "Application"

const input = (
  code: Code,
  recorded: ReadonlyArray<Event.Event>,
  count: number,
  keyValues: ReadonlyMap<string, StoredValue>
): turns.Input => {
  const started = recorded[0] as Event.Of<"OrchestrationStarted">
  const { executionId, instanceId } = started
  const [major, minor, patch] = started.duroxideVersion.split(/[.+-]/).map(Number)
  // A first turn makes the events of its start and of carried messages itself.
  const replayed = count === 0 ? 1 + (started.carryForwardEvents?.length ?? 0) : count
  return {
    instanceId,
    executionId,
    nowMs: recorded.at(-1)!.timestampMs,
    history: recorded.slice(0, count),
    started,
    messages: recorded.slice(replayed).flatMap((event) => messageOf(event) ?? []),
    areRecorded: true,
    keyValues,
    version: { major: major!, minor: minor!, patch: patch! },
    code,
    services: Context.make(References.CurrentLoggers, new Set()),
    onStray: () => {}
  }
}
