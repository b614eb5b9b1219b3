import { assert, it } from "@effect/vitest"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Consumer, Message } from "duroxide-prisma/queue"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/** How long it takes until `isDone` once `layer` runs, milliseconds. */
const timeOf = <A, E, R>(
  { url }: PgServer.TestDatabase,
  queue: string,
  layer: Layer.Layer<A, E, R>,
  isDone: () => boolean
) =>
  Effect.gen(function*() {
    const startMs = performance.now()
    yield* Layer.build(
      layer.pipe(
        Layer.provide(PgQueue.layer({ queues: { [queue]: {} } })),
        Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none", maxConnections: 5 }))
      ) as unknown as Layer.Layer<A, E>
    )
    yield* waitUntil(Effect.sync(isDone))
    return performance.now() - startMs
  })

// With a pause of a second after each receive, as before a message that another transaction holds, both take longer.

it.live("messages among exhausted ones are received without a pause", () =>
  Effect.scoped(Effect.gen(function*() {
    const test = yield* PgServer.database
    const receives = 20
    yield* test.sql(
      `INSERT INTO queue_messages (queue, payload, created_at, visible_at, attempts)
      SELECT 'work', '{"kind":"n"}', now(), now() - interval '1 second', CASE WHEN n % 2 = 0 THEN 20 ELSE 0 END
      FROM generate_series(1, $1) AS n`,
      [receives * 10]
    )
    let handled = 0
    const consumer = Consumer.layer({
      queue: "work",
      handlers: [Consumer.on(Message.make("n", {}), () => Effect.sync(() => void handled++))]
    })
    const elapsedMs = yield* timeOf(test, "work", consumer, () => handled === receives * 5)
    assert.isBelow(elapsedMs, receives * 500)
  })))

it.live("a task behind thousands that wait for a slot of a limit is taken without a pause", () =>
  Effect.scoped(Effect.gen(function*() {
    const test = yield* PgServer.database
    const sets = 12
    const create = (name: string, count: number) =>
      test.sql(
        `SELECT count(*) FROM dx_create_tasks(
          (SELECT jsonb_agg(jsonb_build_object('name', $1::text, 'payload', 'null', 'max_attempts', 20, 'queue', 'tasks'))
          FROM generate_series(1, $2)), '{tasks}', '{20}'
        )`,
        [name, count]
      )
    yield* test.sql(`SELECT dx_set_limit('task', 'Limited', '{"total":{"concurrency":1}}')`)
    yield* create("Limited", sets * 1_000)
    yield* create("Other", 1)
    const Limited = Task.make("Limited", { lease: "1 minute" })
    const Other = Task.make("Other")
    let hasRun = false
    const worker = TaskWorker.layer({ tasks: [Limited, Other] }).pipe(
      Layer.provide([Limited.toLayer(() => Effect.never), Other.toLayer(() => Effect.sync(() => void (hasRun = true)))])
    )
    assert.isBelow(yield* timeOf(test, "tasks", worker, () => hasRun), sets * 800)
  })))
