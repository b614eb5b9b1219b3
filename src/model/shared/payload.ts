/**
 * Payloads are JSON text, encoded and decoded by a Schema.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { describe } from "./schemaIssue.ts"
import * as sealed from "./sealed.ts"

/** A Schema that needs no services to encode and decode. */
export type PayloadSchema = Schema.Codec<any, any>

/** The fields of a `Schema.Struct`. */
export type PayloadFields = { readonly [field: PropertyKey]: PayloadSchema }

/** A Schema in the options of a definition, or the fields of a Struct. */
export type PayloadInput = PayloadSchema | PayloadFields

/** The Schema of a `PayloadInput`: the input itself, or the Struct of the fields. */
export type SchemaOf<Input extends PayloadInput> = Input extends PayloadSchema ? Input
  : Input extends PayloadFields ? Schema.Struct<Input>
  : never

/** A payload as the last argument of a call; optional if it is void. */
export type PayloadArgument<Payload> = [Payload] extends [void] ? [payload?: Payload] : [payload: Payload]

/** The schema of what was given; `otherwise` if nothing was. */
export const schemaOf = <Input extends PayloadInput>(
  input: Input | undefined,
  otherwise: PayloadSchema = Schema.Void
): SchemaOf<Input> => {
  const schema = input === undefined
    ? otherwise
    : Schema.isSchema(input)
    ? input
    : Schema.Struct(input)
  return schema as SchemaOf<Input>
}

/** The value does not match the Schema, or the text is not its JSON. Names fields, never values or keys of records. */
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

/**
 * The largest payload, bytes of JSON text in UTF-8. Measured on two busy cores: a start with 16 MiB and its turn take
 * four seconds; with 64 MiB a turn loses its lock every time, because it takes too long; with 200 MiB the process runs
 * out of memory. 64 concurrent starts of 4 MiB take 36 seconds and 1.1 GB, and succeed. It is not a setting, because a
 * replay must apply the same limit as the first run.
 */
export const maxPayloadBytes = 4 * 1024 * 1024

/** The payload is larger than 4 MiB of JSON text, and was not sent. */
export class PayloadTooLarge extends Schema.TaggedError<PayloadTooLarge>("duroxide-prisma/PayloadTooLarge")(
  "PayloadTooLarge",
  {
    /** What the payload is of: `payload of Orchestration Fulfil`. */
    of: Schema.String,
    bytes: Schema.Number
  }
) {
  override get message() {
    return `${this.of} has ${this.bytes} bytes, the limit is ${maxPayloadBytes}: store it elsewhere and send where`
  }
}

export interface Payload<A> {
  readonly encode: (value: A) => Effect.Effect<string, PayloadMismatch | PayloadTooLarge>
  readonly decode: (text: string) => Exit.Exit<A, PayloadMismatch>
  readonly decodeOption: (text: string) => Option.Option<A>
  /** Refuses a failure that this process cannot read, so that no other one is taken for it. */
  readonly checkOpened: (failure: { readonly message: string | null }) => Exit.Exit<void, PayloadMismatch>
}

export const make = <S extends PayloadSchema>(of: string, schema: S): Payload<S["Type"]> => {
  const codec = Schema.toCodecJson(schema)
  const encodeExit = Schema.encodeUnknownExit(codec)
  const decodeExit = Schema.decodeUnknownExit(codec)
  const decode = (text: string): Exit.Exit<S["Type"], PayloadMismatch> => {
    if (sealed.isSealed(text)) return Exit.fail(new PayloadMismatch({ of, problem: sealed.problemOf(text) }))
    // Duroxide's typed Rust API writes strings without quotes. Text that is not JSON, or is JSON that does not match
    // the Schema, is such a string, unless it has quotes.
    let json: unknown
    try {
      json = JSON.parse(text)
    } catch {
      return mapFailure(of, decodeExit(text))
    }
    const exit = decodeExit(json)
    if (Exit.isSuccess(exit) || typeof json === "string") return mapFailure(of, exit)
    const bare = decodeExit(text)
    return mapFailure(of, Exit.isSuccess(bare) ? bare : exit)
  }
  return {
    encode: (value) =>
      Effect.suspend((): Exit.Exit<string, PayloadMismatch | PayloadTooLarge> => {
        const json = mapFailure(of, encodeExit(value) as Exit.Exit<unknown, Schema.SchemaError>)
        if (Exit.isFailure(json)) return Exit.failCause(json.cause)
        // JSON has no undefined; `null` is what Duroxide's Node binding writes for it.
        const text = JSON.stringify(json.value) ?? "null"
        if (sealed.isSealed(text)) return Exit.fail(new PayloadMismatch({ of, problem: reservedField }))
        const bytes = text.length * 3 <= maxPayloadBytes ? 0 : new TextEncoder().encode(text).length
        return bytes > maxPayloadBytes ? Exit.fail(new PayloadTooLarge({ of, bytes })) : Exit.succeed(text)
      }),
    decode,
    decodeOption: (text) => Exit.getSuccess(decode(text)),
    checkOpened: ({ message }) =>
      message !== null && sealed.isSealed(message)
        ? Exit.fail(new PayloadMismatch({ of, problem: sealed.problemOf(message) }))
        : Exit.void
  }
}

/** Encodes a failure. Where its Schema refuses it, the problem names the error, so that it is not lost. */
export const encodeError = <A>(self: Pick<Payload<A>, "encode">, error: A) =>
  Effect.mapError(self.encode(error), (failure) =>
    failure._tag === "PayloadMismatch"
      ? new PayloadMismatch({ of: failure.of, problem: `in ${nameOf(error)}: ${failure.problem}` })
      : failure)

// internal

const reservedField = `the field ${
  JSON.stringify(sealed.field)
} cannot be the first one: it marks what a PayloadCodec stores`

/** What the code calls an error, never what it holds. */
const nameOf = (error: unknown): string => {
  if (typeof error !== "object" || error === null) return `an error of type ${typeof error}`
  const name = "_tag" in error ? error._tag : "name" in error ? error.name : undefined
  return typeof name === "string" ? `the error ${JSON.stringify(name.slice(0, 100))}` : "an error without a name"
}

const mapFailure = <A>(of: string, exit: Exit.Exit<A, Schema.SchemaError>): Exit.Exit<A, PayloadMismatch> =>
  Exit.isSuccess(exit) ? Exit.succeed(exit.value) : Exit.fail(new PayloadMismatch({ of, problem: describe(exit) }))
