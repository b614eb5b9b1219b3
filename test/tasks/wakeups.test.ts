/**
 * Where the wake-ups of new tasks go: to the outbox, or straight into a queue of the same database.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import { Queue } from "duroxide-prisma/queue"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Double = Task.make("Double", { payload: Schema.Number, success: Schema.Number })
const Triple = Task.make("Triple", { payload: Schema.Number, success: Schema.Number })
const Elsewhere = Task.make("Elsewhere", { queue: "elsewhere" })
const Doubles = Orchestration.make("Doubles", { payload: Schema.Number, success: Schema.Number })

const Local = PgQueue.layer({ queues: { tasks: { maxAttempts: 7 } } })

/** A process that creates tasks with the queue in its context; `served` adds to it. */
const open = Effect.fnUntraced(function*<A, E>(
  queue: Layer.Layer<Queue.Queue, unknown, PrismaProvider.DatabaseServices>,
  served: Layer.Layer<A, E, any> = Layer.empty as Layer.Layer<any>
) {
  const { sql, url } = yield* PgServer.database
  const services = yield* Layer.build(
    served.pipe(
      Layer.provideMerge(Tasks.layer),
      Layer.provideMerge(queue),
      Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" })),
      Layer.provideMerge(Logger.layer([]))
    ) as Layer.Layer<Tasks.Tasks | A, unknown>
  )
  const stored = Effect.map(
    sql<{ outbox: number; messages: number }>(
      "SELECT (SELECT count(*) FROM queue_outbox)::int AS outbox, (SELECT count(*) FROM queue_messages)::int AS messages"
    ),
    ([row]) => row!
  )
  return { services, sql, stored, tasks: Context.get(services, Tasks.Tasks), url }
})

const WorkerLive = TaskWorker.layer({ tasks: [Double] }).pipe(
  Layer.provide(Double.toLayer((n) => Effect.succeed(2 * n)))
)

describe("wake-ups of new tasks", () => {
  it.live("with PgQueue in the context, a task runs without a publisher, and leaves no row in the outbox", () =>
    Effect.gen(function*() {
      const { stored, tasks } = yield* open(Local, WorkerLive)
      const ids = yield* tasks.createMany(Double, [1, 2, 3].map((payload) => ({ payload })))
      const results = yield* Effect.forEach(ids, (id) => tasks.wait(Double, id), { concurrency: "unbounded" })
      assert.deepStrictEqual(results, [2, 4, 6])
      assert.strictEqual(yield* tasks.wait(Double, yield* tasks.create(Double, { payload: 4 })), 8)
      assert.deepStrictEqual(yield* stored, { outbox: 0, messages: 0 })
    }))

  it.live("one worker of nine that serves a name gets its tasks before their wake-ups pause", () =>
    Effect.gen(function*() {
      const Refusing = TaskWorker.layer({ tasks: [Triple] }).pipe(
        Layer.provide(Triple.toLayer((n) => Effect.succeed(3 * n)))
      )
      const { sql, tasks } = yield* open(
        Local,
        Layer.mergeAll(Layer.fresh(Refusing), ...Array.from({ length: 7 }, () => Layer.fresh(Refusing)), WorkerLive)
      )
      yield* sql("CREATE TABLE delivered (message bigint, attempts integer)")
      yield* sql(`CREATE FUNCTION note_delivery() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
        BEGIN
          INSERT INTO delivered VALUES (NEW.id, NEW.attempts);
          RETURN NULL;
        END $$`)
      yield* sql(`CREATE TRIGGER note_delivery AFTER UPDATE ON queue_messages FOR EACH ROW
        WHEN (NEW.attempts > OLD.attempts) EXECUTE FUNCTION note_delivery()`)
      for (let n = 0; n < 30; n++) {
        assert.strictEqual(yield* tasks.wait(Double, yield* tasks.create(Double, { payload: n })), 2 * n)
      }
      const [most] = yield* sql<{ attempts: number | null }>("SELECT max(attempts) AS attempts FROM delivered")
      // Of nine that take turns, the last would get it at the ninth delivery. The pauses grow from the sixth on.
      assert.isAbove(most!.attempts!, 0)
      assert.isAtMost(most!.attempts!, 4)
    }))

  it.live("the message is that of a publisher: its kind, its task, how often it is delivered", () =>
    Effect.gen(function*() {
      const { sql, tasks } = yield* open(Local)
      const id = yield* tasks.create(Double, { payload: 1 })
      assert.deepStrictEqual(
        yield* sql(
          "SELECT queue, payload, max_attempts, visible_at <= clock_timestamp() AS is_visible FROM queue_messages"
        ),
        [{ queue: "tasks", payload: { kind: "task_wakeup", task_id: id }, max_attempts: 7, is_visible: true }]
      )
    }))

  it.live("what begins later, of another queue, or in a transaction goes by the outbox", () =>
    Effect.gen(function*() {
      const { sql, stored, tasks, url } = yield* open(Local)
      yield* tasks.create(Double, { payload: 1, delay: "1 hour" })
      yield* tasks.create(Elsewhere, {})
      assert.deepStrictEqual(yield* stored, { outbox: 2, messages: 0 })
      const client = yield* PgServer.connect(url)
      const schema = (yield* sql<{ schema: string }>("SELECT current_schema() AS schema"))[0]!.schema
      yield* Tasks.within(Transaction.make(client, { schema })).create(Double, { payload: 2 })
      assert.deepStrictEqual(yield* stored, { outbox: 3, messages: 0 })
    }))

  it.live("a task that is created within a second after a caller began to wait is awaited from the start", () =>
    Effect.gen(function*() {
      const { sql, tasks } = yield* open(Local)
      const isAwaited = (id: string) =>
        Effect.map(
          sql<{ is_awaited: boolean }>("SELECT is_awaited FROM queue_tasks WHERE id = $1", [id]),
          ([row]) => row!.is_awaited
        )
      const created = Effect.flatMap(tasks.create(Double, { payload: 1 }), isAwaited)
      const first = yield* tasks.create(Double, { payload: 1 })
      assert.isFalse(yield* isAwaited(first))
      const begun = Effect.forkChild(tasks.wait(Double, first), { startImmediately: true })
      yield* begun
      yield* waitUntil(isAwaited(first))
      yield* begun
      assert.isTrue(yield* created)
      yield* waitUntil(Effect.map(created, (isAwaited) => !isAwaited))
    }))

  it.live("a key that exists sends nothing again", () =>
    Effect.gen(function*() {
      const { stored, tasks } = yield* open(Local)
      const once = [1, 2, 2, 3].map((payload) => ({ payload, key: String(payload) }))
      const ids = yield* tasks.createMany(Double, once)
      assert.deepStrictEqual(yield* tasks.createMany(Double, once), ids)
      assert.deepStrictEqual(yield* stored, { outbox: 0, messages: 3 })
    }))

  it.live("without the queue, or where its calls are wrapped, they go by the outbox", () =>
    Effect.gen(function*() {
      const wrapped = Layer.effect(
        Queue.Queue,
        Effect.map(Queue.Queue, (queue) => ({
          ...queue,
          publish: ((...args: Parameters<typeof queue.publish>) => queue.publish(...args)) as typeof queue.publish
        }))
      ).pipe(Layer.provide(Local))
      for (const queue of [wrapped, Layer.empty as unknown as typeof wrapped]) {
        const { stored, tasks } = yield* open(queue)
        yield* tasks.create(Double, { payload: 1 })
        assert.deepStrictEqual(yield* stored, { outbox: 1, messages: 0 })
      }
    }))

  it.live("a task of an orchestration needs no publisher either; its retries do", () =>
    Effect.gen(function*() {
      const RuntimeLive = Runtime.layer({ orchestrations: [Doubles], activities: [...Tasks.activities] }).pipe(
        Layer.provide([Doubles.toLayer((n) => Double.execute(n)), Tasks.layerActivities])
      )
      const served = Layer.mergeAll(RuntimeLive, Client.layer, WorkerLive)
      const { services, stored } = yield* open(Local, served as Layer.Layer<Client.Client, unknown, any>)
      const client = Context.get(services, Client.Client)
      assert.strictEqual(yield* client.execute(Doubles, { instanceId: "a", payload: 21 }), 42)
      assert.deepStrictEqual(yield* stored, { outbox: 0, messages: 0 })

      const failing = yield* open(
        Local,
        Layer.merge(
          TaskWorker.layer({ tasks: [Double] }).pipe(
            Layer.provide(Double.toLayer((n) =>
              Effect.flatMap(Task.Attempt, ({ attempt }) =>
                attempt === 1 ? Effect.die(new Error("once")) : Effect.succeed(2 * n))
            ))
          ),
          Outbox.publisher()
        )
      )
      const id = yield* failing.tasks.create(Double, { payload: 5 })
      assert.strictEqual(yield* failing.tasks.wait(Double, id), 10)
    }))
})
