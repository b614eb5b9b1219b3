import { assert, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { Gallery, GalleryLive, Publish } from "../../examples/gallery/gallery.ts"
import * as PgServer from "../utils/PgServer.ts"

it.live("one process runs the orchestration, its tasks and the message about it", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const notified = yield* Deferred.make<string>()
    const resized: Array<string> = []
    const world = Layer.succeed(Gallery, {
      resize: (image, key) =>
        Effect.suspend(() => {
          resized.push(image)
          // The first attempt at this one fails.
          return image === "b" && resized.filter((one) => one === "b").length === 1
            ? Effect.die(new Error("out of memory"))
            : Effect.succeed(`small ${image} ${key.length}`)
        }),
      notifyReaders: (album) => Deferred.succeed(notified, album)
    })
    const store = PrismaProvider.layer({ url, migrate: "none" })
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      const payload = { album: "Summer", images: ["a", "b", "c"] }
      assert.deepStrictEqual(yield* client.execute(Publish, { instanceId: "album", payload }), [
        "small a 36",
        "small b 36",
        "small c 36"
      ])
      assert.strictEqual(yield* Deferred.await(notified), "Summer")
    }).pipe(Effect.provide(GalleryLive.pipe(Layer.provide([world, store, Logger.layer([])]))))
    assert.deepStrictEqual([...resized].sort(), ["a", "b", "b", "c"])
    assert.deepStrictEqual(
      yield* sql("SELECT status, count(*)::int AS count FROM queue_tasks GROUP BY 1"),
      [{ status: "Completed", count: 3 }]
    )
    assert.lengthOf(yield* sql("SELECT FROM queue_dead"), 0)
  }).pipe(Effect.scoped))
