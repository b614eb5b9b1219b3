/**
 * How the pieces of an answer get into a stream. People read along there: a piece that the stream cannot take must not
 * fail a call of the model that is paid.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import { ours } from "../../model/shared/logging.ts"
import { problemOf } from "../../model/shared/text.ts"
import { bytesOf } from "../../model/shared/valueBytes.ts"

interface Tokens {
  readonly append: (text: string) => Effect.Effect<void, never, any>
  readonly maxChunkBytes?: number | undefined
}

/** Appends the texts of one call, in order. */
export const writer = (model: string, tokens: Tokens): (text: string) => Effect.Effect<void> => {
  const limit = tokens.maxChunkBytes ?? Infinity
  /** The first half of a character whose other half comes with the next text. */
  let half = ""
  return (given) =>
    Effect.suspend(() => {
      const text = half + given
      half = /[\ud800-\udbff]$/.exec(text)?.[0] ?? ""
      return Effect.forEach(parts(half === "" ? text : text.slice(0, -1), limit), (part) => {
        const problem = bytesOf(JSON.stringify(part)) > limit
          ? `it has more than ${limit} bytes, and cannot be split`
          : problemOf(part)
        return problem === undefined
          ? Effect.catchCauseIf(
            tokens.append(part) as Effect.Effect<void>,
            (cause) => Cause.hasDies(cause) && !Cause.hasInterrupts(cause),
            // What a Schema refuses may be quoted in a message: it stays out of the log.
            () => leftOut(model, part, "the stream refuses it")
          )
          : leftOut(model, part, problem)
      }, { discard: true })
    })
}

// internal

const leftOut = (model: string, part: string, problem: string) =>
  Effect.logWarning("DurableModel: a piece of an answer is not in the stream").pipe(
    ours({ model, bytes: bytesOf(part), problem })
  )

/** The text in parts of at most so many bytes of JSON; a single character may have more. */
const parts = (text: string, limit: number): ReadonlyArray<string> => {
  if (text === "") return []
  // Most bytes of a code unit, as an escape.
  if (text.length * 6 + quotes <= limit) return [text]
  const found: Array<string> = []
  let part = ""
  let bytes = quotes
  for (const character of text) {
    const size = bytesOf(JSON.stringify(character)) - quotes
    if (bytes + size > limit && part !== "") {
      found.push(part)
      part = ""
      bytes = quotes
    }
    part += character
    bytes += size
  }
  return [...found, part]
}

const quotes = 2
