/**
 * An album of images: an orchestration resizes them by tasks and announces the album by a message. One process runs it all.
 */
import { Activity, Client, Limits, Orchestration, Runtime } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue } from "duroxide-prisma/prisma"
import { Consumer, Message } from "duroxide-prisma/queue"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import { Context, Effect, Layer, Schema } from "effect"

/** What the application does in the world. */
export class Gallery extends Context.Service<Gallery, {
  /** The name of the small image. `key` is the same each time an image is resized for the same album. */
  readonly resize: (image: string, key: string) => Effect.Effect<string>
  readonly notifyReaders: (album: string) => Effect.Effect<void>
}>()("Gallery") {}

// -- definitions: what other processes share ---------------------------------------------------------

export const Publish = Orchestration.make("Publish", {
  payload: { album: Schema.String, images: Schema.Array(Schema.String) },
  success: Schema.Array(Schema.String)
})

const Resize = Task.make("Resize", {
  payload: { album: Schema.String, image: Schema.String },
  success: Schema.String,
  timeout: "1 minute",
  limitKey: ({ album }) => album
})

/** Over all processes. A large album does not delay a small one: albums take turns. */
const ResizeLimits = Limits.layer(Limits.of(Resize, { total: { concurrency: 8 }, eachKey: { concurrency: 4 } }))

const Announce = Activity.make("Announce", { payload: Schema.String, retry: { times: 5 } })

const AlbumPublished = Message.make("album_published", { album: Schema.String })

// -- the orchestration, and the runtime that runs it -------------------------------------------------

const PublishLive = Publish.toLayer(Effect.fn(function*({ album, images }) {
  const small = yield* Effect.forEach(images, (image) => Resize.execute({ album, image }), { concurrency: "unbounded" })
  yield* Announce.execute(album)
  return small
}))

const AnnounceLive = Announce.toLayer(Effect.fn(function*(album) {
  const outbox = yield* Outbox.Outbox
  yield* Effect.orDie(outbox.add("feed", AlbumPublished, { album }))
}))

export const RuntimeLive = Runtime.layer({
  orchestrations: [Publish],
  activities: [Announce, ...Tasks.activities]
}).pipe(Layer.provide([PublishLive, AnnounceLive, Tasks.layerActivities]))

// -- tasks and messages ------------------------------------------------------------------------------

const ResizeLive = Resize.toLayer(Effect.fn(function*({ image }) {
  const { idempotencyKey } = yield* Task.Attempt
  return yield* (yield* Gallery).resize(image, idempotencyKey)
}))

export const WorkerLive = TaskWorker.layer({ tasks: [Resize], concurrency: 4 }).pipe(
  Layer.provide(ResizeLive),
  Layer.merge(ResizeLimits)
)

/** A message may come twice: notifying readers again must do no harm. */
export const FeedLive = Consumer.layer({
  queue: "feed",
  handlers: [
    Consumer.on(
      AlbumPublished,
      Effect.fn(function*({ album }) {
        yield* (yield* Gallery).notifyReaders(album)
      })
    )
  ]
})

// -- one process -------------------------------------------------------------------------------------

/** Serves all, publishes the outbox, and has a client. Parts of it can run in processes of their own. */
export const GalleryLive = Layer.mergeAll(RuntimeLive, WorkerLive, FeedLive, Outbox.publisher()).pipe(
  Layer.provide([Outbox.layer, PgQueue.layer({ queues: { tasks: {}, feed: { maxAttempts: 10 } } })]),
  Layer.merge(Client.layer)
)
