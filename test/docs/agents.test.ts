import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Approval, Budget, Conversation, DurableModel, DurableToolkit } from "duroxide-prisma/agents"
import { TestRuntime } from "duroxide-prisma/testing"
import { Chat, LanguageModel, Prompt, Tool, Toolkit } from "effect/ai"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Schema from "effect/Schema"
import * as ModelServer from "../programs/modelServer.ts"
import * as Docs from "../utils/docs.ts"

const Summary = Orchestration.make("Summary", { payload: Schema.String, success: Schema.String })

const Assistant = DurableModel.make("Assistant", { timeout: "5 minutes" })

const SummaryLive = Summary.toLayer(Effect.fn(
  function*(text) {
    const response = yield* LanguageModel.generateText({ prompt: `Summarize in a sentence: ${text}` })
    return response.text
  },
  Effect.orDie,
  Effect.provide(Assistant.layer)
))

class Shop extends Context.Service<Shop, {
  readonly find: (number: string) => Effect.Effect<string>
  readonly refund: (number: string, cents: number, key: string) => Effect.Effect<string>
}>()("Shop") {}

const LookUpOrder = Tool.make("LookUpOrder", {
  description: "Where an order is",
  parameters: Schema.Struct({ number: Schema.String }),
  success: Schema.String
})

const Refund = Tool.make("Refund", {
  description: "Pays an order back",
  parameters: Schema.Struct({ number: Schema.String, cents: Schema.Int }),
  success: Schema.String,
  needsApproval: ({ cents }) => cents > 1_000
})

const Tools = DurableToolkit.make(Toolkit.make(LookUpOrder, Refund), {
  retry: { times: 3 },
  each: { Refund: { timeout: "10 minutes" } }
})

const ToolsLive = Tools.toLayer({
  LookUpOrder: ({ number }) => Effect.flatMap(Shop, (shop) => shop.find(number)),
  Refund: Effect.fn(function*({ cents, number }) {
    const { idempotencyKey } = yield* Activity.Call
    return yield* (yield* Shop).refund(number, cents, idempotencyKey)
  })
})

const Messages = Signal.make("Messages", { payload: Schema.String })

const Talk = Orchestration.make("Talk", { payload: Prompt.Prompt })

const TalkLive = Talk.toLayer(Effect.fn(
  function*(said) {
    const chat = yield* Chat.fromPrompt(said)
    const prompt = yield* Messages.wait
    const { text } = yield* Conversation.answer(chat, { prompt, toolkit: Tools.toolkit, approveWithin: "2 days" })
    yield* Orchestration.setCustomStatus(text)
    return yield* Talk.continueAsNew(Conversation.recent(yield* Ref.get(chat.history), { bytes: 50_000 }))
  },
  Effect.orDie,
  Effect.provide(Layer.merge(Assistant.layer, Tools.layer))
))

const approveAll = Effect.fn(function*(instanceId: string) {
  const client = yield* Client.Client
  const open = yield* client.waitForValue(Approval.open, instanceId)
  for (const { approvalId } of open) {
    yield* client.request(Approval.decide, instanceId, { approvalId, approved: true }, {
      requestId: approvalId,
      timeout: "10 seconds"
    })
  }
})

const Thrifty = Orchestration.make("Thrifty", { payload: Schema.String, success: Schema.String })

const Allowance = Budget.make("allowance", { calls: 20, tokens: 200_000 })

const ThriftyLive = Thrifty.toLayer((prompt) =>
  Allowance.limit(Effect.map(LanguageModel.generateText({ prompt }), ({ text }) => text)).pipe(
    Effect.catchTag("BudgetExceeded", ({ limit }) => Effect.succeed(`no more ${limit}`)),
    Effect.orDie,
    Effect.provide(Assistant.layer)
  )
)

/** Gives back 50 euros when asked to, and says what its tools have answered. */
const script = ({ messages }: ModelServer.ModelRequest): ModelServer.Answer => {
  const { content, role } = messages.at(-1)!
  return role === "tool"
    ? { text: content }
    : content === "refund"
    ? { calls: [{ id: "r", name: "Refund", params: { number: "42", cents: 5_000 } }] }
    : content === "order"
    ? { calls: [{ id: "o", name: "LookUpOrder", params: { number: "42" } }] }
    : { text: `${messages.length}: ${content}` }
}

it("docs/agents.md: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/agents.test.ts"))
  const examples = Docs.blocks(Docs.read("docs/agents.md"), "ts")
  assert.lengthOf(examples, 6)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
})

it.effect("docs/agents.md: a summary, a budget, and a chat with a refund that people approve", () =>
  Effect.scoped(Effect.gen(function*() {
    const server = yield* ModelServer.start(script)
    const ProviderModel = ModelServer.layerModel(server.url)
    const refunds: Array<string> = []
    const shop = Layer.succeed(Shop, {
      find: (number) => Effect.succeed(`${number} was sent`),
      refund: (number, cents) =>
        Effect.sync(() => {
          refunds.push(number)
          return `${cents} cents`
        })
    })

    const SummaryRuntime = Runtime.layer({ orchestrations: [Summary], activities: [Assistant.activity] }).pipe(
      Layer.provide([SummaryLive, Assistant.layerHandler]),
      Layer.provide(ProviderModel) // the LanguageModel of a provider package
    )
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      const summary = yield* client.execute(Summary, { instanceId: "s", payload: "long" })
      assert.strictEqual(summary, "1: Summarize in a sentence: long")
    }).pipe(Effect.provide(TestRuntime.layer(SummaryRuntime)))

    const chats = Runtime.layer({
      orchestrations: [Talk, Thrifty],
      activities: [Assistant.activity, ...Tools.activities]
    }).pipe(
      Layer.provide([TalkLive, ThriftyLive, Assistant.layerHandler, ToolsLive.pipe(Layer.provide(shop))]),
      Layer.provide(ProviderModel)
    )
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      const said = (after: number) =>
        Effect.map(client.waitForStatus("t", { after }), ({ status }) => Option.getOrNull(status))
      yield* client.start(Talk, { instanceId: "t", payload: Prompt.empty })
      yield* client.send(Messages, "t", "hello")
      assert.strictEqual(yield* said(0), "1: hello")
      yield* client.send(Messages, "t", "order")
      assert.strictEqual(yield* said(1), "\"42 was sent\"")
      yield* client.send(Messages, "t", "refund")
      yield* approveAll("t")
      assert.strictEqual(yield* said(2), "\"5000 cents\"")
      const { executionId } = yield* Effect.map(
        client.status("t"),
        (status) => status._tag === "Running" ? status : assert.fail(status._tag)
      )
      assert.strictEqual(executionId, 4)
      assert.deepStrictEqual(refunds, ["42"])
      assert.strictEqual(yield* client.execute(Thrifty, { instanceId: "b", payload: "hi" }), "1: hi")
      assert.strictEqual(Option.getOrThrow(yield* client.read(Allowance.spent, "b")).calls, 1)
    }).pipe(Effect.provide(TestRuntime.layer(chats)))
  })))
