/**
 * What is wrong with an option of `SqliteImport`, under the name of its flag.
 */
import * as Effect from "effect/Effect"
import type * as SqliteError from "../../sqlite/SqliteError.ts"
import { CommandError } from "./failure.ts"

/** `maxDifferences` becomes `--max-differences`. */
export const namingFlags = <A, R>(effect: Effect.Effect<A, SqliteError.SqliteError | CommandError, R>) =>
  Effect.catch(effect, (error) => {
    if (error instanceof CommandError || error.reason._tag !== "InvalidInput") return Effect.fail(error)
    const { reason } = error
    const flag = `--${reason.field.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`
    return Effect.fail(
      new CommandError({ code: reason._tag, message: `invalid ${flag}: ${reason.problem}`, exit: "usage" })
    )
  })
