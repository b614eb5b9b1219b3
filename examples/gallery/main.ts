/**
 * `npm run example -- gallery`, in a clone: an album of three images, in a process that does everything.
 */
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Console, Deferred, Effect, Layer } from "effect"
import { Gallery, GalleryLive, Publish } from "./gallery.ts"

const notified = Deferred.makeUnsafe<string>()

const WorldLive = Layer.succeed(Gallery, {
  resize: (image) => Effect.as(Effect.delay(Console.log(`${image} is resized`), "200 millis"), `small-${image}`),
  notifyReaders: (album) =>
    Effect.andThen(Console.log(`readers are notified of ${album}`), Deferred.succeed(notified, album))
})

/** A database of the example; an application has `PrismaProvider.layer({ url })`. */
const StoreLive = PrismaProvider.layerDefault({ schema: "example_gallery" })

const main = Effect.gen(function*() {
  const client = yield* Client.Client
  const images = yield* client.execute(Publish, {
    instanceId: `album ${new Date().toISOString()}`,
    payload: { album: "Summer", images: ["sea.jpg", "sand.jpg", "sun.jpg"] }
  })
  yield* Deferred.await(notified)
  yield* Console.log(`published: ${images.join(", ")}`)
})

await Effect.runPromise(main.pipe(Effect.provide(GalleryLive.pipe(Layer.provide([WorldLive, StoreLive])))))
