/** Uses the embedded server of a folder until it is killed: `node databaseServer.js <folder>`. */
import { DatabaseServer } from "duroxide-prisma/server"
import * as Effect from "effect/Effect"

const program = Effect.gen(function*() {
  const { description } = yield* DatabaseServer.makeEmbedded({ directory: process.argv[2] })
  console.log(description)
  setInterval(() => {}, 60_000) // a pending effect does not keep the process alive
  return yield* Effect.never
})

await Effect.runPromise(Effect.scoped(program))
