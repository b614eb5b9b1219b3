import { assert, describe, it } from "@effect/vitest"
import { Client, ProgressStream } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { Chat, Conversation, Messages, RuntimeLive, Tokens } from "../../examples/agent/agent.ts"
import { Model, Overloaded } from "../../examples/agent/model.ts"
import * as Printed from "./printed.ts"

const start = Effect.flatMap(
  Client.Client,
  (client) => client.start(Chat, { instanceId: "c", payload: { idleFor: Duration.hours(1), answers: 0 } })
)

const send = (text: string) => Effect.flatMap(Client.Client, (client) => client.send(Messages, "c", text))

const status = Effect.map(
  Effect.flatMap(Client.Client, (client) => client.status("c")),
  (status) => status._tag === "Running" ? Option.getOrUndefined(status.customStatus) : status._tag
)

/** The conversation, with speakers. */
const said = Effect.map(
  Effect.flatMap(Client.Client, (client) => client.read(Conversation, "c")),
  (entries) => Option.getOrElse(entries, () => []).map(({ role, text }) => `${role}: ${text}`)
)

/** Runs a test in virtual time, with the lines the activities print. */
const on = <A, E, R>(
  test: (lines: ReadonlyArray<string>) => Effect.Effect<A, E, R>,
  model: Layer.Layer<Model> = Model.layerFake
) => {
  const { layer, lines } = Printed.make()
  return test(lines).pipe(Effect.provide(TestRuntime.layer(RuntimeLive).pipe(Layer.provide([model, layer]))))
}

const tools = [
  "user: where is order 42?",
  "tool: order 42 was sent on Monday",
  "tool: the handbook says two days, the web says two days",
  "assistant: order 42 was sent on Monday; the handbook says two days, the web says two days"
]

describe("agent", () => {
  it.effect("answers, uses tools where it needs them, and ends when no more messages arrive", () =>
    on(Effect.fnUntraced(function*() {
      const client = yield* Client.Client
      yield* start
      assert.strictEqual(yield* status, "waiting for you")
      yield* send("hello")
      yield* TestRuntime.advance("1 second")
      assert.deepStrictEqual(yield* said, ["user: hello", "assistant: You said: hello"])
      yield* send("where is order 42?")
      assert.strictEqual(yield* status, "using LookUpOrder and Research")
      yield* TestRuntime.advance("2 seconds")
      assert.deepStrictEqual((yield* said).slice(2), tools)
      assert.strictEqual(yield* client.wait(Chat, "c"), 2)
    })))

  it.effect("continues in another process in the middle of a tool call", () =>
    on(Effect.fnUntraced(function*(lines) {
      const client = yield* Client.Client
      yield* start
      yield* send("where is order 42?")
      yield* TestRuntime.advance("500 millis")
      assert.strictEqual(yield* status, "using LookUpOrder and Research")
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

  it.effect("streams its words; a reader sees where an answer begins anew after a crash, and drops what it has", () =>
    on(Effect.fnUntraced(function*() {
      const client = yield* Client.Client
      yield* start
      yield* send("hello")
      yield* TestRuntime.advance("30 millis")
      const words = Stream.runCollect(client.readStream(Tokens, "c", { follow: false }))
      assert.deepStrictEqual((yield* words).map(({ chunk }) => chunk), ["You ", "said: "])
      yield* TestRuntime.crash
      yield* TestRuntime.advance("1 minute")
      assert.strictEqual((yield* said).at(-1), "assistant: You said: hello")
      const all = yield* words
      assert.deepStrictEqual(all.map(({ chunk }) => chunk), ["You ", "said: ", "You ", "said: ", "hello"])
      const shown = all.reduce((text, entry) => ProgressStream.startsOver(entry) ? entry.chunk : text + entry.chunk, "")
      assert.strictEqual(shown, "You said: hello")
    })))

  it.effect("gives the failure of a tool to the model", () =>
    on(Effect.fnUntraced(function*() {
      yield* start
      yield* send("where is order 7?")
      yield* TestRuntime.advance("2 seconds")
      assert.include((yield* said).at(-1), "assistant: there is no order 7; ")
    })))

  it.effect("asks an overloaded model again, and finally reports the overload", () => {
    let calls = 0
    const overloaded = Effect.suspend(() => (calls++, Effect.fail(new Overloaded())))
    return on(
      Effect.fnUntraced(function*() {
        yield* start
        yield* send("hello")
        yield* TestRuntime.advance("1 minute")
        assert.deepStrictEqual((yield* said).slice(1), ["assistant: I am overloaded, sorry."])
        assert.strictEqual(calls, 6)
      }),
      Layer.succeed(Model, { complete: () => overloaded })
    )
  })

  it.effect("a long conversation is cut to the limit, and each execution stays small", () =>
    on(Effect.fnUntraced(function*() {
      const admin = yield* Admin.Admin
      yield* start
      for (let message = 1; message <= 40; message++) {
        yield* send(`${message}`)
        yield* TestRuntime.advance("1 second")
      }
      assert.lengthOf(yield* said, 30)
      assert.strictEqual((yield* said).at(-1), "assistant: You said: 40")
      const executions = yield* admin.listExecutions("c")
      assert.lengthOf(executions, 41)
      for (const executionId of executions) {
        assert.isAtMost((yield* admin.getExecutionInfo("c", executionId)).eventCount, 20)
      }
    })))
})
