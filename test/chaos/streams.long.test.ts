import { assert, describe, it } from "@effect/vitest"
import { Client, ProgressStream } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Random from "effect/Random"
import * as Stream from "effect/Stream"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import path from "node:path"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { Story, Words } from "../programs/narrator.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const stories = 8
const count = 60

type Read = Pick<ProgressStream.Entry<string>, "offset" | "chunk" | "writer">

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(path.join(tmpdir(), "streams-"))),
  (name) => Effect.sync(() => rmSync(name, { recursive: true }))
)

/** What each call has written at last: without its aborted tries. */
const finals = (entries: ReadonlyArray<Read>) => {
  const ofCalls = new Map<number, ReadonlyArray<string>>()
  for (const entry of entries) {
    const call = entry.writer._tag === "Activity" ? entry.writer.callId : 0
    const before = ProgressStream.startsOver(entry) ? [] : ofCalls.get(call) ?? []
    ofCalls.set(call, [...before, entry.chunk])
  }
  return [...ofCalls.values()]
}

describe(`${stories} streams`, () => {
  it.live(
    "whose writers and readers are killed again and again: each chunk arrives once and in order",
    () =>
      Effect.gen(function*() {
        const { url } = yield* PgServer.database
        const files = yield* folder
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          const ids = Array.from({ length: stories }, (_, n) => `story-${n}`)
          let workersKilled = 0
          let readersKilled = 0
          const worker = Effect.tap(ChildProcess.start("narrator", url), ({ printed }) => printed("ready"))
          const workers = yield* Effect.all([worker, worker, worker, worker], { concurrency: 2 })
          /** Kills all workers but the last one, while the stories are narrated. */
          const killing = Effect.andThen(
            Effect.forEach(workers.slice(1), ({ kill }) =>
              Effect.gen(function*() {
                yield* Effect.sleep(yield* Random.nextIntBetween(300, 900))
                yield* kill
                workersKilled++
              })),
            Effect.never
          )
          const lines = (file: string) => existsSync(file) ? readFileSync(file, "utf8").split("\n").length - 1 : 0
          /** Readers are killed as well, after so many lines. They continue from what they have written. */
          const reading = (instanceId: string) =>
            Effect.scoped(Effect.gen(function*() {
              const file = path.join(files, instanceId)
              for (const most of [4, 20, 50]) {
                const reader = yield* ChildProcess.start("narrator", url, instanceId, file)
                yield* waitUntil(Effect.sync(() => lines(file) >= most))
                yield* reader.kill
                readersKilled++
              }
              const last = yield* ChildProcess.start("narrator", url, instanceId, file)
              yield* last.printed("read all")
              return readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line) as Read)
            }))
          const telling = Effect.gen(function*() {
            const readers = yield* Effect.forEach(ids.slice(0, 2), (id) => Effect.forkChild(reading(id)))
            const read = yield* Effect.forEach(ids, (instanceId, n) =>
              Effect.gen(function*() {
                yield* client.start(Story, { instanceId, payload: { count, resumes: n % 2 === 0 } })
                const live = yield* Stream.runCollect(client.readStream(Words, instanceId))
                yield* client.wait(Story, instanceId)
                return live
              }), { concurrency: "unbounded" })
            const others = yield* Effect.forEach(readers, Fiber.join)
            return { read, others }
          })
          const { others, read } = yield* Effect.raceFirst(telling, killing)

          const said = Array.from({ length: count }, (_, i) => `${i}`)
          for (const [n, entries] of read.entries()) {
            const stored = yield* Stream.runCollect(client.readStream(Words, ids[n]!))
            assert.deepStrictEqual(entries, stored)
            assert.deepStrictEqual(entries.map(({ offset }) => offset), entries.map((_, index) => index))
            assert.deepStrictEqual(finals(entries), [["begin", "half", "end"], said, said])
            if (n % 2 === 0) assert.lengthOf(entries, 3 + 2 * count, "resumed words are said once")
          }
          for (const [n, entries] of others.entries()) {
            assert.deepStrictEqual(entries, read[n]!.map(({ chunk, offset, writer }) => ({ offset, chunk, writer })))
          }
          assert.strictEqual(workersKilled, 3)
          assert.strictEqual(readersKilled, 6)
        }).pipe(
          Effect.provide(
            Client.layer.pipe(Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" })))
          )
        )
      }).pipe(Effect.scoped, Effect.provide(Logger.layer([])))
  )
})
