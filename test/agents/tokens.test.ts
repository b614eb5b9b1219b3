import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { DurableModel } from "duroxide-prisma/agents"
import { TestRuntime } from "duroxide-prisma/testing"
import { LanguageModel } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
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
