/**
 * Ids and texts that code under replay gives. One that cannot be stored is a mistake in the code: it dies of it.
 */
import * as Effect from "effect/Effect"
import type { Unfit } from "../model/internal/identifiers.ts"

export const orDie = (check: Effect.Effect<void, Unfit>): Effect.Effect<void> =>
  Effect.catch(check, ({ field, problem }) => Effect.die(new Error(`${field} is refused: ${problem}`)))
