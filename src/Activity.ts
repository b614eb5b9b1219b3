/**
 * Activities: the steps of an orchestration that touch the world.
 *
 * An activity runs at least once, on any worker that has a handler for its name. Its result is recorded once, so the
 * orchestration sees one outcome however often the handler ran. Handlers that change something should pass
 * `Context.idempotencyKey` on to what they change: it is the same for every attempt of one call.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as ContextModule from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as ErrorDetails from "./ErrorDetails.ts"
import * as payloads from "./internal/payload.ts"
import type { PayloadSchema } from "./internal/payload.ts"
import { OrchestrationContext } from "./internal/replay/context.ts"
import { storable } from "./internal/text.ts"

/**
 * A named step with the Schemas of what goes in and comes out.
 *
 * @category models
 * @since 0.1.0
 */
export interface Activity<
  in out Name extends string,
  in out Payload extends PayloadSchema,
  in out Success extends PayloadSchema,
  in out Error extends PayloadSchema
> {
  readonly name: Name
  readonly payload: Payload
  readonly success: Success
  readonly error: Error
  /**
   * Runs the activity from an orchestration and waits for its recorded outcome.
   *
   * **Details**
   *
   * A failure of the handler arrives as a typed failure. A handler that died, or answered with something its Schema
   * refuses, arrives as the defect `ActivityDied`. Interruption cancels the activity: it is not started any more, or a
   * running handler is interrupted.
   *
   * **Gotchas**
   *
   * A cancelled activity may or may not have had its effect. `Effect.all` interrupts the others when one of them fails;
   * where each effect must be known to be undone, wait for all of them, for example with `Effect.partition`.
   *
   * A handler that dies is not run again: make passing faults typed failures and retry them, here or in the handler.
   */
  readonly execute: (payload: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], OrchestrationContext>
  /**
   * The handler, as a layer for `Runtime.layer`. It may use any service; what it fails with and dies of is recorded.
   */
  readonly toLayer: <R>(
    handler: (payload: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], R>
  ) => Layer.Layer<Handler<Name>, never, Exclude<R, Context | Scope.Scope>>
}

/**
 * @category models
 * @since 0.1.0
 */
export interface Any {
  readonly name: string
  readonly execute: (payload: never) => Effect.Effect<unknown, unknown, OrchestrationContext>
}

/**
 * Marks, in the type of a layer, that a handler of the activity `Name` is there.
 *
 * @category models
 * @since 0.1.0
 */
export interface Handler<Name extends string> {
  readonly _: unique symbol
  readonly name: Name
}

/**
 * What a handler may know of the call it serves.
 *
 * @category context
 * @since 0.1.0
 */
export class Context extends ContextModule.Service<Context, {
  readonly activityName: string
  readonly instanceId: string
  readonly executionId: number
  /** Event id of the call in its execution. */
  readonly activityId: number
  /** Deliveries of this call so far, from 1. More than 1 means that an earlier attempt may have had its effects. */
  readonly attempt: number
  /** The same for all attempts of one call, different for every other call of every instance. */
  readonly idempotencyKey: string
}>()("duroxide-prisma/Activity/Context") {}

/**
 * A handler died, or its answer did not match its Schema. A defect in the orchestration, because no typed code expects
 * it; `Effect.catchDefect` sees it.
 *
 * @category errors
 * @since 0.1.0
 */
export class ActivityDied extends Schema.TaggedError<ActivityDied>("duroxide-prisma/ActivityDied")("ActivityDied", {
  activityName: Schema.String,
  problem: Schema.String
}) {
  override get message() {
    return `activity "${this.activityName}" died: ${this.problem}`
  }
}

/**
 * Defines an activity. The name is what histories and queues know it by: renaming it strands running instances.
 *
 * **Details**
 *
 * `payload` and `success` default to `Schema.Void`, `error` to `Schema.Never`. All three travel as JSON text.
 *
 * **Example** (An activity and its handler)
 *
 * ```ts
 * const Charge = Activity.make("Charge", { payload: Order, success: Receipt, error: CardDeclined })
 *
 * const ChargeLive = Charge.toLayer(Effect.fn(function*(order) {
 *   const { idempotencyKey } = yield* Activity.Context
 *   return yield* Payments.charge(order, { idempotencyKey })
 * }))
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <
  const Name extends string,
  Payload extends PayloadSchema = Schema.Void,
  Success extends PayloadSchema = Schema.Void,
  Error extends PayloadSchema = Schema.Never
>(name: Name, options?: {
  readonly payload?: Payload
  readonly success?: Success
  readonly error?: Error
}): Activity<Name, Payload, Success, Error> => {
  const payload = options?.payload ?? Schema.Void as unknown as Payload
  const success = options?.success ?? Schema.Void as unknown as Success
  const error = options?.error ?? Schema.Never as unknown as Error
  const input = payloads.make(`payload of activity "${name}"`, payload)
  const result = payloads.make(`result of activity "${name}"`, success)
  const failure = payloads.make(`error of activity "${name}"`, error)
  const died = (problem: string) => Effect.die(new ActivityDied({ activityName: name, problem }))

  return {
    name,
    payload,
    success,
    error,
    execute: Effect.fnUntraced(function*(value: Payload["Type"]) {
      const { perform } = yield* OrchestrationContext
      const answer = yield* perform({ _tag: "CallActivity", name, input: yield* Effect.orDie(input.encode(value)) })
      if (answer._tag === "ActivityCompleted") return yield* Effect.orDie(result.decode(answer.result))
      const { details } = answer
      const typed = details._tag === "Application" && details.kind === "ActivityFailed"
        ? failure.decodeOption(details.message)
        : Option.none()
      return yield* Option.isSome(typed) ? Effect.fail(typed.value) : died(problemOf(details))
    }),
    toLayer: (handler) =>
      Layer.effect(
        handlerKey(name),
        Effect.map(Effect.context<never>(), (services) => ({
          run: (text) =>
            input.decode(text).pipe(
              Effect.orDie,
              Effect.flatMap((value) => Effect.scoped(Effect.suspend(() => handler(value)))),
              Effect.provideContext(services) as <A, E>(
                self: Effect.Effect<A, E, any>
              ) => Effect.Effect<A, E, Context>,
              Effect.matchCauseEffect({
                onSuccess: (value) => Effect.orDie(result.encode(value)),
                onFailure: (cause) => {
                  const typed = Cause.findErrorOption(cause)
                  return Option.isSome(typed)
                    ? Effect.flatMap(
                      Effect.orDie(failure.encode(typed.value)),
                      (message) => Effect.fail(ErrorDetails.application("ActivityFailed", message))
                    )
                    : Effect.failCause(cause as Cause.Cause<never>)
                }
              }),
              Effect.catchDefect((defect) => Effect.fail(ErrorDetails.application("Panicked", describeDefect(defect))))
            )
        }))
      ) as never
  }
}

/**
 * How the runtime finds a handler.
 *
 * @internal
 */
export interface HandlerService {
  /** Fails with what is recorded; only interruption stays what it is. */
  readonly run: (input: string) => Effect.Effect<string, ErrorDetails.ErrorDetails, Context>
}

/** @internal */
export const handlerKey = <Name extends string>(name: Name): ContextModule.Key<Handler<Name>, HandlerService> =>
  ContextModule.Service<Handler<Name>, HandlerService>(`duroxide-prisma/Activity/${name}`)

// internal

// What a Rust client would show calls every panic one of the orchestration.
const problemOf = (details: ErrorDetails.ErrorDetails) =>
  details._tag === "Application" && details.kind === "Panicked" ? details.message : ErrorDetails.display(details)

const describeDefect = (defect: unknown) =>
  storable(defect instanceof globalThis.Error ? defect.message || defect.name : String(defect))
