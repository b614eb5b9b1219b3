/**
 * Checks definitions of schedules. What cannot work is a mistake in the code, so it throws a `RangeError`.
 */
import * as DateTime from "effect/DateTime"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import type * as Attribute from "../../model/Attribute.ts"
import type { EncodedAttributes } from "../../model/shared/attributes.ts"
import * as attributes from "../../model/shared/attributes.ts"
import type { ServedBy } from "../../model/shared/definitions.ts"
import { wholeMs } from "../../model/shared/durations.ts"
import { problemOfName, problemOfRootId } from "../../model/shared/identifiers.ts"
import type { Definition, Overlap, Target } from "./definition.ts"
import { idOf } from "./plan.ts"
import { firstAfter, occurrencesOf } from "./timing.ts"
import type { Timing } from "./timing.ts"

interface Rules {
  readonly timing: Timing
  readonly overlap?: Overlap | undefined
  readonly jitter?: Duration.Input | undefined
  readonly catchUp?: "none" | "last" | { readonly within: Duration.Input } | undefined
  readonly attributes?: Attribute.Attributes | undefined
  readonly version?: "own" | "newest" | undefined
}

type Startable =
  | { readonly name: string; readonly version: string; readonly servedBy: ServedBy }
  | { readonly name: string; readonly queue: string; readonly maxAttempts: number; readonly wakeupKind?: string }

export const name = (name: string): void => {
  const problem = problemOfName(name, maxNameBytes) ?? problemOfRootId(idOf(name, 0))
  if (problem !== undefined) throw new RangeError(`name of schedule ${JSON.stringify(name)} is refused: ${problem}`)
}

export const cron = (expression: string, timeZone: string): Timing => {
  const timing: Timing = { _tag: "Cron", expression, timeZone }
  const of = `cron ${JSON.stringify(expression)}, ${timeZone}`
  const occurrences = occurrencesOf(timing)
  if (Result.isFailure(occurrences)) return refuse(of, occurrences.failure)
  if (firstAfter(occurrences.success, Date.now()) === undefined) refuse(of, "no date fits it")
  return timing
}

export const interval = (every: Duration.Input, offset: Duration.Input | undefined): Timing => {
  const everyMs = wholeMs(every)
  if (everyMs === undefined || everyMs < 1000 || everyMs > longestMs) {
    return refuse("the interval of a schedule", "it must be 1 second to 10 years")
  }
  const offsetMs = offset === undefined ? 0 : wholeMs(offset)
  if (offsetMs === undefined || offsetMs >= everyMs) {
    return refuse("the offset of an interval", "it must be 0 or more, and less than the interval")
  }
  return { _tag: "Interval", everyMs, offsetMs }
}

export const dates = (at: ReadonlyArray<Date | string>, timeZone: string): Timing => {
  if (at.length === 0 || at.length > mostDates) {
    return refuse("the dates of a schedule", `there are ${at.length}, not 1 to 1,000`)
  }
  return { _tag: "Dates", at: at.map((date) => dateOf(date, timeZone)) }
}

export const definition = (
  name: string,
  { attributes: given, catchUp = "last", jitter, overlap = "skip", timing, version }: Rules,
  start: Startable
): Definition => {
  const jitterMs = jitter === undefined ? 0 : wholeMs(jitter)
  if (jitterMs === undefined || jitterMs > dayMs) return refuse(`jitter of schedule "${name}"`, "it must be 0 to 1 day")
  return {
    timing,
    target: targetOf(name, start, version, attributesOf(name, given)),
    overlap,
    jitterMs,
    catchUp: catchUpOf(name, catchUp)
  }
}

// internal

const maxNameBytes = 200

const dayMs = 86_400_000

const longestMs = 3653 * dayMs

const mostDates = 1000

/** The end of the year 9998. */
const latestMs = 253_370_764_799_999

const refuse = (what: string, problem: string): never => {
  throw new RangeError(`${what} is refused: ${problem}`)
}

const targetOf = (
  name: string,
  start: Startable,
  version: Rules["version"],
  given: EncodedAttributes | undefined
): Target => {
  if ("queue" in start) {
    if (given !== undefined) refuse(`attributes of schedule "${name}"`, "it starts a task, which has none")
    const { maxAttempts, name: task, queue, wakeupKind } = start
    return { _tag: "Task", name: task, queue, maxAttempts, ...(wakeupKind !== undefined && { wakeupKind }) }
  }
  return {
    _tag: "Orchestration",
    name: start.name,
    version: version === "newest" ? null : start.version,
    servedBy: start.servedBy,
    ...(given !== undefined && { attributes: given })
  }
}

const catchUpOf = (name: string, catchUp: NonNullable<Rules["catchUp"]>): Definition["catchUp"] => {
  if (catchUp === "none") return { _tag: "None" }
  if (catchUp === "last") return { _tag: "Last" }
  const ms = wholeMs(catchUp.within)
  return ms === undefined || ms > longestMs
    ? refuse(`catchUp of schedule "${name}"`, "within must be 0 to 10 years")
    : { _tag: "Within", ms }
}

const attributesOf = (name: string, given: Attribute.Attributes | undefined): EncodedAttributes | undefined => {
  if (given === undefined) return undefined
  const encoded = Effect.runSync(Effect.result(attributes.encode(given)))
  if (Result.isFailure(encoded)) {
    return refuse(`${encoded.failure.field} of schedule "${name}"`, encoded.failure.problem)
  }
  return attributes.hasAny(encoded.success) ? encoded.success : undefined
}

const dateOf = (date: Date | string, timeZone: string): number => {
  const text = typeof date === "string" ? date : "a Date"
  const hasOffset = typeof date !== "string" || /(Z|[+-]\d\d:?\d\d)$/i.test(date)
  const ms = hasOffset ? new Date(date).getTime() : localMs(date, timeZone)
  return ms === undefined || Number.isNaN(ms) || ms < 0 || ms > latestMs
    ? refuse(
      `date ${JSON.stringify(text)} of a schedule, ${timeZone},`,
      "it is not a time of ISO 8601 that exists there"
    )
    : ms
}

const localMs = (text: string, timeZone: string): number | undefined => {
  if (!/^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,3})?)?)?$/.test(text)) return undefined
  // As if it were a time of UTC, whose parts are then read as those of the zone.
  const asUtc = new Date(text.includes("T") ? `${text}Z` : `${text}T00:00Z`)
  if (Number.isNaN(asUtc.getTime()) || asUtc.toISOString().slice(0, 10) !== text.slice(0, 10)) return undefined
  const zoned = DateTime.makeZoned(asUtc, { timeZone, adjustForTimeZone: true, disambiguation: "compatible" })
  return Option.isNone(zoned) || DateTime.toPartsUtc(zoned.value) === undefined
    ? undefined
    : isSameWallClock(zoned.value, asUtc)
    ? DateTime.toEpochMillis(zoned.value)
    : undefined
}

/** A time that the clocks leave out becomes another one. */
const isSameWallClock = (zoned: DateTime.Zoned, asUtc: Date): boolean => {
  const { hour, minute } = DateTime.toParts(zoned)
  return hour === asUtc.getUTCHours() && minute === asUtc.getUTCMinutes()
}
