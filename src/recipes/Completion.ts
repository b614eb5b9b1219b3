/**
 * Ends activities from outside: by a webhook, or by a person. A token names the call (`External`). Anyone who has the
 * token may complete the call, fail it, or report that the work continues.
 *
 * A completion is a message to the instance, so it is stored also while no worker runs. Each call ends once: the first
 * completion counts, another one is refused.
 *
 * @since 0.3.0
 */
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { durationOf } from "../model/shared/durations.ts"
import * as environment from "../model/shared/environment.ts"
import type { PayloadMismatch, PayloadTooLarge } from "../model/shared/payload.ts"
import { Provider } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import * as service from "./internal/completions.ts"
import * as tokens from "./internal/completionToken.ts"

export { PayloadMismatch, PayloadTooLarge } from "../model/shared/payload.ts"

export {
  /**
   * The call has ended by another completion. Status 409.
   *
   * @category errors
   * @since 0.3.0
   */
  AlreadyCompleted,
  /**
   * The call has expired: neither a completion nor a heartbeat came in time. `execute` of the orchestration fails with
   * it, and so does a completion that comes later. Status 410.
   *
   * @category errors
   * @since 0.3.0
   */
  CompletionExpired,
  /**
   * Nothing waits for the completion any longer: the instance has ended, was deleted, has continued as new, or has
   * given up the call. Status 410.
   *
   * @category errors
   * @since 0.3.0
   */
  NotAwaited,
  /**
   * The token was not made by one of the keys, or is for an activity that is not listed here. Status 401.
   *
   * @category errors
   * @since 0.3.0
   */
  TokenInvalid
} from "./internal/completionErrors.ts"

/**
 * The keys of tokens: the first key signs, all keys verify. To change a key, put the new one in front, and remove the
 * old one when its tokens have expired.
 *
 * @category services
 * @since 0.3.0
 */
export class Keys
  extends Context.Service<Keys, ReadonlyArray<Redacted.Redacted<string>>>()("duroxide-prisma/recipes/Completion/Keys")
{}

/**
 * Keys of at least 32 random characters each, such as 32 bytes in hexadecimal. Throws a `RangeError` on others.
 *
 * @category layers
 * @since 0.3.0
 */
export const layerKeys = (keys: ReadonlyArray<Redacted.Redacted<string>>): Layer.Layer<Keys> => {
  const problem = tokens.problemOfKeys(keys)
  if (problem !== undefined) throw new RangeError(`keys of completions are refused: ${problem}`)
  return Layer.succeed(Keys, keys)
}

/**
 * Keys from the variable `DUROXIDE_COMPLETION_KEYS`, with commas between them.
 *
 * @category layers
 * @since 0.3.0
 */
export const layerKeysConfig: Layer.Layer<Keys, Config.ConfigError> = Layer.unwrap(
  Effect.flatMap(Config.Redacted("DUROXIDE_COMPLETION_KEYS"), (text) => {
    const keys = Redacted.value(text).split(",").map((key) => Redacted.make(key.trim()))
    const problem = tokens.problemOfKeys(keys)
    return problem === undefined
      ? Effect.succeed(layerKeys(keys))
      : environment.refused([`DUROXIDE_COMPLETION_KEYS is refused: ${problem}`])
  })
)

/**
 * How a call stands.
 *
 * @category models
 * @since 0.3.0
 */
export interface Status extends service.Status {}

/**
 * The outcome of a completion. `taken`: the instance has received it. `stored`: it will receive it, unless an earlier
 * completion is stored, too.
 *
 * @category models
 * @since 0.3.0
 */
export type Completed = service.Completed

/**
 * Why a completion is refused; nothing was sent. After a `ProviderError` it may be stored: send the same one again.
 *
 * @category errors
 * @since 0.3.0
 */
export type Refusal = service.Refusal | ProviderError

/**
 * Completes calls by their tokens. It needs a store and the keys, but no runtime.
 *
 * @category services
 * @since 0.3.0
 */
export class Completion extends Context.Service<Completion, {
  /**
   * Completes the call. `result` is JSON, as the Schema of the activity encodes it.
   *
   * A repeated completion with the same result succeeds again, even after the instance has ended. Another completion of
   * a call that has ended fails with `AlreadyCompleted`.
   */
  readonly complete: (
    token: string,
    result: unknown
  ) => Effect.Effect<Completed, Refusal | PayloadMismatch | PayloadTooLarge>
  /** Fails the call with a typed error of the activity, under the rules of `complete`. */
  readonly fail: (
    token: string,
    error: unknown
  ) => Effect.Effect<Completed, Refusal | PayloadMismatch | PayloadTooLarge>
  /**
   * Reports that the work continues: the call now expires `expiry` from now. `details`, any JSON of up to 1,000
   * characters, are shown to operators (`explain`). Each heartbeat is an event of the history: send one every few
   * minutes, not every second.
   */
  readonly heartbeat: (
    token: string,
    details?: unknown
  ) => Effect.Effect<{ readonly expiresAtMs: number }, Refusal | PayloadMismatch>
  /** Reads what the token names, without the store. */
  readonly named: (
    token: string
  ) => Effect.Effect<{ readonly instanceId: string; readonly activityName: string }, service.TokenRefused>
  /** Reads how the call stands. */
  readonly status: (token: string) => Effect.Effect<Status, Refusal>
}>()("duroxide-prisma/recipes/Completion") {}

/**
 * Options of `layer`.
 *
 * @category options
 * @since 0.3.0
 */
export interface Options {
  /**
   * The activities whose calls may be completed. Their Schemas check results and errors; tokens of other activities are
   * refused. Without this option, all activities, unchecked: an orchestration dies of a result that it cannot read.
   */
  readonly activities?: ReadonlyArray<service.Definition> | undefined
  /** How long a completion waits for its instance to take it. Defaults to 2 seconds. */
  readonly wait?: Duration.Input | undefined
}

/**
 * Completes calls in the store of the `Provider`.
 *
 * @category layers
 * @since 0.3.0
 */
export const layer = (options: Options = {}): Layer.Layer<Completion, never, Provider | Keys> => {
  const wait = durationOf(options.wait ?? "2 seconds")
  if (wait === undefined || Duration.isNegative(wait)) throw new RangeError("wait of completions is not a duration")
  return Layer.effect(
    Completion,
    Effect.gen(function*() {
      return Completion.of(service.make({
        provider: yield* Provider,
        keys: yield* Keys,
        activities: options.activities,
        waitMs: Duration.toMillis(wait)
      }))
    })
  )
}
