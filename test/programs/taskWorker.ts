// A task worker process: `node taskWorker.js <database URL> <boundary> [concurrency]`. Serves `Output`; prints `ready`,
// and at the boundary `reached <boundary>`, where it stops for the test to kill it. Runs until SIGTERM.
import { Outbox } from "duroxide-prisma/outbox"
import { Database, PgQueue, PrismaDriver, PrismaProvider } from "duroxide-prisma/prisma"
import { Queue } from "duroxide-prisma/queue"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as pg from "pg"
import { Output } from "./outputs.js"

const [, , url = "", boundary = "none", concurrency = "10"] = process.argv

const stopAt = <A>(here: string) => (result: A) =>
  here !== boundary ? Effect.succeed(result) : Effect.flatMap(
    Effect.sync(() => process.stdout.write(`reached ${boundary}\n`)),
    () => Effect.never
  )

const OutputLive = Output.toLayer(Effect.fnUntraced(function*({ isTransaction }) {
  const attempt = yield* Task.Attempt
  yield* stopAt("handler")(undefined)
  if (!isTransaction) return attempt.attempt
  const client = new pg.Client(url)
  return yield* Effect.gen(function*() {
    yield* Effect.promise(() => client.connect())
    yield* Effect.promise(() => client.query("BEGIN"))
    yield* Effect.promise(() =>
      client.query("INSERT INTO outputs (task_id, attempt) VALUES ($1, $2)", [attempt.taskId, attempt.attempt])
    )
    yield* Effect.orDie(attempt.commit(client, attempt.attempt))
    yield* stopAt("transaction")(undefined)
    yield* Effect.promise(() => client.query("COMMIT"))
    yield* stopAt("committed")(undefined)
    return attempt.attempt
  }).pipe(Effect.ensuring(Effect.promise(() => client.end())))
}))

const database = Layer.effect(
  Database.Database,
  Effect.map(Database.Database, (database) => ({
    ...database,
    query: <Row>(operation: string, sql: Parameters<typeof database.query>[1]) =>
      Effect.succeed(undefined).pipe(
        Effect.flatMap(stopAt(operation === "completeTasks" ? "settling" : "")),
        Effect.andThen(database.query<Row>(operation, sql)),
        Effect.flatMap(stopAt(operation === "claimTasks" ? "claimed" : operation === "completeTasks" ? "settled" : ""))
      )
  }))
)

const queue = Layer.effect(
  Queue.Queue,
  Effect.map(Queue.Queue, (queue) => ({
    ...queue,
    receive: (...args: Parameters<typeof queue.receive>) =>
      Effect.flatMap(
        queue.receive(...args),
        (messages) => messages.length === 0 ? Effect.succeed(messages) : stopAt<typeof messages>("received")(messages)
      )
  }))
).pipe(Layer.provide(PgQueue.layer({ queues: { tasks: {} } })))

const App = TaskWorker.layer({
  tasks: [Output],
  concurrency: Number(concurrency),
  visibilityTimeout: "1 second",
  gracePeriod: "5 seconds"
}).pipe(
  Layer.provide([OutputLive, queue]),
  Layer.merge(Outbox.publisher().pipe(Layer.provide(queue))),
  Layer.provide(Layer.provideMerge(PrismaDriver.layerTasks(), database)),
  Layer.provideMerge(PrismaProvider.layerDatabase({ url, migrate: "none" }))
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
