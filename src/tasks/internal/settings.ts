/**
 * The settings of a task. One that cannot work is a mistake in the code, so it throws immediately.
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import { noDuration, notPositive, wholeMs } from "../../model/shared/durations.ts"
import { problemOfName } from "../../model/shared/identifiers.ts"
import { queueName } from "../../queue/shared/check.ts"

export interface Settings {
  readonly queue: string
  readonly maxAttempts: number
  readonly lease: Duration.Duration
  readonly timeout: Option.Option<Duration.Duration>
}

export const settingsUnsafe = (name: string, given: {
  readonly queue: string | undefined
  readonly maxAttempts: number | undefined
  readonly lease: Duration.Input | undefined
  readonly timeout: Duration.Input | undefined
}): Settings => {
  const { maxAttempts = 20, queue = "tasks" } = given
  const invalid = (option: string, value: unknown, problem: string): never => {
    throw new RangeError(`${option} ${String(value)} of task "${name}" is refused: ${problem}`)
  }
  const queueProblem = queueName(queue)
  if (queueProblem !== undefined) invalid("queue", JSON.stringify(queue), queueProblem)
  if (!Number.isInteger(maxAttempts) || maxAttempts < 1 || maxAttempts > maxInteger) {
    invalid("retry.maxAttempts", maxAttempts, "it must be a whole number of at least 1")
  }
  const duration = (option: string, input: Duration.Input) =>
    wholeMs(input) ?? invalid(option, JSON.stringify(input), noDuration)
  const leaseMs = duration("lease", given.lease ?? "30 seconds")
  if (!(leaseMs >= 1000 && leaseMs <= 3_600_000)) invalid("lease", `of ${leaseMs} ms`, "it must be 1 second to 1 hour")
  const timeoutMs = given.timeout === undefined ? undefined : duration("timeout", given.timeout)
  if (timeoutMs === 0) invalid("timeout", "of 0 ms", notPositive)
  return {
    queue,
    maxAttempts,
    lease: Duration.millis(leaseMs),
    timeout: Option.map(Option.fromUndefinedOr(timeoutMs), Duration.millis)
  }
}

/** Why a task cannot have this key. */
export const problemOfKey = (key: string): string | undefined => problemOfName(key, maxKeyBytes)

// internal

const maxKeyBytes = 1024

const maxInteger = 2 ** 31 - 1
