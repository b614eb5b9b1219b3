/**
 * Conversations with `Chat` of Effect in an orchestration: one answer with its calls of tools, and what the next
 * execution keeps.
 *
 * @since 0.3.0
 */
import { type AiError, type Chat, type LanguageModel, Prompt, type Response, type Tool, type Toolkit } from "effect/ai"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Schema from "effect/Schema"
import type * as Orchestration from "../Orchestration.ts"
import * as Approval from "./Approval.ts"
import { storable } from "./internal/modelCall.ts"

/**
 * The model still called tools after the limit of calls.
 *
 * @category errors
 * @since 0.3.0
 */
export class Unfinished
  extends Schema.TaggedError<Unfinished>("duroxide-prisma/agents/Unfinished")("Unfinished", { calls: Schema.Int })
{
  override get message() {
    return `the model still asks for tools after ${this.calls} calls`
  }
}

/**
 * Sends a prompt to the model and returns its answer. Runs the tools that the model calls, asks people about tools that
 * need approval, and calls the model again until it calls no more tools.
 *
 * **Details**
 *
 * Fails with `Unfinished` if the model calls tools in `maxCalls` answers in a row, 20 by default. `approveWithin` is
 * how long people have to decide; by default, there is no limit.
 *
 * **Example** (A message and its answer)
 *
 * ```ts
 * const chat = yield* Chat.fromPrompt(yesterday)
 * const { text } = yield* Conversation.answer(chat, { prompt: "Where is my order 42?", toolkit: Tools.toolkit })
 * ```
 *
 * @category combinators
 * @since 0.3.0
 */
export const answer = Effect.fnUntraced(
  function*<Tools extends Record<string, Tool.Any>>(chat: Chat.Chat, options: {
    readonly prompt: Prompt.RawInput
    readonly toolkit: Toolkit.Toolkit<Tools>
    readonly approveWithin?: Duration.Input | undefined
    readonly maxCalls?: number | undefined
  }): Effect.fn.Return<
    LanguageModel.GenerateTextResponse<Tools, "opaque">,
    AiError.AiError | Tool.HandlerError<Tools[keyof Tools]> | Unfinished,
    | LanguageModel.LanguageModel
    | LanguageModel.ExtractServices<{ readonly toolkit: Toolkit.Toolkit<Tools> }>
    | Tool.HandlersFor<Tools>
    | Orchestration.Instance
  > {
    const { approveWithin, maxCalls = 20, toolkit } = options
    let prompt = options.prompt
    for (let calls = 0; calls < maxCalls; calls++) {
      const before = Prompt.concat(yield* Ref.get(chat.history), Prompt.make(prompt))
      const response = yield* chat.generateText({ prompt, toolkit })
      yield* Ref.set(chat.history, continued(before, response.content))
      const decided = yield* Approval.ask(response.content, { within: approveWithin })
      if (Option.isNone(decided) && response.toolCalls.every(({ providerExecuted }) => providerExecuted)) {
        return response
      }
      prompt = Option.getOrElse(decided, () => Prompt.empty)
    }
    return yield* new Unfinished({ calls: maxCalls })
  }
)

/**
 * Returns the newest messages of a conversation, for the payload of `continueAsNew`: the system messages, and as many
 * of the newest messages as fit into `bytes` of JSON, from a message of the user on. Always keeps the last message of
 * the user and everything after it.
 *
 * **Details**
 *
 * `bytes` defaults to 100,000. Each call of the model records its whole prompt, so ten calls with a conversation of
 * that size are a megabyte of history. A call refuses more than 4 MiB. Results of tools that are `undefined` become
 * null, so that they can be stored.
 *
 * @category combinators
 * @since 0.3.0
 */
export const recent = (prompt: Prompt.Prompt, options: { readonly bytes?: number | undefined } = {}): Prompt.Prompt => {
  const { bytes = 100_000 } = options
  const { content } = storable(prompt)
  const system = content.filter(({ role }) => role === "system")
  const rest = content.filter(({ role }) => role !== "system")
  let size = 0
  let from = rest.length
  for (let index = rest.length - 1; index >= 0; index--) {
    size += sizeOf(rest[index]!)
    if (rest[index]!.role !== "user") continue
    if (size > bytes && from < rest.length) break
    from = index
  }
  return Prompt.fromMessages([...system, ...rest.slice(from)])
}

// internal

/**
 * The history with an answer. Results of tools that were approved stand first in it; `Chat` puts them behind the text
 * of the answer, where providers refuse them.
 */
const continued = (before: Prompt.Prompt, content: ReadonlyArray<Response.AnyPart>): Prompt.Prompt => {
  const found = content.findIndex(({ type }) => type !== "tool-result")
  const results = found === -1 ? content.length : found
  return Prompt.concat(
    Prompt.concat(before, Prompt.fromResponseParts(content.slice(0, results))),
    Prompt.fromResponseParts(content.slice(results))
  )
}

const encode = Schema.encodeSync(Schema.toCodecJson(Prompt.Prompt))

const sizeOf = (message: Prompt.Message) =>
  new TextEncoder().encode(JSON.stringify(encode(Prompt.fromMessages([message])))).length
