/** Plain jobs: tasks on queues in PostgreSQL, created and served by this process, without an orchestration. */
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as References from "effect/References"
import * as Schema from "effect/Schema"
import type { Contender, Options } from "./contender.ts"

const Job = Task.make("Job", { payload: { id: Schema.String, text: Schema.String } })

/**
 * Each call creates so many jobs and waits until all have ended. Sent wake-ups are not kept, as the peers keep none.
 */
export const openJobs = async ({ load, url }: Options): Promise<Contender> => {
  const atOnce = load.jobs === 1 ? 200 : 1000
  const left = new Map<string, { count: number; readonly end: () => void }>()
  const JobLive = Job.toLayer(({ id }) =>
    Effect.sync(() => {
      const drain = left.get(id)
      if (drain !== undefined && --drain.count === 0) drain.end()
    })
  )
  const runtime = ManagedRuntime.make(
    Layer.mergeAll(TaskWorker.layer({ tasks: [Job], concurrency: atOnce }), Tasks.layer).pipe(
      Layer.provide([JobLive, Outbox.publisher({ batchSize: 1000, keepSent: 0 })]),
      Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
      Layer.provide(PrismaProvider.layerDatabase({ url })),
      Layer.provide(Logger.layer([Logger.withConsoleError(Logger.formatLogFmt)])),
      Layer.provide(Layer.succeed(References.MinimumLogLevel, "Warn"))
    )
  )
  const tasks = await runtime.runPromise(Tasks.Tasks)
  const { text } = load
  const one = (id: string) =>
    Effect.flatMap(tasks.create(Job, { payload: { id, text } }), (taskId) => tasks.wait(Job, taskId))
  /** Ends are asked for when all handlers have run: ten statements, not callers that wait meanwhile. */
  const many = (id: string) =>
    Effect.gen(function*() {
      const ran = new Promise<void>((end) => left.set(id, { count: load.jobs, end }))
      const created = yield* tasks.createMany(
        Job,
        Array.from({ length: load.jobs }, () => ({ payload: { id, text } }))
      )
      yield* Effect.promise(() => ran)
      left.delete(id)
      if (!load.awaited) return
      yield* Effect.forEach(created, (taskId) => tasks.wait(Job, taskId), { concurrency: "unbounded", discard: true })
    })
  return {
    execute: (id) => runtime.runPromise(load.jobs === 1 ? one(id) : many(id)),
    close: () => runtime.dispose()
  }
}
