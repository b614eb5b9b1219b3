/**
 * The row of a task to create, from its definition and the options of the caller.
 */
import * as Clock from "effect/Clock"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { randomUUID } from "node:crypto"
import { noDuration, wholeMs } from "../../model/shared/durations.ts"
import { problemOfLimitKey } from "../../model/shared/limits.ts"
import type { PayloadMismatch, PayloadSchema, PayloadTooLarge } from "../../model/shared/payload.ts"
import * as tracing from "../../model/shared/tracing.ts"
import { InvalidInput, ProviderError } from "../../provider/ProviderError.ts"
import { maxDelayMs } from "../../queue/shared/declarations.ts"
import { problemOfKey } from "../internal/settings.ts"
import type * as Task from "../Task.ts"
import type { NewTask } from "../TaskDriver.ts"

/**
 * How a task is created.
 *
 * @category options
 * @since 0.2.0
 */
export type CreateOptions<Payload> = {
  /**
   * Makes the creation idempotent: with a key that a task of this name has already, also one that has ended, the id of
   * that task is returned and nothing is stored. At most 1,024 bytes. A key is free again when its task is deleted
   * after its retention.
   */
  readonly key?: string | undefined
  /** The first attempt begins no earlier. Defaults to none; up to 10 years. */
  readonly delay?: Duration.Input | undefined
} & ([Payload] extends [void] ? { readonly payload?: Payload } : { readonly payload: Payload })

export const newTask = <P extends PayloadSchema>(
  task: Task.Task<any, P, any, any>,
  options: CreateOptions<P["Type"]>
): Effect.Effect<NewTask, PayloadMismatch | PayloadTooLarge | ProviderError> =>
  Effect.gen(function*() {
    const { delay, key, payload } = options
    const problem = key === undefined ? undefined : problemOfKey(key)
    if (problem !== undefined) return yield* invalid("createTasks", "key", problem)
    const delayMs = delay === undefined ? 0 : wholeMs(delay)
    if (delayMs === undefined) return yield* invalid("createTasks", "delay", noDuration)
    if (delayMs > maxDelayMs) {
      return yield* invalid("createTasks", "delay", `it is ${delayMs} ms; it must be 0 to 10 years`)
    }
    const limitKey = yield* limitKeyOf(task, payload)
    const kind = task.wakeupKind
    const id = kind === undefined ? undefined : yield* timeOrderedUuid
    return {
      id,
      name: task.name,
      key,
      limitKey,
      payload: yield* task.codecs.payload.encode(payload),
      maxAttempts: task.maxAttempts,
      queue: task.queue,
      wakeup: kind === undefined ? undefined : { kind, task_id: id },
      delayMs: delayMs === 0 ? undefined : delayMs,
      traceContext: yield* tracing.traceparent
    }
  })

/** The key of a task with this payload among those of a limit. */
export const limitKeyOf = <P extends PayloadSchema>(
  { limitKey }: Pick<Task.Task<any, P, any, any>, "limitKey">,
  payload: P["Type"]
): Effect.Effect<string | undefined, ProviderError> => {
  if (limitKey === undefined) return Effect.undefined
  return Effect.try({
    try: () => limitKey(payload),
    // What it throws may quote the payload.
    catch: () => "the code that makes it has thrown"
  }).pipe(
    Effect.filterOrFail((key) => problemOfLimitKey(key) === undefined, (key) => problemOfLimitKey(key)!),
    Effect.catch((problem) => invalid("createTasks", "limitKey", problem))
  )
}

export const invalid = (operation: string, field: string, problem: string) =>
  Effect.fail(new ProviderError({ operation, reason: new InvalidInput({ field, problem }) }))

/** A UUID of version 7: it begins with the time, so that new rows share pages of the index. */
export const timeOrderedUuid: Effect.Effect<string> = Effect.map(Clock.currentTimeMillis, (nowMs) => {
  const time = nowMs.toString(16).padStart(12, "0")
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`
})
