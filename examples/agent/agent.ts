/**
 * A conversation with an agent that uses tools. Messages are signals, the conversation is a value that can be read
 * at any time, the words of an answer are a stream that can be read while the model speaks, and a process that dies in
 * the middle of a tool call costs nothing but time.
 */
import { Activity, KeyValue, Orchestration, ProgressStream, Runtime, Signal } from "duroxide-prisma"
import { Console, Effect, Layer, Option, Schedule, Schema } from "effect"
import { Entry, Model, Overloaded, Reply, type ToolCall } from "./model.ts"

// -----------------------------------------------------------------------------
// tools
// -----------------------------------------------------------------------------

export class UnknownOrder extends Schema.TaggedError<UnknownOrder>()("UnknownOrder", { number: Schema.String }) {}

export const LookUpOrder = Activity.make("LookUpOrder", {
  payload: Schema.String,
  success: Schema.String,
  error: UnknownOrder
})

export const Search = Activity.make("Search", {
  payload: Schema.Struct({ source: Schema.String, question: Schema.String }),
  success: Schema.String
})

/** A tool of several steps is an orchestration of its own. */
export const Research = Orchestration.make("Research", { payload: Schema.String, success: Schema.String })

const ResearchLive = Research.toLayer(Effect.fn(function*(question) {
  const found = yield* Effect.forEach(
    ["the handbook", "the web"],
    (source) => Search.execute({ source, question }),
    { concurrency: "unbounded" }
  )
  return found.join(", ")
}))

/** Whatever a tool answers, its failure too, is for the model to read. */
const useTool = (call: ToolCall): Effect.Effect<string, never, Orchestration.Instance> => {
  switch (call._tag) {
    case "LookUpOrder":
      return LookUpOrder.execute(call.number).pipe(
        Effect.catchTag("UnknownOrder", ({ number }) => Effect.succeed(`there is no order ${number}`))
      )
    case "Research":
      return Research.execute(call.question)
  }
}

// -----------------------------------------------------------------------------
// conversation
// -----------------------------------------------------------------------------

export const Messages = Signal.make("Messages", { payload: Schema.String })

/** All that was said, as far as it fits. */
export const Conversation = KeyValue.make("conversation", Schema.Array(Entry))

/** What the model says, word by word. It cannot repeat an answer, so a new try of `Think` begins anew. */
export const Tokens = ProgressStream.make("tokens", { chunk: Schema.String })

export const Think = Activity.make("Think", {
  payload: Schema.Array(Entry),
  success: Reply,
  error: Overloaded,
  retry: { schedule: Schedule.exponential("500 millis"), times: 5 }
})

/** Ends when no message has arrived for `idleFor`; its result is the number of answers. */
export const Chat = Orchestration.make("Chat", {
  payload: Schema.Struct({ idleFor: Schema.DurationFromString, answers: Schema.Int }),
  success: Schema.Int
})

const ChatLive = Chat.toLayer(Effect.fn(function*({ answers, idleFor }) {
  yield* Orchestration.setCustomStatus("waiting for you")
  const message = yield* Effect.timeoutOption(Messages.wait, idleFor)
  if (Option.isNone(message)) return answers

  yield* say("user", message.value)
  while (true) {
    yield* Orchestration.setCustomStatus("thinking")
    const reply = yield* Think.execute(yield* conversation).pipe(
      Effect.catchTag("Overloaded", () => Effect.succeed({ _tag: "Answer", text: "I am overloaded, sorry." } as const))
    )
    if (reply._tag === "Answer") {
      yield* say("assistant", reply.text)
      break
    }
    yield* Orchestration.setCustomStatus(`using ${reply.calls.map(({ _tag }) => _tag).join(" and ")}`)
    const results = yield* Effect.forEach(reply.calls, useTool, { concurrency: "unbounded" })
    for (const result of results) yield* say("tool", result)
  }
  // Values and unread messages go over, so the next execution has all it needs, and a small history.
  return yield* Chat.continueAsNew({ answers: answers + 1, idleFor })
}))

const conversation = Effect.map(Conversation.get, Option.getOrElse((): ReadonlyArray<Entry> => []))

/** A value holds 65,536 bytes: what no longer fits is forgotten, here by count. */
const say = Effect.fnUntraced(function*(role: Entry["role"], text: string) {
  yield* Conversation.set([...yield* conversation, { role, text: text.slice(0, 500) }].slice(-30))
})

// -----------------------------------------------------------------------------
// handlers
// -----------------------------------------------------------------------------

const ThinkLive = Think.toLayer((entries) => Effect.flatMap(Model, (model) => model.complete(entries, Tokens.append)))

const LookUpOrderLive = LookUpOrder.toLayer(Effect.fn(function*(number) {
  yield* Console.log(`  looking up order ${number}`)
  yield* Effect.sleep("1 second") // a slow system
  return number === "42" ? "order 42 was sent on Monday" : yield* new UnknownOrder({ number })
}))

const SearchLive = Search.toLayer(({ question, source }) =>
  Effect.as(Console.log(`  asking ${source}: ${question}`), `${source} says two days`)
)

export const RuntimeLive = Runtime.layer({
  orchestrations: [Chat, Research],
  activities: [Think, LookUpOrder, Search]
}).pipe(
  Layer.provide([ChatLive, ResearchLive, ThinkLive, LookUpOrderLive, SearchLive])
)
