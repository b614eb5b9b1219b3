/**
 * Starts from a file: JSON lines, each `{"id", "payload", "attributes", "at", "delay"}`, of which `id` alone is needed.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { misused } from "./failure.ts"
import * as Payload from "./payload.ts"
import { timeOf } from "./startTimes.ts"

const Line = Schema.Struct({
  id: Schema.String,
  payload: Schema.optionalKey(Schema.Unknown),
  attributes: Schema.optionalKey(
    Schema.Record(Schema.String, Schema.Union([Schema.String, Schema.Finite]))
  ),
  at: Schema.optionalKey(Schema.String),
  delay: Schema.optionalKey(Schema.String)
})

const decode = Schema.decodeUnknownEffect(Line)

/** `source` is the path of a file, or `-` for standard input. An error names the line, and does not quote it. */
export const read = Effect.fnUntraced(function*(source: string) {
  const text = yield* Payload.textOf(source === "-" ? source : `@${source}`)
  const lines = text.split("\n").map((text, i) => ({ text, number: i + 1 })).filter(({ text }) => text.trim() !== "")
  return yield* Effect.forEach(lines, ({ number, text }) =>
    Effect.gen(function*() {
      const { at, attributes, delay, id, payload = null } = yield* Payload.parsed(text).pipe(
        Effect.flatMap(decode),
        Effect.catchTag("SchemaError", () =>
          misused(
            `it is an object with "id", and, if wanted, "payload", "attributes" (texts and numbers), "at" and "delay"`
          ))
      )
      const time = yield* timeOf({ at: Option.fromUndefinedOr(at), delay: Option.fromUndefinedOr(delay) })
      return { instanceId: id, payload, attributes, ...time }
    }).pipe(Effect.mapError(({ message }) => misused(`line ${number}: ${message}`))))
})
