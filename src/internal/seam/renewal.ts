/**
 * Keeps a lease alive while something works under it.
 */
import type * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { ProviderError } from "../../ProviderError.ts"

/**
 * Renews every half lock timeout; ends when the lease is gone for good.
 *
 * The first renewal comes after a quarter, as the lease is older than the renewal. A passing database error is no lost
 * lease: it is tried again soon, and only the store's word ends the renewal.
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
          isLost(cause) ? Effect.void : Effect.andThen(Effect.logDebug("Lease not renewed yet", cause), loop(soon))
      })
    )
  return loop(Duration.divideUnsafe(interval, 2))
}

// internal

const isLost = (cause: Cause.Cause<ProviderError>) =>
  cause.reasons.some((reason) => reason._tag === "Fail" && reason.error.reason._tag === "LockLost")
