/**
 * Limits of activities, set by the program that defines them.
 *
 * **Example** (Three calls of each tenant at once, a hundred a minute in all)
 *
 * ```ts
 * const Charge = Activity.make("Charge", {
 *   payload: { tenant: Schema.String, amount: Schema.Number },
 *   limitKey: ({ tenant }) => tenant
 * })
 *
 * const ChargeLimits = Limits.layer(Limits.of(Charge, {
 *   total: { rate: { count: 100, per: "1 minute" } },
 *   eachKey: { concurrency: 3 }
 * }))
 * ```
 *
 * @since 0.3.0
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Activity from "./Activity.ts"
import type { LimitChanges } from "./model/Limit.ts"
import { Admin } from "./provider/Admin.ts"
import type { ProviderError } from "./provider/ProviderError.ts"

export type { Bound, Limit, LimitChanges, LimitedKey, Rate, StoredBound } from "./model/Limit.ts"

/**
 * The limits of one activity.
 *
 * @category models
 * @since 0.3.0
 */
export interface Limited {
  readonly activity: string
  readonly limits: LimitChanges
}

/**
 * Names the limits of an activity.
 *
 * @category constructors
 * @since 0.3.0
 */
export const of = (activity: Activity.Any, limits: LimitChanges): Limited => ({ activity: activity.name, limits })

/**
 * Sets these limits when the program starts, for all processes.
 *
 * **Details**
 *
 * If the activity has limits already, they stay, because an operator may have changed them. With `replaces`, those of
 * the program replace them at each start. Fails with `ProviderError`, reason `InvalidInput`, if a limit is not valid.
 *
 * **Gotchas**
 *
 * Limits that you remove from the code stay in the database. `Admin.removeLimit`, or `limits remove` of the command
 * line, removes them.
 *
 * @see {@link of} for the limits of one activity
 * @category layers
 * @since 0.3.0
 */
export const layer = (
  limits: Limited | ReadonlyArray<Limited>,
  options?: { readonly replaces?: boolean | undefined }
): Layer.Layer<never, ProviderError, Admin> =>
  Layer.effectDiscard(
    Effect.gen(function*() {
      const { setLimit } = yield* Admin
      const all = "activity" in limits ? [limits] : limits
      yield* Effect.forEach(
        all,
        ({ activity, limits }) => setLimit(activity, limits, { replaces: options?.replaces ?? false }),
        { discard: true }
      )
    })
  )
