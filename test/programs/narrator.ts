/**
 * A worker that narrates stories: `node narrator.js <url>`. Each story is a stream of words: some handlers resume where
 * an earlier delivery has stopped, others begin anew. Or a reader, `node narrator.js <url> <instance> <file>`: it
 * appends each word that it has read to the file, and begins after the last one there.
 */
import { Activity, Client, Orchestration, ProgressStream, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { appendFileSync, existsSync, readFileSync } from "node:fs"
import { shortLocks } from "./shortLocks.ts"

export const Words = ProgressStream.make("words", { chunk: Schema.String })

export const Narrate = Activity.make("Narrate", {
  payload: Schema.Struct({ count: Schema.Int, resumes: Schema.Boolean })
})

/** Says `count` words in two activities, and says itself where it is. */
export const Story = Orchestration.make("Story", {
  payload: Schema.Struct({ count: Schema.Int, resumes: Schema.Boolean })
})

const StoryLive = Story.toLayer(Effect.fn(function*(payload) {
  yield* Words.append("begin")
  yield* Narrate.execute(payload)
  yield* Words.append("half")
  yield* Effect.sleep("300 millis")
  yield* Narrate.execute(payload)
  yield* Words.append("end")
}))

const NarrateLive = Narrate.toLayer(Effect.fn(function*({ count, resumes }) {
  const before = resumes ? yield* Words.resume : []
  for (let i = before.length; i < count; i++) {
    yield* Words.append(`${i}`)
    yield* Effect.sleep(yield* Random.nextIntBetween(0, 60))
  }
}))

const store = (url: string) => PrismaProvider.layer({ url, migrate: "none" }).pipe(Layer.provideMerge(Logger.layer([])))

const worker = (url: string) =>
  Runtime.layer({ orchestrations: [Story], activities: [Narrate] }).pipe(
    Layer.provide([StoryLive, NarrateLive]),
    Layer.provide(RuntimeConfig.layer(shortLocks("2 seconds"))),
    Layer.provide(store(url))
  )

const reader = (url: string, instanceId: string, file: string) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    const read = existsSync(file) ? readFileSync(file, "utf8").split("\n").length - 1 : 0
    yield* Stream.runForEach(client.readStream(Words, instanceId, { from: read }), (entry) =>
      // Slowly: the test kills it in the middle.
      Effect.delay(
        Effect.sync(() => {
          const line = { offset: entry.offset, chunk: entry.chunk, writer: entry.writer }
          appendFileSync(file, `${JSON.stringify(line)}\n`)
        }),
        10
      ))
    process.stdout.write("read all\n")
  }).pipe(Effect.provide(Client.layer.pipe(Layer.provide(store(url)))))

const [, program, url, instanceId, file] = process.argv
if (program?.endsWith("narrator.js") === true) {
  const main = Effect.runFork(
    instanceId === undefined
      ? Effect.scoped(Effect.andThen(
        Layer.build(worker(url!)),
        Effect.andThen(Effect.sync(() => process.stdout.write("ready\n")), Effect.never)
      ))
      : reader(url!, instanceId, file!)
  )
  process.on("SIGTERM", () => {
    void Effect.runPromise(Fiber.interrupt(main)).then(() => process.exit(0))
  })
}
