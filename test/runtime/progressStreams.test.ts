import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, ProgressStream, Runtime, Signal } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"

const Steps = ProgressStream.make("steps", { chunk: Schema.String })
const Tokens = ProgressStream.make("tokens", { chunk: Schema.String })
const Short = ProgressStream.make("short", { chunk: Schema.String, keepChunks: 3, maxChunkBytes: 20, keepBytes: 40 })

const Go = Signal.make("Go")
const Think = Activity.make("Think", { payload: Schema.Int, success: Schema.Int })
const Talk = Orchestration.make("Talk", { payload: Schema.Int, success: Schema.String, error: Schema.String })

type Program = (
  payload: number
) => Effect.Effect<string, string, Orchestration.Instance | ProgressStream.StreamWriter>

type Handler = (payload: number) => Effect.Effect<number, never, Activity.Call | ProgressStream.StreamWriter>

const runtime = (program: Program, handler: Handler) =>
  Runtime.layer({ orchestrations: [Talk], activities: [Think] }).pipe(
    Layer.provide([Talk.toLayer(program), Think.toLayer(handler)])
  )

const on = (program: Program, handler: Handler = Effect.succeed) =>
  Effect.provide([TestRuntime.layer(runtime(program, handler)), Logger.layer([])])

/** What is stored now. */
const stored = Effect.fnUntraced(
  function*(stream: ProgressStream.ProgressStream<Schema.String>, instanceId = "i", from?: number) {
    const client = yield* Client.Client
    return yield* Stream.runCollect(client.readStream(stream, instanceId, { follow: false, from }))
  }
)

const texts = (entries: Iterable<ProgressStream.Entry<string>>) => Array.from(entries, ({ chunk }) => chunk)

/** What is of no aborted try. */
const lastTries = (entries: Iterable<ProgressStream.Entry<string>>) => {
  let kept: ReadonlyArray<string> = []
  for (const entry of entries) kept = ProgressStream.startsOver(entry) ? [entry.chunk] : [...kept, entry.chunk]
  return kept
}

describe("a progress stream", () => {
  it.effect("has what a program appends once, over replays, crashes and continue-as-new", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Talk, { instanceId: "i", payload: 1 })
      yield* TestRuntime.settle
      assert.deepStrictEqual(texts(yield* stored(Steps)), ["1 begins", "1 waits"])
      for (const restart of [TestRuntime.restart, TestRuntime.crash, TestRuntime.restart]) {
        yield* restart
        yield* client.send(Go, "i")
        yield* TestRuntime.settle
      }
      assert.strictEqual(yield* client.wait(Talk, "i"), "done")
      const entries = yield* stored(Steps)
      assert.deepStrictEqual(texts(entries), [
        "1 begins",
        "1 waits",
        "2 begins",
        "2 waits",
        "3 begins",
        "3 waits",
        "end"
      ])
      assert.deepStrictEqual(entries.map(({ offset }) => offset), [0, 1, 2, 3, 4, 5, 6])
      assert.deepStrictEqual(
        entries.map(({ writer: { _tag, executionId } }) => [_tag, executionId]),
        [1, 1, 2, 2, 3, 3, 3].map((executionId) => [
          "Program",
          executionId
        ])
      )
      const history = yield* TestRuntime.history("i")
      assert.notInclude(JSON.stringify(history), "begins")
    }).pipe(on(Effect.fnUntraced(function*(round) {
      yield* Steps.append(`${round} begins`)
      yield* Steps.append(`${round} waits`)
      yield* Go.wait
      if (round < 3) return yield* Talk.continueAsNew(round + 1)
      yield* Steps.append("end")
      return "done"
    }))))

  it.effect("has what a program appends before it fails or dies", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      for (const payload of [1, 2]) {
        yield* Effect.exit(client.execute(Talk, { instanceId: `${payload}`, payload }))
        assert.deepStrictEqual(texts(yield* stored(Steps, `${payload}`)), ["last words"])
      }
    }).pipe(on(Effect.fnUntraced(function*(payload) {
      yield* Steps.append("last words")
      return yield* payload === 1 ? Effect.fail("failed") : Effect.die("died")
    }))))

  it.effect("is followed until the instance ends, from any offset", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      // The reader comes before the instance.
      yield* Effect.forkChild(Effect.delay(client.start(Talk, { instanceId: "i", payload: 3 }), "1 minute"))
      const all = yield* Stream.runCollect(client.readStream(Steps, "i"))
      assert.deepStrictEqual(texts(all), ["0", "1", "2"])
      assert.deepStrictEqual(texts(yield* Stream.runCollect(client.readStream(Steps, "i", { from: 2 }))), ["2"])
      assert.deepStrictEqual(texts(yield* Stream.runCollect(client.readStream(Steps, "i", { from: 3 }))), [])
      assert.deepStrictEqual(texts(yield* Stream.runCollect(client.readStream(Tokens, "i"))), [])
      assert.isTrue(all[2]!.appendedAtMs - all[0]!.appendedAtMs >= 2_000)
    }).pipe(on(Effect.fnUntraced(function*(count) {
      for (let i = 0; i < count; i++) {
        yield* Steps.append(`${i}`)
        yield* Effect.sleep("1 second")
      }
      return ""
    }))))

  it.effect("fails for a reader who asks for what is no longer kept, or for an offset of another stream", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Talk, { instanceId: "i", payload: 5 })
      yield* TestRuntime.settle
      assert.deepStrictEqual((yield* stored(Short)).map(({ chunk, offset }) => [offset, chunk]), [
        [2, "2"],
        [3, "3"],
        [4, "4"]
      ])
      const missing = yield* Effect.flip(stored(Short, "i", 1))
      assert.deepInclude(missing, { _tag: "ChunksMissing", reason: "Deleted", from: 1, firstOffset: 2, nextOffset: 5 })
      yield* client.send(Go, "i")
      yield* client.wait(Talk, "i")
      // 19 bytes each, as JSON.
      assert.deepStrictEqual((yield* stored(Short)).map(({ offset }) => offset), [8, 9])

      yield* (yield* Admin.Admin).deleteInstance("i", { force: false })
      assert.deepStrictEqual(yield* stored(Short), [])
      assert.strictEqual((yield* Effect.flip(stored(Short, "i", 9)))._tag, "ProviderError")
      yield* client.start(Talk, { instanceId: "i", payload: 1 })
      yield* TestRuntime.settle
      assert.deepInclude(yield* Effect.flip(stored(Short, "i", 9)), { reason: "OtherStream", nextOffset: 1 })
    }).pipe(on(Effect.fnUntraced(function*(count) {
      yield* Short.appendAll(Array.from({ length: count }, (_, i) => `${i}`))
      yield* Go.wait
      for (let i = 0; i < count; i++) yield* Short.append(`${i} ${"x".repeat(15)}`)
      return ""
    }))))

  it.effect("continues where an earlier delivery has stopped, or begins anew", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      for (const payload of [1, 2]) {
        yield* client.start(Talk, { instanceId: `${payload}`, payload })
        yield* TestRuntime.settle
        yield* TestRuntime.crash
        yield* client.wait(Talk, `${payload}`)
      }
      const resumed = yield* stored(Tokens, "1")
      assert.deepStrictEqual(texts(resumed), ["a", "b", "c", "d"])
      assert.deepStrictEqual(resumed.map(ProgressStream.startsOver), [true, false, false, false])
      assert.deepStrictEqual(resumed.map(({ writer }) => writer._tag === "Activity" && writer.deliveryNumber), [
        1,
        1,
        2,
        2
      ])
      const again = yield* stored(Tokens, "2")
      assert.deepStrictEqual(texts(again), ["a", "b", "a", "b", "c", "d"])
      assert.deepStrictEqual(lastTries(again), ["a", "b", "c", "d"])
      assert.deepStrictEqual(again.map(ProgressStream.startsOver), [true, false, true, false, false, false])
    }).pipe(on(
      (payload) => Effect.as(Think.execute(payload), ""),
      Effect.fnUntraced(function*(payload) {
        const { deliveryNumber } = yield* Activity.Call
        const before = payload === 1 ? yield* Tokens.resume : []
        yield* Tokens.appendAll(["a", "b", "c", "d"].slice(before.length, deliveryNumber === 1 ? 2 : 4))
        if (deliveryNumber === 1) return yield* Effect.never
        return payload
      })
    )))

  it.effect("interrupts a handler whose activity is no longer its own", () =>
    Effect.gen(function*() {
      const outcome = yield* Ref.make(Option.none<boolean>())
      const handler: Handler = (payload) =>
        Effect.gen(function*() {
          yield* Tokens.append("before")
          yield* Effect.sleep("1 second")
          // Cancelled meanwhile; the interruption of the runtime waits for this.
          yield* Tokens.append("after")
          return payload
        }).pipe(
          Effect.uninterruptible,
          Effect.onExit((exit) => Ref.set(outcome, Option.some(Exit.hasInterrupts(exit))))
        )
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Talk, { instanceId: "i", payload: 1 })
        assert.strictEqual(yield* client.wait(Talk, "i"), "timeout")
        yield* TestRuntime.advance("1 minute")
        assert.deepStrictEqual(texts(yield* stored(Tokens)), ["before"])
        assert.deepStrictEqual(yield* Ref.get(outcome), Option.some(true))
      }).pipe(on((payload) =>
        Think.execute(payload).pipe(
          Effect.as(""),
          Effect.timeoutOrElse({ duration: "500 millis", orElse: () => Effect.succeed("timeout") })
        ), handler))
    }))

  it.effect("refuses a chunk that is too large, or that its Schema refuses", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const failure = (payload: number) =>
        Effect.map(Effect.flip(client.execute(Talk, { instanceId: `${payload}`, payload })), String)
      assert.include(yield* failure(1), `a chunk of stream "short" has 23 bytes, the limit is 20`)
      assert.include(yield* failure(2), `chunk of stream "steps" does not match its schema`)
      assert.throws(() => ProgressStream.make("", { chunk: Schema.String }), /name of stream/)
      assert.throws(() => ProgressStream.make("s", { chunk: Schema.String, keepChunks: 0 }), /keepChunks of stream "s"/)
    }).pipe(on((payload) => Effect.as(payload === 1 ? Short.append("x".repeat(21)) : Steps.append(1 as never), ""))))
})
