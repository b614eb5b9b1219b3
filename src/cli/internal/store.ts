/**
 * The store of the target, opened for a command that reads it: a few connections, no listening, no migration.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PrismaProvider from "../../prisma/PrismaProvider.ts"
import { Settings } from "./settings.ts"

/** Fails with `SchemaBehind` if the schema lacks migrations. */
export const layer = Layer.unwrap(Effect.gen(function*() {
  const { options } = yield* (yield* Settings).target
  return PrismaProvider.layer({
    ...options,
    migrate: "verify",
    // It only reads, and tables keep their columns.
    allowAhead: true,
    maxConnections: 4,
    applicationName: "duroxide-prisma cli",
    longPolling: { enabled: false }
  })
}))
