/**
 * How long instances that have ended are kept, with units and defaults.
 */
import * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import { durationOf } from "../model/shared/durations.ts"

/**
 * What to keep, and for how long.
 *
 * @category models
 * @since 0.3.0
 */
export interface Options {
  /** How long completed instances are kept from their end, or `forever`. Defaults to 30 days. */
  readonly completed?: Duration.Input | "forever" | undefined
  /** How long failed ones are kept. Defaults to 90 days. */
  readonly failed?: Duration.Input | "forever" | undefined
  /** How long cancelled ones are kept. Defaults to 90 days. */
  readonly cancelled?: Duration.Input | "forever" | undefined
  /**
   * Time between two looks for old instances, plus or minus a fifth. The first look comes within this time. Of several
   * processes, about one looks. Defaults to 1 hour.
   */
  readonly interval?: Duration.Input | undefined
  /**
   * Called with instances before they are deleted: a line of JSON for each, a parent before its children. Nothing is
   * deleted while it fails; the next look calls it again with the same instances. `replayHistory` reads the field
   * `history` of a line. Defaults to nothing.
   */
  readonly export?: ((lines: ReadonlyArray<string>) => Effect.Effect<void, unknown>) | undefined
}

/**
 * The options in force. Durations are in milliseconds; infinite for `forever`.
 *
 * @category models
 * @since 0.3.0
 */
export interface Policy {
  readonly keepMs: { readonly [Status in "Completed" | "Failed" | "Cancelled"]: number }
  readonly intervalMs: number
  readonly export: Options["export"]
}

export const makeUnsafe = (options: Options): Policy => {
  const millis = (name: "completed" | "failed" | "cancelled" | "interval", fallback: Duration.Input) => {
    const given = options[name] ?? fallback
    if (given === "forever") return Infinity
    const duration = durationOf(given)
    const ms = duration === undefined ? NaN : Duration.toMillis(duration)
    if (ms >= (name === "interval" ? 1 : 0)) return ms
    throw new RangeError(
      `Retention: ${name} must be a duration such as "30 days"${name === "interval" ? "" : ", or \"forever\""}`
    )
  }
  return {
    keepMs: {
      Completed: millis("completed", "30 days"),
      Failed: millis("failed", "90 days"),
      Cancelled: millis("cancelled", "90 days")
    },
    intervalMs: millis("interval", "1 hour"),
    export: options.export
  }
}

/** Deletes nothing. */
export const keepsAll: Policy = makeUnsafe({ completed: "forever", failed: "forever", cancelled: "forever" })
