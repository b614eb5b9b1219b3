/**
 * Gauges of what is in the store. One process samples for all: it announces each sample, and the others do without.
 * Processes that are not connected sample for themselves.
 */
import type * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import * as sampledGauges from "../../model/shared/sampledGauges.ts"
import type { Hints } from "../../waking/hints.ts"
import { Hint } from "../../waking/Notifier.ts"
import type { Backlog } from "../Backlog.ts"
import type { ProviderError } from "../ProviderError.ts"

export const make = (
  readBacklog: Effect.Effect<Backlog, ProviderError>,
  hints: Pick<Hints, "announce" | "subscribe">
): Effect.Effect<void, never, Scope.Scope> => {
  /** Tags that have had a backlog; their gauges are 0 without one. */
  const tags = new Set(["default"])
  return sampledGauges.make({
    samples: Metrics.storeSamples,
    read: readBacklog,
    gauges: ({ activeInstances, blockedInstances, limitedActivities, limitedInstances, orchestrator, worker }) => {
      for (const { tag } of worker) tags.add(tag ?? "default")
      return [
        [Metrics.activeOrchestrations, activeInstances],
        [Metrics.blockedInstances, blockedInstances],
        [Metrics.limitedActivities, limitedActivities],
        [Metrics.limitedInstances, limitedInstances],
        [Metrics.orchestratorQueueDepth, orchestrator.depth],
        [ages("orchestrator", "default"), (orchestrator.oldestAgeMs ?? 0) / 1_000],
        ...[...tags].flatMap((tag) => {
          const waiting = worker.find((one) => (one.tag ?? "default") === tag)
          return [
            [workerDepths(tag), waiting?.depth ?? 0],
            [ages("worker", tag), (waiting?.oldestAgeMs ?? 0) / 1_000]
          ] as const
        })
      ]
    },
    fleet: {
      announce: () => hints.announce(Hint.Sampled()),
      subscribe: (sampled) =>
        hints.subscribe({ received: ({ hint }) => hint._tag === "Sampled" ? sampled() : undefined })
    }
  })
}

// internal

const ages = seriesOf(Metrics.oldestMessageAge)
const workerDepths = seriesOf(Metrics.workerQueueDepth)
