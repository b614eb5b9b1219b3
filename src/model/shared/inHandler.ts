/**
 * Whether a fiber runs the code of a task's handler, and not the limit around it.
 */
import * as Context from "effect/Context"

/** In virtual time, a handler that sleeps lets time pass; its limit does not. */
export const InHandler = Context.Reference<boolean>("duroxide-prisma/internal/InHandler", {
  defaultValue: () => false
})
