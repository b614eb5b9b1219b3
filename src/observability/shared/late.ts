/**
 * What has waited for too long, in words.
 */
import * as Duration from "effect/Duration"
import { age } from "../../model/shared/quantities.ts"
import type { Backlog as OutboxBacklog } from "../../outbox/OutboxDriver.ts"
import type { Backlog } from "../../provider/Backlog.ts"
import type { TaskBacklog } from "../../tasks/TaskDriver.ts"

export interface Late {
  readonly kind: "message" | "activity" | "outbox" | "task"
  /** Tag of activities; null for those without one, and for other kinds. */
  readonly tag: string | null
  /** How long the oldest one has waited, and how long is accepted; milliseconds. */
  readonly ageMs: number
  readonly limitMs: number
}

/** Work that no process has claimed, although another one takes over once the lock of a crashed one has expired. */
export const ofBacklog = (
  { orchestrator, worker }: Backlog,
  { orchestrationLockTimeout, workerLockTimeout }: {
    readonly orchestrationLockTimeout: Duration.Duration
    readonly workerLockTimeout: Duration.Duration
  }
): ReadonlyArray<Late> => [
  ...late("message", null, orchestrator.oldestAgeMs, takeoverMs(orchestrationLockTimeout)),
  ...worker.flatMap(({ oldestAgeMs, tag }) => late("activity", tag, oldestAgeMs, takeoverMs(workerLockTimeout)))
]

export const ofQueues = (
  { outbox, tasks }: { readonly outbox: OutboxBacklog; readonly tasks: TaskBacklog },
  { longestSendMs, longestWaitMs }: { readonly longestSendMs: number; readonly longestWaitMs: number }
): ReadonlyArray<Late> => [
  ...late("outbox", null, outbox.oldestAgeMs, longestSendMs),
  ...late("task", null, tasks.oldestAgeMs, longestWaitMs)
]

/** A publisher that was not woken looks once a minute. */
export const defaults = { longestSendMs: 65_000, longestWaitMs: 300_000 }

/** Such as `the oldest message has waited for 12 min, more than 7 s`. */
export const fact = ({ ageMs, kind, limitMs, tag }: Late): string => {
  const what = kind === "outbox"
    ? "message of the outbox"
    : kind === "activity" && tag !== null
    ? `activity with the tag ${tag}`
    : kind
  return `the oldest ${what} has waited for ${age(ageMs)}, more than ${age(limitMs)}`
}

/** The fact, and the command that says whose it is. */
export const problem = (one: Late): string => `${fact(one)}: see duroxide-prisma ${commandOf(one)}`

/** When another process has claimed what the lock of a crashed one has held, and its statement was stored. */
export const takeoverMs = (lockTimeout: Duration.Duration) => Duration.toMillis(Duration.sum(lockTimeout, grace))

// internal

const commandOf = ({ kind }: Late) =>
  kind === "outbox" ? "queues" : kind === "task" ? "tasks --status pending" : "status"

const grace = Duration.seconds(2)

const late = (kind: Late["kind"], tag: string | null, ageMs: number | null, limitMs: number): ReadonlyArray<Late> =>
  ageMs === null || ageMs <= limitMs ? [] : [{ kind, tag, ageMs, limitMs }]
