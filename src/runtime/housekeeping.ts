/**
 * Housekeeping that a process leaves out while nothing is stored.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { monotonicMs } from "../model/shared/monotonic.ts"
import type { Provider } from "../provider/Provider.ts"

/**
 * Runs `effect` when something has been stored since the last run, once more after that, because what was stored may
 * have had to wait for a lock to run out, and otherwise once an hour.
 */
export const unlessQuiet = <A, E>(
  provider: Pick<Provider["Service"], "activity">,
  effect: Effect.Effect<A, E>
): Effect.Effect<Effect.Effect<void, E>> =>
  Effect.map(Effect.clockWith(Effect.succeed), (clock: Clock.Clock) => {
    let lastActivity: number | undefined
    let lastMs = Number.NEGATIVE_INFINITY
    let isLast = false
    return Effect.flatMap(provider.activity, (activity) => {
      const nowMs = monotonicMs(clock)
      const isQuiet = activity === lastActivity
      if (isQuiet && isLast && nowMs - lastMs < quietMs) return Effect.void
      isLast = isQuiet
      lastActivity = activity
      lastMs = nowMs
      return Effect.asVoid(effect)
    })
  })

// internal

const quietMs = 3_600_000
