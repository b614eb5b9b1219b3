import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, ProgressStream, Runtime } from "duroxide-prisma"
import { DurableModel } from "duroxide-prisma/agents"
import { TestRuntime } from "duroxide-prisma/testing"
import { LanguageModel, type Response } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as ModelServer from "../programs/modelServer.ts"

const Program = Orchestration.make("Program", { success: Schema.Unknown })

it.effect("DurableModel: tokens get the pieces of an answer while the model writes, also of generateText", () =>
  Effect.scoped(Effect.gen(function*() {
    const written: Array<string> = []
    const Assistant = DurableModel.make("Assistant", {
      tokens: {
        append: (text) => Effect.map(Activity.Call, ({ tryNumber }) => void written.push(`${tryNumber}:${text}`))
      }
    })
    const program = Effect.gen(function*() {
      const { content, finishReason, text } = yield* LanguageModel.generateText({ prompt: "go" })
      const streamed = yield* Stream.runCollect(LanguageModel.streamText({ prompt: "more" }))
      return [text, finishReason, content.map(({ type }) => type), streamed.length]
    }).pipe(Effect.orDie, Effect.provide(Assistant.layer))
    const server = yield* ModelServer.start((_, index) => index === 0 ? { status: 500 } : { text: "one two three" })
    const runtime = Runtime.layer({ orchestrations: [Program], activities: [Assistant.activity] }).pipe(
      Layer.provide([Program.toLayer(() => program), Assistant.layerHandler]),
      Layer.provide(ModelServer.layerModel(server.url))
    )
    const client = Effect.flatMap(Client.Client, (client) => client.execute(Program, { instanceId: "p" }))
    const value = yield* Effect.provide(client, TestRuntime.layer(runtime))
    assert.deepStrictEqual(value, ["one two three", "stop", ["response-metadata", "text", "finish"], 5])
    assert.deepStrictEqual(written, ["2:one ", "2:two ", "2:three", "1:one ", "1:two ", "1:three"])
    assert.isTrue(server.requests.every(({ stream }) => stream))
  })))

/** The chunks of an answer with these pieces, how often the model was called, the text of the program, warnings. */
const streamed = (pieces: ReadonlyArray<string>, tokensOf: (name: string) => DurableModel.Tokens) =>
  Effect.gen(function*() {
    let calls = 0
    const warnings: Array<string> = []
    const tokens = tokensOf("tokens")
    const Assistant = DurableModel.make("Assistant", { tokens })
    const model = LanguageModel.make({
      generateText: () => Effect.die("it is streamed"),
      streamText: () => {
        calls++
        return Stream.fromIterable<Response.StreamPartEncoded>([
          { type: "text-start", id: "a" },
          ...pieces.map((delta) => ({ type: "text-delta" as const, id: "a", delta })),
          { type: "text-end", id: "a" }
        ])
      }
    })
    const runtime = Runtime.layer({ orchestrations: [Program], activities: [Assistant.activity] }).pipe(
      Layer.provide([
        Program.toLayer(() =>
          LanguageModel.generateText({ prompt: "go" }).pipe(
            Effect.map(({ text }) => text),
            Effect.orDie,
            Effect.provide(Assistant.layer)
          )
        ),
        Assistant.layerHandler
      ]),
      Layer.provide(Layer.effect(LanguageModel.LanguageModel, model)),
      Layer.provide(Logger.layer([Logger.make(({ logLevel, message }) => {
        // On a busy machine there are others: of a turn that blocks the event loop.
        if (logLevel === "Warn" && String(message).startsWith("DurableModel")) warnings.push(String(message))
      })]))
    )
    return yield* Effect.gen(function*() {
      const client = yield* Client.Client
      const text = yield* client.execute(Program, { instanceId: "p" })
      const chunks = yield* Stream.runCollect(
        client.readStream(ProgressStream.make("tokens", { chunk: Schema.String }), "p")
      )
      return { calls, text, warnings: warnings.length, chunks: chunks.map(({ chunk }) => chunk) }
    }).pipe(Effect.provide(TestRuntime.layer(runtime)))
  })

it.effect("DurableModel: a piece larger than a chunk is split, readers get all of it, and the call is made once", () =>
  Effect.gen(function*() {
    const pieces = ["a".repeat(70_000), "\u{1f600}\"\\\n\u0001é".repeat(9_000), "end"]
    for (const maxChunkBytes of [undefined, 1_000]) {
      const result = yield* streamed(
        pieces,
        (name) => ProgressStream.make(name, { chunk: Schema.String, maxChunkBytes })
      )
      const limit = maxChunkBytes ?? 65_536
      assert.strictEqual(result.calls, 1)
      assert.strictEqual(result.text, pieces.join(""))
      assert.strictEqual(result.chunks.join(""), pieces.join(""))
      assert.strictEqual(result.warnings, 0)
      for (const chunk of result.chunks) assert.isAtMost(Buffer.byteLength(JSON.stringify(chunk)), limit)
      // As few as fit, up to one character each.
      const bytes = pieces.map((piece) => Buffer.byteLength(JSON.stringify(piece)))
      const least = bytes.reduce((sum, size) => sum + Math.ceil(size / (limit - 10)), 0)
      assert.isAtMost(result.chunks.length, least)
    }
  }))

it.effect("DurableModel: a character that comes in two pieces is whole in the stream", () =>
  Effect.gen(function*() {
    const result = yield* streamed(
      ["a\ud83d", "\ude00b"],
      (name) => ProgressStream.make(name, { chunk: Schema.String })
    )
    assert.deepStrictEqual(result, { calls: 1, text: "a\u{1f600}b", warnings: 0, chunks: ["a", "\u{1f600}b"] })
  }))

it.effect("DurableModel: what the stream cannot take is left out with a warning, and the call is made once", () =>
  Effect.gen(function*() {
    const tiny = yield* streamed(
      ["ab\u{1f600}c"],
      (name) => ProgressStream.make(name, { chunk: Schema.String, maxChunkBytes: 4 })
    )
    assert.deepStrictEqual(tiny, { calls: 1, text: "ab\u{1f600}c", warnings: 1, chunks: ["ab", "c"] })
    const short = Schema.String.check(Schema.isMaxLength(3))
    const refused = yield* streamed(["one", "three", "two"], (name) => ProgressStream.make(name, { chunk: short }))
    assert.deepStrictEqual(refused, { calls: 1, text: "onethreetwo", warnings: 1, chunks: ["one", "two"] })
  }))
