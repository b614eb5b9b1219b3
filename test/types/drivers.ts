/**
 * What the author of a driver of tasks writes with the entry points alone: checked by `tsc`, never run.
 */
import { Notifier, Topics } from "duroxide-prisma/provider"
import type { ProviderError } from "duroxide-prisma/provider"
import { TaskDriver, Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

type Call<A> = Effect.Effect<A, ProviderError.ProviderError>

declare const ask: <A>(...question: ReadonlyArray<unknown>) => Call<A>

const take =
  (serves: TaskDriver.Serves) =>
  (lease: TaskDriver.Lease, options: TaskDriver.TakeOptions): Call<TaskDriver.Fetched<TaskDriver.TakenTask>> =>
    Effect.map(
      ask<{ readonly taken: ReadonlyArray<TaskDriver.TakenTask>; readonly left: TaskDriver.Leased }>(
        lease.queue,
        lease.limit,
        lease.token,
        lease.visibilityMs,
        serves,
        options.claimId
      ),
      ({ left, taken }) => ({ taken, left })
    )

const driver = Layer.succeed(TaskDriver.TaskDriver, {
  database: {},
  problems: new Set<() => string | undefined>(),
  create: (tasks) => ask<ReadonlyArray<TaskDriver.Created>>(tasks),
  claim: (taskIds, serves, options) => ask<ReadonlyArray<TaskDriver.Claim>>(taskIds, serves, options),
  take,
  returnClaims: (workerId, claimIds) => ask<ReadonlyArray<number>>(workerId, claimIds),
  renew: (leases) => ask<ReadonlyArray<"Done" | "Lost">>(leases),
  complete: (completions) => ask<ReadonlyArray<TaskDriver.Completed>>(completions),
  fail: (ends) => ask<ReadonlyArray<"Retried" | "Dead" | "Stale">>(ends),
  within: (connection) => ({
    complete: (taskId, attempt, result) => ask<TaskDriver.Completed>(connection, taskId, attempt, result),
    lockAttempt: (taskId, attempt) => ask<boolean>(connection, taskId, attempt)
  }),
  cancel: (ids, reason, replies) => ask<ReadonlyArray<"Cancelled" | "Ended" | "Missing">>(ids, reason, replies),
  await: (ids) => ask<ReadonlyArray<TaskDriver.EndedTask>>(ids),
  join: (taskId, caller) => ask<TaskDriver.End | null>(taskId, caller),
  recall: (taskId, caller) => ask<unknown>(taskId, caller),
  redrive: (ids, name, limit) => ask<ReadonlyArray<string>>(ids, name, limit),
  sweep: (limit, wakeups, serving) => ask<TaskDriver.Swept>(limit, wakeups, serving),
  clean: (keepEndedMs, keepDeadMs, limit) => ask<number>(keepEndedMs, keepDeadMs, limit),
  readTask: (taskId) => ask<TaskDriver.TaskState | null>(taskId),
  readAttempts: (taskId) => ask<ReadonlyArray<TaskDriver.AttemptState>>(taskId),
  readDead: (name, limit) => ask<ReadonlyArray<TaskDriver.DeadState>>(name, limit),
  readBacklog: ask<TaskDriver.TaskBacklog>()
})

const topics = Layer.effect(Topics.Topics, Effect.flatMap(Notifier.Notifier, Topics.make))

/** The driver announces ends of tasks that are awaited. */
export const ended = ({ announce }: Topics.Topics["Service"], taskId: string): Effect.Effect<void> =>
  announce([{ topic: Topics.Topic.task(taskId) }])

export const live: Layer.Layer<Tasks.Tasks, never, Notifier.Notifier> = Tasks.layer.pipe(
  Layer.provide(driver),
  Layer.provide(topics)
)
