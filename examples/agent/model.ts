/**
 * A stand-in for a language model: it asks for tools when a message mentions an order, and answers with their results.
 */
import { Context, Effect, Layer, Schema } from "effect"

export const Entry = Schema.Struct({ role: Schema.Literals(["user", "tool", "assistant"]), text: Schema.String })

export type Entry = typeof Entry.Type

export const ToolCall = Schema.Union([
  Schema.TaggedStruct("LookUpOrder", { number: Schema.String }),
  Schema.TaggedStruct("Research", { question: Schema.String })
])

export type ToolCall = typeof ToolCall.Type

/** What a model answers: text for the user, or tools to be used first. */
export const Reply = Schema.Union([
  Schema.TaggedStruct("Answer", { text: Schema.String }),
  Schema.TaggedStruct("UseTools", { calls: Schema.NonEmptyArray(ToolCall) })
])

export class Overloaded extends Schema.TaggedError<Overloaded>()("Overloaded", {}) {}

export class Model extends Context.Service<Model, {
  /** Calls `onToken` with each piece of an answer as soon as it is known. */
  readonly complete: <R>(
    conversation: ReadonlyArray<Entry>,
    onToken: (token: string) => Effect.Effect<void, never, R>
  ) => Effect.Effect<typeof Reply.Type, Overloaded, R>
}>()("examples/agent/Model") {
  static readonly layerFake = Layer.succeed(Model, {
    complete: (conversation, onToken) => {
      const reply = replyTo(conversation)
      // One word at a time, as models do.
      const words = reply._tag === "Answer" ? reply.text.match(/\S+\s*/g) ?? [] : []
      const speak = Effect.forEach(words, (word) => Effect.andThen(onToken(word), Effect.sleep("20 millis")))
      return Effect.as(speak, reply)
    }
  })
}

const replyTo = (conversation: ReadonlyArray<Entry>): typeof Reply.Type => {
  const said = conversation.findLast(({ role }) => role === "user")?.text ?? ""
  const found = conversation.slice(conversation.findLastIndex(({ role }) => role === "user") + 1)
  const number = /order (\d+)/.exec(said)?.[1]
  if (number === undefined) return { _tag: "Answer", text: `You said: ${said}` }
  if (found.length > 0) return { _tag: "Answer", text: found.map(({ text }) => text).join("; ") }
  return {
    _tag: "UseTools",
    calls: [
      { _tag: "LookUpOrder", number },
      { _tag: "Research", question: "How long do parcels take?" }
    ]
  }
}
