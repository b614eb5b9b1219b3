// A runtime process: `node worker.js <database URL>`. Runs until SIGTERM; prints `ready` when it serves.
import { RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { RuntimeLive } from "./steps.js"

const url = process.argv[2]!

const App = RuntimeLive.pipe(
  // Short locks: the work of a killed process is taken over within a second.
  Layer.provide(RuntimeConfig.layer({ orchestrationLockTimeout: "1 second", workerLockTimeout: "1 second" })),
  Layer.provide(PrismaProvider.layer({ url, migrate: "verify" }))
)

const main = Effect.runFork(Effect.scoped(Effect.gen(function*() {
  yield* Layer.build(App)
  yield* Effect.sync(() => process.stdout.write("ready\n"))
  return yield* Effect.never
})))

process.on("SIGTERM", () => {
  void Effect.runPromise(Fiber.interrupt(main)).then(() => process.exit(0))
})
main.addObserver((exit) => {
  if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
})
