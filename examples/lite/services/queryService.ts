/**
 * Answers questions about the active version of a data set, from its files of Parquet.
 */
import { Dataset } from "duroxide-prisma/recipes/datasets"
import { Cache, Effect, Layer, Option } from "effect"
import { activeVersion } from "../shared/activeVersion.ts"
import { AppData, dataLayer } from "../shared/databases.ts"
import * as Http from "../shared/http.ts"
import { layer as objectStoreLayer, ObjectStore } from "../shared/objectStore.ts"
import * as Platform from "../shared/platform.ts"
import { health, ready } from "../shared/process.ts"
import { fromParquet, type Reading } from "../shared/readings.ts"
import * as Settings from "../shared/settings.ts"

export interface Summary {
  readonly version: number
  readonly files: number
  readonly records: number
  /** Different pairs of meter and time. */
  readonly distinct: number
  readonly cities: Readonly<Record<string, { readonly records: number; readonly wattHours: number }>>
}

/** The readings of a file. A file never changes, so it is read once. */
type ReadFile = (uri: string) => Effect.Effect<ReadonlyArray<Reading>, unknown, ObjectStore>

const summarize = (readFile: ReadFile): Http.Route<AppData | Dataset.Dataset | ObjectStore> =>
  Effect.fnUntraced(function*({ path }) {
    const active = yield* activeVersion(path["dataset"]!)
    if (Option.isNone(active)) return yield* new Http.Problem({ status: 404, problem: "no version is active" })
    const { outputs, version } = active.value

    const data = yield* AppData
    const meters = yield* data.query<{ id: string; city: string }>("SELECT id, city FROM meters")
    const cityOf = new Map(meters.map(({ city, id }) => [id, city]))
    const files = yield* Effect.forEach(outputs, ({ outputUri }) => readFile(outputUri), { concurrency: 4 })

    const seen = new Set<string>()
    const cities: Record<string, { records: number; wattHours: number }> = {}
    for (const { at, meter, wattHours } of files.flat()) {
      seen.add(`${meter} ${at.getTime()}`)
      const city = cities[cityOf.get(meter) ?? "unknown"] ??= { records: 0, wattHours: 0 }
      city.records++
      city.wattHours += wattHours
    }
    const summary: Summary = {
      version,
      files: files.length,
      records: files.reduce((sum, { length }) => sum + length, 0),
      distinct: seen.size,
      cities
    }
    return Response.json(summary)
  })

export const main = Effect.gen(function*() {
  const files = yield* Cache.make({
    capacity: 200,
    lookup: Effect.fnUntraced(function*(uri: string) {
      const store = yield* ObjectStore
      return yield* Effect.flatMap(store.get(uri), (bytes) => Effect.promise(() => fromParquet(bytes)))
    })
  })
  const routes = { "GET /health": health, "GET /datasets/:dataset/summary": summarize((uri) => Cache.get(files, uri)) }
  return yield* ready(yield* Http.serve(Http.router(routes), yield* Settings.port))
}).pipe(
  Effect.provide(
    Dataset.layer.pipe(
      Layer.provide(Platform.stateStore("verify")),
      Layer.merge(dataLayer),
      Layer.merge(objectStoreLayer)
    )
  )
)
