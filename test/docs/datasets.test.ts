import { assert, it } from "@effect/vitest"
import { PrismaPg } from "@prisma/adapter-pg"
import { Outbox } from "duroxide-prisma/outbox"
import { Migrator, PgQueue, PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import { Dataset, DatasetError } from "duroxide-prisma/recipes/datasets"
import { Task, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { PrismaClient } from "../../src/prisma/generated/client.js"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const page = Docs.section("docs/recipes.md", "Data sets in versions")

const files = new Set<string>()
const convert = ({ recordCount }: Dataset.Batch, outputUri: string) =>
  Effect.sync(() => {
    files.add(outputUri)
    return { outputUri, recordCount }
  })
const remove = (uri: string) => Effect.sync(() => files.delete(uri))

const Convert = Task.make("Convert", { payload: Dataset.Batch, success: Schema.Void })

const ingest = Effect.fn(function*(uris: ReadonlyArray<string>) {
  const dataset = yield* Dataset.Dataset
  const datasetUuid = yield* dataset.create("readings")
  const version = yield* dataset.openVersion(datasetUuid)
  for (const batchUri of uris) {
    yield* dataset.publishBatch({ datasetUuid, version, batchUri, recordCount: 1000, task: Convert })
  }
  return { datasetUuid, version }
})

const ConvertLive = Convert.toLayer(Effect.fn(function*(batch) {
  const dataset = yield* Dataset.Dataset
  const attempt = yield* Task.Attempt
  const output = yield* convert(batch, `${batch.version}/${attempt.taskId}/${attempt.attempt}.parquet`)
  const stored = yield* Effect.orDie(dataset.commitBatch(attempt, output))
  if (stored.outputUri !== output.outputUri) yield* remove(output.outputUri)
}))

const workerOn = (url: string) => {
  const WorkerLive = TaskWorker.layer({ tasks: [Convert] }).pipe(
    Layer.provide(ConvertLive),
    Layer.merge(Outbox.publisher()),
    Layer.provide(Dataset.layer),
    Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
    Layer.provide(PrismaProvider.layerDatabase({ url }))
  )
  return WorkerLive
}

const finish = Effect.fn(function*(datasetUuid: string, version: number, batchCount: number) {
  const dataset = yield* Dataset.Dataset
  yield* dataset.commitVersion(datasetUuid, version, { batchCount })
  return yield* dataset.activate(datasetUuid, version)
})

const read = Effect.fn(function*(name: string) {
  const dataset = yield* Dataset.Dataset
  const active = yield* dataset.active(name)
  return Option.match(active, {
    onNone: () => [],
    onSome: ({ outputs }) => outputs.map(({ outputUri }) => outputUri)
  })
})

const prune = Effect.fn(function*(datasetUuid: string) {
  const dataset = yield* Dataset.Dataset
  for (const { outputUris, version } of yield* dataset.pruneVersions(datasetUuid, { keep: 1 })) {
    for (const uri of outputUris) yield* remove(uri)
    yield* dataset.deleteVersion(datasetUuid, version)
  }
})

it("docs/recipes.md, Data sets in versions: its examples are those tested here, and it has every reason", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/datasets.test.ts"))
  const examples = Docs.blocks(page, "ts")
  assert.lengthOf(examples, 8)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))

  const reasons = [...page.matchAll(/^\| `(\w+)` +\|/gm)].map(([, reason]) => reason!)
  const outer = ["DatasetError"]
  assert.deepStrictEqual(
    reasons.toSorted(),
    Object.keys(DatasetError).filter((name) => !outer.includes(name)).toSorted()
  )
})

it.live("docs/recipes.md, Data sets in versions: versions are built, read and pruned", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.database
    yield* Effect.gen(function*() {
      yield* Effect.forkScoped(Layer.launch(workerOn(url)))
      assert.deepStrictEqual(yield* Effect.flip(read("readings")).pipe(Effect.map(({ _tag }) => _tag)), "DatasetError")
      const dataset = yield* Dataset.Dataset
      let uuid = ""
      for (const expected of [[], [1], [1, 2]]) {
        const { datasetUuid, version } = yield* ingest(["a", "b", "c"])
        uuid = datasetUuid
        const isBuilt = Effect.map(dataset.versions(datasetUuid), ([newest]) => newest!.committedBatchCount === 3)
        yield* waitUntil(isBuilt)
        assert.strictEqual(yield* finish(datasetUuid, version, 3), expected.at(-1) ?? null)
        assert.lengthOf((yield* read("readings")).filter((uri) => uri.startsWith(`${version}/`)), 3)
      }
      assert.strictEqual(files.size, 9)
      yield* prune(uuid)
      assert.strictEqual(files.size, 6)
      assert.deepStrictEqual((yield* dataset.versions(uuid)).map(({ version }) => version), [3, 2])
    }).pipe(Effect.provide(Dataset.layer.pipe(Layer.provide(PrismaProvider.layerDatabase({ url })))))
  }).pipe(Effect.provide(Logger.layer([])), Effect.scoped))

it.live("docs/recipes.md, Data sets in versions: a batch is published in a transaction of the application", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.emptyDatabase
    yield* Effect.addFinalizer(() => sql("DROP SCHEMA IF EXISTS duroxide CASCADE"))
    yield* Migrator.migrate({ url, schema: "duroxide" })
    yield* sql("CREATE TABLE uploads (uri text)")
    const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url.replace(/\?.*$/, "") }) })
    yield* Effect.addFinalizer(() => Effect.promise(() => prisma.$disconnect()))
    const batchUri = "s3://in/a"
    const { datasetUuid, version } = yield* ingest([]).pipe(
      Effect.provide(Dataset.layer.pipe(Layer.provide(PrismaProvider.layerDatabase({ url, schema: "duroxide" }))))
    )
    yield* Effect.promise(async () => {
      await prisma.$transaction(async (tx) => {
        await tx.$executeRaw`INSERT INTO uploads (uri) VALUES (${batchUri})`
        const dataset = Dataset.within(Transaction.make(tx, { schema: "duroxide" }))
        const batch = { datasetUuid, version, batchUri, recordCount: 1000, task: Convert }
        await Effect.runPromise(dataset.publishBatch(batch))
      })
    })
    assert.deepStrictEqual(
      yield* sql("SELECT uri, batch_uri, record_count::int FROM uploads, duroxide.queue_dataset_batches"),
      [{ uri: batchUri, batch_uri: batchUri, record_count: 1000 }]
    )
  }).pipe(Effect.provide(Logger.layer([])), Effect.scoped))
