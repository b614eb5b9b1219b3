/**
 * Durations in flags, such as "10 minutes" or 10m.
 */
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Durations from "../../model/shared/durations.ts"
import * as Environment from "../../model/shared/environment.ts"
import { type CommandError, misused } from "./failure.ts"

/** Reads durations in the form of Effect or of environment variables; undefined for another text. */
export const read = (text: string): Duration.Duration | undefined =>
  Durations.durationOf(text as never) ?? Environment.duration(0).read(text)

/** What the flag says; fails if that is not a duration. */
export const durationOf = (
  flag: string,
  given: Option.Option<string>
): Effect.Effect<Duration.Duration | undefined, CommandError> => {
  if (Option.isNone(given)) return Effect.succeed(undefined)
  const duration = read(given.value)
  return duration === undefined
    ? Effect.fail(misused(`--${flag}: ${problemOf(given.value.trim())}`))
    : Effect.succeed(duration)
}

// internal

const problemOf = (text: string): string =>
  /^\d+(\.\d+)?$/.test(text)
    ? `add a unit, such as "${text} ${Number(text) === 1 ? "second" : "seconds"}"`
    : `${Durations.noDuration}: write "10 minutes" or "1 hour"`
