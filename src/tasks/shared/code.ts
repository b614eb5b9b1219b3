/**
 * What a worker runs for a task: the service through which the layer of a handler reaches it.
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import type { Attempt } from "../internal/attempt.ts"
import type { Failure } from "./failure.ts"

/**
 * Marks, in the type of a layer, that it provides the handler of the task `Name`.
 *
 * @category models
 * @since 0.2.0
 */
export interface TaskHandler<Name extends string> {
  readonly _: unique symbol
  readonly name: Name
}

/** An attempt that did not succeed. */
export interface Failed {
  readonly failure: Failure
  /** For logs: the type of what the handler failed with, never its content. */
  readonly errorType: string
  /** Pause before the next attempt; undefined if the task is dead, however many attempts are left. */
  readonly retryAfter: Duration.Duration | undefined
  /** False for one of the attempts beyond those that the task may have. Defaults to true. */
  readonly counts?: boolean
}

/** An attempt that died in a way for which the schedule of its task is not asked. */
export const failedUnscheduled = (problem: string, errorType = "TaskDied"): Failed => ({
  failure: { _tag: "Died", problem },
  errorType,
  retryAfter: Duration.seconds(1)
})

export interface TaskCode {
  /** All that the handler needs but its attempt: merged once for a worker, which costs more than most handlers. */
  readonly services: Context.Context<never>
  /** Encodes a result for `Attempt.commit`. */
  readonly encodeResult: (result: unknown) => Effect.Effect<string, PayloadMismatch | PayloadTooLarge>
  /**
   * Runs the handler, within the timeout of the task. `counted` is the number of attempts so far that count, this one
   * included. Interruption is passed on. It must have `services`.
   */
  readonly run: (payload: string, counted: number) => Effect.Effect<string, Failed, Attempt>
}

export const taskKey = <Name extends string>(name: Name): Context.Key<TaskHandler<Name>, TaskCode> =>
  Context.Service<TaskHandler<Name>, TaskCode>(`duroxide-prisma/tasks/Task/${name}`)

/** The code of a task, and how long the lease of an attempt lasts. */
export interface Served {
  readonly code: TaskCode
  readonly leaseMs: number
}

/** Tasks by their names, with the code of their handlers in the context. Two of one name are a defect. */
export const servedOf = Effect.fnUntraced(function*(
  tasks: ReadonlyArray<{ readonly name: string; readonly lease: Duration.Duration }>
): Effect.fn.Return<ReadonlyMap<string, Served>> {
  const services = yield* Effect.context<never>()
  const served = new Map<string, Served>()
  for (const { lease, name } of tasks) {
    if (served.has(name)) return yield* Effect.die(new RangeError(`two tasks have the name "${name}"`))
    served.set(name, { code: Context.getUnsafe(services, taskKey(name)), leaseMs: Duration.toMillis(lease) })
  }
  return served
})
