/**
 * One trace from the creation of a task to each of its attempts.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PgServer from "../utils/PgServer.ts"
import { Collector } from "../utils/traces.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { Declined, Job, queues } from "./utils/tasks.ts"

const Order = Orchestration.make("Order", { payload: Schema.Number, success: Schema.Number, error: Declined })

/** A process that runs tasks; the first attempt at each fails. */
const worker = (url: string, traces: Collector) =>
  TaskWorker.layer({ tasks: [Job] }).pipe(
    Layer.provide(Job.toLayer(({ n }) =>
      Effect.flatMap(Task.Attempt, ({ attempt }) =>
        attempt === 1
          ? Effect.fail(new Declined({ code: n }))
          : Effect.withSpan(Effect.succeed(n), "work"))
    )),
    Layer.merge(Outbox.publisher()),
    Layer.provide(PgQueue.layer({ queues })),
    Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" })),
    Layer.provide([traces.layer("worker"), Logger.layer([])])
  )

describe("traces of tasks:", () => {
  it.live(
    "each attempt is a span below the span that created the task, in another process",
    () =>
      Effect.gen(function*() {
        const { url } = yield* PgServer.database
        const traces = new Collector()
        yield* Layer.build(worker(url, traces))
        const tasks = Context.get(
          yield* Layer.build(
            Tasks.layer.pipe(
              Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" })),
              Layer.provide(Logger.layer([]))
            )
          ),
          Tasks.Tasks
        )
        const id = yield* tasks.create(Job, { payload: { n: 4929 } }).pipe(
          Effect.withSpan("request"),
          Effect.provide(traces.layer("web"))
        )
        yield* tasks.wait(Job, id)
        yield* waitUntil(Effect.sync(() => traces.named("task Job").length === 2))
        const [request] = traces.named("request")
        const attempts = traces.named("task Job")
        for (const span of attempts) {
          assert.deepInclude(span, {
            process: "worker",
            kind: "consumer",
            traceId: request!.traceId,
            parentId: request!.spanId
          })
        }
        assert.deepStrictEqual(
          attempts.map(({ attributes, exit }) => [
            attributes["duroxide.task_name"],
            attributes["duroxide.task_id"],
            attributes["duroxide.attempt"],
            Exit.isSuccess(exit)
          ]),
          [["Job", id, 1, false], ["Job", id, 2, true]]
        )
        // A span of the handler belongs to its attempt. No span has what the task is about.
        assert.strictEqual(traces.named("work")[0]!.parentId, attempts[1]!.spanId)
        assert.notInclude(JSON.stringify(traces.spans.map(({ attributes, events }) => [attributes, events])), "4929")
      }).pipe(Effect.scoped)
  )

  it.live("a task that an orchestration executes is in the trace of the orchestration", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const traces = new Collector()
      yield* Layer.build(worker(url, traces))
      const runtime = Runtime.layer({ orchestrations: [Order], activities: [...Tasks.activities] }).pipe(
        Layer.provide([Order.toLayer((n) => Job.execute({ n })), Tasks.layerActivities]),
        Layer.provideMerge(Client.layer),
        Layer.provide(PrismaProvider.layer({ url, migrate: "none" })),
        Layer.provide([traces.layer("runtime"), Logger.layer([])])
      )
      const client = Context.get(yield* Layer.build(runtime), Client.Client)
      yield* client.execute(Order, { instanceId: "o-1", payload: 7 }).pipe(
        Effect.withSpan("request"),
        Effect.provide(traces.layer("web"))
      )
      yield* waitUntil(Effect.sync(() => traces.named("task Job").length === 2))
      const [request] = traces.named("request")
      assert.deepStrictEqual(
        traces.named("task Job").map(({ process, traceId }) => [process, traceId]),
        Array.from({ length: 2 }, () => ["worker", request!.traceId])
      )
    }).pipe(Effect.scoped))
})
