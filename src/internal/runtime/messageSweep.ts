/**
 * Looks after messages for ids without an instance: those of instances that have come into being, and those too old.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"
import type { Provider } from "../../Provider.ts"
import type { Settings } from "../../RuntimeConfig.ts"
import type { Supervisor } from "./supervisor.ts"

export const run = (
  provider: Provider["Service"],
  settings: Settings,
  supervisor: Supervisor
): Effect.Effect<void, never, Scope.Scope> => {
  const sweep = provider.sweepMessages({ maxAge: settings.orphanRetention }).pipe(
    Effect.flatMap((deleted) =>
      deleted === 0
        ? Effect.void
        : Effect.logInfo("Runtime: messages deleted that waited for an instance longer than orphanRetention").pipe(
          Effect.annotateLogs({ deleted })
        )
    ),
    Effect.catchCause((cause) => Effect.logDebug("Runtime: messages not swept yet", cause))
  )
  const interval = Duration.toMillis(settings.orphanSweepInterval)
  const loop = Effect.forever(
    // Processes that start together need not sweep together.
    Effect.andThen(Effect.flatMap(Random.nextBetween(0.8, 1.2), (factor) => Effect.sleep(factor * interval)), sweep)
  )
  return Effect.asVoid(Effect.forkScoped(supervisor.watch("sweep of messages", loop)))
}
