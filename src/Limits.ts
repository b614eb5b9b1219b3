/**
 * Limits of activities, orchestrations and tasks, set by the program that defines them.
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
import type { LimitChanges, LimitKind } from "./model/Limit.ts"
import type * as Orchestration from "./Orchestration.ts"
import { Admin } from "./provider/Admin.ts"
import type { ProviderError } from "./provider/ProviderError.ts"

export type { Bound, Limit, LimitChanges, LimitedKey, LimitKind, Rate, StoredBound } from "./model/Limit.ts"

/**
 * What can have limits: an activity, an orchestration, or a task.
 *
 * @category models
 * @since 0.3.0
 */
export type Definition =
  | Activity.Any
  | Orchestration.Any
  | { readonly name: string; readonly maxAttempts: number; readonly queue: string }

/**
 * The limits of one definition.
 *
 * @category models
 * @since 0.3.0
 */
export interface Limited {
  readonly kind: LimitKind
  readonly name: string
  readonly limits: LimitChanges
}

/**
 * Names the limits of an activity, an orchestration or a task. Those of an orchestration bind all its versions.
 *
 * @category constructors
 * @since 0.3.0
 */
export const of = (definition: Definition, limits: LimitChanges): Limited => ({
  kind: "version" in definition ? "orchestration" : "maxAttempts" in definition ? "task" : "activity",
  name: definition.name,
  limits
})

/**
 * Sets these limits when the program starts, for all processes.
 *
 * **Details**
 *
 * If the definition has limits already, they stay, because an operator may have changed them. With `replaces`, those of
 * the program replace them at each start. Fails with `ProviderError`, reason `InvalidInput`, if a limit is not valid.
 *
 * **Gotchas**
 *
 * Limits that you remove from the code stay in the database. `Admin.removeLimit`, or `limits remove` of the command
 * line, removes them.
 *
 * @see {@link of} for the limits of one definition
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
      const all = "kind" in limits ? [limits] : limits
      yield* Effect.forEach(
        all,
        ({ kind, limits, name }) => setLimit(kind, name, limits, { replaces: options?.replaces ?? false }),
        { discard: true }
      )
    })
  )
