/** A module that starts a runtime when it is imported, beside its export. */
import { Runtime } from "duroxide-prisma"
import { FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Fulfil } from "./definitions.ts"

export { programs } from "./matching.ts"

export const started = Effect.runFork(
  Runtime.launch(
    Runtime.layer({ orchestrations: [Fulfil] }).pipe(
      Layer.provide(Fulfil.toLayer(() => Effect.void)),
      Layer.provide(FromDriver.layer().pipe(Layer.provide(MemoryDriver.layer)))
    )
  )
)
