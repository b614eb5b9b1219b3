/**
 * How long instances that have ended are kept.
 *
 * A runtime deletes what is older, in small batches and with long pauses, so that it takes little from the work beside
 * it. It deletes whole trees, by the end of their root; a tree with an instance that still runs stays. Instances that
 * Duroxide runs are never deleted.
 *
 * @since 0.3.0
 */
import * as Context from "effect/Context"
import * as Layer from "effect/Layer"
import { keepsAll, makeUnsafe } from "./runtime/retentionPolicy.ts"
import type { Options, Policy } from "./runtime/retentionPolicy.ts"

export type { Options, Policy } from "./runtime/retentionPolicy.ts"

/**
 * The policy of the runtimes below: the defaults, unless `layer` changes them.
 *
 * @category services
 * @since 0.3.0
 */
export const Retention: Context.Reference<Policy> = Context.Reference<Policy>("duroxide-prisma/Retention", {
  defaultValue: () => makeUnsafe({})
})

/**
 * Sets how long instances are kept; `off` keeps all of them. Throws a `RangeError` on a duration that is negative.
 *
 * **Example** (Keeps failed instances, and the rest for a week)
 *
 * ```ts
 * const App = RuntimeLive.pipe(
 *   Layer.provide(Retention.layer({ completed: "7 days", cancelled: "7 days", failed: "forever" }))
 * )
 * ```
 *
 * @category layers
 * @since 0.3.0
 */
export const layer = (options: Options | "off"): Layer.Layer<never> =>
  Layer.succeed(Retention, options === "off" ? keepsAll : makeUnsafe(options))
