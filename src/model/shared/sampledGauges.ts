/**
 * Gauges of what is in tables. No loop reads them: reading the metrics does. A reader, such as an exporter, finds the
 * last sample, and its reading leads to the next one; so a process whose metrics no one reads costs the database
 * nothing.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import * as Metric from "effect/Metric"
import type * as Scope from "effect/Scope"
import { monotonicMs } from "./monotonic.ts"

export interface Options<Sample, E> {
  /** Counts the samples. A reader of it asks for the next one. */
  readonly samples: Metric.Metric<number, Metric.CounterState<number>>
  readonly read: Effect.Effect<Sample, E>
  /** Their values; without a sample they do not exist. */
  readonly gauges: (sample: Sample) => ReadonlyArray<readonly [Metric.Metric<number, unknown>, number]>
  /** Processes of which one samples for all. Without it, this one samples for itself. */
  readonly fleet?: {
    /** Announces a sample of this process to the others. */
    readonly announce: () => void
    /** Calls `sampled` when another process has announced a sample. */
    readonly subscribe: (sampled: () => void) => void
  }
}

/** Until the scope is closed. */
export const make = Effect.fnUntraced(function*<Sample, E>(
  { fleet, gauges, read, samples }: Options<Sample, E>
): Effect.fn.Return<void, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const context = yield* Effect.context<never>()
  const run = yield* FiberSet.makeRuntime<never, void, never>()
  let count = 0
  let isUnderWay = false
  /** When a process of the fleet last sampled, monotonic milliseconds. */
  let lastSampleMs = Number.NEGATIVE_INFINITY
  /** Another process has a newer sample. */
  let isOutdated = false
  let shown: ReadonlyArray<Metric.Metric<number, unknown>> = []

  const hide = () => {
    for (const gauge of shown) Metric.removeUnsafe(gauge, context)
    shown = []
    isOutdated = false
  }

  // Not before the reader that asks for it has read all metrics.
  const sample = Effect.andThen(Effect.yieldNow, read).pipe(
    Effect.tap((found) =>
      Effect.sync(() => {
        count++
        hide()
        const values = gauges(found)
        for (const [gauge, value] of values) gauge.updateUnsafe(value, context)
        shown = values.map(([gauge]) => gauge)
        fleet?.announce()
      })
    ),
    // Outages are logged elsewhere; until the next sample, old values would mislead.
    Effect.catchCause(() => Effect.sync(hide)),
    Effect.ensuring(Effect.sync(() => void (isUnderWay = false)))
  )

  const request = () => {
    if (isUnderWay) return
    const nowMs = monotonicMs(clock)
    if (nowMs - lastSampleMs >= betweenSamplesMs) {
      lastSampleMs = nowMs
      isUnderWay = true
      run(Effect.asVoid(sample))
      // Another process has sampled since: this reader still sees this process's values, the next one the other's.
    } else if (isOutdated) queueMicrotask(hide)
  }

  fleet?.subscribe(() => {
    lastSampleMs = monotonicMs(clock)
    isOutdated = true
  })
  const registration = Metric.registerUnsafe(samples, context, {
    get: () => {
      request()
      return { count, incremental: true }
    },
    update: () => {},
    modify: () => {}
  })
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      registration.remove()
      hide()
    })
  )
})

// internal

/** Least time between two samples, of all processes of a fleet together. */
const betweenSamplesMs = 10_000
