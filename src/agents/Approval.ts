/**
 * Approvals: people decide whether a tool runs.
 *
 * A tool with `needsApproval` asks for a decision instead of running. `ask` stores the calls that wait in a value of
 * the instance, and waits for the decisions, for days if need be.
 *
 * @since 0.3.0
 */
import { Prompt, type Response } from "effect/ai"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as KeyValue from "../KeyValue.ts"
import type * as Orchestration from "../Orchestration.ts"
import * as Request from "../Request.ts"

/**
 * A call of a tool that waits for a decision.
 *
 * @category models
 * @since 0.3.0
 */
export const Call = Schema.Struct({
  approvalId: Schema.String,
  tool: Schema.String,
  /** The parameters of the call: JSON text, cut if it is long. */
  params: Schema.String
})

/**
 * A call of a tool that waits for a decision.
 *
 * @category models
 * @since 0.3.0
 */
export type Call = typeof Call.Type

/**
 * The calls of an instance that wait for decisions, for `client.read` and `client.waitForValue`. None while nothing
 * waits, and none after an interruption.
 *
 * **Gotchas**
 *
 * An instance that is terminated, or that fails without its program, cannot clear the value: it keeps the calls that
 * waited. Before you show them to people, see that `client.status` is `Running`.
 *
 * @category values
 * @since 0.3.0
 */
export const open = KeyValue.make("approvals", Schema.Array(Call))

/**
 * The request with a decision: `client.request(Approval.decide, id, { approvalId, approved: true }, { requestId:
 * approvalId })`. With the `approvalId` as `requestId`, the first decision counts, and later callers get its answer.
 * Fails with `"NotOpen"` if this call does not wait for a decision.
 *
 * **Gotchas**
 *
 * While no call waits, a decision waits for the next one, or the end of the instance: give it a `timeout`.
 *
 * @category values
 * @since 0.3.0
 */
export const decide = Request.make("approval", {
  payload: {
    approvalId: Schema.String,
    approved: Schema.Boolean,
    /** The model gets this reason if the call is denied. */
    reason: Schema.optionalKey(Schema.String)
  },
  success: Schema.Struct({ approved: Schema.Boolean }),
  error: Schema.Literal("NotOpen")
})

/**
 * Waits for decisions about all calls of tools in an answer that need approval. Returns the message with the decisions
 * for the model, or `none` if no call needs one. An instance may have one `ask` at a time.
 *
 * **Details**
 *
 * With `within`, calls that are undecided after this time are denied. Defaults to no limit.
 *
 * **Example** (The next answer, when all is decided)
 *
 * ```ts
 * const answer = yield* chat.generateText({ prompt, toolkit })
 * const decided = yield* Approval.ask(answer.content, { within: "1 day" })
 * if (Option.isSome(decided)) yield* chat.generateText({ prompt: decided.value, toolkit })
 * ```
 *
 * @category combinators
 * @since 0.3.0
 */
export const ask = Effect.fnUntraced(function*(
  content: ReadonlyArray<Response.AnyPart>,
  options: { readonly within?: Duration.Input | undefined } = {}
): Effect.fn.Return<Option.Option<Prompt.Prompt>, never, Orchestration.Instance> {
  const calls = new Map(content.flatMap((part) => part.type === "tool-call" ? [[part.id, part]] : []))
  const asked = content.filter((part) => part.type === "tool-approval-request")
  if (asked.length === 0) return Option.none()
  const length = Math.floor(maxParams / asked.length)
  let undecided = asked.map(({ approvalId, toolCallId }): Call => {
    const call = calls.get(toolCallId)
    return { approvalId, tool: call?.name ?? "", params: (JSON.stringify(call?.params) ?? "").slice(0, length) }
  })
  const decided = new Map<string, typeof decide.payload.Type>()
  yield* Effect.gen(function*() {
    while (undecided.length > 0) {
      yield* open.set(undecided)
      const { answer, payload, refuse } = yield* decide.take
      if (undecided.every(({ approvalId }) => approvalId !== payload.approvalId)) {
        yield* refuse("NotOpen")
        continue
      }
      decided.set(payload.approvalId, payload)
      undecided = undecided.filter(({ approvalId }) => approvalId !== payload.approvalId)
      yield* answer({ approved: payload.approved })
    }
  }).pipe(
    options.within === undefined ? Effect.asVoid : Effect.timeoutOption(options.within),
    Effect.ensuring(open.clear)
  )
  return Option.some(Prompt.fromMessages([
    Prompt.makeMessage("tool", {
      content: asked.map(({ approvalId }) => {
        const { approved, reason } = decided.get(approvalId) ??
          { approved: false, reason: "no one has decided in time" }
        return Prompt.makePart("tool-approval-response", {
          approvalId,
          approved,
          reason: reason ?? (approved ? undefined : "it was denied")
        })
      })
    })
  ]))
})

// internal

/** Characters of parameters of all calls together: a value holds 65,536 bytes. */
const maxParams = 16_000
