/**
 * Activities that end outside: a person decides, or another system calls back.
 *
 * The handler sends a token to the person or the system, and ends. The call continues until someone completes or fails
 * it with the token (`Completion`), or until it expires. Meanwhile no handler runs: the orchestration waits, as for a
 * signal.
 *
 * @since 0.3.0
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Activity from "../Activity.ts"
import * as calls from "../model/shared/completion.ts"
import { wholeMs } from "../model/shared/durations.ts"
import * as payloads from "../model/shared/payload.ts"
import type { PayloadInput, PayloadSchema, SchemaOf } from "../model/shared/payload.ts"
import type { Instance } from "../Orchestration.ts"
import * as Signal from "../Signal.ts"
import { Completion, CompletionExpired, Keys } from "./Completion.ts"
import type { Completed, PayloadMismatch, PayloadTooLarge, Refusal } from "./Completion.ts"
import * as tokens from "./internal/completionToken.ts"

/**
 * An activity that is completed from outside.
 *
 * @category models
 * @since 0.3.0
 */
export interface External<
  in out Name extends string,
  in out Payload extends PayloadSchema,
  in out Success extends PayloadSchema,
  in out Error extends PayloadSchema
> {
  readonly name: Name
  readonly servedBy: "typescript"
  readonly payload: Payload
  readonly success: Success
  readonly error: Error
  /** How long it waits for a completion or a heartbeat. */
  readonly expiry: Duration.Duration
  /**
   * Runs the handler, which sends a token, and waits until someone completes the call with the token. If neither a
   * completion nor a heartbeat comes within `expiry`, it fails with `CompletionExpired`.
   *
   * **Details**
   *
   * A handler that fails or dies before it has sent the token ends the call, as in any activity. Interruption ends the
   * call: its token is refused from then on.
   */
  readonly execute: (
    payload: Payload["Type"]
  ) => Effect.Effect<Success["Type"], Error["Type"] | CompletionExpired, Instance>
  /**
   * Provides the handler to `Runtime.layer`. The handler gets a token, and sends it to the person or the system: in a
   * link, as a callback, in a message. It may run twice, and then sends two tokens for one call; each of them completes
   * it. The token is a secret: anyone who has it may complete the call.
   */
  readonly toLayer: <R>(
    handler: (payload: Payload["Type"], token: string) => Effect.Effect<void, Error["Type"], R>
  ) => Layer.Layer<Activity.Handler<Name>, never, Exclude<R, Activity.Call | Scope.Scope> | Keys>
  /** Completes a call of this activity, as `complete` of `Completion` does. */
  readonly complete: (
    token: string,
    result: Success["Type"]
  ) => Effect.Effect<Completed, Refusal | PayloadMismatch | PayloadTooLarge, Completion>
  /** Fails a call of this activity with one of its errors, as `fail` of `Completion` does. */
  readonly fail: (
    token: string,
    error: Error["Type"]
  ) => Effect.Effect<Completed, Refusal | PayloadMismatch | PayloadTooLarge, Completion>
  /** @internal */
  readonly codecs: {
    readonly success: payloads.Payload<Success["Type"]>
    readonly error: payloads.Payload<Error["Type"]>
  }
}

/**
 * Defines an activity that is completed from outside. Histories refer to it by name.
 *
 * **Details**
 *
 * `payload` and `success` default to `Schema.Void`, `error` to `Schema.Never`; each takes a Schema, or the fields of a
 * `Schema.Struct`. `retry` and `tag` are those of `Activity.make`, for the handler that sends the token.
 * `Runtime.layer` takes the definition among its activities. Throws a `RangeError` on an invalid option or name.
 *
 * **Example** (A person approves within a week)
 *
 * ```ts
 * const Approve = External.make("Approve", {
 *   payload: Expense,
 *   success: Schema.Struct({ by: Schema.String }),
 *   error: Refused,
 *   expiry: "7 days"
 * })
 *
 * const ApproveLive = Approve.toLayer((expense, token) =>
 *   mail("the manager", `approve ${expense.purpose}: https://expenses.example/approve#${token}`)
 * )
 * ```
 *
 * @category constructors
 * @since 0.3.0
 */
export const make = <
  const Name extends string,
  Payload extends PayloadInput = Schema.Void,
  Success extends PayloadInput = Schema.Void,
  Error extends PayloadInput = Schema.Never
>(
  name: Name,
  options: {
    readonly payload?: Payload
    readonly success?: Success
    readonly error?: Error
    /** How long it waits for a completion or a heartbeat: 1 millisecond to 100 years. */
    readonly expiry: Duration.Input
  } & Pick<Activity.Options<SchemaOf<Error>["Type"]>, "retry" | "tag">
): External<
  Name,
  SchemaOf<Payload>,
  SchemaOf<Success>,
  SchemaOf<Error>
> => {
  type P = SchemaOf<Payload>["Type"]
  type A = SchemaOf<Success>["Type"]
  type E = SchemaOf<Error>["Type"]
  const { error, expiry, payload, retry, success, tag } = options
  const expiryMs = wholeMs(expiry)
  if (expiryMs === undefined || expiryMs < 1 || expiryMs > longestMs) {
    throw new RangeError(`expiry of activity "${name}" is refused: it must be a duration of up to 100 years, above 0`)
  }
  const schemas = {
    payload: payloads.schemaOf(payload),
    success: payloads.schemaOf(success),
    error: payloads.schemaOf(error, Schema.Never)
  }
  const codecs = {
    success: payloads.make(`result of activity "${name}"`, schemas.success),
    error: payloads.make(`error of activity "${name}"`, schemas.error)
  }
  const request = Activity.make(name, {
    payload: schemas.payload as PayloadSchema,
    success: calls.Requested,
    error: schemas.error as PayloadSchema,
    ...(retry !== undefined && { retry: retry as Activity.Retry<unknown> }),
    ...(tag !== undefined && { tag })
  })

  const execute = Effect.fnUntraced(function*(value: P) {
    const requested = yield* request.execute(value)
    const signal = Signal.make(calls.nameOf(requested), { payload: calls.Message })
    let { expiresAtMs } = requested
    while (true) {
      const leftMs = expiresAtMs + calls.graceMs - (yield* Clock.currentTimeMillis)
      const message = yield* Effect.timeoutOption(signal.wait, Math.max(0, leftMs))
      if (Option.isNone(message)) return yield* new CompletionExpired({ activityName: name, expiresAtMs })
      switch (message.value._tag) {
        case "Heartbeat":
          expiresAtMs = Math.max(expiresAtMs, (yield* Clock.currentTimeMillis) + requested.expiryMs)
          break
        case "Completed":
          return yield* Effect.orDie(codecs.success.decode(message.value.result))
        case "Failed":
          return yield* Effect.flatMap(Effect.orDie(codecs.error.decode(message.value.error)), Effect.fail<E>)
      }
    }
  })

  const toLayer = <R>(handler: (payload: P, token: string) => Effect.Effect<void, E, R>) =>
    request.toLayer(
      ((value: P) =>
        Effect.gen(function*() {
          const call = callOf(yield* Activity.Call)
          const expiresAtMs = (yield* Clock.currentTimeMillis) + expiryMs
          yield* handler(value, tokens.sign(yield* Keys, { ...call, activityName: name, expiresAtMs, expiryMs }))
          return { executionId: call.executionId, callId: call.callId, expiresAtMs, expiryMs }
        })) as never
    )

  const json = (codec: payloads.Payload<any>, value: unknown) =>
    Effect.map(codec.encode(value), (text): unknown => JSON.parse(text))

  return {
    name,
    servedBy: "typescript",
    ...schemas,
    expiry: Duration.millis(expiryMs),
    codecs,
    execute,
    toLayer: toLayer as never,
    complete: (token, result: A) =>
      Effect.flatMap(
        Completion,
        ({ complete }) => Effect.flatMap(json(codecs.success, result), (json) => complete(token, json))
      ),
    fail: (token, failure: E) =>
      Effect.flatMap(Completion, ({ fail }) => Effect.flatMap(json(codecs.error, failure), (json) => fail(token, json)))
  }
}

// internal

const longestMs = Duration.toMillis(Duration.days(36_525))

/** The key of a call is `<instance>/<execution>/<its start>/<first try>`, and an id may have slashes. */
const callOf = ({ idempotencyKey, instanceId }: Activity.Call["Service"]) => {
  const [executionId, startedAtMs, callId] = idempotencyKey.slice(instanceId.length + 1).split("/").map(Number)
  return { instanceId, executionId: executionId!, startedAtMs: startedAtMs!, callId: callId! }
}
