// A process that runs reports, and none of their activities: `node reporter.js <database URL>`. Prints `ready` when it
// serves.
import { Runtime } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Calls, Report, ReportsLive } from "./reports.js"

const App = Runtime.layer({ orchestrations: [Report, Calls] }).pipe(
  Layer.provide(ReportsLive),
  Layer.provide(PrismaProvider.layer({ url: process.argv[2]!, migrate: "verify" }))
)

const main = Effect.runFork(Effect.scoped(Effect.gen(function*() {
  yield* Layer.build(App)
  yield* Effect.sync(() => process.stdout.write("ready\n"))
  return yield* Effect.never
})))

main.addObserver((exit) => {
  if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
})
