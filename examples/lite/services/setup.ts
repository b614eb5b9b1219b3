/**
 * Prepares what the services need, then ends: tables, bucket, queues. In production a deployment step with more rights
 * than the services have.
 */
import { Effect, Layer } from "effect"
import * as Databases from "../shared/databases.ts"
import * as ObjectStore from "../shared/objectStore.ts"
import * as Platform from "../shared/platform.ts"

export const main = Effect.gen(function*() {
  yield* Databases.createTables
  const store = yield* ObjectStore.ObjectStore
  yield* store.createBucket
}).pipe(
  Effect.provide(
    Layer.mergeAll(
      Databases.dataLayer,
      ObjectStore.layer,
      Platform.queue({ create: true }).pipe(Layer.provide(Platform.stateStore("apply")))
    )
  )
)
