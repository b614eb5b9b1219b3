/**
 * A stand-in for a language model: it calls tools when a message is about an order, and answers with their results. A
 * provider package has the real ones.
 */
import { Effect, Layer, Stream } from "effect"
import { LanguageModel, type Prompt, type Response } from "effect/ai"

/** A `LanguageModel` that answers what `reply` says. */
export const layer = (reply: (said: Prompt.Prompt) => Effect.Effect<Array<Response.PartEncoded>, never>) =>
  Layer.effect(
    LanguageModel.LanguageModel,
    LanguageModel.make({
      generateText: ({ prompt }) => reply(prompt),
      streamText: ({ prompt }) => Stream.fromIterableEffect(Effect.map(reply(prompt), (parts) => parts.flatMap(pieces)))
    })
  )

export const layerFake = layer((said) => Effect.sync(() => replyTo(said)))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const replyTo = ({ content }: Prompt.Prompt): Array<Response.PartEncoded> => {
  const asked = content.findLastIndex(({ role }) => role === "user")
  const question = textOf(content[asked])
  const found = content.slice(asked + 1).flatMap((message) =>
    message.role === "tool"
      ? message.content.flatMap((part) => part.type === "tool-result" ? shown(part.result) : [])
      : []
  )
  const number = /order (\d+)/.exec(question)?.[1]
  if (number === undefined) return [{ type: "text", text: `You said: ${question}` }, finish("stop")]
  if (found.length > 0) return [{ type: "text", text: found.join("; ") }, finish("stop")]
  const call = (name: string, params: unknown) => ({ type: "tool-call" as const, id: `${asked}/${name}`, name, params })
  return [
    ...(question.includes("refund")
      ? [call("Refund", { number })]
      : [call("LookUpOrder", { number }), call("Research", { question: "How long do parcels take?" })]),
    finish("tool-calls")
  ]
}

/** One word at a time, as models speak. */
const pieces = (part: Response.PartEncoded): ReadonlyArray<Response.StreamPartEncoded> =>
  part.type !== "text" ? [part as Response.StreamPartEncoded] : [
    { type: "text-start", id: "answer" },
    ...(part.text.match(/\S+\s*/g) ?? []).map((delta) => ({ type: "text-delta" as const, id: "answer", delta })),
    { type: "text-end", id: "answer" }
  ]

const textOf = (message: Prompt.Message | undefined) =>
  message?.role === "user"
    ? message.content.flatMap((part) => part.type === "text" ? part.text : []).join("")
    : ""

const shown = (result: unknown) => typeof result === "string" ? result : JSON.stringify(result)

const finish = (reason: Response.FinishReason): Response.PartEncoded => ({
  type: "finish",
  reason,
  usage: { inputTokens: { total: 100 }, outputTokens: { total: 10 } }
})
