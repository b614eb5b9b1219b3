/**
 * How both dispatchers repeat, pause and speak of failures.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type { ProviderError } from "../../ProviderError.ts"
import type { Settings } from "../../RuntimeConfig.ts"

/** Storing a turn or a result again, after the provider's own retries: 10, 20, 40, 80, 160 milliseconds. */
export const storeRetries = Schedule.max([Schedule.exponential(Duration.millis(10)), Schedule.recurs(5)])

/** Before work whose outcome could not be stored is offered again. */
export const failedStorePause = Duration.millis(100)

/** Before work nobody here has a handler for is offered again; doubles with every attempt. */
export const unregisteredPause = (settings: Settings, attemptCount: number) =>
  Duration.min(
    Duration.times(settings.unregisteredBackoff, 2 ** Math.min(attemptCount - 1, 6)),
    settings.unregisteredBackoffMax
  )

/** Says in a log what went wrong, never with a payload. */
export const problem = (error: ProviderError) => Effect.annotateLogs({ problem: error.message })
