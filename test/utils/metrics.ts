/**
 * What the metrics of a test say. Provide a registry of its own: `Effect.provideService(Metric.MetricRegistry, new
 * Map())`.
 */
import { Metrics } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"

/** All metrics there are: their types by their names. */
export const metricNames: ReadonlyMap<string, Metric.Metric.Type> = new Map(
  Object.values(Metrics).map(({ id, type }) => [id, type])
)

type Labels = Readonly<Record<string, string>>

/** The series of a metric that exist: their labels, without the unit, and their states. */
export const seriesOf = <State>(metric: Metric.Metric<never, State>) =>
  Effect.map(Metric.snapshot, (all) =>
    all.filter(({ id }) => id === metric.id).map(({ attributes, state }) => {
      const { unit: _, ...labels } = attributes ?? {}
      return { labels, state: state as State }
    }))

/** Counts of a counter by the values of its labels, in their order. */
export const counts = (metric: Metric.Metric<never, Metric.CounterState<number>>) =>
  Effect.map(seriesOf(metric), byLabels(({ count }) => count))

/** Values of a gauge by the values of its labels, in their order. */
export const values = (metric: Metric.Metric<never, Metric.GaugeState<number>>) =>
  Effect.map(seriesOf(metric), byLabels(({ value }) => value))

/** Number and sum of the values of a histogram, by the values of its labels. */
export const observed = (metric: Metric.Metric<never, Metric.HistogramState>) =>
  Effect.map(seriesOf(metric), byLabels(({ count, sum }) => [count, sum] as const))

/** A registry of its own. */
export const isolated = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.suspend(() => Effect.provideService(effect, Metric.MetricRegistry, new Map()))

// internal

const byLabels =
  <State, A>(read: (state: State) => A) =>
  (series: ReadonlyArray<{ readonly labels: Labels; readonly state: State }>): Readonly<Record<string, A>> =>
    Object.fromEntries(series.map(({ labels, state }) => [Object.values(labels).join(" "), read(state)]))
