/**
 * Durations that callers give, in milliseconds.
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"

/** The duration, if it is one: without types a text may be anything. */
export const durationOf = (input: Duration.Input): Duration.Duration | undefined =>
  hasAmount(input) ? Option.getOrUndefined(Duration.fromInput(input)) : undefined

/** Whole milliseconds, rounded up; undefined without a duration of 0 or more. Infinite ones exceed any limit. */
export const wholeMs = (input: Duration.Input): number | undefined => {
  const duration = durationOf(input)
  const ms = duration === undefined ? -1 : Duration.toMillis(duration)
  return ms >= 0 ? Math.ceil(ms) : undefined
}

export const noDuration = "it is not a duration of 0 or more"

export const notPositive = "it must be more than 0"

// internal

/** A Duration reads a number that is NaN, and what is not one of its units, as 0. */
const hasAmount = (input: unknown): boolean => {
  if (typeof input === "number") return !Number.isNaN(input)
  if (typeof input !== "object" || input === null || Duration.isDuration(input)) return true
  const amounts: ReadonlyArray<unknown> = Array.isArray(input)
    ? input
    : Object.entries(input).flatMap(([unit, amount]) => amount === undefined ? [] : [units.has(unit) ? amount : NaN])
  return amounts.length > 0 && amounts.every((amount) => typeof amount === "number" && !Number.isNaN(amount))
}

const units = new Set([
  "weeks",
  "days",
  "hours",
  "minutes",
  "seconds",
  "milliseconds",
  "microseconds",
  "nanoseconds"
])
