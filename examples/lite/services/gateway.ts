/**
 * The entrance: takes batches of records and webhooks. It writes a batch to the object store first, and then intent and
 * outbox row in one statement; what runs later is the business of others.
 *
 * Every request may be repeated: the ids come from the caller.
 */
import { Dataset } from "duroxide-prisma/recipes/datasets"
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Tasks } from "duroxide-prisma/tasks"
import { Effect, Layer, Result, Schema } from "effect"
import { AppData, dataLayer } from "../shared/databases.ts"
import * as Http from "../shared/http.ts"
import { ConvertBatch, FinishVersion } from "../shared/jobs.ts"
import * as ObjectStore from "../shared/objectStore.ts"
import * as Platform from "../shared/platform.ts"
import { health, ready } from "../shared/process.ts"
import * as Readings from "../shared/readings.ts"
import * as Settings from "../shared/settings.ts"
import { censusByWebhook } from "../shared/triggers.ts"

const notFit = (problem: string) => new Http.Problem({ status: 400, problem })

const putMeters: Http.Route<AppData> = Effect.fnUntraced(function*({ request }) {
  const meters = yield* Http.json(request).pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(Schema.Array(Readings.Meter))),
    Effect.catchTag("SchemaError", () => Effect.fail(notFit("not a list of meters")))
  )
  const data = yield* AppData
  yield* data.query(
    `INSERT INTO meters (id, city) SELECT id, city FROM jsonb_to_recordset($1::jsonb) AS m(id text, city text)
     ON CONFLICT (id) DO UPDATE SET city = excluded.city`,
    [JSON.stringify(meters)]
  )
  return Response.json({ meters: meters.length })
})

const openVersion: Http.Route<Dataset.Dataset> = Effect.fnUntraced(function*({ path }) {
  const datasets = yield* Dataset.Dataset
  const version = yield* datasets.openVersion(yield* datasets.create(path["dataset"]!))
  return Response.json({ version }, { status: 201 })
})

const versionOf = Effect.fnUntraced(function*(path: Http.Call["path"]) {
  const datasets = yield* Dataset.Dataset
  const dataset = path["dataset"]!
  return { dataset, datasetUuid: yield* datasets.create(dataset), version: Number(path["version"]) }
})

const putBatch: Http.Route<Dataset.Dataset | ObjectStore.ObjectStore> = Effect.fnUntraced(function*({ path, request }) {
  const body = yield* Effect.promise(() => request.text())
  const records = Readings.parse(body)
  if (Result.isFailure(records)) return yield* notFit(records.failure)
  const { dataset, datasetUuid, version } = yield* versionOf(path)
  const store = yield* ObjectStore.ObjectStore
  const batchUri = yield* store.put(
    `buffer/${dataset}/v${version}/${path["batch"]}.ndjson`,
    new TextEncoder().encode(body),
    "application/x-ndjson"
  )
  // If the process dies here, there is a file that no row names; the caller repeats its request.
  const batch = { datasetUuid, version, batchUri, recordCount: records.success.length }
  const datasets = yield* Dataset.Dataset
  const task = yield* datasets.publishBatch({ ...batch, task: ConvertBatch, payload: batch })
  return Response.json({ task }, { status: 202 })
})

const finish: Http.Route<Dataset.Dataset | Tasks.Tasks> = Effect.fnUntraced(function*({ path, request }) {
  const { batches } = yield* Http.json(request).pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(Schema.Struct({ batches: Schema.Int }))),
    Effect.catchTag("SchemaError", () => Effect.fail(notFit("the number of batches is missing")))
  )
  const version = yield* versionOf(path)
  const tasks = yield* Tasks.Tasks
  const task = yield* tasks.create(FinishVersion, {
    payload: { ...version, batches },
    key: `${version.datasetUuid}/${version.version}`
  })
  return Response.json({ task }, { status: 202 })
})

export const main = Effect.gen(function*() {
  const trigger = yield* Trigger.handler({ webhooks: [yield* censusByWebhook] })
  const routes = Http.router({
    "GET /health": health,
    "PUT /meters": putMeters,
    "POST /datasets/:dataset/versions": openVersion,
    "PUT /datasets/:dataset/versions/:version/batches/:batch": putBatch,
    "POST /datasets/:dataset/versions/:version/finish": finish,
    "POST /webhooks/:name": ({ request }) => Effect.promise(() => trigger(request))
  })
  return yield* ready(yield* Http.serve(routes, yield* Settings.port))
}).pipe(
  Effect.provide(
    Layer.mergeAll(Dataset.layer, Tasks.layer).pipe(
      Layer.provideMerge(Platform.stateStore("verify")),
      Layer.merge(Layer.merge(dataLayer, ObjectStore.layer))
    )
  )
)
