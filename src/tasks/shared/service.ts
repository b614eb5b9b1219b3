/**
 * The service of tasks without a store: checks its input, and says how tasks have ended. Works on any driver.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { createHash, randomUUID } from "node:crypto"
import * as Activity from "../../Activity.ts"
import { noDuration, wholeMs } from "../../model/shared/durations.ts"
import { checkText, isUuid, problemOfName } from "../../model/shared/identifiers.ts"
import type { PayloadMismatch, PayloadSchema, PayloadTooLarge } from "../../model/shared/payload.ts"
import * as taskSignal from "../../model/shared/taskSignal.ts"
import * as tracing from "../../model/shared/tracing.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import * as calls from "../internal/calls.ts"
import * as reads from "../internal/reads.ts"
import type { DeadTask, Status } from "../internal/reads.ts"
import type * as Task from "../Task.ts"
import type { Created, NewTask, TaskDriver } from "../TaskDriver.ts"
import { TaskNotFound, TaskWaitTimeout } from "./errors.ts"
import { invalid, newTask } from "./newTask.ts"
import type { CreateOptions } from "./newTask.ts"
import type { Wait } from "./waits.ts"

export type Store = Pick<
  TaskDriver["Service"],
  "create" | "cancel" | "redrive" | "readTask" | "readAttempts" | "readDead"
>

/** Runs after these tasks were written. */
export type Written = (tasks: ReadonlyArray<NewTask>) => Effect.Effect<void>

/** The methods of `Tasks`. */
export const make = ({ store, wait, written }: {
  readonly store: Store
  readonly wait: Wait
  readonly written: Written
}) => ({
  ...creator((tasks) =>
    Effect.tap(
      store.create(tasks),
      (created) => created.some(({ isNew }) => isNew) ? written(tasks) : Effect.void
    )
  ),

  status: (taskId: string): Effect.Effect<Status, ProviderError> =>
    isUuid(taskId) ? Effect.map(store.readTask(taskId), reads.statusOf) : Effect.succeed({ _tag: "NotFound" }),

  wait: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
    task: Task.Task<any, P, S, E>,
    taskId: string,
    options?: { readonly timeout?: Parameters<typeof wholeMs>[0] | undefined }
  ) =>
    Effect.gen(function*() {
      const timeout = options?.timeout
      const timeoutMs = timeout === undefined ? undefined : wholeMs(timeout)
      if (timeout !== undefined && timeoutMs === undefined) {
        return yield* invalid("awaitTasks", "timeout", noDuration)
      }
      if (!isUuid(taskId)) return yield* new TaskNotFound({ taskId })
      const end = yield* timeoutMs === undefined ? wait(taskId) : Effect.timeoutOrElse(wait(taskId), {
        duration: timeoutMs,
        orElse: () => Effect.fail(new TaskWaitTimeout({ taskId, timeoutMs }))
      })
      if (end.status === "Missing") return yield* new TaskNotFound({ taskId })
      return yield* calls.outcomeOf(task.name, task.codecs, end)
    }),

  cancel: (taskId: string, reason: string) =>
    checkText("reason", reason).pipe(
      Effect.catch(({ field, problem }) => invalid("cancelTasks", field, problem)),
      Effect.andThen(isUuid(taskId) ? store.cancel([taskId], reason, true) : Effect.succeed([])),
      Effect.map(([outcome]) => outcome === "Cancelled")
    ),

  attempts: (taskId: string) =>
    isUuid(taskId) ? Effect.map(store.readAttempts(taskId), (all) => all.map(reads.attemptOf)) : Effect.succeed([]),

  listDead: (
    { limit = 100, name }: { readonly name?: string | undefined; readonly limit?: number | undefined } = {}
  ): Effect.Effect<ReadonlyArray<DeadTask>, ProviderError> =>
    !(Number.isInteger(limit) && limit >= 1 && limit <= 1000)
      ? invalid("listDeadTasks", "limit", "it must be a whole number from 1 to 1,000")
      : name === undefined || isName(name)
      ? Effect.map(store.readDead(name ?? null, limit), (all) => all.map(reads.deadOf))
      : Effect.succeed([]),

  redrive: (which: { readonly ids: ReadonlyArray<string> } | { readonly name: string }) =>
    "ids" in which
      ? store.redrive(which.ids.filter(isUuid), null, Math.max(1, which.ids.length))
      : isName(which.name)
      ? store.redrive(null, which.name, 1000)
      : Effect.succeed([])
})

/** The operations that create tasks. */
export const creator = (
  send: (tasks: ReadonlyArray<NewTask>) => Effect.Effect<ReadonlyArray<Created>, ProviderError>
) => {
  const ids = (tasks: ReadonlyArray<NewTask>) => Effect.map(send(tasks), (rows) => rows.map(({ id }) => id))
  return {
    create: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
      task: Task.Task<any, P, S, E>,
      options: CreateOptions<P["Type"]>
    ) => Effect.flatMap(newTask(task, options), (row) => Effect.map(ids([row]), ([id]) => id!)),

    createMany: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
      task: Task.Task<any, P, S, E>,
      many: ReadonlyArray<CreateOptions<P["Type"]>>
    ): Effect.Effect<ReadonlyArray<string>, PayloadMismatch | PayloadTooLarge | ProviderError> =>
      many.length === 0
        ? Effect.succeed([])
        : many.length > mostTasks
        ? invalid("createTasks", "tasks", `there are ${many.length}, the limit is ${mostTasks}`)
        : Effect.flatMap(Effect.forEach(many, (options) => newTask(task, options)), ids)
  }
}

/** The handlers of the activities through which orchestrations run and cancel tasks. */
export const activityHandlers = ({ store, written }: {
  readonly store: Pick<TaskDriver["Service"], "create" | "cancel" | "join" | "recall">
  readonly written: Written
}) =>
  Layer.mergeAll(
    calls.CreateTask.toLayer(Effect.fnUntraced(function*({ limitKey, maxAttempts, name, payload, queue }) {
      const { executionId, instanceId } = yield* Activity.Call
      const key = `orchestration/${yield* callId}`
      const id = randomUUID()
      const task = {
        id,
        name,
        key,
        limitKey,
        payload,
        maxAttempts,
        queue,
        replyTo: { instanceId, executionId, signal: taskSignal.nameOf(id) },
        traceContext: yield* tracing.traceparent
      }
      const [created] = yield* Effect.orDie(store.create([task]))
      if (!created!.isNew) {
        // Since a try whose answer was lost. The call may have ended then, and with it the task.
        const signal = taskSignal.nameOf(created!.id)
        yield* Effect.orDie(store.recall(created!.id, { instanceId, executionId, signal }))
      }
      yield* written([task])
      return created!.id
    })),
    calls.RunTask.toLayer(Effect.fnUntraced(function*({ key, limitKey, maxAttempts, name, payload, queue }) {
      const { executionId, instanceId } = yield* Activity.Call
      const task = { name, key, limitKey, payload, maxAttempts, queue, traceContext: yield* tracing.traceparent }
      const signal = taskSignal.nameOf(yield* callId)
      while (true) {
        const [created] = yield* Effect.orDie(store.create([task]))
        if (created!.isNew) yield* written([task])
        const end = yield* Effect.orDie(store.join(created!.id, { instanceId, executionId, signal }))
        if (end === null) return { signal }
        // Deleted after its retention, since then: there is room for a new one.
        if (end.status !== "Missing") return end
      }
    })),
    calls.CancelTask.toLayer(({ taskId }) =>
      Effect.asVoid(Effect.orDie(store.cancel([taskId], "its orchestration has interrupted it", false)))
    )
  )

// internal

/** Like the id of the instance, the idempotency key may be too long for an index. */
const callId = Effect.map(
  Activity.Call,
  ({ idempotencyKey }) => createHash("sha256").update(idempotencyKey).digest("hex")
)

/** Rows of one statement. */
const mostTasks = 10_000

/** Whether a task can have this name. */
const isName = (name: string) => typeof name === "string" && problemOfName(name) === undefined
