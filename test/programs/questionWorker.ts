// A process that serves questions: `node questionWorker.js <database URL>`. Runs until it is killed; prints `ready`.
import { RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { RuntimeLive } from "./questions.js"
import { shortLocks } from "./shortLocks.js"

const App = RuntimeLive.pipe(
  Layer.provide(RuntimeConfig.layer(shortLocks("1 second"))),
  Layer.provide(PrismaProvider.layer({ url: process.argv[2]!, migrate: "verify" }))
)

Effect.runFork(Effect.scoped(Effect.gen(function*() {
  yield* Layer.build(App)
  yield* Effect.sync(() => process.stdout.write("ready\n"))
  return yield* Effect.never
})))
