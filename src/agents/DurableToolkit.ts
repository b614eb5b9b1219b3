/**
 * Durable toolkits: the tools of Effect's `Toolkit`, each an activity.
 *
 * A tool runs at least once for each call of the model, on any process that serves it, and its result is recorded once.
 *
 * @since 0.3.0
 */
import { AiError, Tool } from "effect/ai"
import type * as Toolkit from "effect/ai/Toolkit"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Activity from "../Activity.ts"
import type * as Orchestration from "../Orchestration.ts"
import { harmless, harmlessReason } from "./internal/errors.ts"

/**
 * A toolkit whose tools are activities.
 *
 * @category models
 * @since 0.3.0
 */
export interface DurableToolkit<in out Tools extends Record<string, Tool.Any>> {
  /** The toolkit that a program gives to its calls of the model. */
  readonly toolkit: Toolkit.Toolkit<Tools>
  /** The activities of the tools: list them in the `Runtime.layer` of the processes that run tools. */
  readonly activities: ReadonlyArray<ToolActivity<Names<Tools>>>
  /**
   * The tools as a program calls them. Provide it to the program, not to the runtime.
   *
   * **Details**
   *
   * A failure of the handler stays a typed failure, and `failureMode` says who gets it. If a timeout is exceeded, the
   * call fails with an `AiError`, reason `UnknownError`. A handler that dies is a defect of the program,
   * `Activity.ActivityDied`.
   */
  readonly layer: Layer.Layer<Tool.HandlersFor<Tools>, never, Orchestration.Instance>
  /**
   * Serves the tools: a handler for each, or an effect that makes them. Handlers may use any service, and
   * `Activity.Call`: its `idempotencyKey` is the same for all runs of one call of the tool.
   *
   * **Gotchas**
   *
   * `preliminary` of Effect's handlers does not exist here: the program gets the recorded result alone.
   */
  readonly toLayer: <H extends Handlers<Tools>, EX = never, RX = never>(
    build: H | Effect.Effect<H, EX, RX>
  ) => Layer.Layer<
    Activity.Handler<Names<Tools>>,
    EX,
    Exclude<RX, Scope.Scope> | Exclude<ServicesOf<H>, Activity.Call | Scope.Scope>
  >
}

/**
 * The handlers of a toolkit, by the names of the tools.
 *
 * @category models
 * @since 0.3.0
 */
export type Handlers<Tools extends Record<string, Tool.Any>> = {
  readonly [Name in Names<Tools>]: (
    params: Tool.Parameters<Tools[Name]>,
    context: ToolCall
  ) => Effect.Effect<
    Tool.Success<Tools[Name]>,
    Tool.Failure<Tools[Name]> | AiError.AiError | AiError.AiErrorReason,
    any
  >
}

/**
 * The call of a tool, as its handler sees it.
 *
 * @category models
 * @since 0.3.0
 */
export interface ToolCall {
  /** The id that the model gave to the call. */
  readonly toolCallId: string | undefined
}

/**
 * The activity of a tool, which has the name of the tool.
 *
 * @category models
 * @since 0.3.0
 */
export type ToolActivity<Name extends string> = Activity.Any & { readonly name: Name }

/**
 * Options of activities, for all tools; `each` has further options by the name of a tool. By default, no retries and no
 * timeouts.
 *
 * @category models
 * @since 0.3.0
 */
export interface Options<Name extends string> extends Omit<Activity.Options<unknown>, "sessionId"> {
  readonly each?: { readonly [N in Name]?: Omit<Activity.Options<unknown>, "sessionId"> } | undefined
}

/**
 * Makes each tool of a toolkit an activity, with the name of the tool, so no other activity may have it. Tools that the
 * provider of the model runs itself become no activities.
 *
 * **Details**
 *
 * To run a tool as steps of the program, for example as a child orchestration, put it in a toolkit of its own,
 * provide its handlers with `toolkit.toLayer`, and show the model both toolkits with `Toolkit.merge`.
 *
 * **Example** (A tool with its handler)
 *
 * ```ts
 * const LookUpOrder = Tool.make("LookUpOrder", {
 *   description: "Where an order is",
 *   parameters: Schema.Struct({ number: Schema.String }),
 *   success: Schema.String
 * })
 *
 * const Tools = DurableToolkit.make(Toolkit.make(LookUpOrder), { retry: { times: 3 } })
 *
 * const ToolsLive = Tools.toLayer({
 *   LookUpOrder: ({ number }) => Effect.flatMap(Orders, (orders) => orders.find(number))
 * })
 * ```
 *
 * @category constructors
 * @since 0.3.0
 */
export const make = <Tools extends Record<string, Tool.Any>>(
  toolkit: Toolkit.Toolkit<Tools>,
  options: Options<Names<Tools>> = {}
): DurableToolkit<Tools> => {
  const { each, ...all } = options
  const tools = Object.values(toolkit.tools).filter((tool) => !Tool.isProviderDefined(tool) || tool.requiresHandler)
  const activities = new Map(tools.map((tool): readonly [string, AnyActivity] => [
    tool.name,
    Activity.make(tool.name, {
      payload: Schema.Struct({
        params: Schema.isSchema(tool.parametersSchema) ? tool.parametersSchema as Schema.Codec<any> : Schema.Unknown,
        toolCallId: Schema.optionalKey(Schema.String)
      }),
      success: tool.successSchema as Schema.Codec<any>,
      error: Schema.Union([tool.failureSchema as Schema.Codec<any>, AiError.AiError, AiError.AiErrorReason]),
      ...all,
      ...each?.[tool.name as Names<Tools>]
    })
  ]))
  const inProgram = Object.fromEntries([...activities].map(([name, activity]) => [
    name,
    (params: unknown, { toolCallId }: { readonly toolCallId?: string | undefined }) =>
      Effect.catchIf(
        activity.execute({ params, ...(toolCallId === undefined ? {} : { toolCallId }) }),
        (error) => error instanceof Activity.ActivityTimedOut,
        ({ message }) => Effect.fail(new AiError.UnknownError({ description: message }))
      )
  ]))
  return {
    toolkit,
    activities: [...activities.values()] as never,
    layer: toolkit.toLayer(inProgram as never) as never,
    toLayer: (build) =>
      Layer.unwrap(
        Effect.gen(function*() {
          const services = yield* Effect.context<never>()
          const handlers = Effect.isEffect(build) ? yield* build : build
          return Layer.mergeAll(
            Layer.empty,
            ...[...activities].map(([name, activity]) =>
              activity.toLayer(({ params, toolCallId }) =>
                (handlers as unknown as Record<string, AnyHandler>)[name]!(params, { toolCallId }).pipe(
                  Effect.mapError((error) =>
                    AiError.isAiError(error)
                      ? harmless(error)
                      : AiError.isAiErrorReason(error)
                      ? harmlessReason(error)
                      : error
                  ),
                  Effect.updateContext((context) => Context.merge(services, context))
                )
              )
            )
          )
        })
      ) as never
  }
}

// internal

type Names<Tools extends Record<string, Tool.Any>> =
  & { readonly [Name in keyof Tools]: Tool.RequiresHandler<Tools[Name]> extends true ? Name : never }[keyof Tools]
  & string

type ServicesOf<H> = H[keyof H] extends (...args: any) => Effect.Effect<any, any, infer R> ? R : never

type AnyHandler = (params: unknown, context: ToolCall) => Effect.Effect<unknown, unknown, never>

type AnyActivity = Activity.Activity<string, any, any, any, Activity.ActivityTimedOut>
