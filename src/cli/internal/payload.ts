/**
 * Payloads as arguments: JSON text, a file with it, or standard input.
 */
import * as Argument from "effect/cli/Argument"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { readFileSync } from "node:fs"
import { CommandError, misused } from "./failure.ts"
import { Process } from "./io.ts"

export const argument = Argument.String("payload").pipe(
  Argument.withDescription(
    "JSON, in the form that is stored: what the Schema encodes. @file reads a file, - standard input. Defaults to null, " +
      "which is the payload of definitions without one"
  ),
  Argument.optional
)

/** The value of the JSON. An error does not quote it. */
export const read = Effect.fnUntraced(function*(given: Option.Option<string>) {
  if (Option.isNone(given)) return null
  return yield* parsed(yield* textOf(given.value))
})

/** What `-` and `@file` read; any other text is itself. */
export const textOf = Effect.fnUntraced(function*(given: string) {
  return given === "-"
    ? yield* Effect.promise((yield* Process).stdin.text)
    : given.startsWith("@")
    ? yield* readText(given.slice(1))
    : given
})

/** The value of a JSON text. */
export const parsed = (text: string): Effect.Effect<unknown, CommandError> => {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return Effect.fail(misused("the payload is not JSON; a text needs double quotes, as in '\"text\"'"))
  }
  const digits = text.replace(strings, "").match(integers) ?? []
  return digits.every((text) => String(Number(text)) === text)
    ? Effect.succeed(value)
    : Effect.fail(misused("the payload has a number with more digits than JavaScript keeps: pass it as a text"))
}

// internal

const strings = /"(?:[^"\\]|\\.)*"/g

/** Whole numbers that JavaScript may round. */
const integers = /(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g

const readText = (path: string) =>
  Effect.try({
    try: () => readFileSync(path, "utf8"),
    catch: (thrown) =>
      new CommandError({
        code: "PayloadUnreadable",
        message: `the file ${path} cannot be read (${(thrown as NodeJS.ErrnoException).code})`,
        exit: "usage"
      })
  })
