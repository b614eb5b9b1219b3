// A process that delivers webhooks: `node deliverer.js <database URL> <endpoint URL> <secret>`. Prints `ready`. Runs
// until it is killed, or the test ends.
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Delivery } from "duroxide-prisma/recipes/deliveries"
import { TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"

const [, , url = "", endpoint = "", secret = ""] = process.argv

const App = TaskWorker.layer({ tasks: [Delivery.Webhook] }).pipe(
  Layer.provide(Delivery.layer({
    endpoints: () => Effect.succeed(Option.some({ url: endpoint, secret: Redacted.make(secret) }))
  })),
  Layer.merge(Outbox.publisher()),
  Layer.provide(PgQueue.layer({ queues: { deliveries: {} } })),
  Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" }))
)

Effect.runFork(Effect.scoped(Effect.gen(function*() {
  yield* Layer.build(App)
  yield* Effect.sync(() => process.stdout.write("ready\n"))
  return yield* Effect.never
})))
