/**
 * Checks of the ids and texts that a program passes. An id or text that cannot be stored is a defect of the program.
 */
import * as Effect from "effect/Effect"
import type { Unfit } from "../model/shared/identifiers.ts"

export const orDie = <A>(check: Effect.Effect<A, Unfit>): Effect.Effect<A> =>
  Effect.catch(
    check,
    ({ field, problem }) =>
      Effect.die(new Error(`${field} ${field === "attributes" ? "are" : "is"} refused: ${problem}`))
  )
