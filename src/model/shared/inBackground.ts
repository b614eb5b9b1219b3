/**
 * Set for fibers whose sleep is housekeeping: renewals, sweeps, polls, pauses. Only a test runtime reads it: virtual
 * time does not pass because such a fiber sleeps.
 */
import * as Context from "effect/Context"

export const InBackground = Context.Reference<boolean>("duroxide-prisma/internal/InBackground", {
  defaultValue: () => false
})
