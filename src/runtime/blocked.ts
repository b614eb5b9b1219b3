/**
 * What a process does at its start for blocked instances.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import { ours } from "../model/shared/logging.ts"
import type { Provider } from "../provider/Provider.ts"

/**
 * Lets the blocked instances of what this process serves be claimed at once: it may have the code that fits. Repeated
 * until the store has answered.
 */
export const wakeBlocked = (
  provider: Provider["Service"],
  served: Parameters<Provider["Service"]["wakeBlocked"]>[0]
): Effect.Effect<void> =>
  provider.wakeBlocked(served).pipe(
    Effect.tapError((error) => Effect.logDebug("Runtime: blocked instances not tried yet", error)),
    Effect.retry(Schedule.spaced(Duration.seconds(5))),
    Effect.orDie,
    Effect.flatMap((count) =>
      count === 0
        ? Effect.void
        : Effect.logInfo("Runtime: blocked instances are tried again").pipe(ours({ waiting: count }))
    )
  )
