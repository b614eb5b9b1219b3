// A task worker process: `node crowdWorker.js <database URL>`. Serves `Crowd`: a guilty task ends the process. Runs
// until SIGTERM.
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Crowd } from "./outputs.js"

const [, , url = ""] = process.argv

const CrowdLive = Crowd.toLayer(({ isGuilty }) =>
  isGuilty
    ? Effect.delay(Effect.sync(() => process.kill(process.pid, "SIGKILL")), "100 millis")
    : Effect.sleep("300 millis")
)

const App = Layer.mergeAll(TaskWorker.layer({ tasks: [Crowd] }).pipe(Layer.provide(CrowdLive)), Outbox.publisher())
  .pipe(
    Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
    Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" }))
  )

Effect.runFork(Effect.scoped(Effect.gen(function*() {
  yield* Layer.build(App)
  yield* Effect.sync(() => process.stdout.write("ready\n"))
  return yield* Effect.never
})))
