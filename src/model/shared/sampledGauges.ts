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
}

/** Until the scope is closed. */
export const make = Effect.fnUntraced(function*<Sample, E>(
  { gauges, read, samples }: Options<Sample, E>
): Effect.fn.Return<void, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const context = yield* Effect.context<never>()
  const run = yield* FiberSet.makeRuntime<never, void, never>()
  let count = 0
  let isUnderWay = false
  let lastSampleMs = Number.NEGATIVE_INFINITY
  let shown: ReadonlyArray<Metric.Metric<number, unknown>> = []

  const hide = () => {
    for (const gauge of shown) Metric.removeUnsafe(gauge, context)
    shown = []
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
      })
    ),
    // Until the next sample, old values would mislead.
    Effect.catchCause(() => Effect.sync(hide)),
    Effect.ensuring(Effect.sync(() => void (isUnderWay = false)))
  )

  const registration = Metric.registerUnsafe(samples, context, {
    get: () => {
      const nowMs = monotonicMs(clock)
      if (!isUnderWay && nowMs - lastSampleMs >= betweenSamplesMs) {
        lastSampleMs = nowMs
        isUnderWay = true
        run(Effect.asVoid(sample))
      }
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

/** Least time between two samples. */
const betweenSamplesMs = 10_000
