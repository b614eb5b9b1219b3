/**
 * Signals: events from outside that an orchestration waits for.
 *
 * A signal reaches the oldest open wait of its name. A signal without an open wait is recorded and lost.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Schema from "effect/Schema"
import { checkNameUnsafe } from "./model/shared/definitions.ts"
import * as payloads from "./model/shared/payload.ts"
import type { Payload, PayloadInput, PayloadSchema, SchemaOf } from "./model/shared/payload.ts"
import { decoded, engine } from "./replay/context.ts"
import type { OrchestrationContext } from "./replay/context.ts"

/**
 * A named event with a typed payload.
 *
 * @category models
 * @since 0.1.0
 */
export interface Signal<in out P extends PayloadSchema> {
  readonly name: string
  readonly payload: P
  /**
   * Waits for the next signal of this name. A payload the Schema refuses is a defect.
   *
   * **Gotchas**
   *
   * The wait opens when the turn that began it is stored; a signal sent earlier is lost. When an activity asks for the
   * signal, begin both together: `Effect.all([Approved.wait, AskForApproval.execute(order)], { concurrency: "unbounded"
   * })`.
   */
  readonly wait: Effect.Effect<P["Type"], never, OrchestrationContext>
  /** @internal */
  readonly codec: Payload<P["Type"]>
}

/**
 * Defines a signal. `payload` is a Schema, or the fields of a `Schema.Struct`, and defaults to `Schema.Void`. Throws a
 * `RangeError` if the name is empty, is too long or cannot be stored.
 *
 * **Example** (Waiting for an answer, within a time)
 *
 * ```ts
 * const Approved = Signal.make("Approved", { payload: Schema.Boolean })
 *
 * const answer = yield* Approved.wait.pipe(Effect.timeoutOption("7 days"))
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <P extends PayloadInput = Schema.Void>(
  name: string,
  options?: { readonly payload?: P }
): Signal<SchemaOf<P>> => {
  checkNameUnsafe("signal", name)
  const payload = payloads.schemaOf(options?.payload)
  const codec = payloads.make(`payload of signal "${name}"`, payload)
  return {
    name,
    payload,
    codec,
    wait: Effect.gen(function*() {
      const { perform } = yield* engine
      const event = yield* perform({ _tag: "WaitExternal", name })
      return yield* decoded(codec.decode(event.data))
    })
  }
}
