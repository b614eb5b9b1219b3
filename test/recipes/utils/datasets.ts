/**
 * A data set of its own for a test, and attempts at its tasks as a worker begins them.
 */
import { PrismaDriver, Transaction } from "duroxide-prisma/prisma"
import { Dataset } from "duroxide-prisma/recipes/datasets"
import { Task } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { randomUUID } from "node:crypto"
import type * as pg from "pg"
import * as Database from "../../../src/prisma/Database.ts"
import * as PgServer from "../../utils/PgServer.ts"

export const Convert = Task.make("Convert", { payload: Dataset.Batch, success: Schema.Void })

/** The database of a test file. */
export const Stores = Layer.effect(
  Database.Database,
  Effect.flatMap(PgServer.PgServer, ({ url }) => Database.make({ url }))
).pipe(
  (database) => Layer.provideMerge(Dataset.layer, Layer.provideMerge(PrismaDriver.layerTasks(), database)),
  Layer.provideMerge(PgServer.layer),
  Layer.provide(Logger.layer([]))
)

export const open = Effect.gen(function*() {
  const test = yield* PgServer.PgServer
  const database = yield* Database.Database
  const dataset = yield* Dataset.Dataset
  const name = `sales-${randomUUID()}`
  const datasetUuid = yield* dataset.create(name)

  const batch = (version: number, name: string) => ({
    datasetUuid,
    version,
    batchUri: `s3://in/${name}`,
    recordCount: 10,
    task: Convert
  })

  /** Begins the next attempt at a task, as a claim does. */
  const begin = (taskId: string) =>
    Effect.map(
      test.sql<{ attempt: number }>(
        `UPDATE queue_tasks SET status = 'Running', attempt = attempt + 1, worker_id = 'w', started_at = now(),
           lease_until = 0 WHERE id = $1 RETURNING attempt`,
        [taskId]
      ),
      ([row]) => ({ taskId, attempt: row!.attempt })
    )

  /** Publishes batches and commits the output of each. */
  const filled = Effect.fnUntraced(function*(names: ReadonlyArray<string>) {
    const version = yield* dataset.openVersion(datasetUuid)
    for (const name of names) {
      const { taskId } = yield* dataset.publishBatch(batch(version, name))
      yield* dataset.commitBatch(yield* begin(taskId), { outputUri: `s3://out/${version}/${name}`, recordCount: 10 })
    }
    return version
  })

  /** A version that was built and committed. */
  const committed = Effect.fnUntraced(function*(names: ReadonlyArray<string>) {
    const version = yield* filled(names)
    yield* dataset.commitVersion(datasetUuid, version)
    return version
  })

  /** A transaction of the application, open until `commit`. */
  const transaction = Effect.fnUntraced(function*(begin = "BEGIN") {
    const client: pg.Client = yield* PgServer.connect(test.url.replace(/\?.*$/, ""))
    const run = (text: string) => Effect.promise(() => client.query(text))
    yield* run(begin)
    return {
      client,
      dataset: Dataset.within(Transaction.make(client, { schema: test.schema })),
      run,
      commit: run("COMMIT"),
      rollback: run("ROLLBACK")
    }
  })

  const stored = Effect.map(
    test.sql<{ batches: number; tasks: number; outbox: number }>(
      `SELECT (SELECT count(*) FROM queue_dataset_batches WHERE dataset_uuid = $1)::int AS batches,
              (SELECT count(*) FROM queue_tasks WHERE payload LIKE $2)::int AS tasks,
              (SELECT count(*) FROM queue_outbox WHERE payload ->> 'dataset_uuid' = $1::text)::int AS outbox`,
      [datasetUuid, `%${datasetUuid}%`]
    ),
    ([row]) => row!
  )

  return { ...test, database, dataset, name, datasetUuid, batch, begin, filled, committed, transaction, stored }
})
