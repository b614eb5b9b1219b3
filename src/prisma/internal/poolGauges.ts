/**
 * Gauges of the connections, read when the metrics are.
 */
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"

/** The counts that a pool of `pg` has. */
export interface Pool {
  readonly totalCount: number
  readonly idleCount: number
  readonly waitingCount: number
}

/**
 * Shows the sums of the pools until the scope is closed. With several databases, the one that was opened last counts.
 */
export const register = (pools: ReadonlyArray<Pool>): Effect.Effect<void, never, Scope.Scope> =>
  Effect.flatMap(Effect.context<never>(), (context) =>
    Effect.acquireRelease(
      Effect.sync(() =>
        ([
          [connections("idle"), (pool: Pool) => pool.idleCount],
          [connections("busy"), (pool: Pool) => pool.totalCount - pool.idleCount],
          [Metrics.poolWaiting, (pool: Pool) => pool.waitingCount]
        ] as const).map(([gauge, count]) =>
          Metric.registerUnsafe(gauge, context, {
            get: () => ({ value: pools.reduce((sum, pool) => sum + count(pool), 0) }),
            update: () => {},
            modify: () => {}
          })
        )
      ),
      (registrations) => Effect.sync(() => registrations.forEach(({ remove }) => remove()))
    ))

// internal

const connections = seriesOf(Metrics.poolConnections)
