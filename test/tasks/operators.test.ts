/**
 * What people who operate workers see of them.
 */
import { assert, describe, it } from "@effect/vitest"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { QueueError, QueueNotFound } from "../../src/queue/QueueError.ts"
import * as PgServer from "../utils/PgServer.ts"
import { open, queues } from "./utils/tasks.ts"

const Mail = Task.make("Mail", { queue: "mails" })

describe("task workers, for operators:", () => {
  it.live("a worker logs its start with what it serves, and its end", () =>
    Effect.gen(function*() {
      const app = yield* open(PgQueue.layer({ queues }))
      const worker = yield* app.jobWorker(() => Effect.succeed(1), { workerId: "w1" })
      yield* worker.stop
      const lines = app.linesOf("Task worker: st").map(({ logLevel, message, queues, tasks, worker_id }) => ({
        logLevel,
        message,
        queues,
        tasks,
        worker_id
      }))
      const common = { logLevel: "Info", worker_id: "w1" }
      assert.deepStrictEqual<unknown>(lines, [
        { ...common, message: "Task worker: started", queues: "tasks", tasks: "Job" },
        { ...common, message: "Task worker: stopped", queues: undefined, tasks: undefined }
      ])
    }).pipe(Effect.scoped))

  it.live("a worker of a task whose queue is not declared fails at its start", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const worker = TaskWorker.layer({ tasks: [Mail] }).pipe(
        Layer.provide(Mail.toLayer(() => Effect.void)),
        Layer.provide(PgQueue.layer({ queues })),
        Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" })),
        Layer.provide(Logger.layer([]))
      )
      assert.deepStrictEqual(
        yield* Effect.flip(Layer.build(worker)),
        new QueueError({ operation: "consume", queue: "mails", reason: new QueueNotFound({ queue: "mails" }) })
      )
    }).pipe(Effect.scoped))
})
