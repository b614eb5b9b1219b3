/**
 * The seam that a storage of triggers implements.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { ProviderError } from "../provider/ProviderError.ts"
import type { Created, NewTask } from "../tasks/TaskDriver.ts"

/**
 * The storage contract of triggers. Times are milliseconds since the Unix epoch.
 *
 * @category services
 * @since 0.2.0
 */
export class TriggerDriver extends Context.Service<TriggerDriver, {
  /** Up to when the trigger has fired; null: never. */
  readonly firedUntil: (name: string) => Effect.Effect<number | null, ProviderError>
  /**
   * Creates the tasks of its instants from `after` to `until`, and notes that it has fired, in one transaction. Null,
   * and nothing has changed: it has fired since `after`.
   */
  readonly fire: (
    name: string,
    afterMs: number | null,
    untilMs: number,
    tasks: ReadonlyArray<NewTask>
  ) => Effect.Effect<ReadonlyArray<Created> | null, ProviderError>
}>()("duroxide-prisma/recipes/TriggerDriver") {}
