/**
 * Durable models: `LanguageModel` of Effect for programs of orchestrations.
 *
 * Each call of the model is an activity, with the prompt as its payload and the answer as its recorded result. A call
 * that was answered is never made again, whatever happens to the process. One that was under way when its process died
 * is made again, on any process that serves the model.
 *
 * @since 0.3.0
 */
import { AiError, LanguageModel } from "effect/ai"
import type * as Response from "effect/ai/Response"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Activity from "../Activity.ts"
import { maxPayloadBytes } from "../model/shared/payload.ts"
import type * as Orchestration from "../Orchestration.ts"
import { Ledgers } from "./internal/ledgers.ts"
import * as modelCalls from "./internal/modelCall.ts"
import * as pieces from "./internal/pieces.ts"

/**
 * A model that orchestrations call.
 *
 * @category models
 * @since 0.3.0
 */
export interface DurableModel<in out Name extends string> {
  readonly name: Name
  /** The activity that calls the model: list it in the `Runtime.layer` of the processes that do. */
  readonly activity: Activity.Activity<
    Name,
    typeof modelCalls.ModelCall,
    typeof modelCalls.ModelAnswer,
    typeof AiError.AiError
  >
  /** Serves the activity with the `LanguageModel` of a provider. */
  readonly layerHandler: Layer.Layer<Activity.Handler<Name>, never, LanguageModel.LanguageModel>
  /**
   * The `LanguageModel` of a program. Provide it to the program, not to the runtime.
   *
   * **Details**
   *
   * `generateText`, `generateObject`, `streamText`, toolkits and `Chat` work as anywhere. Tools run where the program
   * runs: give them handlers that are made of activities, as `DurableToolkit` does.
   *
   * `streamText` gives all parts when the answer is complete; pieces of one text are joined.
   *
   * A call fails with the last `AiError` of the provider, after all retries of this model. If a timeout is exceeded,
   * the reason is `InternalProviderError`. A prompt larger than 4 MiB of JSON is an `InvalidRequestError`, and so large
   * an answer an `UnknownError`. Errors are recorded without headers, bodies and queries of HTTP.
   *
   * **Gotchas**
   *
   * Prompt, tools and the Schema of an object are part of the call. If a new build asks for something else, executions
   * that have asked before are blocked. Keep the executions of a chat short with `continueAsNew`.
   */
  readonly layer: Layer.Layer<LanguageModel.LanguageModel, never, Orchestration.Instance>
  /** Returns the same model with other options of its calls. */
  readonly with: (options: CallOptions) => DurableModel<Name>
}

/**
 * Options of the calls of a model: those of an activity. By default, a call is retried up to 5 times: after an error
 * that the provider calls retryable, after a timeout, and after a death of the handler. Pauses begin with 1 second and
 * double, or are longer if the provider asks for it.
 *
 * @category models
 * @since 0.3.0
 */
export type CallOptions = Activity.Options<AiError.AiError>

/**
 * Options of a model.
 *
 * @category models
 * @since 0.3.0
 */
export interface Options extends Omit<CallOptions, "sessionId"> {
  /**
   * Computes the cost of an answer, in any unit, for budgets. It runs in the process that calls the model, and its
   * result is recorded, so a new price does not change earlier costs. `model` is the id that the provider has reported.
   * Defaults to no price.
   */
  readonly price?: ((usage: Response.Usage, model: string | undefined) => number) | undefined
  /**
   * Gets the texts of answers piece by piece while the model writes: for example a `ProgressStream`, which clients
   * read. Calls of `generateText` are then streamed from the provider, too. If a try fails, the next one starts over.
   */
  readonly tokens?: Tokens | undefined
}

/**
 * Where pieces of answers go. `append` runs in the handler of the activity.
 *
 * **Details**
 *
 * A piece that `append` dies of, or that no store can hold, is left out, with a warning in the log: the call does not
 * fail. Half of a character waits for the piece with the other half.
 *
 * @category models
 * @since 0.3.0
 */
export interface Tokens {
  readonly append: (text: string) => Effect.Effect<void, never, any>
  /** A piece with more bytes of JSON text in UTF-8 is split. Defaults to no limit. */
  readonly maxChunkBytes?: number | undefined
}

/**
 * Defines a model. Its name is the name of an activity, so no other activity may have it.
 *
 * **Example** (A program that calls a model, and the process that serves it)
 *
 * ```ts
 * const Assistant = DurableModel.make("Assistant", { timeout: "5 minutes" })
 *
 * const SummaryLive = Summary.toLayer(Effect.fn(function*(text) {
 *   const { text: summary } = yield* LanguageModel.generateText({ prompt: `Summarize: ${text}` })
 *   return summary
 * }, Effect.provide(Assistant.layer)))
 *
 * const RuntimeLive = Runtime.layer({ orchestrations: [Summary], activities: [Assistant.activity] }).pipe(
 *   Layer.provide([SummaryLive, Assistant.layerHandler]),
 *   Layer.provide(ProviderModel) // the LanguageModel of any provider package
 * )
 * ```
 *
 * @category constructors
 * @since 0.3.0
 */
export const make = <const Name extends string>(name: Name, options: Options = {}): DurableModel<Name> => {
  const { price, tokens, ...calls } = options
  const activity = Activity.make(name, {
    payload: modelCalls.ModelCall,
    success: modelCalls.ModelAnswer,
    error: AiError.AiError,
    retry: retryable,
    ...calls
  }) as Activity.Activity<
    Name,
    typeof modelCalls.ModelCall,
    typeof modelCalls.ModelAnswer,
    typeof AiError.AiError
  >
  const handler = Effect.fnUntraced(function*(call: modelCalls.ModelCall) {
    const content = yield* modelCalls.run(
      call,
      yield* LanguageModel.LanguageModel,
      tokens && pieces.writer(name, tokens)
    )
    const answer: modelCalls.ModelAnswer = { content }
    yield* checkSize(answer)
    const usage = modelCalls.usageOf(answer)
    if (price === undefined || usage === undefined) return answer
    return { content, cost: price(usage, content.find((part) => part.type === "response-metadata")?.modelId) }
  })
  return withCalls(activity, activity.toLayer<LanguageModel.LanguageModel>(handler))
}

// internal

const withCalls = <Name extends string>(
  activity: DurableModel<Name>["activity"],
  layerHandler: DurableModel<Name>["layerHandler"]
): DurableModel<Name> => ({
  name: activity.name,
  activity,
  layerHandler,
  layer: Layer.effect(LanguageModel.LanguageModel, modelOf(activity)),
  with: (options) => withCalls(activity.with(options) as typeof activity, layerHandler)
})

/**
 * The model of a program. It keeps no engine, because instances may share a layer: `execute` finds the engine in
 * the fiber that calls.
 */
const modelOf = <Name extends string>(activity: DurableModel<Name>["activity"]) => {
  const ask = (method: "generateText" | "streamText", options: LanguageModel.ProviderOptions) =>
    Effect.gen(function*() {
      const call = modelCalls.ofOptions(method, options)
      yield* checkPrompt(call, method)
      const ledgers = yield* Ledgers
      for (const { check } of ledgers) yield* check
      for (const { begin } of ledgers) yield* begin
      const answer = yield* Effect.catchIf(
        activity.execute(call) as Effect.Effect<modelCalls.ModelAnswer, AiError.AiError | Activity.ActivityTimedOut>,
        (error) => error instanceof Activity.ActivityTimedOut,
        (error) =>
          AiError.make({
            module: activity.name,
            method,
            reason: new AiError.InternalProviderError({ description: error.message })
          })
      )
      for (const { end } of ledgers) yield* end(modelCalls.usageOf(answer), answer.cost ?? 0)
      return modelCalls.partsOf(answer)
    })
  return LanguageModel.make({
    generateText: (options) =>
      ask("generateText", options) as Effect.Effect<Array<Response.PartEncoded>, AiError.AiError>,
    streamText: (options) =>
      Stream.fromIterableEffect(
        ask("streamText", options) as Effect.Effect<Array<Response.StreamPartEncoded>, AiError.AiError>
      )
  })
}

const encoder = new TextEncoder()

/** Room for what the definition of the call has besides the prompt. */
const checkPrompt = (call: modelCalls.ModelCall, method: string) => {
  const bytes = encoder.encode(JSON.stringify(call)).length
  return bytes <= maxPayloadBytes ? Effect.void : Effect.fail(AiError.make({
    module: "DurableModel",
    method,
    reason: new AiError.InvalidRequestError({
      parameter: "prompt",
      description: `prompt and tools have ${bytes} bytes, the limit is ${maxPayloadBytes}: keep fewer messages`
    })
  }))
}

const encodeAnswer = Schema.encodeSync(Schema.toCodecJson(modelCalls.ModelAnswer))

const checkSize = (answer: modelCalls.ModelAnswer) =>
  Effect.suspend(() => {
    const bytes = encoder.encode(JSON.stringify(encodeAnswer(answer))).length
    return bytes <= maxPayloadBytes ? Effect.void : Effect.fail(AiError.make({
      module: "DurableModel",
      method: "generateText",
      reason: new AiError.UnknownError({
        description:
          `the answer has ${bytes} bytes, the limit is ${maxPayloadBytes}: let the model write files elsewhere`
      })
    }))
  })

/** See `CallOptions`. */
const retryable: Activity.Retry<AiError.AiError> = {
  times: 5,
  while: (outcome) => outcome._tag !== "AiError" || outcome.isRetryable,
  schedule: Schedule.exponential("1 second").pipe(
    Schedule.setInputType<Activity.BadOutcome<AiError.AiError>>(),
    Schedule.modifyDelay(({ duration, input }) => {
      const asked = input._tag === "AiError" ? input.retryAfter : undefined
      return Effect.succeed(asked === undefined ? duration : Duration.max(asked, duration))
    })
  )
}
