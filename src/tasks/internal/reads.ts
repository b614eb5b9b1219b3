/**
 * Reads of single tasks, for people and programs that look.
 */
import * as Option from "effect/Option"
import * as failures from "../shared/failure.ts"
import type { AttemptState, DeadState, TaskState } from "../TaskDriver.ts"

/**
 * A task that has not ended, or how it ended. Texts of JSON are encoded by the Schemas of the task.
 *
 * @category models
 * @since 0.2.0
 */
export type Status =
  | { readonly _tag: "NotFound" }
  | { readonly _tag: "Pending"; readonly attempts: number; readonly runAt: Date }
  | {
    readonly _tag: "Running"
    readonly attempt: number
    readonly workerId: string
    readonly startedAt: Date
    /** When the worker last renewed its lease, and when the lease ends without another renewal. */
    readonly heartbeatAt: Date
    readonly leaseUntil: Date
  }
  | { readonly _tag: "Completed"; readonly attempts: number; readonly result: string; readonly endedAt: Date }
  | { readonly _tag: "Dead"; readonly attempts: number; readonly failure: Failure; readonly diedAt: Date }
  | { readonly _tag: "Cancelled"; readonly attempts: number; readonly reason: string; readonly endedAt: Date }

/**
 * How an attempt failed: a typed failure (`error` is JSON text of the task's error Schema), a defect, an outage of what
 * it needed, a timeout, or the loss of its worker.
 *
 * @category models
 * @since 0.2.0
 */
export type Failure =
  | { readonly _tag: "Failed"; readonly error: string }
  | { readonly _tag: "Died"; readonly problem: string }
  | { readonly _tag: "Unavailable"; readonly problem: string }
  | { readonly _tag: "TimedOut"; readonly timeoutMs: number }
  | { readonly _tag: "Lost" }

/**
 * An attempt at a task. `GivenBack` was ended by a shutdown of its worker, and does not count.
 *
 * @category models
 * @since 0.2.0
 */
export interface AttemptRecord {
  /** From 1. */
  readonly attempt: number
  readonly workerId: string
  readonly startedAt: Date
  /** `none` while it runs. A lost attempt ends when the next claim finds it. */
  readonly endedAt: Option.Option<Date>
  readonly outcome: AttemptState["outcome"]
  readonly failure: Option.Option<Failure>
}

/**
 * A dead task: its last attempt failed, and there is no further one unless it is redriven.
 *
 * @category models
 * @since 0.2.0
 */
export interface DeadTask {
  readonly taskId: string
  readonly name: string
  readonly key: Option.Option<string>
  readonly attempts: number
  readonly failure: Failure
  readonly diedAt: Date
}

export const statusOf = (task: TaskState | null): Status => {
  if (task === null) return { _tag: "NotFound" }
  const attempts = task.attempt
  switch (task.status) {
    case "Pending":
      return { _tag: "Pending", attempts, runAt: task.runAt }
    case "Running":
      return {
        _tag: "Running",
        attempt: attempts,
        workerId: task.workerId!,
        startedAt: task.startedAt!,
        heartbeatAt: task.heartbeatAt!,
        leaseUntil: task.leaseUntil!
      }
    case "Completed":
      return { _tag: "Completed", attempts, result: task.result ?? "null", endedAt: task.endedAt! }
    case "Dead":
      return { _tag: "Dead", attempts, failure: failureOf(task.error), diedAt: task.endedAt! }
    case "Cancelled": {
      const failure = failures.decode(task.error)
      const reason = failure._tag === "Cancelled" ? failure.reason : ""
      return { _tag: "Cancelled", attempts, reason, endedAt: task.endedAt! }
    }
  }
}

export const attemptOf = ({ attempt, endedAt, error, outcome, startedAt, workerId }: AttemptState): AttemptRecord => ({
  attempt,
  workerId,
  startedAt,
  endedAt: Option.fromNullOr(endedAt),
  outcome,
  failure: error === null ? Option.none() : Option.some(failureOf(error))
})

export const deadOf = ({ attempt, diedAt, error, id, key, name }: DeadState): DeadTask => ({
  taskId: id,
  name,
  key: Option.fromNullOr(key),
  attempts: attempt,
  failure: failureOf(error),
  diedAt
})

// internal

/** A dead task, or a failed attempt, is not cancelled. */
const failureOf = (text: string | null): Failure => failures.decode(text) as Failure
