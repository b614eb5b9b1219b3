/**
 * Signals: what reaches an instance from outside while it runs.
 *
 * A signal is kept until its program takes it, in the order of arrival, and over continue-as-new. (Duroxide's core
 * keeps the oldest 100 then, and drops the others.) A signal sent before the start of its instance waits for it, and is
 * deleted after `RuntimeConfig.orphanRetention`; one sent after its end is lost.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import type * as Schema from "effect/Schema"
import { checkNameUnsafe } from "./model/shared/definitions.ts"
import * as interruptSignal from "./model/shared/interruptSignal.ts"
import * as payloads from "./model/shared/payload.ts"
import type { Payload, PayloadInput, PayloadSchema, SchemaOf } from "./model/shared/payload.ts"
import * as requestSignal from "./model/shared/requestSignal.ts"
import * as retrySignal from "./model/shared/retrySignal.ts"
import { decoded, engine } from "./replay/context.ts"
import type { OrchestrationContext } from "./replay/context.ts"

/**
 * A named signal with a typed payload.
 *
 * @category models
 * @since 0.1.0
 */
export interface Signal<in out P extends PayloadSchema> {
  readonly name: string
  readonly payload: P
  /** What happens to a signal that arrives while no wait for it is open; see `make`. */
  readonly unawaited: "kept" | "lost"
  /**
   * Takes the oldest signal of this name, or waits for the next one. Concurrent waits receive signals in the order of
   * their calls; an interrupted wait receives none.
   *
   * A payload that the Schema refuses blocks the instance, until a build that reads it is deployed. After
   * `RuntimeConfig.unreadableSignalTimeout` the signal is set aside, and the wait takes the next one; `Client.redrive`
   * sends it again.
   */
  readonly wait: Effect.Effect<P["Type"], never, OrchestrationContext>
  /** @internal */
  readonly codec: Payload<P["Type"]>
}

/**
 * Options of a signal.
 *
 * @category models
 * @since 0.2.0
 */
export interface Options<P extends PayloadInput> {
  /** A Schema, or the fields of a `Schema.Struct`. Defaults to `Schema.Void`. */
  readonly payload?: P
  /**
   * What happens to a signal that arrives while no wait for it is open. `lost` is the rule of Duroxide's `raise_event`
   * and `schedule_wait`, for programs shared with it: senders and receivers must agree. Such a wait opens when the turn
   * that began it is stored, so begin it together with the request for the signal. Defaults to `kept`, as Duroxide's
   * `enqueue_event` and `dequeue_event`.
   */
  readonly unawaited?: "kept" | "lost" | undefined
}

/**
 * Defines a signal that every instance can receive. Throws a `RangeError` if the name is empty, is too long, cannot be
 * stored or is reserved.
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
  options?: Options<P>
): Signal<SchemaOf<P>> => {
  checkNameUnsafe("signal", name)
  if (name === interruptSignal.name || name === retrySignal.name || requestSignal.isName(name)) {
    throw new RangeError(`name of signal ${JSON.stringify(name)} is refused: it is reserved`)
  }
  const { unawaited = "kept" } = options ?? {}
  const payload = payloads.schemaOf(options?.payload)
  const codec = payloads.make(`payload of signal "${name}"`, payload)
  return {
    name,
    payload,
    unawaited,
    codec,
    wait: Effect.gen(function*() {
      const { perform } = yield* engine
      const event = yield* perform({
        _tag: unawaited === "kept" ? "DequeueEvent" : "WaitExternal",
        name,
        read: codec.decode
      })
      return yield* decoded(codec.decode(event.data))
    })
  }
}
