/**
 * How what waits for a moment waits in virtual time, where no time passes by itself.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"

/** In virtual time: waits until nothing can happen without time passing. Defaults to undefined: the clock runs. */
export const Rest = Context.Reference<Effect.Effect<void> | undefined>("duroxide-prisma/internal/Rest", {
  defaultValue: () => undefined
})
