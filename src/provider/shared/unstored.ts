/**
 * What happens to work that has ended, while the store does not take its outcome: activities, attempts at tasks and
 * turns.
 *
 * The provider repeats a failed statement. Here only work is repeated: the outcome of an activity or of an attempt is
 * kept and sent again after a delay, as is an instance whose turn cannot be stored.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { growingMs } from "../../model/shared/trouble.ts"
import type { ProviderError } from "../ProviderError.ts"

/**
 * What an error of the store means for such work.
 *
 * - `Lost`: others have the work, or it was settled.
 * - `Refused`: the store will never take this outcome, as its data is at fault.
 * - `Kept`: everything else, until the store answers. A login that is refused, a missing right, a schema that does not
 *   fit, a statement that was cancelled or failed in an unknown way are for the operator to mend, and the work has been
 *   done.
 */
export const verdict = ({ reason }: ProviderError): "Lost" | "Refused" | "Kept" => {
  switch (reason._tag) {
    case "LockLost":
      return "Lost"
    case "DataRefused":
    case "InvalidInput":
      return "Refused"
    default:
      return "Kept"
  }
}

/** 100 milliseconds, doubled with each failure so far, at most one minute. */
export const delayAfter = (failures: number): Duration.Duration => Duration.millis(growingMs(100, 60_000, failures))

/**
 * Delay between two tries to store an outcome or to abandon work: `delayAfter`, but at most ten seconds, their longest
 * delay after an outage.
 */
export const storeDelayAfter = (failures: number): Duration.Duration =>
  Duration.min(delayAfter(failures), longestStoreDelay)

/** Annotates a log line with an error. Its message never contains a payload. */
export const problem = (error: ProviderError) =>
  Effect.annotateLogs({ operation: error.operation, error_type: error.reason._tag, error: error.message })

// internal

const longestStoreDelay = Duration.seconds(10)
