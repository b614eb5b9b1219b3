/**
 * Sweeps messages for ids without an instance: delivers those whose instance exists by now, deletes those that are too
 * old. While no process stores anything there is nothing to deliver, so a sweep an hour is enough.
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"
import type { Provider } from "../provider/Provider.ts"
import { unlessQuiet } from "./housekeeping.ts"
import type { Settings } from "./settings.ts"
import type { Supervisor } from "./supervisor.ts"

/**
 * Time between two sweeps, plus or minus a fifth. Only tests in virtual time change it, because there each sweep would
 * be a step.
 */
export const SweepInterval = Context.Reference<Duration.Duration>("duroxide-prisma/internal/SweepInterval", {
  defaultValue: () => Duration.seconds(10)
})

export const run = Effect.fnUntraced(function*(
  provider: Provider["Service"],
  settings: Settings,
  supervisor: Supervisor
): Effect.fn.Return<void, never, Scope.Scope> {
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
  const sweepUnlessQuiet = yield* unlessQuiet(provider, sweep)
  const interval = Duration.toMillis(yield* SweepInterval)
  const loop = Effect.forever(
    // So processes that start together do not sweep together.
    Effect.andThen(
      Effect.flatMap(Random.nextBetween(0.8, 1.2), (factor) => Effect.sleep(factor * interval)),
      sweepUnlessQuiet
    )
  )
  yield* Effect.forkScoped(supervisor.watch("sweep of messages", loop))
})
