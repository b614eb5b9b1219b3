/**
 * Mailboxes: messages that wait, in order of arrival, until an instance reads them.
 *
 * Unlike a signal, a message is kept until the program takes it, and an instance that continues as new keeps all unread
 * messages. (Duroxide's core keeps the oldest 100 and drops the others.) A message sent before the start of its
 * instance waits for it, and is deleted after `RuntimeConfig.orphanRetention`; a message sent after its end is lost.
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
 * A named queue of typed messages that every instance has.
 *
 * @category models
 * @since 0.1.0
 */
export interface Mailbox<in out P extends PayloadSchema> {
  readonly name: string
  readonly payload: P
  /**
   * Takes the oldest unread message, and waits for one if there is no message. Concurrent takes receive messages in the
   * order of their calls; an interrupted take receives no message. A payload the Schema refuses is a defect.
   */
  readonly take: Effect.Effect<P["Type"], never, OrchestrationContext>
  /** @internal */
  readonly codec: Payload<P["Type"]>
}

/**
 * Defines a mailbox that every instance has. `payload` is a Schema, or the fields of a `Schema.Struct`, and defaults to
 * `Schema.Void`. Throws a `RangeError` if the name is empty, is too long or cannot be stored.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <P extends PayloadInput = Schema.Void>(
  name: string,
  options?: { readonly payload?: P }
): Mailbox<SchemaOf<P>> => {
  checkNameUnsafe("mailbox", name)
  const payload = payloads.schemaOf(options?.payload)
  const codec = payloads.make(`message of mailbox "${name}"`, payload)
  return {
    name,
    payload,
    codec,
    take: Effect.gen(function*() {
      const { perform } = yield* engine
      const event = yield* perform({ _tag: "DequeueEvent", name })
      return yield* decoded(codec.decode(event.data))
    })
  }
}
