/**
 * Says in the metrics why a queue is looked at, how soon after a hint, and whether it is polled.
 */
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import type { Queue } from "../../waking/Notifier.ts"
import type { LookReason, State } from "../../waking/pollMode.ts"

export interface PollGauges {
  /** The queue was looked at for this reason, and is now in this mode. `sinceHintMs`: from a hint to claimed work. */
  readonly looked: (reason: LookReason, now: State, sinceHintMs: number | undefined) => void
}

/** The mode is shown from the first look on, until the scope is closed. */
export const make = Effect.fnUntraced(function*(queue: Queue): Effect.fn.Return<PollGauges, never, Scope.Scope> {
  const context = yield* Effect.context<never>()
  const polling = pollings(queue)
  yield* Effect.addFinalizer(() => Effect.sync(() => Metric.removeUnsafe(polling, context)))
  return {
    looked: (reason, { mode }, sinceHintMs) => {
      reasons(queue, reason).updateUnsafe(1, context)
      polling.updateUnsafe(mode === "Aggressive" ? 1 : 0, context)
      if (sinceHintMs !== undefined) hintsToClaims(queue).updateUnsafe(sinceHintMs, context)
    }
  }
})

// internal

const reasons = seriesOf(Metrics.wakeReasons)
const pollings = seriesOf(Metrics.aggressivePolling)
const hintsToClaims = seriesOf(Metrics.hintToClaim)
