// A process whose task worker is closed while a handler runs that cannot be interrupted and dies later:
// `node lateHandler.js <database URL>`. Prints `closed`, and ends by itself if the worker has left nothing behind.
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

const [, , url = ""] = process.argv

const Late = Task.make("Late")

await Effect.runPromise(Effect.gen(function*() {
  const begun = yield* Deferred.make<void>()
  const closed = yield* Deferred.make<void>()
  const handler = Deferred.succeed(begun, undefined).pipe(
    Effect.andThen(Deferred.await(closed)),
    Effect.andThen(Effect.die("late")),
    Effect.uninterruptible
  )
  const worker = TaskWorker.layer({ tasks: [Late], gracePeriod: "1 second" }).pipe(
    Layer.provide(Late.toLayer(() => handler))
  )
  yield* Tasks.Tasks.use((tasks) => tasks.create(Late, {})).pipe(
    Effect.andThen(Deferred.await(begun)),
    Effect.provide(
      Layer.mergeAll(worker, Outbox.publisher(), Tasks.layer).pipe(
        Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
        Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" }))
      )
    )
  )
  console.log("closed")
  yield* Deferred.succeed(closed, undefined)
}))
