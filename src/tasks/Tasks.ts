/**
 * Creates tasks, waits for their ends, and manages them.
 *
 * Creating a task writes its row and a row of the outbox in one statement: a publisher (`Outbox.publisher`) sends the
 * wake-up later. A process that only creates tasks needs no queue and no handlers. With the `PgQueue` of the same
 * schema in the context, a task that can begin at once has its wake-up there, and no row of the outbox.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type * as Activity from "../Activity.ts"
import { withHarmlessLoggers } from "../model/shared/logging.ts"
import type { PayloadMismatch, PayloadSchema, PayloadTooLarge } from "../model/shared/payload.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { shared } from "../provider/shared/statement.ts"
import { Queue } from "../queue/Queue.ts"
import { storedIn } from "../queue/shared/stored.ts"
import { Topic, Topics } from "../waking/Topics.ts"
import * as calls from "./internal/calls.ts"
import type { AttemptRecord, DeadTask, Status } from "./internal/reads.ts"
import * as sweeps from "./internal/sweep.ts"
import type { TaskNotFound, TaskWaitTimeout } from "./shared/errors.ts"
import type { CreateOptions } from "./shared/newTask.ts"
import * as sealedDriver from "./shared/sealedDriver.ts"
import * as service from "./shared/service.ts"
import * as waits from "./shared/waits.ts"
import type * as Task from "./Task.ts"
import { TaskDriver } from "./TaskDriver.ts"
import type { NewTask } from "./TaskDriver.ts"

export type { CreateOptions } from "./shared/newTask.ts"

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
 * Creates tasks inside a transaction of the application, through `Transaction` of `duroxide-prisma/prisma`: the rows of
 * the application and the tasks commit together or not at all.
 *
 * **Details**
 *
 * Each call is one statement on the connection, as in `Transaction.make`, whose details and gotchas apply. Until the
 * commit, another creation with the same key waits for the outcome.
 *
 * **Example** (An order and the task that confirms it)
 *
 * ```ts
 * await prisma.$transaction(async (tx) => {
 *   await tx.order.create({ data: { id: "o-1", totalCents: 4200 } })
 *   const tasks = Tasks.within(Transaction.make(tx, { schema: "duroxide" }))
 *   await Effect.runPromise(tasks.create(Confirm, { payload: { order: "o-1" }, key: "o-1" }))
 * })
 * ```
 *
 * @category constructors
 * @since 0.2.0
 */
export const within = ({ tasks }: { readonly tasks: Pick<TaskDriver["Service"], "create"> }): Creator =>
  service.creator(tasks.create)

export type { AttemptRecord, DeadTask, Failure, Status } from "./internal/reads.ts"

/**
 * Creates, reads and manages tasks in the schema of its database.
 *
 * **Details**
 *
 * Every method fails with `ProviderError` when the database fails. Bad input is refused before anything is written,
 * with `PayloadMismatch`, `PayloadTooLarge`, or the reason `InvalidInput`. Simultaneous creations share statements.
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
     * A hint makes an end known within milliseconds; without a connection that listens it takes about a second. Waits
     * share their statements, so a process may have thousands.
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
      | Task.TaskUnavailable
      | Task.TaskTimedOut
      | Task.TaskCancelled
      | TaskNotFound
      | TaskWaitTimeout
      | PayloadMismatch
      | ProviderError
    >
    /**
     * Cancels a task: a waiting one never runs. The attempt of a running one can no longer commit; its handler is
     * interrupted at once by a hint, or with its next heartbeat. While a transaction of the handler holds the task
     * (`commit`, `lock`), the call waits up to 30 seconds, then fails with the reason `Contention`. Returns whether
     * this call cancelled the task; an ended or unknown task stays as it is.
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
     * Gives dead tasks all their attempts again; returns their ids. Other tasks stay as they are. By name, each call
     * takes up to 1,000 tasks, in the order of their deaths.
     */
    readonly redrive: (
      which: { readonly ids: ReadonlyArray<string> } | { readonly name: string }
    ) => Effect.Effect<ReadonlyArray<string>, ProviderError>
  }
>()("duroxide-prisma/tasks/Tasks") {}

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
} from "./shared/errors.ts"

/**
 * The tasks of a database.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make: Effect.Effect<Tasks["Service"], never, TaskDriver | Topics | Scope.Scope> = Effect.gen(
  function*() {
    const driver = yield* sealedDriver.driver
    const { hasRecentWait, wait } = yield* waits.make(driver)
    const { announced, deliveries, written } = yield* waking(driver)
    const redrive: typeof driver.redrive = (...which) =>
      Effect.tap(driver.redrive(...which), (ids) => ids.length > 0 ? announced([Topic.outbox]) : Effect.void)

    const store = { ...driver, ...yield* patient(driver, deliveries), redrive }

    return Tasks.of(service.make({
      store: {
        ...store,
        // Not when many are created at once: announcing 10,000 ends costs more than the looks that find them.
        create: (tasks) =>
          store.create(tasks.length === 1 && hasRecentWait() ? [{ ...tasks[0]!, isAwaited: true }] : tasks)
      },
      wait,
      written
    }))
  }
)

/**
 * The tasks of a database, as a layer.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer: Layer.Layer<Tasks, never, TaskDriver | Topics> = Layer.effect(Tasks, make)

/**
 * Finds tasks whose wake-ups were lost and attempts of lost workers, as each `TaskWorker` does, but five seconds later.
 * For a system that may have no worker for a while, for example when the length of the queue starts workers. One
 * process is enough, such as the publisher's. It sends a statement a minute while nothing happens.
 *
 * @category layers
 * @since 0.2.0
 */
export const sweeper: Layer.Layer<never, never, TaskDriver | Topics> = Layer.effectDiscard(
  Effect.gen(function*() {
    const driver = yield* TaskDriver
    const { deliveries = {} } = yield* waking(driver)
    yield* withHarmlessLoggers(sweeps.run({
      driver,
      names: [],
      queues: Object.keys(deliveries),
      shortestLease: Duration.seconds(30),
      keeping: undefined,
      lateMs: 5_000,
      isBusy: () => false,
      inTouch: Effect.void
    }))
  })
)

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
export const activities = [calls.CreateTask, calls.RunTask, calls.CancelTask] as const

/**
 * What `layerActivities` provides.
 *
 * @category activities
 * @since 0.2.0
 */
export type ActivityHandlers = Activity.Handler<(typeof activities)[number]["name"]>

/**
 * The handlers of `activities`. The tasks must be in the schema of the orchestrations, because the end of a task and
 * the message about it are one transaction.
 *
 * @category activities
 * @since 0.2.0
 */
export const layerActivities: Layer.Layer<
  ActivityHandlers,
  never,
  TaskDriver | Topics
> = Layer.unwrap(Effect.gen(function*() {
  const driver = yield* sealedDriver.driver
  const { deliveries, written } = yield* waking(driver)
  return service.activityHandlers({ store: yield* patient(driver, deliveries), written })
}))

// internal

/** Where the wake-ups of new tasks go, and who learns of them. */
const waking = Effect.fnUntraced(function*({ database }: TaskDriver["Service"]) {
  const topics = yield* Topics
  const queue = yield* Effect.serviceOption(Queue)
  const deliveries = Option.isNone(queue) ? undefined : storedIn("publish", queue.value, database)?.maxAttempts
  const announced = (all: Iterable<Topic>) => topics.announce([...new Set(all)].map((topic) => ({ topic })))
  const written: service.Written = (tasks) =>
    announced(
      tasks.map(({ delayMs, queue, wakeup }) =>
        deliveries?.[queue] !== undefined && delayMs === undefined && wakeup === undefined
          ? Topic.messages(queue)
          : Topic.outbox
      )
    )
  return { announced, deliveries, written }
})

/** Operations on tasks that a transaction of the application may hold for a while. */
const patient = Effect.fnUntraced(function*(
  { cancel, join, recall, ...driver }: TaskDriver["Service"],
  deliveries: Readonly<Record<string, number>> | undefined
) {
  const create = (tasks: ReadonlyArray<NewTask>) => driver.create(tasks, deliveries)
  const createOne = yield* shared("createTasks", create, {
    lanes: 2,
    maxBatch: 500,
    patience,
    sizeOf: ({ payload }: NewTask) => payload.length
  })
  const createPatiently: typeof driver.create = (tasks) =>
    tasks.length === 1 ? Effect.map(createOne(tasks[0]!), (created) => [created]) : create(tasks)
  return {
    create: createPatiently,
    cancel: yield* alone("cancelTasks", cancel),
    join: yield* alone("joinTask", join),
    recall: yield* alone("recallTask", recall)
  }
})

const patience = Duration.seconds(30)

/** One call in each statement. */
const alone = <Args extends ReadonlyArray<unknown>, A>(
  operation: string,
  call: (...args: Args) => Effect.Effect<A, ProviderError>
) =>
  Effect.map(
    shared<Args, A>(
      operation,
      ([args]) => Effect.map(call(...args!), (answer) => [answer]),
      { lanes: 2, maxBatch: 1, patience }
    ),
    (send) => (...args: Args) => send(args)
  )
