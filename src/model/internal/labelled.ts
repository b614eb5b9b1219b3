/**
 * Counters with labels. `Metric.withAttributes` prepares its labels anew for each update; here each set of labels is
 * prepared once.
 */
import type * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"

/** Returns a function that counts one for the given values of the labels, in their order. */
export const labelled = <const Labels extends ReadonlyArray<string>>(
  counter: Metric.Counter<number>,
  labels: Labels
): (...values: { readonly [I in keyof Labels]: string }) => Effect.Effect<void> => {
  const prepared = new Map<string, Effect.Effect<void>>()
  return (...values) => {
    const key = (values as ReadonlyArray<string>).join("\0")
    let update = prepared.get(key)
    if (update === undefined) {
      const attributes = Object.fromEntries(labels.map((label, i) => [label, values[i]!]))
      update = Metric.update(
        Metric.counter(counter.id, { description: counter.description, incremental: true, attributes }),
        1
      )
      prepared.set(key, update)
    }
    return update
  }
}
