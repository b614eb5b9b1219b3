/**
 * An application to look at: albums whose pictures are resized, one activity each. Some pictures take long, some fail.
 */
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import { Health } from "duroxide-prisma/observability"
import { Effect, Layer, Random, Schema } from "effect"
import { PrometheusMetrics } from "effect/observability"

export class Broken extends Schema.TaggedError<Broken>()("Broken", { picture: Schema.Int }) {}

const Resize = Activity.make("Resize", { payload: Schema.Int, error: Broken })

export const Album = Orchestration.make("Album", { payload: { pictures: Schema.Int }, error: Broken })

const ResizeLive = Resize.toLayer(Effect.fnUntraced(function*(picture) {
  yield* Effect.sleep(yield* Random.nextIntBetween(5, 200))
  if ((yield* Random.next) < 0.01) return yield* new Broken({ picture })
}))

const AlbumLive = Album.toLayer(Effect.fnUntraced(function*({ pictures }) {
  yield* Effect.forEach(Array.from({ length: pictures }, (_, i) => i), (picture) => Resize.execute(picture), {
    concurrency: 4,
    discard: true
  })
}))

export const RuntimeLive = Runtime.layer({ orchestrations: [Album], activities: [Resize] }).pipe(
  Layer.provide([ResizeLive, AlbumLive])
)

/** `GET /metrics` for Prometheus, and `GET /health`. */
export const Pages = Layer.mergeAll(PrometheusMetrics.layerHttp(), Health.layerHttp())
