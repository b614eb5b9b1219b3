/**
 * Makes metrics, and the series of those with labels: one for each set of values.
 *
 * `Metric.withAttributes` computes the key of its series again each time two sets of values alternate. Here each series
 * is made once and remembers its key, so that an update costs one look into the registry.
 */
import * as Metric from "effect/Metric"

/** The names of a metric's labels, in the order in which `seriesOf` takes their values. */
export interface Labelled<Labels extends ReadonlyArray<string>> {
  readonly labels: Labels
}

interface Options<Labels> {
  readonly description: string
  readonly labels: Labels
  /** By the name that Effect's OTLP exporter knows. Absent for plain numbers. */
  readonly unit?: "milliseconds" | "seconds" | "bytes"
}

export const counter = <const Labels extends ReadonlyArray<string>>(name: string, options: Options<Labels>) =>
  make(
    options,
    (attributes) => Metric.counter(name, { description: options.description, incremental: true, attributes })
  )

export const gauge = <const Labels extends ReadonlyArray<string>>(name: string, options: Options<Labels>) =>
  make(options, (attributes) => Metric.gauge(name, { description: options.description, attributes }))

export const histogram = <const Labels extends ReadonlyArray<string>>(
  name: string,
  options: Options<Labels> & { readonly boundaries: ReadonlyArray<number> }
) =>
  make(
    options,
    (attributes) =>
      Metric.histogram(name, { description: options.description, boundaries: options.boundaries, attributes })
  )

/** Histogram of how long a statement or a turn takes, in milliseconds. */
export const duration = (name: string, description: string) =>
  histogram(name, {
    description,
    unit: "milliseconds",
    labels: [],
    boundaries: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000]
  })

/** Boundaries for the time of a handler, in seconds. */
export const handlerSeconds = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 1_800, 3_600]

/** Returns the series for the given values of the labels. */
export const seriesOf = <Input, State, Labels extends ReadonlyArray<string>>(
  metric: Metric.Metric<Input, State> & Labelled<Labels>
): (...values: { readonly [I in keyof Labels]: string }) => Metric.Metric<Input, State> => {
  const makeSeries = makers.get(metric) as (attributes: Metric.Metric.AttributeSet) => Metric.Metric<Input, State>
  const known = new Map<string, Metric.Metric<Input, State>>()
  return (...values) => {
    const key = (values as ReadonlyArray<string>).join("\0")
    let series = known.get(key)
    if (series === undefined) {
      series = makeSeries(Object.fromEntries(metric.labels.map((label, i) => [label, values[i]!])))
      known.set(key, series)
    }
    return series
  }
}

// internal

const makers = new WeakMap<Labelled<ReadonlyArray<string>>, (attributes: Metric.Metric.AttributeSet) => unknown>()

const make = <M extends object, Labels extends ReadonlyArray<string>>(
  { labels, unit }: Options<Labels>,
  makeMetric: (attributes: Metric.Metric.AttributeSet | undefined) => M
): M & Labelled<Labels> => {
  const ofUnit = unit === undefined ? undefined : { unit }
  const metric = Object.assign(makeMetric(ofUnit), { labels })
  makers.set(metric, (attributes) => makeMetric({ ...ofUnit, ...attributes }))
  return metric
}
