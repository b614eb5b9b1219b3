/**
 * Creates tasks, waits for their ends, and manages them.
 *
 * Creating a task writes its row and a row of the outbox in one statement: a publisher (`Outbox.publisher`) sends the wake-up
 * later. A process that only creates tasks needs no queue and no handlers.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { createHash, randomUUID } from "node:crypto"
import * as Activity from "../Activity.ts"
import { checkText, problemOfName } from "../model/internal/identifiers.ts"
import type { PayloadMismatch, PayloadSchema, PayloadTooLarge } from "../model/internal/payload.ts"
import * as tracing from "../model/internal/tracing.ts"
import { Database } from "../prisma/Database.ts"
import type { Options as TransactionOptions, TransactionConnection } from "../prisma/Transaction.ts"
import { shared } from "../provider/internal/statement.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { noDuration, wholeMs } from "./internal/check.ts"
import { newTask, refused } from "./internal/newTask.ts"
import type { CreateOptions } from "./internal/newTask.ts"
import { QueueSignals, Topic } from "./internal/signals.ts"
import * as statements from "./internal/statements.ts"
import * as calls from "./internal/taskCalls.ts"
import { TaskNotFound, TaskWaitTimeout } from "./internal/taskErrors.ts"
import { readsOf } from "./internal/taskReads.ts"
import type { AttemptRecord, DeadTask, Status } from "./internal/taskReads.ts"
import * as stores from "./internal/taskStore.ts"
import type { NewTask } from "./internal/taskStore.ts"
import * as waits from "./internal/taskWaits.ts"
import type * as Task from "./Task.ts"

export type { CreateOptions } from "./internal/newTask.ts"

/**
 * The operations that create tasks.
 *
 * @category models
 * @since 0.2.0
 */
export interface Creator {
  /** Creates a task and returns its id, a UUID. When this returns, the task will run even if this process ends. */
  readonly create: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
    task: Task.Task<any, P, S, E>,
    options: CreateOptions<P["Type"]>
  ) => Effect.Effect<string, PayloadMismatch | PayloadTooLarge | ProviderError>
  /** Creates tasks in one statement, all or none; returns their ids in the order of the options. At most 10,000. */
  readonly createMany: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
    task: Task.Task<any, P, S, E>,
    options: ReadonlyArray<CreateOptions<P["Type"]>>
  ) => Effect.Effect<ReadonlyArray<string>, PayloadMismatch | PayloadTooLarge | ProviderError>
}

/**
 * Creates tasks on a connection of the application, inside its transaction: the rows of the application and the tasks commit
 * together or not at all.
 *
 * **Details**
 *
 * Each call is one statement on that connection, as in `Transaction.make`, whose details and gotchas apply. Until the commit,
 * another creation with the same key waits for the outcome.
 *
 * **Example** (An order and the task that confirms it)
 *
 * ```ts
 * await prisma.$transaction(async (tx) => {
 *   await tx.order.create({ data: { id: "o-1", totalCents: 4200 } })
 *   const tasks = Tasks.within(tx, { schema: "duroxide" })
 *   await Effect.runPromise(tasks.create(Confirm, { payload: { order: "o-1" }, key: "o-1" }))
 * })
 * ```
 *
 * @category constructors
 * @since 0.2.0
 */
export const within = (connection: TransactionConnection, options?: TransactionOptions): Creator =>
  creator(stores.within(connection, options?.schema).create)

export type { AttemptRecord, DeadTask, Failure, Status } from "./internal/taskReads.ts"

/**
 * Creates, reads and manages tasks in the schema of its `Database`.
 *
 * **Details**
 *
 * Every method fails with `ProviderError` when the database fails; bad input is refused before anything is written, with
 * `PayloadMismatch`, `PayloadTooLarge`, or the reason `InvalidInput`. Creations of the same time share statements.
 *
 * After `ConnectionLost` a task may be created or not: repeat it with a key.
 *
 * @category services
 * @since 0.2.0
 */
export class Tasks extends Context.Service<
  Tasks,
  & Creator
  & {
    /** Reads a task. */
    readonly status: (taskId: string) => Effect.Effect<Status, ProviderError>
    /**
     * Waits until the task has ended, and returns its typed result or failure.
     *
     * An end is known within milliseconds, by a signal; without a connection that listens, within about a second. Waits share
     * their statements, so a process may have thousands.
     */
    readonly wait: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
      task: Task.Task<any, P, S, E>,
      taskId: string,
      options?: {
        /** Longest wait; then `TaskWaitTimeout`. Defaults to no limit. */
        readonly timeout?: Duration.Input | undefined
      }
    ) => Effect.Effect<
      S["Type"],
      | E["Type"]
      | Task.TaskDied
      | Task.TaskTimedOut
      | Task.TaskCancelled
      | TaskNotFound
      | TaskWaitTimeout
      | PayloadMismatch
      | ProviderError
    >
    /**
     * Cancels a task: a waiting one never runs. The attempt of a running one can no longer commit; its handler is
     * interrupted at once by a signal, or with its next heartbeat. Returns whether it was cancelled by this call; an ended or
     * unknown task stays as it is.
     */
    readonly cancel: (taskId: string, reason: string) => Effect.Effect<boolean, ProviderError>
    /** The attempts at a task, in order. Empty for an unknown one. */
    readonly attempts: (taskId: string) => Effect.Effect<ReadonlyArray<AttemptRecord>, ProviderError>
    /** Dead tasks, the last that died first. */
    readonly listDead: (options?: {
      readonly name?: string | undefined
      /** Defaults to 100, at most 1,000. */
      readonly limit?: number | undefined
    }) => Effect.Effect<ReadonlyArray<DeadTask>, ProviderError>
    /**
     * Gives dead tasks all their attempts again, from now on; returns their ids. Tasks that are not dead stay as they are. By
     * name, up to 1,000 tasks with each call, the first that died first.
     */
    readonly redrive: (
      which: { readonly ids: ReadonlyArray<string> } | { readonly name: string }
    ) => Effect.Effect<ReadonlyArray<string>, ProviderError>
  }
>()("duroxide-prisma/queue/Tasks") {}

export {
  /**
   * There is no task of this id; ended ones are deleted after their retention.
   *
   * @category errors
   * @since 0.2.0
   */
  TaskNotFound,
  /**
   * The task had not ended when `timeout` was over. It continues.
   *
   * @category errors
   * @since 0.2.0
   */
  TaskWaitTimeout
} from "./internal/taskErrors.ts"

/**
 * The tasks of the schema of `Database`.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make: Effect.Effect<Tasks["Service"], never, Database | QueueSignals | Scope.Scope> = Effect.gen(
  function*() {
    const database = yield* Database
    const signals = yield* QueueSignals
    const store = stores.make(statements.make(database, {}))
    const reads = readsOf(database)
    const wait = yield* waits.make(store)
    const written = signals.announce([{ topic: Topic.outbox }])

    const createOne = yield* shared("createTasks", store.create, {
      lanes: 2,
      maxBatch: 500,
      patience: Duration.seconds(30),
      sizeOf: ({ payload }: NewTask) => payload.length
    })

    return Tasks.of({
      ...creator((tasks) =>
        Effect.tap(
          tasks.length === 1 ? Effect.map(createOne(tasks[0]!), (created) => [created]) : store.create(tasks),
          (created) => created.some(({ out_is_new }) => out_is_new) ? written : Effect.void
        )
      ),
      status: (taskId) => isId(taskId) ? reads.status(taskId) : Effect.succeed({ _tag: "NotFound" }),
      wait: (task, taskId, options) =>
        Effect.gen(function*() {
          const timeout = options?.timeout
          const timeoutMs = timeout === undefined ? undefined : wholeMs(timeout)
          if (timeout !== undefined && timeoutMs === undefined) {
            return yield* refused("awaitTasks", "timeout", noDuration)
          }
          if (!isId(taskId)) return yield* new TaskNotFound({ taskId })
          const end = yield* timeoutMs === undefined ? wait(taskId) : Effect.timeoutOrElse(wait(taskId), {
            duration: timeoutMs,
            orElse: () => Effect.fail(new TaskWaitTimeout({ taskId, timeoutMs }))
          })
          if (end.out_status === "Missing") return yield* new TaskNotFound({ taskId })
          return yield* calls.outcomeOf(task.name, task.codecs, {
            status: end.out_status,
            result: end.out_result,
            error: end.out_error
          })
        }),
      cancel: (taskId, reason) =>
        checkText("reason", reason).pipe(
          Effect.catch(({ field, problem }) => refused("cancelTasks", field, problem)),
          Effect.andThen(isId(taskId) ? store.cancel([taskId], reason, true) : Effect.succeed([])),
          Effect.map(([outcome]) => outcome === "Cancelled")
        ),
      attempts: (taskId) => isId(taskId) ? reads.attempts(taskId) : Effect.succeed([]),
      listDead: ({ limit = 100, name } = {}) =>
        !(Number.isInteger(limit) && limit >= 1 && limit <= 1000)
          ? refused("listDeadTasks", "limit", "it must be a whole number from 1 to 1,000")
          : name === undefined || isName(name)
          ? reads.dead(name ?? null, limit)
          : Effect.succeed([]),
      redrive: (which) =>
        Effect.tap(
          "ids" in which
            ? store.redrive(which.ids.filter(isId), null, Math.max(1, which.ids.length))
            : isName(which.name)
            ? store.redrive(null, which.name, 1000)
            : Effect.succeed([]),
          (ids) => ids.length > 0 ? written : Effect.void
        )
    })
  }
)

/**
 * The tasks of the schema of `Database`, as a layer.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer: Layer.Layer<Tasks, never, Database | QueueSignals> = Layer.effect(Tasks, make)

/**
 * What a runtime must serve so that its orchestrations can `execute` tasks; `layerActivities` provides the handlers.
 *
 * **Example** (A runtime whose orchestrations run tasks)
 *
 * ```ts
 * Runtime.layer({ orchestrations: [Fulfil], activities: [...Tasks.activities] }).pipe(
 *   Layer.provide([FulfilLive, Tasks.layerActivities])
 * )
 * ```
 *
 * @category activities
 * @since 0.2.0
 */
export const activities = [calls.CreateTask, calls.CancelTask] as const

/**
 * The handlers of `activities`. The tasks are in the schema of `Database`, which must be that of the orchestrations: the end
 * of a task and the message about it are one transaction.
 *
 * @category activities
 * @since 0.2.0
 */
export const layerActivities: Layer.Layer<
  Activity.Handler<"duroxide-prisma/CreateTask"> | Activity.Handler<"duroxide-prisma/CancelTask">,
  never,
  Database | QueueSignals
> = Layer.unwrap(Effect.gen(function*() {
  const database = yield* Database
  const signals = yield* QueueSignals
  const store = stores.make(statements.make(database, {}))
  return Layer.merge(
    calls.CreateTask.toLayer(Effect.fnUntraced(function*({ maxAttempts, name, payload, queue }) {
      const { executionId, idempotencyKey, instanceId } = yield* Activity.Call
      // Like the id of the instance, the key may be too long for an index.
      const key = `orchestration/${createHash("sha256").update(idempotencyKey).digest("hex")}`
      const id = randomUUID()
      const [created] = yield* Effect.orDie(store.create([{
        id,
        name,
        key,
        payload,
        max_attempts: maxAttempts,
        queue,
        reply_instance_id: instanceId,
        reply_execution_id: executionId,
        reply_name: calls.mailboxOf(id),
        trace_context: yield* tracing.traceparent
      }]))
      yield* signals.announce([{ topic: Topic.outbox }])
      return created!.out_id
    })),
    calls.CancelTask.toLayer(({ taskId }) =>
      Effect.asVoid(Effect.orDie(store.cancel([taskId], "its orchestration has interrupted it", false)))
    )
  )
}))

// internal

/** Rows of one statement. */
const mostTasks = 10_000

/** No task has another one. */
const isName = (name: string) => typeof name === "string" && problemOfName(name) === undefined

const isId = (text: string) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text)

const creator = (
  send: (tasks: ReadonlyArray<NewTask>) => Effect.Effect<ReadonlyArray<stores.Created>, ProviderError>
): Creator => {
  const ids = (tasks: ReadonlyArray<NewTask>) => Effect.map(send(tasks), (rows) => rows.map(({ out_id }) => out_id))
  return {
    create: (task, options) => Effect.flatMap(newTask(task, options), (row) => Effect.map(ids([row]), ([id]) => id!)),
    createMany: (task, many) =>
      many.length === 0
        ? Effect.succeed([])
        : many.length > mostTasks
        ? refused("createTasks", "tasks", `there are ${many.length}, the limit is ${mostTasks}`)
        : Effect.flatMap(Effect.forEach(many, (options) => newTask(task, options)), ids)
  }
}
