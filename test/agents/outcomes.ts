/**
 * What can go wrong with models and tools, and its outcome: rows of docs/outcomes.md.
 */
import { assert } from "@effect/vitest"
import { Activity } from "duroxide-prisma"
import { Budget, Conversation } from "duroxide-prisma/agents"
import { AiError, Chat, LanguageModel } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as ModelServer from "../programs/modelServer.ts"
import { run, Tools } from "./running.ts"

const once = Effect.map(LanguageModel.generateText({ prompt: "go" }), ({ text }) => text)

const answer = Effect.gen(function*() {
  const chat = yield* Chat.empty
  const { text } = yield* Conversation.answer(chat, { prompt: "go", toolkit: Tools.toolkit, approveWithin: "1 day" })
  return text
})

/** The reason of the failure. */
const reasonOf = <A, E, R>(program: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.flip(program), (error) => AiError.isAiError(error) ? error.reason._tag : String(error))

/** Calls a tool, and then repeats what it has answered. */
const calling = (name: string, params: unknown) => ({ messages }: ModelServer.ModelRequest): ModelServer.Answer => {
  const { content, role } = messages.at(-1)!
  return role === "tool" ? { text: content } : { calls: [{ id: "c", name, params }] }
}

const Three = Budget.make("three", { calls: 3 })

export const sections: { readonly [section: string]: { readonly [row: string]: Effect.Effect<void, unknown> } } = {
  "Models and tools": {
    "the provider fails, and calls it retryable": Effect.gen(function*() {
      const { server, value } = yield* run(reasonOf(once), () => ({ status: 500 }))
      assert.deepStrictEqual([value, server.requests.length], ["InternalProviderError", 6])
    }),
    "the provider refuses the call": Effect.gen(function*() {
      const { server, value } = yield* run(reasonOf(once), () => ({ status: 401 }))
      assert.deepStrictEqual([value, server.requests.length], ["AuthenticationError", 1])
    }),
    "an answer is not what the Schema of `generateObject` says": Effect.gen(function*() {
      const object = LanguageModel.generateObject({ prompt: "go", schema: Schema.Struct({ n: Schema.Int }) })
      const { server, value } = yield* run(reasonOf(object), () => ({ text: "{\"n\":\"one\"}" }))
      assert.deepStrictEqual([value, server.requests.length], ["StructuredOutputError", 6])
    }),
    "a prompt with its tools has more than 4 MiB": Effect.gen(function*() {
      const large = LanguageModel.generateText({ prompt: "x".repeat(4 * 1024 * 1024) })
      const { server, value } = yield* run(reasonOf(large), () => ({ text: "" }))
      assert.deepStrictEqual([value, server.requests.length], ["InvalidRequestError", 0])
    }),
    "an answer has more than 4 MiB": Effect.gen(function*() {
      const { server, value } = yield* run(reasonOf(once), () => ({ text: "x".repeat(4 * 1024 * 1024) }))
      assert.deepStrictEqual([value, server.requests.length], ["UnknownError", 1])
    }),
    "a budget is used up": Effect.gen(function*() {
      const { server, value } = yield* run(
        Effect.map(Effect.flip(Three.limit(Effect.forever(once))), (error) => error._tag),
        () => ({ text: "more" })
      )
      assert.deepStrictEqual([value, server.requests.length], ["BudgetExceeded", 3])
    }),
    "a tool fails with its failure": Effect.gen(function*() {
      const { value } = yield* run(answer, calling("Weather", { city: "x" }), { weather: () => Effect.fail("unknown") })
      assert.strictEqual(value, "\"unknown\"")
    }),
    "a tool dies": Effect.gen(function*() {
      const { value } = yield* run(
        Effect.catchDefect(
          answer,
          (defect) => Effect.succeed(defect instanceof Activity.ActivityDied ? defect.message : "?")
        ),
        calling("Weather", { city: "x" }),
        { weather: () => Effect.die(new Error("boom")) }
      )
      assert.strictEqual(value, "activity \"Weather\" died: boom")
    }),
    "the model calls a tool with parameters that its Schema refuses": Effect.gen(function*() {
      const { server, value } = yield* run(reasonOf(answer), calling("Weather", { city: 7 }))
      assert.deepStrictEqual([value, server.requests.length], ["InvalidOutputError", 6])
    }),
    "the model calls a tool that does not exist": Effect.gen(function*() {
      const { server, value } = yield* run(reasonOf(answer), calling("Nothing", {}))
      assert.deepStrictEqual([value, server.requests.length], ["InvalidOutputError", 6])
    }),
    "the model calls tools without an end": Effect.gen(function*() {
      const { server, value } = yield* run(
        Effect.map(Effect.flip(answer), (error) => Schema.is(Conversation.Unfinished)(error) ? error.calls : error),
        (_, index) => ({ calls: [{ id: String(index), name: "Weather", params: { city: "Rome" } }] })
      )
      assert.deepStrictEqual([value, server.requests.length], [20, 20])
    }),
    "no one decides about an approval within its time": Effect.gen(function*() {
      const { value } = yield* run(answer, calling("Pay", { cents: 500 }))
      assert.include(String(value), "no one has decided in time")
    })
  }
}
