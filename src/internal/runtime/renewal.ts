/**
 * Keeps a lease alive while something works under it.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { ProviderError } from "../../ProviderError.ts"

/**
 * Renews every half lock timeout, for ever; ends when the lease is gone for good.
 *
 * A passing database error is no lost lease: it is tried again soon, and only the store's word ends the renewal.
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
      Effect.matchEffect({
        onSuccess: () => loop(interval),
        onFailure: (error) =>
          error.reason._tag === "LockLost" ? Effect.void : Effect.logWarning("A lease could not be renewed yet").pipe(
            Effect.annotateLogs({ problem: error.message }),
            Effect.andThen(loop(soon))
          )
      })
    )
  return loop(interval)
}
