/**
 * Gauges of what is in the store. No loop reads it: reading the metrics does. A reader, such as an exporter, finds the
 * last sample, and its reading leads to the next one; so a process whose metrics no one reads costs the store nothing.
 *
 * One process samples for all: it announces each sample, and the others do without. Processes that are not connected
 * sample for themselves.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import * as Metric from "effect/Metric"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { Hints } from "../../waking/hints.ts"
import { Hint } from "../../waking/Notifier.ts"
import type { Backlog } from "../Backlog.ts"
import type { ProviderError } from "../ProviderError.ts"

export const make = Effect.fnUntraced(function*(
  readBacklog: Effect.Effect<Backlog, ProviderError>,
  hints: Pick<Hints, "announce" | "subscribe">
): Effect.fn.Return<void, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const context = yield* Effect.context<never>()
  const run = yield* FiberSet.makeRuntime<never, void, never>()
  const gauges = new Gauges(context)
  let samples = 0
  let isUnderWay = false
  /** When a process last sampled, monotonic milliseconds. */
  let lastSampleMs = Number.NEGATIVE_INFINITY

  // Not before the reader that asks for it has read all metrics.
  const sample = Effect.andThen(Effect.yieldNow, readBacklog).pipe(
    Effect.tap((backlog) =>
      Effect.sync(() => {
        samples++
        gauges.show(backlog)
        hints.announce(Hint.Sampled())
      })
    ),
    // Outages are logged elsewhere; until the next sample, old values would mislead.
    Effect.catchCause(() => Effect.sync(() => gauges.hide())),
    Effect.ensuring(Effect.sync(() => void (isUnderWay = false)))
  )

  const read = () => {
    if (isUnderWay) return
    const nowMs = monotonicMs(clock)
    if (nowMs - lastSampleMs >= betweenSamplesMs) {
      lastSampleMs = nowMs
      isUnderWay = true
      run(sample)
      // Another process has sampled since: this reader still sees this process's values, the next one the other's.
    } else if (gauges.isOutdated) queueMicrotask(() => gauges.hide())
  }

  hints.subscribe({
    received: ({ hint }) => {
      if (hint._tag !== "Sampled") return
      lastSampleMs = monotonicMs(clock)
      gauges.isOutdated = true
    }
  })
  const registration = Metric.registerUnsafe(Metrics.storeSamples, context, {
    get: () => {
      read()
      return { count: samples, incremental: true }
    },
    update: () => {},
    modify: () => {}
  })
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      registration.remove()
      gauges.hide()
    })
  )
})

// internal

/** Least time between two samples, of all processes together. */
const betweenSamplesMs = 10_000

const ages = seriesOf(Metrics.oldestMessageAge)
const workerDepths = seriesOf(Metrics.workerQueueDepth)

/** They exist as long as this process has a sample that it may show. */
class Gauges {
  private readonly context: Parameters<typeof Metric.removeUnsafe>[1]
  /** Tags that have had a backlog; their gauges are 0 without one. */
  private readonly tags = new Set(["default"])
  /** Another process has a newer sample. */
  isOutdated = false

  constructor(context: Parameters<typeof Metric.removeUnsafe>[1]) {
    this.context = context
  }

  show({ activeInstances, orchestrator, worker }: Backlog): void {
    const { context, tags } = this
    this.isOutdated = false
    Metrics.activeOrchestrations.updateUnsafe(activeInstances, context)
    Metrics.orchestratorQueueDepth.updateUnsafe(orchestrator.depth, context)
    ages("orchestrator", "default").updateUnsafe((orchestrator.oldestAgeMs ?? 0) / 1_000, context)
    for (const { tag } of worker) tags.add(tag ?? "default")
    for (const tag of tags) {
      const waiting = worker.find((one) => (one.tag ?? "default") === tag)
      workerDepths(tag).updateUnsafe(waiting?.depth ?? 0, context)
      ages("worker", tag).updateUnsafe((waiting?.oldestAgeMs ?? 0) / 1_000, context)
    }
  }

  hide(): void {
    const { context, tags } = this
    this.isOutdated = false
    const shown = [
      Metrics.activeOrchestrations,
      Metrics.orchestratorQueueDepth,
      ages("orchestrator", "default"),
      ...[...tags].flatMap((tag) => [workerDepths(tag), ages("worker", tag)])
    ]
    for (const gauge of shown) Metric.removeUnsafe(gauge, context)
  }
}
