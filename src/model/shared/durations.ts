/**
 * Durations that callers give, in milliseconds.
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"

/** Whole milliseconds, rounded up; undefined without a duration of 0 or more. Infinite ones exceed any limit. */
export const wholeMs = (input: Duration.Input): number | undefined => {
  const ms = Option.map(Duration.fromInput(input), Duration.toMillis)
  return Option.isSome(ms) && ms.value >= 0 && hasAmount(input) ? Math.ceil(ms.value) : undefined
}

export const noDuration = "it is not a duration of 0 or more"

/** The duration, if there is one: a text or number from outside of the types may be none. */
export const durationOf = (input: unknown): Duration.Duration | undefined =>
  hasAmount(input) ? Option.getOrUndefined(Duration.fromInput(input as Duration.Input)) : undefined

// internal

/** A Duration reads a number that is NaN, and an object without one of its units, as 0. */
const hasAmount = (input: unknown): boolean => {
  if (typeof input === "number") return !Number.isNaN(input)
  if (typeof input !== "object" || input === null || Duration.isDuration(input)) return true
  const amounts: ReadonlyArray<unknown> = Array.isArray(input)
    ? input
    : Object.entries(input).flatMap(([unit, amount]) => units.has(unit) && amount !== undefined ? [amount] : [])
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
