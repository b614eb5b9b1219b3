/**
 * Activities: the steps of an orchestration that touch the world.
 *
 * An activity runs at least once, on any worker that has a handler for its name and takes its tag. Its result is
 * recorded once, so the orchestration sees one outcome however often the handler ran. A handler that changes something
 * should pass `Call.idempotencyKey` along: it is the same for all tries and deliveries of one call.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as ErrorDetails from "./model/ErrorDetails.ts"
import * as checks from "./model/shared/activityOptions.ts"
import { checkNameUnsafe } from "./model/shared/definitions.ts"
import type { ServedBy } from "./model/shared/definitions.ts"
import { explain } from "./model/shared/explained.ts"
import { harmlessIn } from "./model/shared/logging.ts"
import * as payloads from "./model/shared/payload.ts"
import type { PayloadInput, PayloadSchema, SchemaOf } from "./model/shared/payload.ts"
import { withoutSpan } from "./model/shared/tracing.ts"
import type { Transactions } from "./model/shared/transactionConnection.ts"
import type { TryOf } from "./replay/action.ts"
import { decoded, engine } from "./replay/context.ts"
import type { OrchestrationContext, StreamWriter, WithoutOrchestration } from "./replay/context.ts"
import type { Call } from "./runtime/activityCall.ts"
import { activityKey } from "./runtime/handlers.ts"
import type { ActivityHandler } from "./runtime/handlers.ts"
import * as transactionals from "./runtime/transactional.ts"

/**
 * A definition that an orchestration can call: a named step with the Schemas of payload, result and error. Its handler
 * runs in processes of this package, or of Duroxide in Rust.
 *
 * @category models
 * @since 0.2.0
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
   * A failure of the handler stays a typed failure. A handler that dies, or returns a value its Schema refuses, becomes
   * the defect `ActivityDied`. With a timeout, the call can also fail with `ActivityTimedOut`. Interruption cancels the
   * activity: a waiting one is not started, a running handler is interrupted.
   *
   * **Gotchas**
   *
   * A cancelled activity may or may not have had its effect. `Effect.all` interrupts the others when one of them fails;
   * if each effect must be undone, wait for all of them, for example with `Effect.partition`.
   *
   * A defect of the handler is recorded at once, like any other outcome; only `retry` calls the handler again.
   */
  readonly execute: (
    payload: Payload["Type"]
  ) => Effect.Effect<Success["Type"], Error["Type"] | TimedOut, OrchestrationContext>
  /**
   * Returns the same activity with other options; options that are left out keep their values.
   *
   * **Details**
   *
   * Throws a `RangeError` on an invalid option, which is a defect when it happens in an orchestration.
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
 * A named step with the Schemas of payload, result and error, whose handler runs in processes of this package.
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
  /** Like `with` of `Callable`. */
  readonly with: <Timeout extends Duration.Input = never, TotalTimeout extends Duration.Input = never>(
    options: Options<Error["Type"], Timeout, TotalTimeout>
  ) => Activity<Name, Payload, Success, Error, TimedOut | TimedOutBy<Timeout | TotalTimeout>>
  /**
   * Provides the handler to `Runtime.layer`. It may use any service. Its failures and defects are recorded.
   */
  readonly toLayer: <R>(
    handler:
      & ((payload: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], R>)
      & WithoutOrchestration<R>
  ) => Layer.Layer<ActivityHandler<Name>, never, Exclude<R, Call | StreamWriter | Scope.Scope>>
}

/**
 * Options of a call. Each of them is a plain Effect combinator over recorded calls and durable timers, so
 * `Effect.retry` and `Effect.timeout` around `execute` work as well.
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
   * `{ times: 3 }` is three retries without a pause. Each try is recorded, and pauses are durable timers. Unlike
   * `Effect.retry` around `execute`, which retries typed failures only, it also retries `ActivityDied`: temporary
   * faults of machines and libraries are often defects, and a deployed bug can be fixed while the retries continue.
   * `while` narrows this. The orchestration sees the outcome of the last try.
   *
   * **Gotchas**
   *
   * All tries have the same idempotency key, so a service that honours the key has its effect once. A service that
   * answers a known key with its recorded failure needs a new key for each try: append `tryNumber`.
   *
   * `Effect.retry` around `execute` makes further calls, each with a key of its own.
   */
  readonly retry?: Retry<E>
  /**
   * Longest duration of one try, from the call to its recorded outcome. After it, the handler is interrupted and the
   * try fails with `ActivityTimedOut`. More than 0; defaults to no limit.
   *
   * **Gotchas**
   *
   * Waiting counts: for a free worker, and after a crash for the lock of the dead worker, which is
   * `RuntimeConfig.workerLockTimeout` (30 seconds). With a limit no longer than that, each crash becomes a timeout: the
   * activity is not delivered again. A runtime warns of such a definition when it starts.
   */
  readonly timeout?: Timeout
  /** Longest duration of all tries and the pauses between them; otherwise like `timeout`, also after a crash. */
  readonly totalTimeout?: TotalTimeout
  /**
   * Only workers whose `RuntimeConfig` takes this tag run the activity; without a tag, those that take untagged work.
   * At most 256 bytes. While no worker takes the tag, the activity waits.
   */
  readonly tag?: string
  /**
   * All activities of one session run in the same process, in sequence or at once, while that process lives and the
   * session is not idle for longer than `RuntimeConfig.sessionIdleTimeout`. At most 1,024 bytes.
   */
  readonly sessionId?: string
}

/**
 * When to retry: any Schedule without services, or the fields of `Effect.retry`, at least `schedule` or `times`.
 *
 * @category models
 * @since 0.1.0
 */
export type Retry<E> =
  | Schedule.Schedule<unknown, BadOutcome<E>>
  | {
    readonly schedule?: Schedule.Schedule<unknown, BadOutcome<E>>
    /** Maximum number of retries, not counting the first try. */
    readonly times?: number
    readonly while?: (outcome: BadOutcome<E>) => boolean
    readonly until?: (outcome: BadOutcome<E>) => boolean
  } & ({ readonly schedule: Schedule.Schedule<unknown, BadOutcome<E>> } | { readonly times: number })

/**
 * An unsuccessful outcome of a try: a typed failure, a defect or a timeout.
 *
 * @category models
 * @since 0.1.0
 */
export type BadOutcome<E> = E | ActivityDied | ActivityTimedOut

/**
 * Any activity whose handler runs in processes of this package: what `Runtime.layer` accepts.
 *
 * @category models
 * @since 0.1.0
 */
export interface Any {
  readonly name: string
  readonly servedBy: "typescript"
  readonly execute: (payload: never) => Effect.Effect<unknown, unknown, OrchestrationContext>
}

export type { TransactionConnection, Transactions } from "./model/shared/transactionConnection.ts"
export { Call } from "./runtime/activityCall.ts"
export type { ActivityHandler as Handler } from "./runtime/handlers.ts"

/**
 * A handler died, or its result did not match its Schema. The orchestration receives it as a defect, because it is not
 * part of the activity's declared errors; `Effect.catchDefect` catches it.
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
 * An activity exceeded its `timeout` or `totalTimeout`. It was cancelled, and may or may not have had its effect.
 *
 * @category errors
 * @since 0.1.0
 */
export class ActivityTimedOut
  extends Schema.TaggedError<ActivityTimedOut>("duroxide-prisma/ActivityTimedOut")("ActivityTimedOut", {
    activityName: Schema.String,
    /** Which limit it exceeded. */
    option: Schema.Literals(["timeout", "totalTimeout"]),
    timeoutMs: Schema.Number
  })
{
  override get message() {
    return `activity "${this.activityName}" did not end within its ${this.option} of ${this.timeoutMs} ms`
  }
}

/**
 * Defines an activity. Histories and queues refer to it by name, so renaming it strands running instances.
 *
 * **Details**
 *
 * `payload` and `success` default to `Schema.Void`, `error` to `Schema.Never`; each takes a Schema, or the fields of a
 * `Schema.Struct`. All three are stored as JSON text. The other options apply to every call, unless `with` changes
 * them. Throws a `RangeError` on an invalid option, and if the name is empty, is too long or cannot be stored.
 *
 * With `servedBy: "rust"` the handler belongs to Duroxide in Rust, in a schema that both share: the definition can be
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
      /** Which processes run it: those of this package, or those of Duroxide in Rust. Defaults to `typescript`. */
      readonly servedBy?: By
      /**
       * The key of a call, by which limits of this activity distinguish calls: a tenant, a customer, an API. 1 to 256
       * bytes. Defaults to no key. `Admin.setLimit` and `Limits.layer` set the limits.
       *
       * **Gotchas**
       *
       * It is stored with the call, beside its payload. One that throws, or returns a text that is refused, is a defect
       * of the orchestration.
       */
      readonly limitKey?: (payload: SchemaOf<Payload>["Type"]) => string
    }
    & Omit<Options<SchemaOf<Error>["Type"], Timeout, TotalTimeout>, "sessionId">
): Made<By, Name, SchemaOf<Payload>, SchemaOf<Success>, SchemaOf<Error>, TimedOutBy<Timeout | TotalTimeout>> => {
  checkNameUnsafe("activity", name)
  const { error, limitKey, payload, servedBy = "typescript", success, ...calls } = options ?? {}
  return makeWith({
    name,
    servedBy,
    payload: payloads.schemaOf(payload),
    success: payloads.schemaOf(success),
    error: payloads.schemaOf(error, Schema.Never),
    limitKey
  }, calls) as Made<
    By,
    Name,
    SchemaOf<Payload>,
    SchemaOf<Success>,
    SchemaOf<Error>,
    TimedOutBy<Timeout | TotalTimeout>
  >
}

/**
 * Makes a handler for `toLayer` that runs in a transaction of the application: its rows and the result of the activity
 * commit together, or not at all.
 *
 * **When to use**
 *
 * Use when the effects of a handler are rows in the database that also holds the tables of this package.
 *
 * **Details**
 *
 * The handler gets the transaction as its second argument, and writes with it. Before the commit, one statement on its
 * connection stores the result, if this delivery still holds the lock of the activity. So rows and result exist once,
 * even after crashes and several runs of the handler. If the answer to the commit is lost, the runtime reads whether
 * the commit has happened.
 *
 * A typed failure or a defect rolls the rows back, and is then recorded as in any other handler. If the transaction
 * fails for a reason that may pass (a lost connection, a deadlock, a serialization failure, a full pool), nothing is
 * recorded, and the activity runs again after a pause. Such a delivery counts towards `RuntimeConfig.maxAttempts`,
 * unless the server or the connection was at fault.
 *
 * `Transaction.ofPool` and `Transaction.ofPrisma` of `duroxide-prisma/prisma` make `transactions`; other libraries need
 * a few lines (`docs/activities.md`). A `Provider` without transactions, such as one on `MemoryDriver`, refuses such an
 * activity: building `Runtime.layer` dies with a `ProviderError`, reason `ConfigurationInvalid`. In `TestRuntime` the
 * result is stored right after the commit.
 *
 * **Gotchas**
 *
 * - The transaction must be in the database of the `Provider`, and its role needs the rights of a worker.
 * - Only rows are exact. What the handler does elsewhere happens at least once, as in any handler.
 * - Let failed statements fail the handler: after one, PostgreSQL aborts the transaction.
 * - Use the isolation level `READ COMMITTED`, PostgreSQL's default. With a stricter one, a handler that runs for longer
 *   than half of `RuntimeConfig.workerLockTimeout` cannot commit: its lock has been renewed since.
 *
 * **Example** (Rows and result in one transaction)
 *
 * ```ts
 * const BookLive = Book.toLayer(Activity.transactional(Transaction.ofPool(pool), (order, tx) =>
 *   Effect.promise(() => tx.query("UPDATE stock SET available = available - $1", [order.quantity]))
 * ))
 * ```
 *
 * @category transactions
 * @since 0.3.0
 */
export const transactional = <Tx, P, A, E, R>(
  transactions: Transactions<Tx>,
  handler: (payload: P, tx: Tx) => Effect.Effect<A, E, R>
): (payload: P) => Effect.Effect<A, E, R> => transactionals.make(transactions, handler)

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

/** Builds an activity with options; `with` reuses the codecs of its Schemas. */
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
    readonly limitKey: ((payload: Payload["Type"]) => string) | undefined
  },
  options: Options<Error["Type"]>
) => {
  type WithHandler = Activity<Name, Payload, Success, Error, never>
  const { limitKey, ...shown } = definition
  const { error, name, payload, servedBy, success } = shown
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
      tryOf,
      decode: input.decode,
      ...(limitKey !== undefined && { limitKey: checks.limitKeyUnsafe(`activity "${name}"`, limitKey(value)) })
    })
    if (answer._tag === "ActivityCompleted") return yield* decoded(result.decode(answer.result))
    const { details } = answer
    yield* decoded(failure.checkOpened(details))
    const typed = details._tag === "Application" && details.kind === "ActivityFailed"
      ? failure.decodeOption(details.message)
      : Option.none()
    return yield* Option.isSome(typed) ? Effect.fail(typed.value) : died(explain(details))
  })

  const withOptions = (
    options: Options<Error["Type"]>
  ): Callable<Name, Payload, Success, Error, never> & Pick<WithHandler, "toLayer"> => {
    const policy = policyUnsafe(name, options)
    return {
      ...shown,
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
      Effect.map(Effect.map(Effect.context<never>(), (context) => harmlessIn(withoutSpan(context))), (services) => ({
        limits: limitsUnsafe(name, options),
        services,
        isTransactional: transactionals.of(handler) !== undefined,
        run: (text, context, settlement) => {
          const decoded = input.decode(text)
          if (Exit.isFailure(decoded)) return decoded
          const transactional = transactionals.of(handler)
          return transactional === undefined
            ? Effect.catchDefect(
              encoded(Effect.suspend(() => handler(decoded.value)) as Effect.Effect<Success["Type"], Error["Type"]>)
                .pipe(
                  Effect.updateContext(() => context as Context.Context<never>)
                ),
              transactionals.died
            )
            : transactional.run(decoded.value, encoded)(context, settlement())
        }
      }))
    ) as never

  /** Runs a handler to the text of its result, or to the details of its typed failure. */
  const encoded = <R>(handled: Effect.Effect<Success["Type"], Error["Type"], R>) =>
    Effect.scoped(handled).pipe(
      Effect.matchCauseEffect({
        onSuccess: (value) => Effect.orDie(result.encode(value)),
        onFailure: (cause) => {
          const typed = Cause.findErrorOption(cause)
          return Option.isSome(typed)
            ? Effect.flatMap(
              Effect.orDie(payloads.encodeError(failure, typed.value)),
              (message) => Effect.fail(ErrorDetails.application("ActivityFailed", message))
            )
            : Effect.failCause(cause as Cause.Cause<never>)
        }
      })
    )

  return withOptions(options)
}

/** Both limits of a call, in milliseconds. */
const limitsUnsafe = <E>(name: string, options: Options<E>) => ({
  timeout: checks.timeoutUnsafe(`activity "${name}"`, "timeout", options.timeout),
  totalTimeout: checks.timeoutUnsafe(`activity "${name}"`, "totalTimeout", options.totalTimeout)
})

/** Turns options into a route and into combinators around a call. */
const policyUnsafe = <E>(name: string, options: Options<E>) => {
  const of = `activity "${name}"`
  const limits = limitsUnsafe(name, options)
  const limit = (option: keyof typeof limits) => {
    const timeoutMs = limits[option]
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
    // The types of `make` and `with` declare ActivityTimedOut where there is a timeout.
    apply: <A, R>(call: Effect.Effect<A, E | ActivityDied, R>): Effect.Effect<A, E, R> =>
      limitedInTotal(retried(limited(call))).pipe(
        Effect.catch((outcome) => outcome instanceof ActivityDied ? Effect.die(outcome) : Effect.fail(outcome as E))
      )
  }
}
