/**
 * Keeps a lock alive while something works under it.
 */
import type * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { ProviderError } from "../ProviderError.ts"

/**
 * Renews at half the lock timeout; ends when the lock is lost.
 *
 * The first renewal comes after a quarter, because the lock is older than the renewal. A passing database error does not
 * lose the lock: the renewal is repeated soon, and only `LockLost` from the store ends it.
 */
export const untilLost = (
  lockTimeout: Duration.Duration,
  renew: Effect.Effect<void, ProviderError>
): Effect.Effect<void> => {
  const interval = Duration.millis(Duration.toMillis(lockTimeout) / 2)
  const soon = Duration.millis(Duration.toMillis(lockTimeout) / 10)
  const loop = (pause: Duration.Duration): Effect.Effect<void> =>
    Effect.sleep(pause).pipe(
      Effect.andThen(renew),
      Effect.matchCauseEffect({
        onSuccess: () => loop(interval),
        onFailure: (cause) =>
          isLost(cause)
            ? Effect.void
            : Effect.andThen(Effect.logDebug("Orchestration dispatcher: lock not renewed yet", cause), loop(soon))
      })
    )
  return loop(Duration.divideUnsafe(interval, 2))
}

// internal

const isLost = (cause: Cause.Cause<ProviderError>) =>
  cause.reasons.some((reason) => reason._tag === "Fail" && reason.error.reason._tag === "LockLost")
