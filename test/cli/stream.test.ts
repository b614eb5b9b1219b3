/**
 * What `stream` prints of an instance, while it runs and afterwards.
 */
import { assert, it } from "@effect/vitest"
import { Client, Orchestration, ProgressStream, Runtime, Signal } from "duroxide-prisma"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

const Lines = ProgressStream.make("lines", { chunk: { text: Schema.String }, keepChunks: 3 })
const Marks = ProgressStream.make("marks", { chunk: Schema.String })
const More = Signal.make("More", { payload: Schema.Int })
const Talk = Orchestration.make("Talk")

const application = (url: string) =>
  Layer.merge(
    Client.layer,
    Runtime.layer({ orchestrations: [Talk] }).pipe(Layer.provide(Talk.toLayer(Effect.fn(function*() {
      yield* Marks.append("begun\u001b[31m")
      for (let count = yield* More.wait; count > 0; count = yield* More.wait) {
        yield* Lines.appendAll(Array.from({ length: count }, (_, i) => ({ text: `${i}` })))
      }
    }))))
  ).pipe(Layer.provideMerge(PrismaProvider.layer({ url })), Layer.provideMerge(Logger.layer([])))

class Store extends Context.Service<Store, { readonly url: string; readonly client: Client.Client["Service"] }>()(
  "test/Stream"
) {}

const make = Effect.gen(function*() {
  const { url } = yield* PgServer.database
  const services = yield* Layer.build(application(url))
  return { url, client: Context.get(services, Client.Client) }
})

const run = (args: string, options?: Cli.Options) =>
  Effect.flatMap(Store, ({ url }) => Cli.run(args, { ...options, env: { DATABASE_URL: url } }))

it.layer(Layer.effect(Store, make), { excludeTestServices: true })("stream", (it) => {
  it.effect("lists the streams of an instance, prints one, and follows it until it ends", () =>
    Effect.gen(function*() {
      const { client } = yield* Store
      const stored = (count: number) =>
        waitUntil(Effect.map(
          Stream.runCollect(client.readStream(Lines, "talk", { follow: false })),
          (found) => found.at(-1)?.offset === count - 1
        ))
      yield* client.start(Talk, { instanceId: "talk" })
      yield* client.send(More, "talk", 4)
      yield* stored(4)

      const listed = yield* run("stream talk")
      assert.match(listed.stdout, /^STREAM +CHUNKS +FIRST KEPT +SIZE +LAST\nlines +4 +1 +0\.0 kB .*\nmarks +1 +0 /)
      const { streams } = JSON.parse((yield* run("stream talk --json")).stdout)
      assert.deepInclude(streams[0], { name: "lines", firstOffset: 1, nextOffset: 4 })
      assert.strictEqual((yield* run("stream unknown")).stdout, "no streams of unknown\n")

      assert.strictEqual((yield* run("stream talk lines")).stdout, `{"text":"1"}\n{"text":"2"}\n{"text":"3"}\n`)
      assert.strictEqual((yield* run("stream talk lines --from 3")).stdout, `{"text":"3"}\n`)
      assert.strictEqual((yield* run("stream talk marks", { terminal: 80 })).stdout, `"begun\\u001b[31m"\n`)
      const { chunks } = JSON.parse((yield* run("stream talk lines --from 2 --json")).stdout)
      assert.deepInclude(chunks[0], { offset: 2, chunk: { text: "2" }, writer: { _tag: "Program", executionId: 1 } })
      const missing = yield* run("stream talk lines --from 0")
      assert.strictEqual(missing.exitCode, 1)
      assert.include(missing.stderr, "no longer has the chunks 0 to 0: read on from 1")
      assert.strictEqual((yield* run("stream talk --follow")).exitCode, 2)

      const printed: Array<string> = []
      const following = yield* Effect.forkChild(
        run("stream talk lines --follow", { onPrint: (text) => printed.push(text) })
      )
      yield* waitUntil(Effect.sync(() => printed.length === 3))
      yield* client.send(More, "talk", 1)
      yield* waitUntil(Effect.sync(() => printed.at(-1) === `{"text":"0"}\n`))
      yield* client.send(More, "talk", 0)
      assert.strictEqual((yield* Fiber.join(following)).exitCode, 0)
      const { stdout } = yield* run("stream talk lines --follow --json")
      const offsets = stdout.trimEnd().split("\n").map((line) => JSON.parse(line).offset)
      assert.deepStrictEqual(offsets, offsets.map((_, i) => offsets[0] + i))
      assert.isAbove(offsets.length, 1)
    }))
})
