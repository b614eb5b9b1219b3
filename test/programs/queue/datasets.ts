// A process that builds a version of a data set and makes it the active one, and dies at a boundary. Run by
// `node datasets.js '{"url":…,"dies":…}'`, it continues where another one has died.
//
// `dies`: `opened` (the version), `published` (half of the batches), `converted` (a batch, before its output is
// committed), `stored` (a batch, after that, before its task ends), `committed` (the version), `activated`, `never`.
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Dataset } from "duroxide-prisma/recipes/datasets"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { writeSync } from "node:fs"

const { dies, url } = JSON.parse(process.argv[2]!) as { readonly url: string; readonly dies: string }

const dieAt = (boundary: string) =>
  Effect.sync(() => {
    if (dies !== boundary) return
    writeSync(1, `dies: ${boundary}\n`)
    process.kill(process.pid, "SIGKILL")
  })

const Convert = Task.make("Convert", { payload: Dataset.Batch, success: Schema.Void, lease: "1 second" })

const names = ["1", "2", "3", "4", "5", "6"]

const ConvertLive = Convert.toLayer(Effect.fnUntraced(function*({ batchUri, recordCount }) {
  const dataset = yield* Dataset.Dataset
  const attempt = yield* Task.Attempt
  yield* dieAt("converted")
  const output = { outputUri: `${batchUri}/${attempt.attempt}`, recordCount }
  yield* Effect.orDie(dataset.commitBatch(attempt, output))
  yield* dieAt("stored")
}))

const program = Effect.gen(function*() {
  const dataset = yield* Dataset.Dataset
  const datasetUuid = yield* dataset.create("readings")
  const [newest] = yield* dataset.versions(datasetUuid, { limit: 1 })
  const version = newest?.version ?? (yield* dataset.openVersion(datasetUuid))
  yield* dieAt("opened")
  for (const batchUri of names) {
    // A committed version answers as before, as its batches are known.
    yield* dataset.publishBatch({ datasetUuid, version, batchUri, recordCount: 10, task: Convert })
    if (batchUri === "3") yield* dieAt("published")
  }
  yield* dataset.commitVersion(datasetUuid, version, { batchCount: names.length }).pipe(
    Effect.retry({
      while: (error) => error._tag === "DatasetError" && error.isRetryable,
      schedule: Schedule.spaced(50)
    })
  )
  yield* dieAt("committed")
  yield* dataset.activate(datasetUuid, version)
  yield* dieAt("activated")
  const active = Option.getOrThrow(yield* dataset.active("readings"))
  writeSync(1, `active: ${active.version}\n`)
})

const WorkerLive = TaskWorker.layer({ tasks: [Convert], concurrency: 1 }).pipe(
  Layer.provide([ConvertLive, Outbox.publisher({ lease: "1 second" })]),
  Layer.provideMerge(Dataset.layer),
  Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
  Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" }))
)

const main = Effect.runFork(Effect.provide(Effect.andThen(program, Effect.never), WorkerLive))

main.addObserver((exit) => {
  if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
})
