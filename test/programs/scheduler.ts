// A process with a scheduler and a runtime: `node scheduler.js <database URL>`. Prints `ready`. Its runs of `often` end
// at once, those of `long` after 1.7 seconds. Runs until SIGTERM.
import { Orchestration, Runtime } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Schedules } from "duroxide-prisma/schedules"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"

const [, , url = ""] = process.argv

const Tick = Orchestration.make("Tick", { payload: { at: Schema.String, millis: Schema.Int } })

const TickLive = Tick.toLayer(({ millis }) => Effect.sleep(millis))

const often = Schedules.make("often", {
  timing: Schedules.every("1 second"),
  start: Tick,
  payload: ({ at }) => ({ at: at.toISOString(), millis: 0 }),
  overlap: "allow",
  catchUp: { within: "1 hour" }
})

const long = Schedules.make("long", {
  timing: Schedules.every("1 second"),
  start: Tick,
  payload: { at: "", millis: 1700 },
  overlap: "queue",
  catchUp: { within: "1 hour" }
})

const App = Layer.merge(
  Runtime.layer({ orchestrations: [Tick], activities: [] }).pipe(Layer.provide(TickLive)),
  Schedules.layer([often, long])
).pipe(
  Layer.provide(PrismaProvider.layer({ url, migrate: "none" })),
  Layer.provide(Logger.layer([]))
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
