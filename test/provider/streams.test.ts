import { assert, describe, it } from "@effect/vitest"
import type { Provider } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import { readStream } from "../../src/provider/shared/readStream.ts"
import { completion, make, pass, run, turn } from "../utils/notified.ts"
import type { Options } from "../utils/notified.ts"
import { start } from "../utils/starts.ts"

type Service = Provider.Provider["Service"]

/** The process that runs the instance "a", and one that reads. */
const open = Effect.fnUntraced(function*(options: Options = {}) {
  const store = make()
  const running = yield* store.process(options)
  const reading = yield* store.process(options)
  yield* running.provider.startOrchestration(start("a"))
  const count = (operation: string) => reading.calls.filter((call) => call === operation).length
  return { running: running.provider, reading: reading.provider, count }
})

const appends = (...texts: ReadonlyArray<string>) => (item: Provider.OrchestrationItem) =>
  turn(item, [{ _tag: "TimerCreated", fireAtMs: 0 }], {
    chunks: texts.map((chunk) => ({ stream: "s", chunk, keepChunks: 1_000, keepBytes: 10_000_000 }))
  })

const poke = (provider: Service) =>
  provider.enqueueForOrchestrator({
    message: { _tag: "QueueMessage", instance: "a", name: "m", data: "null" },
    delay: Option.none()
  })

/** Stores a turn that appends. */
const append = (provider: Service, ...texts: ReadonlyArray<string>) =>
  Effect.andThen(poke(provider), run(provider, appends(...texts)))

/** Reads in the background, into the list. */
const reader = Effect.fnUntraced(function*(provider: Service, stream = "s") {
  const read: Array<string> = []
  const fiber = yield* Effect.forkChild(
    Stream.runForEach(
      readStream(provider, { instanceId: "a", stream, from: null, follows: true }),
      ({ chunk }) => Effect.sync(() => read.push(chunk))
    )
  )
  return { fiber, read }
})

const isDone = (fiber: Fiber.Fiber<unknown, unknown>) => fiber.pollUnsafe() !== undefined

describe("A reader of a stream", () => {
  it.effect("in the process that appends gets chunks at once, without a look of others", () =>
    Effect.gen(function*() {
      const { running } = yield* open({ isNotified: false })
      const { fiber, read } = yield* reader(running)
      yield* TestClock.adjust(0)
      yield* run(running, appends("1", "2"))
      yield* pass(60)
      assert.deepStrictEqual(read, ["1", "2"])
      yield* append(running, "3")
      yield* pass(60)
      assert.deepStrictEqual(read, ["1", "2", "3"])
      yield* poke(running)
      yield* run(running, completion)
      yield* pass(60)
      assert.isTrue(isDone(fiber))
    }))

  it.effect("in another process is woken by hints, and an idle one looks seldom", () =>
    Effect.gen(function*() {
      const { count, reading, running } = yield* open()
      const { fiber, read } = yield* reader(reading)
      // Until the other process knows that this one waits.
      yield* pass(2_000, 100)
      yield* run(running, appends("1"))
      yield* pass(100)
      assert.deepStrictEqual(read, ["1"])
      yield* pass(20_000, 1_000)
      const before = count("readChunks")
      yield* pass(600_000, 10_000)
      assert.isAtMost(count("readChunks") - before, 8, "looks in ten idle minutes")
      yield* append(running, "2")
      yield* pass(100)
      assert.deepStrictEqual(read, ["1", "2"])
      yield* poke(running)
      yield* run(running, completion)
      yield* pass(100)
      assert.isTrue(isDone(fiber))
    }))

  it.effect("is found by looks where hints are lost", () =>
    Effect.gen(function*() {
      const { reading, running } = yield* open({ drops: ({ _tag }) => _tag === "Changed" })
      const { read } = yield* reader(reading)
      yield* pass(2_000, 100)
      yield* run(running, appends("1"))
      yield* pass(20_000, 1_000)
      assert.deepStrictEqual(read, ["1"])
    }))

  it.effect("shares its statements with others, and does not wake those who wait for the instance", () =>
    Effect.gen(function*() {
      const { count, reading, running } = yield* open()
      const readers = yield* Effect.forEach(
        Array.from({ length: 20 }, (_, i) => i % 2 === 0 ? "s" : "t"),
        (stream) => reader(reading, stream)
      )
      yield* Effect.forkChild(reading.awaitEnd({ instanceId: "a", timeout: undefined, start: undefined }))
      yield* Effect.forkChild(reading.awaitProgress({ instanceId: "a", until: () => Option.none() }))
      yield* pass(2_000, 100)
      // The first turn is news for all.
      yield* run(running, appends("0"))
      yield* pass(200)
      const before = ["readChunks", "readEnds", "readProgress"].map(count)
      for (let i = 1; i <= 10; i++) {
        yield* append(running, `${i}`)
        yield* pass(100)
      }
      const [chunks, ends, progress] = ["readChunks", "readEnds", "readProgress"].map((name, i) =>
        count(name) - before[i]!
      )
      for (const [i, { read }] of readers.entries()) assert.lengthOf(read, i % 2 === 0 ? 11 : 0)
      // A look for both streams, and a page for the ten readers of one.
      assert.isAtMost(chunks!, 40)
      assert.isAtMost(ends! + progress!, 4)
    }))

  it.effect("that does not read holds a page, and reads the rest later", () =>
    Effect.gen(function*() {
      const { count, reading, running } = yield* open()
      const large = Array.from({ length: 20 }, (_, i) => `${i} ${"x".repeat(100_000)}`)
      yield* run(running, appends(...large))
      const read: Array<string> = []
      const fiber = yield* Effect.forkChild(
        readStream(reading, { instanceId: "a", stream: "s", from: null, follows: false }).pipe(
          Stream.runForEach(({ chunk }) => Effect.delay(Effect.sync(() => read.push(chunk)), "1 minute"))
        )
      )
      yield* TestClock.adjust("90 seconds")
      assert.strictEqual(count("readChunks"), 1)
      yield* TestClock.adjust("30 minutes")
      yield* Fiber.join(fiber)
      assert.deepStrictEqual(read, large)
      assert.isAtMost(count("readChunks"), 8)
    }))
})
