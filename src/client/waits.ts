/**
 * What a client waits for: the end of an instance, a status, a value.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as ErrorDetails from "../model/ErrorDetails.ts"
import type { Payload as Codec } from "../model/shared/payload.ts"
import * as tracing from "../model/shared/tracing.ts"
import type { Provider } from "../provider/Provider.ts"
import { timeoutOf } from "./calls.ts"
import { InstanceCancelled, InstanceEnded, InstanceFailed, WaitTimeout } from "./errors.ts"

/**
 * Options of a wait.
 *
 * @category models
 * @since 0.1.0
 */
export interface WaitOptions {
  /**
   * Longest wait for an end that is not stored yet; then `WaitTimeout`. With 0, `wait` looks once: it returns the
   * result of an instance that has ended, and fails otherwise. The first look is not part of it: while the store cannot
   * be reached, it ends with the `ProviderError` of that look. Defaults to no limit.
   */
  readonly timeout?: Duration.Input | undefined
}

/**
 * A custom status. The version counts how often the instance has set or removed it, over all its executions; changes of
 * one turn count once.
 *
 * @category models
 * @since 0.2.0
 */
export interface CustomStatus {
  /** `none` when it was removed. */
  readonly status: Option.Option<string>
  readonly version: number
}

/**
 * Options of a wait for a status.
 *
 * @category models
 * @since 0.2.0
 */
export interface StatusWaitOptions {
  /** The version of the last status seen. Defaults to 0: the wait is for any status. */
  readonly after?: number | undefined
  /**
   * Longest wait for a status that is not stored yet; then `WaitTimeout`. As in `WaitOptions`. Defaults to no limit.
   */
  readonly timeout?: Duration.Input | undefined
}

/**
 * Options of a wait for a value.
 *
 * @category models
 * @since 0.2.0
 */
export interface ValueWaitOptions<V> {
  /** Which value is waited for. Called with each value seen, so it must not have effects. Defaults to any value. */
  readonly until?: ((value: V) => boolean) | undefined
  /** Longest wait for a value that is not stored yet; then `WaitTimeout`. As in `WaitOptions`. Defaults to no limit. */
  readonly timeout?: Duration.Input | undefined
}

/**
 * Options of an interruption.
 *
 * @category models
 * @since 0.2.0
 */
export interface InterruptOptions {
  /**
   * How long the program may clean up. Then it is terminated, and with it the children that it waits for. Counted from
   * this call, also while no process can run the instance or it is paused; a paused one ends at its resume. Leave time
   * for a worker that dies: its activity runs again after `workerLockTimeout`. Of several interruptions the earliest
   * deadline counts. Defaults to no limit.
   */
  readonly deadline?: Duration.Input | undefined
}

/** What a client needs of an orchestration. */
interface Definition<S, E> {
  readonly codecs: { readonly success: Codec<S>; readonly error: Codec<E> }
}

/** Waits for the end of an instance, after its start if there is one. */
export const outcome = Effect.fnUntraced(
  function*<S, E, StartFailure = never>(
    provider: Provider["Service"],
    orchestration: Definition<S, E>,
    instanceId: string,
    options: WaitOptions | undefined,
    start?: Effect.Effect<void, StartFailure>
  ) {
    const timeout = yield* timeoutOf("Client.wait", options?.timeout)
    const end = Option.getOrUndefined(yield* provider.awaitEnd({ instanceId, timeout, start }))
    if (end === undefined) return yield* new WaitTimeout({ instanceId, timeoutMs: Duration.toMillis(timeout!) })
    if (end._tag === "Completed") return yield* orchestration.codecs.success.decode(end.output)
    const { details } = end
    const reason = ErrorDetails.cancellationOf(details)
    if (reason !== undefined) return yield* new InstanceCancelled({ instanceId, reason })
    yield* orchestration.codecs.error.checkOpened(details)
    const typed = details._tag === "Application" && details.kind === "OrchestrationFailed"
      ? orchestration.codecs.error.decodeOption(details.message)
      : Option.none()
    return yield* Option.isSome(typed)
      ? Effect.fail(typed.value)
      : Effect.fail(new InstanceFailed({ instanceId, details }))
  }
)

export const progress = Effect.fnUntraced(function*<A>(
  provider: Provider["Service"],
  waitedFor: "status" | "value",
  instanceId: string,
  timeout: Duration.Input | undefined,
  options: Pick<Parameters<typeof provider.awaitProgress<A>>[0], "key" | "until">
) {
  const duration = yield* timeoutOf(waitedFor === "status" ? "Client.waitForStatus" : "Client.waitForValue", timeout)
  const answer = yield* provider.awaitProgress({ ...options, instanceId, timeout: duration })
  if (answer._tag === "Found") return answer.found
  if (answer._tag === "Ended") return yield* new InstanceEnded({ instanceId, waitedFor })
  return yield* new WaitTimeout({ instanceId, waitedFor, timeoutMs: Duration.toMillis(duration!) })
})

/** Ends the span of a wait. An instance that has ended is an answer, not an error of the span. */
export const endingWait = <A, E extends { readonly _tag: string }, R>(self: Effect.Effect<A, E, R>) =>
  tracing.endingAs(self, (exit) => {
    const error = Option.getOrUndefined(Exit.findErrorOption(exit))
    return error?._tag === "InstanceEnded" ? Exit.void : exit
  })
