/**
 * How a task, or an attempt, ended without a result, as it is stored.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"

/** One reason; the SQL functions write `Lost` and `Cancelled`. */
export const Failure = Schema.Union([
  /** A typed failure of the handler: JSON text of the task's error Schema. */
  Schema.TaggedStruct("Failed", { error: Schema.String }),
  /** A defect of the handler, or a result its Schema refuses. */
  Schema.TaggedStruct("Died", { problem: Schema.String }),
  /** A database, queue or network that the handler needs had failed, and may be back soon. */
  Schema.TaggedStruct("Unavailable", { problem: Schema.String }),
  Schema.TaggedStruct("TimedOut", { timeoutMs: Schema.Number }),
  /** The lease ended before the attempt did. */
  Schema.TaggedStruct("Lost", {}),
  Schema.TaggedStruct("Cancelled", { reason: Schema.String })
])
export type Failure = typeof Failure.Type

const codec = Schema.fromJsonString(Failure)

export const encode: (failure: Failure) => string = Schema.encodeSync(codec)

const decodeOption = Schema.decodeUnknownOption(codec)

/** A later version may store more: what cannot be read is a death. */
export const decode = (text: string | null): Failure =>
  Option.getOrElse(
    decodeOption(text),
    (): Failure => ({ _tag: "Died", problem: "its failure cannot be read by this version" })
  )

/** The stored text with what a handler has said passed through; what kind of failure it is stays. */
export const through = <E>(
  text: string,
  pass: (text: string) => Effect.Effect<string, E>
): Effect.Effect<string, E> => {
  const failure = decode(text)
  switch (failure._tag) {
    case "Failed":
      return Effect.map(pass(failure.error), (error) => encode({ ...failure, error }))
    case "Died":
    case "Unavailable":
      return Effect.map(pass(failure.problem), (problem) => encode({ ...failure, problem }))
    default:
      return Effect.succeed(text)
  }
}
