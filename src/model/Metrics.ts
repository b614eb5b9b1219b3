/**
 * All metrics, as `Metric`s of Effect: any exporter for Effect exports them. What each one is, and which test proves
 * it, is in docs/observability.md.
 *
 * Metrics of the provider have the names of Duroxide's observability guide for providers, those of the runtime have
 * Duroxide's names where both count the same. No label has unbounded values: none is an id.
 *
 * @since 0.1.0
 */
import type { Labelled as Labels } from "./shared/labelled.ts"

export * from "./metrics/provider.ts"
export * from "./metrics/queue.ts"
export * from "./metrics/runtime.ts"
export * from "./metrics/store.ts"

/**
 * The names of a metric's labels. Each set of their values is a series of its own.
 *
 * @category models
 * @since 0.2.0
 */
export type Labelled<Names extends ReadonlyArray<string>> = Labels<Names>
