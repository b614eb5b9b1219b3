import { it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PgServer from "../utils/PgServer.ts"
import * as App from "./badInput/app.ts"
import * as cases from "./badInput/cases.ts"

const layer = App.runtime.pipe(
  Layer.provideMerge(Client.layer),
  Layer.provideMerge(
    Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => PrismaProvider.layer({ url, migrate: "none" })))
  ),
  Layer.provide(PgServer.layer)
)

it.layer(layer, { excludeTestServices: true })("Bad input, on PostgreSQL", (it) => {
  cases.register((name, run) => it.effect(name, () => run))
})
