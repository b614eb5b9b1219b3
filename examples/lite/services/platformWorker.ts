/**
 * Runs the tasks of the platform. Any number of processes may do so; each may die at any point.
 */
import { Transaction } from "duroxide-prisma/prisma"
import { Dataset } from "duroxide-prisma/recipes/datasets"
import { Delivery } from "duroxide-prisma/recipes/deliveries"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import { Effect, Layer, Option, Result } from "effect"
import { activeVersion } from "../shared/activeVersion.ts"
import { AppData, dataLayer, State, stateLayer } from "../shared/databases.ts"
import { Census, ConvertBatch, FinishVersion } from "../shared/jobs.ts"
import { layer as objectStoreLayer, ObjectStore } from "../shared/objectStore.ts"
import * as Platform from "../shared/platform.ts"
import { ready } from "../shared/process.ts"
import * as Readings from "../shared/readings.ts"

const workerId = Platform.workerId("platform_worker")

/** An attempt that lost against a newer one. It has changed nothing; it only leaves a note for the table of the demo. */
const noteStale = Effect.fnUntraced(function*({ attempt, taskId }: Task.Attempt["Service"]) {
  const data = yield* AppData
  yield* data.query(
    "INSERT INTO stale_commits (task_id, attempt, worker_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    [
      taskId,
      attempt,
      workerId
    ]
  )
})

const ConvertBatchLive = ConvertBatch.toLayer(Effect.fnUntraced(function*({ batchUri, datasetUuid, version }) {
  const attempt = yield* Task.Attempt
  const store = yield* ObjectStore
  const state = yield* State
  const records = Readings.parse(new TextDecoder().decode(yield* store.get(batchUri)))
  if (Result.isFailure(records)) return yield* Effect.die(new Error(`${batchUri}: ${records.failure}`))
  // Each attempt has a file of its own: one that comes too late overwrites nothing.
  const outputUri = yield* store.put(
    `parquet/${datasetUuid}/v${version}/${attempt.taskId}-${attempt.attempt}.parquet`,
    Readings.toParquet(records.success),
    "application/vnd.apache.parquet"
  )
  const output = { outputUri, recordCount: records.success.length }
  // The output of the batch and the end of the task commit together, or neither does.
  yield* state.transaction(Effect.fnUntraced(function*(client) {
    yield* Dataset.within(Transaction.make(client, state)).commitBatch(attempt, output)
    yield* attempt.commit(client, output)
  })).pipe(Effect.tapError((error) => error._tag === "StaleAttempt" ? noteStale(attempt) : Effect.void))
  return output
}, (handler) =>
  handler.pipe(
    // It is short, and the fence rejects it if it comes too late: no need to stop it half way.
    Effect.uninterruptible,
    // What the store or the database did not accept is left to the next attempt.
    Effect.orDie
  )))

const FinishVersionLive = FinishVersion.toLayer(
  Effect.fnUntraced(function*({ batches, dataset, datasetUuid, version }) {
    const attempt = yield* Task.Attempt
    const state = yield* State
    return yield* state.transaction(Effect.fnUntraced(function*(client) {
      const datasets = Dataset.within(Transaction.make(client, state))
      const { recordCount } = yield* datasets.commitVersion(datasetUuid, version, { batchCount: batches, attempt })
      yield* datasets.activate(datasetUuid, version)
      const event = { endpoint: "subscriber", event: "dataset.activated", data: { dataset, version, recordCount } }
      yield* Delivery.within(Transaction.make(client, state)).create(event)
      yield* attempt.commit(client, { recordCount })
      return { recordCount }
    })).pipe(
      // Batches that are missing are expected: the next attempt looks again.
      Effect.catchIf((error) => error._tag !== "DatasetError", Effect.die)
    )
  })
)

const CensusLive = Census.toLayer(Effect.fnUntraced(function*({ reason }) {
  const { taskId } = yield* Task.Attempt
  const data = yield* AppData
  const active = Option.getOrUndefined(yield* activeVersion("readings"))
  // Another database cannot commit together with the task, so the id of the task makes a second attempt harmless.
  yield* data.query(
    "INSERT INTO censuses (task_id, reason, dataset_version, records) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
    [taskId, reason, active?.version ?? null, active?.recordCount ?? 0]
  )
}, Effect.orDie))

const Worker = TaskWorker.layer({
  tasks: [ConvertBatch, FinishVersion, Census],
  concurrency: 2,
  workerId,
  // Short, so that the demo is quick: what was delivered to a process that died is hidden for this time.
  visibilityTimeout: "5 seconds"
}).pipe(
  Layer.provide([ConvertBatchLive, FinishVersionLive, CensusLive]),
  Layer.provide([Platform.queue(), Dataset.layer]),
  Layer.provide(Platform.stateStore("verify")),
  Layer.provide([stateLayer, dataLayer, objectStoreLayer])
)

export const main = Effect.andThen(Layer.build(Worker), ready())
