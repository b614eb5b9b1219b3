import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Approval } from "duroxide-prisma/agents"
import { Admin } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import { AiError, LanguageModel, type Response } from "effect/ai"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { Chat, Messages, RuntimeLive, Said, Tokens } from "../../examples/agent/agent.ts"
import * as Model from "../../examples/agent/model.ts"
import * as Printed from "./printed.ts"

const start = Effect.flatMap(
  Client.Client,
  (client) => client.start(Chat, { instanceId: "c", payload: { idleFor: Duration.hours(1), answers: 0 } })
)

/** The chat answers what is sent within a tenth of a second at once. */
const send = (text: string) =>
  Effect.flatMap(
    Client.Client,
    (client) => Effect.andThen(client.send(Messages, "c", text), TestRuntime.advance("100 millis"))
  )

const status = Effect.map(
  Effect.flatMap(Client.Client, (client) => client.status("c")),
  (status) => status._tag === "Running" ? Option.getOrUndefined(status.customStatus) : status._tag
)

/** The conversation, with speakers. */
const said = Effect.map(
  Effect.flatMap(Client.Client, (client) => client.read(Said, "c")),
  Option.match({
    onNone: () => [],
    onSome: ({ content }) =>
      content.flatMap((message) =>
        message.role === "system" || typeof message.content === "string"
          ? []
          : message.content.flatMap((part) =>
            part.type === "text"
              ? `${message.role}: ${part.text}`
              : part.type === "tool-result"
              ? `tool: ${String(part.result)}`
              : []
          )
      )
  })
)

/** Runs a test in virtual time, with the lines the activities print. */
const on = <A, E, R>(
  test: (lines: ReadonlyArray<string>) => Effect.Effect<A, E, R>,
  model: Layer.Layer<LanguageModel.LanguageModel> = Model.layerFake
) => {
  const { layer, lines } = Printed.make()
  return test(lines).pipe(Effect.provide(TestRuntime.layer(RuntimeLive).pipe(Layer.provide([model, layer]))))
}

const tools = [
  "user: where is order 42?",
  "tool: the handbook says two days, the web says two days",
  "tool: order 42 was sent on Monday",
  "assistant: the handbook says two days, the web says two days; order 42 was sent on Monday"
]

describe("agent", () => {
  it.effect("answers, uses tools where it needs them, and ends when no more messages arrive", () =>
    on(Effect.fnUntraced(function*() {
      const client = yield* Client.Client
      yield* start
      assert.strictEqual(yield* status, "waiting for you")
      yield* send("hello")
      assert.deepStrictEqual(yield* said, ["user: hello", "assistant: You said: hello"])
      yield* send("where is order 42?")
      assert.strictEqual(yield* status, "searching")
      yield* TestRuntime.advance("1 second")
      assert.deepStrictEqual((yield* said).slice(2), tools)
      assert.strictEqual(yield* client.wait(Chat, "c"), 2)
    })))

  it.effect("continues in another process in the middle of a tool call", () =>
    on(Effect.fnUntraced(function*(lines) {
      const client = yield* Client.Client
      yield* start
      yield* send("where is order 42?")
      yield* TestRuntime.advance("500 millis")
      assert.strictEqual(yield* status, "searching")
      yield* TestRuntime.crash
      yield* send("thanks")
      assert.strictEqual(yield* client.wait(Chat, "c"), 2)
      assert.deepStrictEqual(yield* said, [...tools, "user: thanks", "assistant: You said: thanks"])
      // Only the tool without an answer is called again; the model is not asked again.
      assert.deepStrictEqual([...lines].sort(), [
        "asking the handbook: How long do parcels take?",
        "asking the web: How long do parcels take?",
        "looking up order 42",
        "looking up order 42"
      ])
    })))

  it.effect("streams the words of each answer", () =>
    on(Effect.fnUntraced(function*() {
      const client = yield* Client.Client
      yield* start
      yield* send("hello")
      const words = yield* Stream.runCollect(client.readStream(Tokens, "c", { follow: false }))
      assert.deepStrictEqual(words.map(({ chunk }) => chunk), ["You ", "said: ", "hello"])
    })))

  it.effect("messages that follow each other quickly get one answer", () =>
    on(Effect.fnUntraced(function*() {
      const client = yield* Client.Client
      yield* start
      yield* client.send(Messages, "c", "hello")
      yield* TestRuntime.advance("50 millis")
      yield* client.send(Messages, "c", "again")
      yield* TestRuntime.advance("50 millis")
      assert.deepStrictEqual(yield* said, ["user: hello\nagain", "assistant: You said: hello\nagain"])
      assert.strictEqual(yield* client.wait(Chat, "c"), 1)
    })))

  it.effect("a refund waits until a person approves it, and is not made when one denies it", () =>
    on(Effect.fnUntraced(function*(lines) {
      const client = yield* Client.Client
      yield* start
      for (const approved of [true, false]) {
        yield* send("please refund order 42")
        yield* TestRuntime.advance("1 hour")
        yield* TestRuntime.crash
        const [call] = yield* client.waitForValue(Approval.open, "c")
        const { approvalId } = call!
        yield* client.request(Approval.decide, "c", { approvalId, approved }, { requestId: approvalId })
        yield* TestRuntime.advance("1 second")
        assert.strictEqual(yield* status, "waiting for you")
        assert.deepStrictEqual(lines, ["refunding order 42"])
      }
      assert.deepStrictEqual((yield* said).slice(0, 3), [
        "user: please refund order 42",
        "tool: order 42 is refunded",
        "assistant: order 42 is refunded"
      ])
      assert.include((yield* said).at(-1), "execution-denied")
    })))

  it.effect("gives the failure of a tool to the model", () =>
    on(Effect.fnUntraced(function*() {
      yield* start
      yield* send("where is order 7?")
      yield* TestRuntime.advance("1 second")
      assert.include((yield* said).at(-1), "there is no order 7")
    })))

  it.effect("asks an overloaded model again, and finally reports the overload", () => {
    let calls = 0
    const overloaded = Effect.suspend(() => {
      calls++
      return AiError.make({ module: "Fake", method: "reply", reason: new AiError.RateLimitError({}) })
    })
    return on(
      Effect.fnUntraced(function*() {
        yield* start
        yield* send("hello")
        yield* TestRuntime.advance("1 minute")
        assert.deepStrictEqual((yield* said).slice(1), ["assistant: I cannot answer now, sorry."])
        assert.strictEqual(calls, 6)
      }),
      Layer.effect(
        LanguageModel.LanguageModel,
        LanguageModel.make({
          generateText: (): Effect.Effect<Array<Response.PartEncoded>, AiError.AiError> => overloaded,
          streamText: () => Stream.fromEffect(overloaded)
        })
      )
    )
  })

  it.effect("a long conversation is cut to the limit, and each execution stays small", () =>
    on(Effect.fnUntraced(function*() {
      const admin = yield* Admin.Admin
      yield* start
      for (let message = 1; message <= 60; message++) yield* send(`${message}`)
      assert.isBelow((yield* said).length, 100)
      assert.strictEqual((yield* said).at(-1), "assistant: You said: 60")
      const executions = yield* admin.listExecutions("c")
      assert.lengthOf(executions, 61)
      for (const executionId of executions) {
        assert.isAtMost((yield* admin.getExecutionInfo("c", executionId)).eventCount, 25)
      }
    })))
})
