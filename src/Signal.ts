/**
 * Signals: events from outside that an orchestration waits for.
 *
 * Signals are positional: a signal reaches the oldest open wait of its name. One that finds no open wait is
 * recorded and lost.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Schema from "effect/Schema"
import { checkNameUnsafe } from "./model/internal/definitions.ts"
import * as payloads from "./model/internal/payload.ts"
import type { Payload, PayloadInput, PayloadSchema, SchemaOf } from "./model/internal/payload.ts"
import { engine } from "./replay/context.ts"
import type { OrchestrationContext } from "./replay/context.ts"

/**
 * @category models
 * @since 0.1.0
 */
export interface Signal<in out P extends PayloadSchema> {
  readonly name: string
  readonly payload: P
  /**
   * Waits for the next signal of this name. A payload its Schema refuses is a defect.
   *
   * **Gotchas**
   *
   * The wait is open from the end of the turn that began it; a signal sent before that is lost. When an activity asks
   * for the signal, let the wait begin with it: `Effect.all([Approved.wait, AskForApproval.execute(order)], {
   * concurrency: "unbounded" })`.
   */
  readonly wait: Effect.Effect<P["Type"], never, OrchestrationContext>
  /** @internal */
  readonly codec: Payload<P["Type"]>
}

/**
 * Defines a signal. `payload` defaults to `Schema.Void`. Throws a `RangeError` on a name that cannot be stored.
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
      return yield* Effect.orDie(codec.decode(event.data))
    })
  }
}
