import * as Context from "effect/Context"

/** The pool is one beside that of the store, for reads: its sessions take no writes, and it has no gauges. */
export const ReadOnly: Context.Reference<boolean> = Context.Reference<boolean>("duroxide-prisma/prisma/ReadOnly", {
  defaultValue: () => false
})
