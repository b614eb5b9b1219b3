// A worker of tasks that have limits: `node limitedTasks.js <database URL>`. Each begin of the handler is a row of
// `calls`, which has its end if the process lives so long. Runs until SIGTERM; prints `ready` when it serves.
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as pg from "pg"

export const Call = Task.make("Call", {
  payload: { tenant: Schema.String, n: Schema.Int },
  limitKey: ({ tenant }) => tenant,
  lease: "1 second"
})

const worker = (url: string) => {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  const CallLive = Call.toLayer(Effect.fn(function*({ n, tenant }) {
    const { attempt, taskId } = yield* Task.Attempt
    const { rows } = yield* Effect.promise(() =>
      pool.query<{ id: string }>(
        "INSERT INTO calls (tenant, key, pid) VALUES ($1, $2, $3) RETURNING id",
        [tenant, taskId, process.pid]
      )
    )
    yield* Effect.sleep("60 millis")
    const end = { text: "UPDATE calls SET ended = clock_timestamp() WHERE id = $1", values: [rows[0]!.id] }
    // Half of the calls end in a transaction of their own.
    if (n % 2 === 0) return yield* Effect.promise(() => pool.query(end))
    const client = yield* Effect.promise(() => pool.connect())
    yield* Effect.gen(function*() {
      yield* Effect.promise(() => client.query("BEGIN"))
      yield* Effect.promise(() => client.query(end))
      yield* (yield* Call.attempt).commit(client, undefined).pipe(Effect.orDie)
      yield* Effect.promise(() => client.query("COMMIT"))
    }).pipe(Effect.ensuring(Effect.sync(() => client.release())))
    return attempt
  }, Effect.asVoid))
  return TaskWorker.layer({ tasks: [Call], concurrency: 10, visibilityTimeout: "1 second" }).pipe(
    Layer.provide(CallLive),
    Layer.merge(Outbox.publisher()),
    Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
    Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" })),
    Layer.provide(Logger.layer([]))
  )
}

const [, program, url] = process.argv
if (program?.endsWith("limitedTasks.js") === true) {
  const main = Effect.runFork(Effect.scoped(
    Effect.andThen(
      Layer.build(worker(url!)),
      Effect.andThen(Effect.sync(() => process.stdout.write("ready\n")), Effect.never)
    )
  ))
  process.on("SIGTERM", () => {
    void Effect.runPromise(Fiber.interrupt(main)).then(() => process.exit(0))
  })
}
