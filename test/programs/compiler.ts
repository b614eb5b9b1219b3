// A process that runs an orchestration, and then reads a model of Prisma: `node compiler.js <database URL>`. Prints how
// often it has compiled WebAssembly by then.
import { Client } from "duroxide-prisma"
import { Database, PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Rounds, RoundsLive } from "./rounds.ts"

const [, , url = ""] = process.argv

/** Not among the types of Node. */
const webAssembly: { Module: new(bytes: Uint8Array) => object } = Reflect.get(globalThis, "WebAssembly")
let compiled = 0
webAssembly.Module = new Proxy(webAssembly.Module, {
  construct: (Module, [bytes]) => (compiled++, new Module(bytes))
})

await Effect.runPromise(
  Client.Client.use((client) => client.execute(Rounds, { instanceId: "compiler", payload: 2 })).pipe(
    Effect.provide(
      Layer.provide(Layer.merge(RoundsLive, Client.layer), PrismaProvider.layer({ url, migrate: "none" }))
    )
  )
)
console.log(`orchestration: ${compiled}`)
const count = Database.Database.use(({ client }) => Effect.promise(() => client.execution.count()))
const executions = await Effect.runPromise(Effect.provide(count, Database.layer({ url })))
console.log(`model: ${executions} executions, ${compiled}`)
