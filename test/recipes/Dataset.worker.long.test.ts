import { assert, describe, it } from "@effect/vitest"
import { PgQueue, PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import { MemoryQueue } from "duroxide-prisma/queue"
import { Dataset } from "duroxide-prisma/recipes/datasets"
import { Task } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { open, queues } from "../tasks/utils/tasks.ts"
import type { Server } from "../tasks/utils/tasks.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Convert = Task.make("Convert", { payload: Dataset.Batch, success: Schema.Void, lease: "2 seconds" })

const batches = 12

const datasetOf = (url: string) =>
  Effect.map(
    Layer.build(Layer.provide(Dataset.layer, PrismaProvider.layerDatabase({ url, migrate: "none" }))),
    (services) => Context.get(services, Dataset.Dataset)
  )

/** Ends the lease of the first attempt at a task, and waits for the second one. */
const loseLease = ({ sql }: PgServer.TestDatabase, taskId: string) =>
  Effect.repeat(
    sql(
      `WITH lost AS (UPDATE queue_tasks SET lease_until = 0 WHERE id = $1 AND attempt = 1 RETURNING id)
       INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
       SELECT 'tasks', jsonb_build_object('kind', 'task_wakeup', 'task_id', id), now(), now() FROM lost RETURNING id`,
      [taskId]
    ),
    { until: (rows) => rows.length === 0, schedule: Schedule.spaced("200 millis"), times: 100 }
  )

const servers: Readonly<Record<string, Server>> = {
  "memory": MemoryQueue.layer({ queues }),
  "PostgreSQL": PgQueue.layer({ queues })
}

describe("a version is built, whatever happens to its messages and workers:", () => {
  for (const [name, server] of Object.entries(servers)) {
    it.live(`each message twice, and attempts that return after their lease (${name})`, () =>
      Effect.gen(function*() {
        const app = yield* open(server)
        const dataset = yield* datasetOf(app.url)
        let stale = 0
        const handler = Convert.toLayer((batch) =>
          Effect.gen(function*() {
            const attempt = yield* Task.Attempt
            const isZombie = attempt.attempt === 1 && Number(batch.batchUri) % 3 === 0
            if (isZombie) {
              yield* loseLease(app, attempt.taskId)
            }
            yield* dataset.commitBatch(attempt, { outputUri: `${batch.batchUri}/${attempt.attempt}`, recordCount: 10 })
          }).pipe(
            Effect.catchTag("StaleAttempt", () => Effect.sync(() => void stale++)),
            Effect.orDie,
            // As a handler that does not notice that its lease is lost.
            Effect.uninterruptible
          )
        )
        yield* app.publisher
        yield* app.worker({ tasks: [Convert], gracePeriod: 0 }, handler, (queue) => ({
          ...queue,
          receive: (name, options) =>
            Effect.map(
              queue.receive(name, { ...options, maxMessages: Math.max(1, Math.floor(options.maxMessages / 2)) }),
              (all) => all.flatMap((one) => [one, one])
            )
        }))

        const datasetUuid = yield* dataset.create("readings")
        const version = yield* dataset.openVersion(datasetUuid)
        yield* dataset.publishBatches(Array.from({ length: batches }, (_, i) => ({
          datasetUuid,
          version,
          batchUri: String(i),
          recordCount: 10,
          task: Convert
        })))
        yield* waitUntil(Effect.map(
          app.sql("SELECT FROM queue_tasks WHERE status = 'Completed'"),
          (rows) => rows.length === batches
        ))
        yield* waitUntil(Effect.sync(() => stale === batches / 3))
        assert.deepStrictEqual(yield* dataset.commitVersion(datasetUuid, version, { batchCount: batches }), {
          batchCount: batches,
          recordCount: 10 * batches
        })
        yield* dataset.activate(datasetUuid, version)
        const { outputs } = Option.getOrThrow(yield* dataset.active("readings"))
        assert.deepStrictEqual(
          outputs.map(({ outputUri }) => outputUri).sort(),
          Array.from({ length: batches }, (_, i) => `${i}/${i % 3 === 0 ? 2 : 1}`).sort()
        )
        app.counting.assertOnlyPublisher()
      }).pipe(Effect.scoped))
  }

  it.live("batch and task end in one transaction, or neither does", () =>
    Effect.gen(function*() {
      const app = yield* open(servers["PostgreSQL"]!)
      const dataset = yield* datasetOf(app.url)
      const seen: Array<string> = []
      const handler = Convert.toLayer(() =>
        Effect.gen(function*() {
          const attempt = yield* Task.Attempt
          const client = yield* PgServer.connect(app.url.replace(/\?.*$/, ""))
          const run = (text: string) => Effect.promise(() => client.query(text))
          yield* run("BEGIN")
          yield* Dataset.within(Transaction.make(client, { schema: "public" })).commitBatch(attempt, {
            outputUri: String(attempt.attempt),
            recordCount: 10
          })
          yield* attempt.commit(client, undefined)
          if (attempt.attempt === 1) {
            yield* run("ROLLBACK")
            const [state] = yield* app.sql<{ batch: string; task: string }>(
              "SELECT b.status AS batch, t.status AS task FROM queue_dataset_batches b JOIN queue_tasks t ON t.id = b.task_id"
            )
            seen.push(`${state!.batch} ${state!.task}`)
            return yield* Effect.die(new Error("the application has rolled back"))
          }
          yield* run("COMMIT")
        }).pipe(Effect.scoped, Effect.orDie)
      )
      yield* app.publisher
      yield* app.worker({ tasks: [Convert], gracePeriod: 0 }, handler)
      const datasetUuid = yield* dataset.create("readings")
      const version = yield* dataset.openVersion(datasetUuid)
      const batch = { datasetUuid, version, batchUri: "a", recordCount: 10, task: Convert }
      const { taskId } = yield* dataset.publishBatch(batch)
      yield* app.statusIs(taskId, "Completed")
      assert.deepStrictEqual(seen, ["Buffered Running"])
      yield* dataset.commitVersion(datasetUuid, version)
      yield* dataset.activate(datasetUuid, version)
      const { outputs } = Option.getOrThrow(yield* dataset.active("readings"))
      assert.deepStrictEqual(outputs, [{ outputUri: "2", recordCount: 10 }])
    }).pipe(Effect.scoped))

  it.live("a process that is killed at every boundary", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      for (const dies of ["opened", "published", "converted", "stored", "committed", "activated"]) {
        const process = yield* ChildProcess.start("queue/datasets", JSON.stringify({ url, dies }))
        yield* process.ended
        assert.include(process.output(), `dies: ${dies}`)
      }
      const last = yield* ChildProcess.start("queue/datasets", JSON.stringify({ url, dies: "never" }))
      yield* last.printed("active: 1")
      // The task of the batch that was stored by a process that died then.
      const unfinished = sql("SELECT FROM queue_tasks WHERE status <> 'Completed'")
      yield* waitUntil(Effect.map(unfinished, (rows) => rows.length === 0))
      const [state] = yield* sql(
        `SELECT count(*)::int AS batches, count(DISTINCT b.output_uri)::int AS outputs, sum(b.output_record_count)::int AS records,
                (SELECT count(*)::int FROM queue_dataset_versions) AS versions, max(d.active_version)::int AS active,
                (SELECT count(*)::int FROM queue_task_attempts WHERE outcome = 'Lost') AS lost,
                bool_and(t.status = 'Completed') AS completed
         FROM queue_dataset_batches b JOIN queue_datasets d USING (dataset_uuid) JOIN queue_tasks t ON t.id = b.task_id`
      )
      assert.deepStrictEqual({ ...state, lost: undefined }, {
        batches: 6,
        outputs: 6,
        records: 60,
        versions: 1,
        active: 1,
        lost: undefined,
        completed: true
      })
      assert.isAtLeast(Number(state!.lost), 2)
    }).pipe(Effect.scoped))
})
