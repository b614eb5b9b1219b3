/**
 * How both dispatchers and task workers pause and log failures.
 *
 * The provider repeats a failed statement. Here only work is repeated: an instance whose turn cannot be stored is
 * paused, the outcome of an activity or of an attempt at a task is kept and sent again after a pause.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { growingMs } from "../model/shared/trouble.ts"
import type { ProviderError } from "../provider/ProviderError.ts"

/**
 * What an error of the store means for work that has ended, and whose outcome the store has not taken: activities,
 * attempts at tasks and turns.
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
export const pauseAfter = (failures: number) => Duration.millis(growingMs(100, 60_000, failures))

/**
 * Longest pause between two tries to store an outcome or to abandon work, and so their longest delay after an outage.
 */
export const longestStorePause = Duration.seconds(10)

/**
 * Pauses left out for an instance whose turn another transaction holds. Such a turn keeps a slot for half a second, and
 * its instance is the first to be claimed after its pause: shorter pauses would leave no slot for other instances.
 */
export const skippedWhenHeld = 3

/** Growing pauses, counted separately for each key. */
export class Pauses {
  // In order of the last failure.
  private readonly failures = new Map<string, number>()

  /** Counts a failure, and returns how long to wait after it. `skips` leaves out that many of the shortest pauses. */
  next(key: string, skips = 0): { readonly pause: Duration.Duration; readonly isFirst: boolean } {
    const failures = this.failures.get(key) ?? 0
    this.failures.delete(key)
    this.failures.set(key, failures + 1)
    if (this.failures.size > maxRemembered) this.failures.delete(this.failures.keys().next().value!)
    return { pause: pauseAfter(failures + skips), isFirst: failures === 0 }
  }

  forget(key: string): void {
    this.failures.delete(key)
  }
}

/** Instances whose last turn the store has not taken: the next one sends it again. */
export class UnstoredTurns {
  private readonly instanceIds = new Set<string>()

  has(instanceId: string): boolean {
    return this.instanceIds.has(instanceId)
  }

  add(instanceId: string): void {
    // Another process may run the instance meanwhile; then it would stay here.
    if (this.instanceIds.size >= maxRemembered) this.instanceIds.clear()
    this.instanceIds.add(instanceId)
  }

  delete(instanceId: string): void {
    this.instanceIds.delete(instanceId)
  }
}

/** Annotates a log line with an error. Its message never contains a payload. */
export const problem = (error: ProviderError) =>
  Effect.annotateLogs({ operation: error.operation, error_type: error.reason._tag, error: error.message })

// internal

const maxRemembered = 10_000
