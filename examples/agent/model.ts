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
  readonly complete: (conversation: ReadonlyArray<Entry>) => Effect.Effect<typeof Reply.Type, Overloaded>
}>()("examples/agent/Model") {
  static readonly layerFake = Layer.succeed(Model, {
    complete: (conversation) =>
      Effect.sync(() => {
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
      })
  })
}
