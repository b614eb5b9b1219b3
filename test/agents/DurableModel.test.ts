import { assert, describe, it } from "@effect/vitest"
import { Conversation } from "duroxide-prisma/agents"
import { AiError, Chat, LanguageModel, Tool } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Ref from "effect/Ref"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { run, Tools, Weather } from "./running.ts"

describe("DurableModel", () => {
  it.effect("generateText: each call is one activity, whose recorded answer a replay uses", () =>
    Effect.gen(function*() {
      const program = Effect.gen(function*() {
        const first = yield* LanguageModel.generateText({ prompt: "one" })
        yield* Effect.sleep("1 hour")
        const second = yield* LanguageModel.generateText({
          prompt: [{ role: "system", content: "be brief" }, { role: "user", content: first.text }]
        })
        return [first.text, second.text, second.usage.outputTokens.total, second.finishReason]
      })
      const { value, history, server } = yield* run(
        program,
        ({ messages }) => ({ text: `<${messages.at(-1)!.content}>` })
      )
      assert.deepStrictEqual(value, ["<one>", "<<one>>", 10, "stop"])
      assert.lengthOf(server.requests, 2)
      assert.deepStrictEqual(server.requests[1]!.messages.map(({ role }) => role), ["system", "user"])
      assert.lengthOf(history.filter(({ _tag }) => _tag === "ActivityCompleted"), 2)
    }))

  it.effect("tools: the model sees their JSON Schema, they run as activities, and Chat keeps what was said", () =>
    Effect.gen(function*() {
      const program = Effect.gen(function*() {
        const chat = yield* Chat.empty
        const { text } = yield* Conversation.answer(chat, { prompt: "Rome?", toolkit: Tools.toolkit })
        return [text, (yield* Ref.get(chat.history)).content.map(({ role }) => role)]
      })
      const { value, history, server } = yield* run(
        program,
        (_, index) =>
          index === 0
            ? { calls: [{ id: "c1", name: "Weather", params: { city: "Rome" } }] }
            : { text: "20 degrees" }
      )
      assert.deepStrictEqual(value, ["20 degrees", ["user", "assistant", "tool", "assistant"]])
      assert.deepStrictEqual(server.requests[0]!.tools[0], {
        name: "Weather",
        description: "The weather of a city",
        parameters: JSON.parse(JSON.stringify(Tool.getJsonSchema(Weather)))
      })
      assert.deepStrictEqual(server.requests[1]!.messages.slice(1), [
        {
          role: "assistant",
          content: "",
          tool_calls: [{ id: "c1", name: "Weather", arguments: "{\"city\":\"Rome\"}" }]
        },
        { role: "tool", content: "{\"celsius\":20}", tool_call_id: "c1" }
      ])
      assert.deepStrictEqual(
        history.flatMap((event) => event._tag === "ActivityScheduled" ? event.name : []),
        ["Assistant", "Weather", "Assistant"]
      )
    }))

  it.effect("tools: failureMode decides whether the model or the program gets a failure", () =>
    Effect.gen(function*() {
      const { value, server } = yield* run(
        Effect.gen(function*() {
          const { text } = yield* Conversation.answer(yield* Chat.empty, { prompt: "Rome?", toolkit: Tools.toolkit })
          return text
        }),
        (_, index) =>
          index === 0 ? { calls: [{ id: "c1", name: "Weather", params: { city: "x" } }] } : { text: "sorry" },
        { weather: () => Effect.fail("no such city") }
      )
      assert.strictEqual(value, "sorry")
      assert.strictEqual(server.requests[1]!.messages.at(-1)!.content, "\"no such city\"")
    }))

  it.effect("generateObject: the model sees the Schema, and the program gets the value it describes", () =>
    Effect.gen(function*() {
      const Person = Schema.Struct({
        name: Schema.String.annotate({ description: "in full" }),
        born: Schema.DateTimeUtcFromString,
        tags: Schema.Array(Schema.Literals(["a", "b"]))
      })
      const { value, server } = yield* run(
        Effect.gen(function*() {
          const object = yield* LanguageModel.generateObject({ prompt: "who?", schema: Person, objectName: "person" })
          return [object.value.name, object.value.born.epochMilliseconds, object.value.tags]
        }),
        () => ({ text: JSON.stringify({ name: "Ada", born: "1815-12-10T00:00:00Z", tags: ["b"] }) })
      )
      assert.deepStrictEqual(value, ["Ada", Date.UTC(1815, 11, 10), ["b"]])
      assert.deepStrictEqual(
        server.requests[0]!.schema,
        JSON.parse(JSON.stringify(Tool.getJsonSchemaFromSchema(Person)))
      )
    }))

  it.effect("streamText: the parts come when all is recorded, pieces of a text joined", () =>
    Effect.gen(function*() {
      const { value, server } = yield* run(
        Effect.map(Stream.runCollect(LanguageModel.streamText({ prompt: "go" })), (parts) =>
          parts.map((part) => part.type === "text-delta" ? part.delta : part.type)),
        () => ({ text: "one two three" })
      )
      assert.deepStrictEqual(value, [
        "response-metadata",
        "text-start",
        "one two three",
        "text-end",
        "finish"
      ])
      assert.isTrue(server.requests[0]!.stream)
    }))

  it.effect("retries what the provider calls retryable, after the time it asks for, and records no secret", () =>
    Effect.gen(function*() {
      const { value, history, server } = yield* run(
        Effect.map(LanguageModel.generateText({ prompt: "go" }), ({ text }) => text),
        (_, index) =>
          index === 0 ? { status: 429, retryAfterSeconds: 60 } : index === 1 ? { status: 500 } : { text: "ok" }
      )
      assert.strictEqual(value, "ok")
      assert.lengthOf(server.requests, 3)
      assert.deepStrictEqual([...new Set(server.keys)].map((key) => typeof key), ["string"], "one key for all tries")
      const pauses = history.flatMap((event) =>
        event._tag === "TimerCreated" ? (event.fireAtMs - event.timestampMs) / 1000 : []
      )
      assert.deepStrictEqual(pauses, [60, 2])
      assert.notInclude(JSON.stringify(history), "secret")
    }))

  it.effect("fails with the AiError of the provider if that is not retryable", () =>
    Effect.gen(function*() {
      const { value, server } = yield* run(
        Effect.catchReason(
          Effect.asVoid(LanguageModel.generateText({ prompt: "go" })),
          "AiError",
          "AuthenticationError",
          ({ kind }) => Effect.succeed(kind)
        ),
        () => ({ status: 401 })
      )
      assert.strictEqual(value, "InvalidKey")
      assert.lengthOf(server.requests, 1)
    }))

  it.effect("a prompt beyond 4 MiB is an InvalidRequestError, and no call", () =>
    Effect.gen(function*() {
      const { value, server } = yield* run(
        Effect.flip(LanguageModel.generateText({ prompt: "x".repeat(4 * 1024 * 1024) })).pipe(
          Effect.map((error) => AiError.isAiError(error) ? error.message : "")
        ),
        () => ({ text: "no" })
      )
      assert.include(String(value), "the limit is 4194304: keep fewer messages")
      assert.lengthOf(server.requests, 0)
    }))

  it.effect("an answer that is not what the Schema says is retried", () =>
    Effect.gen(function*() {
      const { value, server } = yield* run(
        Effect.map(
          LanguageModel.generateObject({ prompt: "go", schema: Schema.Struct({ n: Schema.Int }) }),
          (object) => object.value.n
        ),
        (_, index) => ({ text: index === 0 ? "no json" : "{\"n\":1}" })
      )
      assert.strictEqual(value, 1)
      assert.lengthOf(server.requests, 2)
    }))
})
