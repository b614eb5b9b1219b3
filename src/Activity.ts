/**
 * Activities: the steps of an orchestration that touch the world.
 *
 * An activity runs at least once, on any worker that has a handler for its name and takes its tag. Its result is recorded
 * once, so the orchestration sees one outcome however often the handler ran. Handlers that change something should pass
 * `Call.idempotencyKey` on to what they change: it is the same for all tries and deliveries of one call.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as ErrorDetails from "./model/ErrorDetails.ts"
import * as checks from "./model/internal/activityOptions.ts"
import { checkNameUnsafe } from "./model/internal/definitions.ts"
import type { ServedBy } from "./model/internal/definitions.ts"
import { harmlessIn } from "./model/internal/logging.ts"
import * as payloads from "./model/internal/payload.ts"
import type { PayloadInput, PayloadSchema, SchemaOf } from "./model/internal/payload.ts"
import type { TryOf } from "./replay/action.ts"
import { engine } from "./replay/context.ts"
import type { OrchestrationContext, WithoutOrchestration } from "./replay/context.ts"
import type { Call } from "./runtime/activityCall.ts"
import { activityKey } from "./runtime/handlers.ts"
import type { ActivityHandler } from "./runtime/handlers.ts"

/**
 * What an orchestration can call: a named step with the Schemas of what goes in and comes out. Its handler is one of this
 * package, or of Duroxide in Rust.
 *
 * @category models
 * @since 0.1.0
 */
export interface Callable<
  in out Name extends string,
  in out Payload extends PayloadSchema,
  in out Success extends PayloadSchema,
  in out Error extends PayloadSchema,
  out TimedOut extends ActivityTimedOut = never
> {
  readonly name: Name
  readonly servedBy: ServedBy
  readonly payload: Payload
  readonly success: Success
  readonly error: Error
  /**
   * Runs the activity from an orchestration and waits for its recorded outcome.
   *
   * **Details**
   *
   * A failure of the handler arrives as a typed failure. A handler that died, or answered with something its Schema
   * refuses, arrives as the defect `ActivityDied`. With a timeout, `ActivityTimedOut` is one more typed failure.
   * Interruption cancels the activity: it is not started any more, or a running handler is interrupted.
   *
   * **Gotchas**
   *
   * A cancelled activity may or may not have had its effect. `Effect.all` interrupts the others when one of them fails;
   * where each effect must be known to be undone, wait for all of them, for example with `Effect.partition`.
   *
   * What a handler dies of is recorded at once, as any other outcome: only `retry` makes another call of it.
   */
  readonly execute: (
    payload: Payload["Type"]
  ) => Effect.Effect<Success["Type"], Error["Type"] | TimedOut, OrchestrationContext>
  /**
   * The same activity with other options; those not named stay as they are.
   *
   * **Details**
   *
   * Throws a `RangeError` on an option that cannot work. In an orchestration that is a defect.
   *
   * **Example** (Options of one call)
   *
   * ```ts
   * yield* Render.with({ sessionId: `video-${id}`, tag: "gpu", timeout: "10 minutes" }).execute(frame)
   * ```
   */
  readonly with: <Timeout extends Duration.Input = never, TotalTimeout extends Duration.Input = never>(
    options: Options<Error["Type"], Timeout, TotalTimeout>
  ) => Callable<Name, Payload, Success, Error, TimedOut | TimedOutBy<Timeout | TotalTimeout>>
}

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
  in out Error extends PayloadSchema,
  out TimedOut extends ActivityTimedOut = never
> extends Callable<Name, Payload, Success, Error, TimedOut> {
  readonly servedBy: "typescript"
  /** As that of `Callable`. */
  readonly with: <Timeout extends Duration.Input = never, TotalTimeout extends Duration.Input = never>(
    options: Options<Error["Type"], Timeout, TotalTimeout>
  ) => Activity<Name, Payload, Success, Error, TimedOut | TimedOutBy<Timeout | TotalTimeout>>
  /**
   * The handler, as a layer for `Runtime.layer`. It may use any service; what it fails with and dies of is recorded.
   */
  readonly toLayer: <R>(
    handler:
      & ((payload: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], R>)
      & WithoutOrchestration<R>
  ) => Layer.Layer<ActivityHandler<Name>, never, Exclude<R, Call | Scope.Scope>>
}

/**
 * How an activity is called. A convenience: each of them is a plain Effect combinator over recorded calls and durable
 * timers, so `Effect.retry` and `Effect.timeout` around `execute` work as well.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options<
  E,
  Timeout extends Duration.Input = Duration.Input,
  TotalTimeout extends Duration.Input = Duration.Input
> {
  /**
   * Calls the activity again after a bad outcome. Defaults to no retry.
   *
   * **Details**
   *
   * Each try is a recorded call of its own, pauses are durable timers. Unlike `Effect.retry` around `execute`, which sees
   * typed failures only, it also covers `ActivityDied`: behind a handler are machines and libraries, whose passing faults
   * often are defects, and a bug that was deployed can be mended while the retries go on. `while` narrows that. The
   * outcome of the last try is the one the orchestration sees.
   *
   * **Gotchas**
   *
   * All tries have the same idempotency key, so what takes the key has its effect once. A service that answers a known key
   * with its recorded failure needs another key for another try: add `tryNumber` to it.
   *
   * `Effect.retry` around `execute` makes further calls, each with a key of its own.
   */
  readonly retry?: Retry<E>
  /**
   * Longest time of one try, from the call on: waiting in the queue counts. Then the handler is interrupted, and the try
   * fails with `ActivityTimedOut`. Defaults to none; must be more than 0.
   */
  readonly timeout?: Timeout
  /** Longest time of all tries and the pauses between them; as `timeout`. */
  readonly totalTimeout?: TotalTimeout
  /**
   * Only workers whose `RuntimeConfig` takes this tag run the activity; without one, those that take untagged work. At
   * most 256 bytes. An activity whose tag no worker takes waits.
   */
  readonly tag?: string
  /**
   * All activities of one session run in one process, one after the other or at once, as long as that process lives and
   * the session is not idle for long. At most 1,024 bytes.
   */
  readonly sessionId?: string
}

/**
 * When to call again: any Schedule without services, or the fields of `Effect.retry`, at least `schedule` or `times`.
 *
 * @category models
 * @since 0.1.0
 */
export type Retry<E> = Schedule.Schedule<unknown, BadOutcome<E>> | {
  readonly schedule?: Schedule.Schedule<unknown, BadOutcome<E>>
  /** Most retries: the activity is called once more than that. */
  readonly times?: number
  readonly while?: (outcome: BadOutcome<E>) => boolean
  readonly until?: (outcome: BadOutcome<E>) => boolean
}

/**
 * How a try can end badly.
 *
 * @category models
 * @since 0.1.0
 */
export type BadOutcome<E> = E | ActivityDied | ActivityTimedOut

/**
 * @category models
 * @since 0.1.0
 */
export interface Any {
  readonly name: string
  readonly servedBy: "typescript"
  readonly execute: (payload: never) => Effect.Effect<unknown, unknown, OrchestrationContext>
}

export { Call } from "./runtime/activityCall.ts"
export type { ActivityHandler as Handler } from "./runtime/handlers.ts"

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
 * An activity did not end in time. It was cancelled, and may or may not have had its effect.
 *
 * @category errors
 * @since 0.1.0
 */
export class ActivityTimedOut
  extends Schema.TaggedError<ActivityTimedOut>("duroxide-prisma/ActivityTimedOut")("ActivityTimedOut", {
    activityName: Schema.String,
    /** The option that ended it. */
    option: Schema.Literals(["timeout", "totalTimeout"]),
    timeoutMs: Schema.Number
  })
{
  override get message() {
    return `activity "${this.activityName}" did not end within its ${this.option} of ${this.timeoutMs} ms`
  }
}

/**
 * Defines an activity. The name is what histories and queues know it by: renaming it strands running instances.
 *
 * **Details**
 *
 * `payload` and `success` default to `Schema.Void`, `error` to `Schema.Never`; each takes a Schema, or the fields of a
 * `Schema.Struct`. All three travel as JSON text. The other options hold for every call, unless `with` says otherwise. Throws a `RangeError` on an option that cannot work.
 *
 * With `servedBy: "rust"` the handler is one of Duroxide in Rust, in a schema that both share: the definition can be
 * called, and has no handler here.
 *
 * **Example** (An activity and its handler)
 *
 * ```ts
 * const Charge = Activity.make("Charge", { payload: Order, success: Receipt, error: CardDeclined })
 *
 * const ChargeLive = Charge.toLayer(Effect.fn(function*(order) {
 *   const { idempotencyKey } = yield* Activity.Call
 *   return yield* Payments.charge(order, { idempotencyKey })
 * }))
 * ```
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <
  const Name extends string,
  Payload extends PayloadInput = Schema.Void,
  Success extends PayloadInput = Schema.Void,
  Error extends PayloadInput = Schema.Never,
  Timeout extends Duration.Input = never,
  TotalTimeout extends Duration.Input = never,
  By extends ServedBy = "typescript"
>(
  name: Name,
  options?:
    & {
      readonly payload?: Payload
      readonly success?: Success
      readonly error?: Error
      /** Whose processes run it. Defaults to `typescript`. */
      readonly servedBy?: By
    }
    & Omit<Options<SchemaOf<Error>["Type"], Timeout, TotalTimeout>, "sessionId">
): Made<By, Name, SchemaOf<Payload>, SchemaOf<Success>, SchemaOf<Error>, TimedOutBy<Timeout | TotalTimeout>> => {
  checkNameUnsafe("activity", name)
  const { error, payload, servedBy = "typescript", success, ...calls } = options ?? {}
  return makeWith({
    name,
    servedBy,
    payload: payloads.schemaOf(payload),
    success: payloads.schemaOf(success),
    error: payloads.schemaOf(error, Schema.Never)
  }, calls) as Made<
    By,
    Name,
    SchemaOf<Payload>,
    SchemaOf<Success>,
    SchemaOf<Error>,
    TimedOutBy<Timeout | TotalTimeout>
  >
}

// internal

/** `ActivityTimedOut` where there is a timeout. */
type TimedOutBy<Timeout> = [Timeout] extends [never] ? never : ActivityTimedOut

/** What `make` returns: a definition that Rust serves has no handler here. */
type Made<
  By extends ServedBy,
  Name extends string,
  Payload extends PayloadSchema,
  Success extends PayloadSchema,
  Error extends PayloadSchema,
  TimedOut extends ActivityTimedOut
> = By extends "typescript" ? Activity<Name, Payload, Success, Error, TimedOut>
  : Callable<Name, Payload, Success, Error, TimedOut>

/** An activity with options; `with` keeps what was made of the Schemas. */
const makeWith = <
  const Name extends string,
  Payload extends PayloadSchema,
  Success extends PayloadSchema,
  Error extends PayloadSchema
>(
  definition: {
    readonly name: Name
    readonly servedBy: ServedBy
    readonly payload: Payload
    readonly success: Success
    readonly error: Error
  },
  options: Options<Error["Type"]>
) => {
  type WithHandler = Activity<Name, Payload, Success, Error, never>
  const { error, name, payload, servedBy, success } = definition
  const input = payloads.make(`payload of activity "${name}"`, payload)
  const result = payloads.make(`result of activity "${name}"`, success)
  const failure = payloads.make(`error of activity "${name}"`, error)
  const died = (problem: string) => Effect.fail(new ActivityDied({ activityName: name, problem }))

  const oneTry = Effect.fnUntraced(function*(value: Payload["Type"], route: checks.Route, tryOf: TryOf) {
    const { perform } = yield* engine
    const answer = yield* perform({
      _tag: "CallActivity",
      name,
      input: yield* Effect.orDie(input.encode(value)),
      ...route,
      servedBy,
      tryOf
    })
    if (answer._tag === "ActivityCompleted") return yield* Effect.orDie(result.decode(answer.result))
    const { details } = answer
    const typed = details._tag === "Application" && details.kind === "ActivityFailed"
      ? failure.decodeOption(details.message)
      : Option.none()
    return yield* Option.isSome(typed) ? Effect.fail(typed.value) : died(problemOf(details))
  })

  const withOptions = (
    options: Options<Error["Type"]>
  ): Callable<Name, Payload, Success, Error, never> & Pick<WithHandler, "toLayer"> => {
    const policy = policyUnsafe(name, options)
    return {
      ...definition,
      toLayer,
      execute: (value) =>
        Effect.suspend(() => {
          const call = { firstTryId: undefined }
          let tries = 0
          return policy.apply(Effect.suspend(() => oneTry(value, policy.route, { number: ++tries, call })))
        }),
      with: (changes) => withOptions({ ...options, ...changes })
    }
  }

  const toLayer: WithHandler["toLayer"] = (handler) =>
    Layer.effect(
      activityKey(name),
      Effect.map(Effect.context<never>(), (services) => ({
        run: (text) =>
          input.decode(text).pipe(
            Effect.orDie,
            Effect.flatMap((value) => Effect.scoped(Effect.suspend(() => handler(value)))),
            Effect.provideContext(harmlessIn(services)) as <A, E>(
              self: Effect.Effect<A, E, any>
            ) => Effect.Effect<A, E, Call>,
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
            Effect.catchDefect((defect) =>
              Effect.logError("Worker dispatcher: activity died", Cause.die(defect)).pipe(
                // A logger that throws must not decide what is recorded.
                Effect.exit,
                Effect.andThen(Effect.fail(ErrorDetails.died(defect)))
              )
            )
          )
      }))
    ) as never

  return withOptions(options)
}

/** What the options make of a call. */
const policyUnsafe = <E>(name: string, options: Options<E>) => {
  const of = `activity "${name}"`
  const limit = (option: "timeout" | "totalTimeout") => {
    const timeoutMs = checks.timeoutUnsafe(of, option, options[option])
    return <A, E2, R>(self: Effect.Effect<A, E2, R>): Effect.Effect<A, E2 | ActivityTimedOut, R> =>
      timeoutMs === undefined ? self : Effect.timeoutOrElse(self, {
        duration: timeoutMs,
        orElse: () => Effect.fail(new ActivityTimedOut({ activityName: name, option, timeoutMs }))
      })
  }
  const limited = limit("timeout")
  const limitedInTotal = limit("totalTimeout")
  const retry = Schedule.isSchedule(options.retry) ? { schedule: options.retry } : options.retry
  if (retry !== undefined) checks.checkRetryUnsafe(of, retry)
  const retried = <A, R>(self: Effect.Effect<A, BadOutcome<E>, R>): Effect.Effect<A, BadOutcome<E>, R> =>
    retry === undefined ? self : Effect.retry(self, retry)
  return {
    route: checks.routeUnsafe(of, options),
    // Where a timeout can come out, the types of `make` and `with` say so.
    apply: <A, R>(call: Effect.Effect<A, E | ActivityDied, R>): Effect.Effect<A, E, R> =>
      limitedInTotal(retried(limited(call))).pipe(
        Effect.catch((outcome) => outcome instanceof ActivityDied ? Effect.die(outcome) : Effect.fail(outcome as E))
      )
  }
}

// What a Rust client would show calls every panic one of the orchestration.
const problemOf = (details: ErrorDetails.ErrorDetails) =>
  details._tag === "Application" && details.kind === "Panicked" ? details.message : ErrorDetails.display(details)
