/**
 * Kinds of messages, each with a Schema for its payload.
 *
 * Messages are small. They name what happened and what it happened to; the data itself is in the database or in an
 * object store.
 *
 * @since 0.2.0
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import type { PayloadFields } from "../model/shared/payload.ts"
import { describe } from "../model/shared/schemaIssue.ts"
import type { Payload } from "./Queue.ts"
import { PayloadInvalid } from "./QueueError.ts"

/**
 * A kind of message.
 *
 * @category models
 * @since 0.2.0
 */
export interface Message<Kind extends string, Fields extends PayloadFields> {
  readonly kind: Kind
  readonly fields: Fields
  /** The payload of a message. Fails with `PayloadInvalid` if the value is not of the Schema. */
  readonly encode: (value: Value<Fields>) => Effect.Effect<Payload, PayloadInvalid>
  /**
   * The value of a payload, without `kind`; fields that the Schema does not have are ignored. Fails with
   * `PayloadInvalid` for another kind, or a payload that does not fit the Schema.
   */
  readonly decode: (payload: Payload) => Effect.Effect<Value<Fields>, PayloadInvalid>
}

/**
 * What a message of these fields says, beside its kind.
 *
 * @category models
 * @since 0.2.0
 */
export type Value<Fields extends PayloadFields> = Schema.Struct<Fields>["Type"]

/**
 * Any kind of message.
 *
 * @category models
 * @since 0.2.0
 */
export type Any = Message<string, any>

/**
 * Defines a kind of message. `kind` is a field of every payload, so `fields` cannot have it.
 *
 * **Example** (A message that names a row)
 *
 * ```ts
 * const InvoicePaid = Message.make("invoice_paid", { invoice_id: Schema.String })
 * ```
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = <const Kind extends string, const Fields extends PayloadFields & { readonly kind?: never }>(
  kind: Kind,
  fields: Fields
): Message<Kind, Fields> => {
  const codec = Schema.toCodecJson(Schema.Struct(fields))
  const encodeExit = Schema.encodeUnknownExit(codec)
  const decodeExit = Schema.decodeUnknownExit(codec)
  const checked = <A>(exit: Exit.Exit<A, Schema.SchemaError>) =>
    Exit.isSuccess(exit)
      ? Effect.succeed(exit.value)
      : Effect.fail(new PayloadInvalid({ kind, problem: describe(exit) }))
  return {
    kind,
    fields,
    encode: (value) =>
      Effect.suspend(() => checked(encodeExit(value) as Exit.Exit<object, Schema.SchemaError>)).pipe(
        Effect.map((encoded) => ({ ...encoded, kind }))
      ),
    decode: (payload) =>
      Effect.suspend(() =>
        payload.kind === kind
          ? checked(decodeExit(payload))
          : Effect.fail(new PayloadInvalid({ kind: payload.kind, problem: `it is not of kind "${kind}"` }))
      )
  }
}
