// A process that holds an activity until it is killed: `node holder.js <database URL> <lock timeout>`. Prints `running`
// when the activity runs.
import { Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Calls, Endless, ReportsLive } from "./reports.js"

const App = Runtime.layer({ orchestrations: [Calls], activities: [Endless] }).pipe(
  Layer.provide([
    ReportsLive,
    Endless.toLayer(() =>
      Effect.andThen(
        Effect.sync(() => process.stdout.write("running\n")),
        Effect.never
      )
    )
  ]),
  Layer.provide(RuntimeConfig.layer({ workerLockTimeout: Duration.millis(Number(process.argv[3])) })),
  Layer.provide(PrismaProvider.layer({ url: process.argv[2]!, migrate: "verify" }))
)

const main = Effect.runFork(Layer.launch(App))

main.addObserver((exit) => {
  if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
})
