/**
 * A worker process: runs orchestrations and activities until it is stopped.
 *
 *     DATABASE_URL=postgresql://… node build/examples/orders/worker.js
 *
 * Start as many as you like, stop them with SIGTERM, or kill them.
 */
import { Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Run from "effect/Runtime"
import * as Activities from "./activities.ts"
import { Fulfil, FulfilLive } from "./fulfil.ts"
import * as Shop from "./shop.ts"

const RuntimeLive = Runtime.layer({
  orchestrations: [Fulfil],
  activities: [
    Activities.Reserve,
    Activities.Release,
    Activities.Charge,
    Activities.Refund,
    Activities.RequestApproval,
    Activities.Ship
  ]
}).pipe(
  Layer.provide([FulfilLive, Activities.layer]),
  // A killed process cannot be distinguished from a slow one: other processes take its work over when its locks expire.
  // Short locks mean a quick takeover, and more renewals; a lock that is lost because a process hangs costs one repeated
  // attempt. The defaults are 5 and 30 seconds.
  Layer.provide(RuntimeConfig.layer({ orchestrationLockTimeout: "2 seconds", workerLockTimeout: "2 seconds" }))
)

const App = Layer.unwrap(Effect.gen(function*() {
  const url = yield* Config.Redacted("DATABASE_URL")
  const schema = yield* Config.String("ORDERS_SCHEMA").pipe(Config.withDefault("orders_demo"))
  const Store = PrismaProvider.layer({ url, schema, migrate: "verify", applicationName: `orders ${process.pid}` })
  return RuntimeLive.pipe(Layer.provide([Store, Shop.layer({ url, schema })]))
})).pipe(Layer.tap(() => Effect.sync(() => process.send?.("ready"))))

const main = Run.makeRunMain(({ fiber, teardown }) => {
  const stop = () => fiber.interruptUnsafe()
  process.once("SIGINT", stop).once("SIGTERM", stop)
  process.once("disconnect", stop) // started by another Node process, which has gone
  // A requested stop is not a failure: an interruption exits with 0 instead of 130.
  fiber.addObserver((exit) => teardown(exit, (code) => process.exit(code === 130 ? 0 : code)))
})

main(Runtime.launch(App))
