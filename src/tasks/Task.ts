/**
 * Tasks: units of work that some worker runs, without an orchestration.
 *
 * A task runs at least once, on any worker that has a handler for its name. PostgreSQL holds its state; messages of a
 * queue only wake workers. Each attempt has a number, and only the newest one may commit: the result of a task is
 * committed once, however often its handler ran. A handler that writes to the database commits its rows and the result
 * in one transaction (`Attempt.commit`); one that changes something elsewhere passes `Attempt.idempotencyKey` along.
 *
 * `Tasks` creates tasks and waits for them, `TaskWorker` runs them.
 *
 * @since 0.2.0
 */
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import type * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { checkNameUnsafe } from "../model/shared/definitions.ts"
import { harmlessIn } from "../model/shared/logging.ts"
import * as payloads from "../model/shared/payload.ts"
import type { PayloadInput, PayloadSchema, SchemaOf } from "../model/shared/payload.ts"
import { withoutSpan } from "../model/shared/tracing.ts"
import type { TransactionConnection } from "../model/shared/transactionConnection.ts"
import type { Instance } from "../Orchestration.ts"
import { Attempt } from "./internal/attempt.ts"
import * as calls from "./internal/calls.ts"
import { runner } from "./internal/handlerRun.ts"
import * as checks from "./internal/settings.ts"
import { taskKey } from "./shared/code.ts"
import type { TaskHandler } from "./shared/code.ts"
import { isOfTask } from "./shared/errors.ts"
import type { TaskDied, TaskTimedOut, TaskUnavailable } from "./shared/errors.ts"

export type { TaskHandler as Handler } from "./shared/code.ts"

/**
 * A named task with the Schemas of payload, result and error.
 *
 * @category models
 * @since 0.2.0
 */
export interface Task<
  in out Name extends string,
  in out Payload extends PayloadSchema,
  in out Success extends PayloadSchema,
  in out Error extends PayloadSchema
> {
  readonly name: Name
  readonly payload: Payload
  readonly success: Success
  readonly error: Error
  /** The queue of its wake-ups. */
  readonly queue: string
  readonly maxAttempts: number
  readonly lease: Duration.Duration
  readonly timeout: Option.Option<Duration.Duration>
  /**
   * Provides the handler to `TaskWorker.layer`. It may use any service. Its failures and defects are recorded.
   */
  readonly toLayer: <R>(
    handler:
      & ((payload: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], R>)
      & WithoutOrchestration<R>
  ) => Layer.Layer<TaskHandler<Name>, never, Exclude<R, Attempt | Scope.Scope>>
  /**
   * The attempt that its handler makes: as `Attempt`, and `commit` takes a result of this task. Dies in the handler of
   * another task.
   */
  readonly attempt: Effect.Effect<AttemptOf<Success["Type"]>, never, Attempt>
  /**
   * Creates the task from an orchestration and waits for its end, both durably: one task per call, whatever crashes.
   *
   * **Details**
   *
   * The runtime must serve `Tasks.activities`. The end arrives as a message, in the transaction that stores it. A typed
   * failure of the last attempt stays one; a task that died, was lost, lacked what it needs, ran out of time or was
   * cancelled is the defect `TaskDied`, `TaskUnavailable`, `TaskTimedOut` or `TaskCancelled`. Interruption cancels the
   * task; so does the end of the orchestration, at the latest with the next heartbeat of the attempt.
   *
   * With a `key`, a task of this name that has it already is awaited instead of creating another one, as with
   * `tasks.create`: several orchestrations may share it. Such a task is not cancelled with the call. Each call that
   * waits receives the end as a message of its own; the call of a task that has ended receives it at once. A key that
   * cannot be one is a defect.
   */
  readonly execute: (
    payload: Payload["Type"],
    options?: { readonly key?: string | undefined }
  ) => Effect.Effect<Success["Type"], Error["Type"], Instance>
  /** @internal */
  readonly codecs: Codecs<Payload, Success, Error>
  /**
   * The key of a payload among the tasks of a limit, not checked.
   *
   * @internal
   */
  readonly limitKey: ((payload: Payload["Type"]) => string) | undefined
  /**
   * The kind of its wake-ups. Defaults to `task_wakeup`.
   *
   * @internal
   */
  readonly wakeupKind?: string
}

/**
 * Any task: what `TaskWorker.layer` accepts.
 *
 * @category models
 * @since 0.2.0
 */
export type Any = Task<any, any, any, any>

/**
 * An attempt at a task whose result is `Success`.
 *
 * @category models
 * @since 0.2.0
 */
export interface AttemptOf<in Success> extends Omit<Attempt["Service"], "commit"> {
  /** `commit` of `Attempt`. */
  readonly commit: (
    connection: TransactionConnection,
    result: Success
  ) => ReturnType<Attempt["Service"]["commit"]>
}

/**
 * Options of a task.
 *
 * @category models
 * @since 0.2.0
 */
export interface Options<E> {
  /** When a failed attempt is followed by another one. */
  readonly retry?: Retry<E> | undefined
  /** Longest run of one attempt; then the handler is interrupted and the attempt has failed. Defaults to no limit. */
  readonly timeout?: Duration.Input | undefined
  /** The queue of its wake-ups, which the workers must consume. Defaults to `tasks`. */
  readonly queue?: string | undefined
  /**
   * How long the worker keeps an attempt without a heartbeat, which it sends after half of this time. After a crash
   * another attempt begins about a second after the lease has ended. 1 second to 1 hour; defaults to 30 seconds.
   */
  readonly lease?: Duration.Input | undefined
}

/**
 * When a failed attempt is followed by another one.
 *
 * **Gotchas**
 *
 * Each attempt steps the schedule anew from its beginning, because its state is not stored: a schedule that measures
 * elapsed time does not see the time of former attempts.
 *
 * @category models
 * @since 0.2.0
 */
export interface Retry<E> {
  /**
   * Attempts before the task is dead. Those that a shutdown ended do not count, and of lost ones only those that the
   * task itself may have caused (`docs/tasks.md`). At least 1; defaults to 20. Stored when the task is created.
   */
  readonly maxAttempts?: number | undefined
  /**
   * The pauses. Its input is the last failure. The task is dead when it ends. Defaults to 1 second, doubled up to 5
   * minutes, each 20 percent more or less.
   */
  readonly schedule?: Schedule.Schedule<unknown, BadOutcome<E>> | undefined
  /** Failures that it does not accept make the task dead at once. Defaults to all. */
  readonly while?: ((outcome: BadOutcome<E>) => boolean) | undefined
}

/**
 * A failed attempt: a typed failure, a defect, an outage of what the handler needs, or a timeout.
 *
 * @category models
 * @since 0.2.0
 */
export type BadOutcome<E> = E | TaskDied | TaskUnavailable | TaskTimedOut

export { Attempt } from "./internal/attempt.ts"

export {
  /**
   * An attempt may not commit: a newer one has begun, or the task has ended.
   *
   * @category errors
   * @since 0.2.0
   */
  StaleAttempt,
  /**
   * The task was cancelled.
   *
   * @category errors
   * @since 0.2.0
   */
  TaskCancelled,
  /**
   * The handler died, its result did not match its Schema, or its worker was lost.
   *
   * @category errors
   * @since 0.2.0
   */
  TaskDied,
  /**
   * An attempt exceeded the `timeout` of its task. It was interrupted, and may or may not have had its effect.
   *
   * @category errors
   * @since 0.2.0
   */
  TaskTimedOut,
  /**
   * A database, queue or network that the handler needs was not available in its last attempt, and may be back soon: a
   * defect that is, or is caused by, an error with `isRetryable: true` (as `ProviderError`, `QueueError` and the
   * `SqlError` of Effect have it), an error of PostgreSQL, `pg` or Prisma after which the same statement may succeed,
   * or one of a network.
   *
   * @category errors
   * @since 0.2.0
   */
  TaskUnavailable
} from "./shared/errors.ts"

/**
 * Defines a task. Rows refer to it by name, so renaming it strands tasks that wait.
 *
 * **Details**
 *
 * `payload` and `success` default to `Schema.Void`, `error` to `Schema.Never`; each takes a Schema, or the fields of a
 * `Schema.Struct`. All three are stored as JSON text. Throws a `RangeError` on an invalid option or name.
 *
 * **Example** (A task and its handler)
 *
 * ```ts
 * const Resize = Task.make("Resize", {
 *   payload: { image: Schema.String },
 *   success: Schema.String,
 *   timeout: "5 minutes"
 * })
 *
 * const ResizeLive = Resize.toLayer(Effect.fn(function*({ image }) {
 *   const { idempotencyKey } = yield* Task.Attempt
 *   return yield* Images.resize(image, { idempotencyKey })
 * }))
 * ```
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = <
  const Name extends string,
  Payload extends PayloadInput = Schema.Void,
  Success extends PayloadInput = Schema.Void,
  Error extends PayloadInput = Schema.Never
>(
  name: Name,
  options?:
    & {
      readonly payload?: Payload
      readonly success?: Success
      readonly error?: Error
      /**
       * The key of a task, by which limits of this definition distinguish its tasks: a tenant, a customer, an API. 1 to
       * 256 bytes. Defaults to no key. `Admin.setLimit` and `Limits.layer` set the limits.
       *
       * **Gotchas**
       *
       * It is stored with the task, beside its payload. `create` fails with `InvalidInput` if it throws, or returns a
       * text that is refused; `execute` dies.
       */
      readonly limitKey?: (payload: SchemaOf<Payload>["Type"]) => string
    }
    & Options<SchemaOf<Error>["Type"]>
): Task<Name, SchemaOf<Payload>, SchemaOf<Success>, SchemaOf<Error>> => {
  checkNameUnsafe("task", name)
  const { error, limitKey, payload, success, ...others } = options ?? {}
  return makeWith(
    name,
    {
      payload: payloads.schemaOf(payload),
      success: payloads.schemaOf(success),
      error: payloads.schemaOf(error, Schema.Never)
    },
    limitKey,
    others
  )
}

// internal

/**
 * Intersected with the type of a handler that requires the services `R`. For one that requires the operations of
 * orchestrations it is a text, which the compiler shows in its error.
 */
type WithoutOrchestration<R> = [Extract<R, Instance>] extends [never] ? unknown
  : "activities, children, signals and values are for orchestrations: a task uses Client instead"

interface Codecs<Payload extends PayloadSchema, Success extends PayloadSchema, Error extends PayloadSchema> {
  readonly payload: payloads.Payload<Payload["Type"]>
  readonly success: payloads.Payload<Success["Type"]>
  readonly error: payloads.Payload<Error["Type"]>
}

const makeWith = <
  const Name extends string,
  Payload extends PayloadSchema,
  Success extends PayloadSchema,
  Error extends PayloadSchema
>(
  name: Name,
  schemas: { readonly payload: Payload; readonly success: Success; readonly error: Error },
  limitKey: ((payload: Payload["Type"]) => string) | undefined,
  options: Options<Error["Type"]>
): Task<Name, Payload, Success, Error> => {
  const codecs: Codecs<Payload, Success, Error> = {
    payload: payloads.make(`payload of task "${name}"`, schemas.payload),
    success: payloads.make(`result of task "${name}"`, schemas.success),
    error: payloads.make(`error of task "${name}"`, schemas.error)
  }
  const settings = checks.settingsUnsafe(name, {
    maxAttempts: options.retry?.maxAttempts,
    timeout: options.timeout,
    queue: options.queue,
    lease: options.lease
  })
  return {
    name,
    ...schemas,
    ...settings,
    codecs,
    limitKey,
    attempt: Effect.flatMap(Attempt, (attempt) =>
      attempt.taskName === name
        ? Effect.succeed(attempt)
        : Effect.die(new Error(`this is an attempt at the task "${attempt.taskName}", not at "${name}"`))),
    toLayer: (handler) =>
      Layer.effect(
        taskKey(name),
        Effect.map(Effect.map(Effect.context<never>(), (context) => harmlessIn(withoutSpan(context))), (services) => ({
          services,
          encodeResult: (result) => codecs.success.encode(result),
          run: runner({ name, codecs, handler, retry: options.retry, timeout: settings.timeout })
        }))
      ) as never,
    execute: (value, { key } = {}) =>
      calls.execute(name, { ...settings, limitKey }, codecs, value, key).pipe(
        Effect.catch((bad) => isOfTask(bad) ? Effect.die(bad) : Effect.fail(bad))
      )
  }
}
