/**
 * Payloads cross the wire as JSON text, by Schema.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { describe } from "./schemaIssue.ts"

/** A Schema that needs no services to encode and decode. */
export type PayloadSchema = Schema.Codec<any, any>

/** The value does not fit the Schema, or the text is not JSON of it. Says where, never what. */
export class PayloadMismatch extends Schema.TaggedError<PayloadMismatch>("duroxide-prisma/PayloadMismatch")(
  "PayloadMismatch",
  {
    /** What the payload is of: `payload of Orchestration Fulfil`. */
    of: Schema.String,
    problem: Schema.String
  }
) {
  override get message() {
    return `${this.of} does not match its schema: ${this.problem}`
  }
}

export interface Payload<A> {
  readonly encode: (value: A) => Effect.Effect<string, PayloadMismatch>
  readonly decode: (text: string) => Effect.Effect<A, PayloadMismatch>
  readonly decodeOption: (text: string) => Option.Option<A>
}

export const make = <S extends PayloadSchema>(of: string, schema: S): Payload<S["Type"]> => {
  const codec = Schema.toCodecJson(schema)
  const encodeExit = Schema.encodeUnknownExit(codec)
  const decodeExit = Schema.decodeUnknownExit(codec)
  const decode = (text: string): Exit.Exit<S["Type"], PayloadMismatch> => {
    let json: unknown = text
    try {
      json = JSON.parse(text)
    } catch {
      // Duroxide's typed Rust API writes strings bare; whatever is no JSON is such a string.
    }
    return mapFailure(of, decodeExit(json))
  }
  return {
    encode: (value) =>
      Effect.suspend(() =>
        Exit.map(
          mapFailure(of, encodeExit(value) as Exit.Exit<unknown, Schema.SchemaError>),
          // JSON has no undefined; `null` is what Duroxide's Node binding writes for it.
          (json) => JSON.stringify(json) ?? "null"
        )
      ),
    decode: (text) => Effect.suspend(() => decode(text)),
    decodeOption: (text) => Exit.getSuccess(decode(text))
  }
}

// internal

const mapFailure = <A>(of: string, exit: Exit.Exit<A, Schema.SchemaError>): Exit.Exit<A, PayloadMismatch> =>
  Exit.isSuccess(exit) ? Exit.succeed(exit.value) : Exit.fail(new PayloadMismatch({ of, problem: describe(exit) }))
