/**
 * Checks the options of an activity. An option that cannot work is a mistake in the code, so it throws immediately.
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import { maxGivenIdBytes, problemOfName, problemOfTag } from "./identifiers.ts"
import { problemOfLimitKey } from "./limits.ts"

const refuse = (of: string, option: string, problem: string): never => {
  throw new RangeError(`${of}: ${option} is refused: ${problem}`)
}

const checkLabel = (
  of: string,
  option: string,
  text: string | undefined,
  problemOf: (text: string) => string | undefined
): void => {
  const problem = text === undefined ? undefined : problemOf(text)
  if (problem !== undefined) refuse(of, option, problem)
}

/** Where an activity may run, as in its request. */
export interface Route {
  readonly sessionId?: string
  readonly tag?: string
}

export const routeUnsafe = (of: string, { sessionId, tag }: Route): Route => {
  checkLabel(of, "tag", tag, problemOfTag)
  checkLabel(of, "sessionId", sessionId, (text) => problemOfName(text, maxGivenIdBytes))
  return { ...(sessionId === undefined ? {} : { sessionId }), ...(tag === undefined ? {} : { tag }) }
}

/** The key of a call for the limits of its activity. */
export const limitKeyUnsafe = (of: string, key: string): string => {
  checkLabel(of, "limitKey", key, problemOfLimitKey)
  return key
}

/** Milliseconds. */
export const timeoutUnsafe = (of: string, option: string, input: Duration.Input | undefined): number | undefined => {
  if (input === undefined) return undefined
  const duration = Option.getOrElse(
    Duration.fromInput(input),
    () => refuse(of, option, `${JSON.stringify(input)} is not a duration`)
  )
  const millis = Duration.toMillis(duration)
  return millis > 0 ? millis : refuse(of, option, `it is ${millis} ms, but must be more than 0`)
}

export const checkRetryUnsafe = (
  of: string,
  { schedule, times }: { readonly schedule?: unknown; readonly times?: number }
): void => {
  if (schedule === undefined && times === undefined) {
    refuse(of, "retry", "without schedule and times it would retry forever and without a pause")
  }
  if (times !== undefined && !(Number.isInteger(times) && times >= 0)) {
    refuse(of, "retry", `times is ${times}, but must be a whole number from 0`)
  }
}
