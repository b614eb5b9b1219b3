import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Approval, Conversation } from "duroxide-prisma/agents"
import { TestRuntime } from "duroxide-prisma/testing"
import { Chat, Prompt } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Schema from "effect/Schema"
import type * as ModelServer from "../programs/modelServer.ts"
import { Program, run, start, Tools, wait, withModel } from "./running.ts"

const said = Effect.gen(function*() {
  const chat = yield* Chat.empty
  return (yield* Conversation.answer(chat, { prompt: "pay", toolkit: Tools.toolkit, approveWithin: "1 day" })).text
})

/** Asks for payments first, and then says what the tools have answered. */
const paying = (...cents: ReadonlyArray<number>) => ({ messages }: ModelServer.ModelRequest): ModelServer.Answer =>
  messages.at(-1)!.role === "tool"
    ? { text: messages.filter(({ role }) => role === "tool").map(({ content }) => content).join(" ") }
    : { calls: cents.map((cents, index) => ({ id: `c${index}`, name: "Pay", params: { cents } })) }

describe("Conversation.answer", () => {
  it.effect("asks people about tools that need an approval, and the model reads what they decided", () =>
    Effect.gen(function*() {
      const paid: Array<number> = []
      yield* withModel(
        () => said,
        paying(50, 500, 600),
        ({ requests }) =>
          Effect.gen(function*() {
            const client = yield* Client.Client
            yield* start
            const open = yield* client.waitForValue(Approval.open, "p")
            assert.deepStrictEqual(open.map(({ params, tool }) => [tool, params]), [
              ["Pay", "{\"cents\":500}"],
              ["Pay", "{\"cents\":600}"]
            ])
            assert.deepStrictEqual(paid, [50])
            yield* TestRuntime.crash
            const [first, second] = open
            const decide = (approvalId: string, approved: boolean, requestId = approvalId) =>
              client.request(Approval.decide, "p", { approvalId, approved, reason: "too much" }, { requestId })
            assert.strictEqual(yield* Effect.flip(decide("unknown", true)), "NotOpen")
            assert.deepStrictEqual(yield* decide(second!.approvalId, false), { approved: false })
            assert.deepStrictEqual(yield* decide(second!.approvalId, true), { approved: false })
            assert.strictEqual(yield* Effect.flip(decide(second!.approvalId, true, "another")), "NotOpen")
            assert.deepStrictEqual(yield* decide(first!.approvalId, true), { approved: true })
            assert.strictEqual(
              yield* wait,
              "\"paid\" \"paid\" {\"type\":\"execution-denied\",\"reason\":\"too much\"}"
            )
            assert.deepStrictEqual(paid, [50, 500])
            assert.lengthOf(requests, 2)
            assert.isTrue(Option.isNone(yield* client.read(Approval.open, "p")))
          }),
        { pay: (cents) => Effect.sync(() => (paid.push(cents), "paid")) }
      )
    }))

  it.effect("an interruption clears the calls that wait for decisions; a terminated instance keeps them", () =>
    withModel(
      () => said,
      paying(500),
      () =>
        Effect.gen(function*() {
          const client = yield* Client.Client
          const endedBy = Effect.fnUntraced(function*(instanceId: string, end: Effect.Effect<unknown, unknown>) {
            yield* client.start(Program, { instanceId, payload: 0 })
            assert.lengthOf(yield* client.waitForValue(Approval.open, instanceId), 1)
            yield* TestRuntime.crash
            yield* Effect.orDie(end)
            yield* Effect.exit(client.wait(Program, instanceId))
            return Option.getOrElse(yield* client.read(Approval.open, instanceId), () => []).length
          })
          assert.strictEqual(yield* endedBy("interrupted", client.interrupt("interrupted", "not needed")), 0)
          assert.strictEqual(yield* endedBy("terminated", client.terminate("terminated", "not needed")), 1)
        })
    ))

  it.effect("results of approved tools stand before the answer that knows them", () =>
    Effect.gen(function*() {
      const { value } = yield* run(
        Effect.gen(function*() {
          const chat = yield* Chat.empty
          yield* Conversation.answer(chat, { prompt: "pay", toolkit: Tools.toolkit, approveWithin: "1 hour" })
          const { content } = yield* Ref.get(chat.history)
          return content.map(({ role }) => role)
        }),
        paying(500)
      )
      assert.deepStrictEqual(value, ["user", "assistant", "tool", "tool", "assistant"])
    }))

  it.effect("denies what no one has decided in time", () =>
    Effect.gen(function*() {
      const { value } = yield* run(said, paying(500))
      assert.strictEqual(value, "{\"type\":\"execution-denied\",\"reason\":\"no one has decided in time\"}")
    }))

  it.effect("ends with Unfinished when the model asks for tools forever", () =>
    Effect.gen(function*() {
      const { server, value } = yield* run(
        Effect.gen(function*() {
          const chat = yield* Chat.empty
          const error = yield* Effect.flip(
            Conversation.answer(chat, { prompt: "go", toolkit: Tools.toolkit, maxCalls: 3 })
          )
          return error instanceof Conversation.Unfinished ? error.message : error
        }),
        (_, index) => ({ calls: [{ id: `c${index}`, name: "Weather", params: { city: "Rome" } }] })
      )
      assert.strictEqual(value, "the model still asks for tools after 3 calls")
      assert.lengthOf(server.requests, 3)
    }))
})

describe("Conversation.recent", () => {
  const messages = (...lengths: ReadonlyArray<number>) =>
    Prompt.make([
      { role: "system", content: "rules" },
      ...lengths.flatMap((length): Array<Prompt.MessageEncoded> => [
        { role: "user", content: "u".repeat(length) },
        { role: "assistant", content: "a" }
      ])
    ])

  it("keeps what the system says, and whole exchanges from the end", () => {
    const kept = Conversation.recent(messages(100, 100, 100), { bytes: 600 })
    assert.deepStrictEqual(kept.content.map(({ role }) => role), ["system", "user", "assistant", "user", "assistant"])
    assert.lengthOf(Conversation.recent(messages(100, 100), { bytes: 1_000_000 }).content, 5)
  })

  it("can be stored, also with results of tools that are undefined", () => {
    const result = { id: "c", name: "Note", isFailure: false, providerExecuted: false }
    const kept = Conversation.recent(Prompt.fromMessages([
      Prompt.makeMessage("user", { content: [Prompt.makePart("text", { text: "go" })] }),
      Prompt.makeMessage("tool", {
        content: [
          Prompt.makePart("tool-result", { ...result, result: undefined }),
          Prompt.makePart("tool-result", { ...result, result: { reason: undefined } })
        ]
      })
    ]))
    const codec = Schema.toCodecJson(Prompt.Prompt)
    const stored = JSON.stringify(Schema.encodeSync(codec)(kept))
    assert.deepStrictEqual(Schema.decodeUnknownSync(codec)(JSON.parse(stored)), kept)
  })

  it("keeps the last exchange, however long", () => {
    assert.lengthOf(Conversation.recent(messages(100, 100_000), { bytes: 1000 }).content, 3)
  })
})
