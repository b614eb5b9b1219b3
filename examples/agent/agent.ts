/**
 * A conversation with an agent that uses tools. Messages are signals, the conversation is a value that can be read
 * at any time, the words of an answer are a stream that can be read while the model speaks, and a process that dies in
 * the middle of a tool call costs nothing but time.
 */
import { Activity, KeyValue, Orchestration, ProgressStream, Runtime, Signal } from "duroxide-prisma"
import { Budget, Conversation, DurableModel, DurableToolkit } from "duroxide-prisma/agents"
import { Console, Effect, Layer, Option, Ref, Schema } from "effect"
import { Chat as AiChat, Prompt, Tool, Toolkit } from "effect/ai"

// -----------------------------------------------------------------------------
// model and tools
// -----------------------------------------------------------------------------

/** What the model says, word by word. It cannot repeat an answer, so a new try of `Think` begins anew. */
export const Tokens = ProgressStream.make("tokens", { chunk: Schema.String })

export const Think = DurableModel.make("Think", { tokens: Tokens })

const LookUpOrder = Tool.make("LookUpOrder", {
  parameters: Schema.Struct({ number: Schema.String }),
  success: Schema.String,
  failure: Schema.String,
  failureMode: "return" // the model reads it
})

const Refund = Tool.make("Refund", {
  parameters: Schema.Struct({ number: Schema.String }),
  success: Schema.String,
  needsApproval: true
})

const Orders = DurableToolkit.make(Toolkit.make(LookUpOrder, Refund))

/** A tool of several steps is a part of the program. */
const Research = Tool.make("Research", {
  parameters: Schema.Struct({ question: Schema.String }),
  success: Schema.String,
  dependencies: [Orchestration.Instance]
})

const Researches = Toolkit.make(Research)

const Search = Activity.make("Search", {
  payload: { source: Schema.String, question: Schema.String },
  success: Schema.String
})

const ResearchesLive = Researches.toLayer({
  Research: Effect.fn(function*({ question }) {
    yield* Orchestration.setCustomStatus("searching")
    const found = yield* Effect.forEach(
      ["the handbook", "the web"],
      (source) => Search.execute({ source, question }),
      { concurrency: "unbounded" }
    )
    return found.join(", ")
  })
})

const toolkit = Toolkit.merge(Orders.toolkit, Researches)

// -----------------------------------------------------------------------------
// conversation
// -----------------------------------------------------------------------------

export const Messages = Signal.make("Messages", { payload: Schema.String })

/** All that was said, as far as it fits: a value holds 65,536 bytes. */
export const Said = KeyValue.make("said", Prompt.Prompt)

export const Allowance = Budget.make("allowance", { calls: 100 })

/** Ends when no message has arrived for `idleFor`; its result is the number of answers. */
export const Chat = Orchestration.make("Chat", {
  payload: { idleFor: Schema.DurationFromString, answers: Schema.Int },
  success: Schema.Int
})

const ChatLive = Chat.toLayer(Effect.fn(
  function*({ answers, idleFor }) {
    yield* Orchestration.setCustomStatus("waiting for you")
    const message = yield* Effect.timeoutOption(Messages.wait, idleFor)
    if (Option.isNone(message)) return answers
    // People press enter too early: what follows quickly belongs to the same message.
    const lines = [message.value]
    yield* Effect.timeoutOption(
      Effect.forever(Effect.map(Messages.wait, (line) => void lines.push(line))),
      "100 millis"
    )

    yield* Orchestration.setCustomStatus("thinking")
    const chat = yield* AiChat.fromPrompt(Option.getOrElse(yield* Said.get, () => Prompt.empty))
    const prompt = lines.join("\n")
    yield* Conversation.answer(chat, { prompt, toolkit, approveWithin: "1 day" }).pipe(
      Allowance.limit,
      Effect.catch(() => sorry(chat, prompt))
    )
    yield* Said.set(Conversation.recent(yield* Ref.get(chat.history), { bytes: 4_000 }))
    // Values and unread messages go over, so the next execution has all it needs, and a small history.
    return yield* Chat.continueAsNew({ answers: answers + 1, idleFor })
  },
  Effect.provide(Layer.mergeAll(Think.layer, Orders.layer, ResearchesLive))
))

/** Answers without the model. */
const sorry = (chat: AiChat.Chat, prompt: string) =>
  Ref.update(chat.history, (said) =>
    Prompt.concat(said, [
      { role: "user", content: prompt },
      { role: "assistant", content: "I cannot answer now, sorry." }
    ]))

// -----------------------------------------------------------------------------
// handlers
// -----------------------------------------------------------------------------

const OrdersLive = Orders.toLayer({
  LookUpOrder: Effect.fn(function*({ number }) {
    yield* Console.log(`  looking up order ${number}`)
    yield* Effect.sleep("1 second") // a slow system
    return number === "42" ? "order 42 was sent on Monday" : yield* Effect.fail(`there is no order ${number}`)
  }),
  Refund: ({ number }) => Effect.as(Console.log(`  refunding order ${number}`), `order ${number} is refunded`)
})

const SearchLive = Search.toLayer(({ question, source }) =>
  Effect.as(Console.log(`  asking ${source}: ${question}`), `${source} says two days`)
)

export const RuntimeLive = Runtime.layer({
  orchestrations: [Chat],
  activities: [Think.activity, Search, ...Orders.activities]
}).pipe(
  Layer.provide([ChatLive, Think.layerHandler, SearchLive, OrdersLive])
)
