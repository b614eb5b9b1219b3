/**
 * Runs tasks in this process.
 *
 * A worker is a scoped layer: building it begins to consume the queues of its tasks, closing its scope stops
 * gracefully. Any number of processes may serve the same tasks.
 *
 * @since 0.2.0
 */
import type * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { randomUUID } from "node:crypto"
import { hostname } from "node:os"
import { SealsDefects } from "../model/shared/defect.ts"
import { problemOfName } from "../model/shared/identifiers.ts"
import { ours, withHarmlessLoggers } from "../model/shared/logging.ts"
import * as variables from "../model/shared/queueEnvironment.ts"
import { PayloadCodec } from "../provider/PayloadCodec.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import type { Queue } from "../queue/Queue.ts"
import { InvalidInput } from "../queue/QueueError.ts"
import type { QueueError } from "../queue/QueueError.ts"
import * as check from "../queue/shared/check.ts"
import * as consuming from "../queue/shared/consuming.ts"
import { Topics } from "../waking/Topics.ts"
import * as attempts from "./internal/attempts.ts"
import * as claimRights from "./internal/claimRights.ts"
import * as sweeps from "./internal/sweep.ts"
import * as wakeupWork from "./internal/wakeupWork.ts"
import { servedOf } from "./shared/code.ts"
import * as sealedDriver from "./shared/sealedDriver.ts"
import type * as Task from "./Task.ts"
import { TaskDriver } from "./TaskDriver.ts"

/**
 * A running worker.
 *
 * @category services
 * @since 0.2.0
 */
export class TaskWorker extends Context.Service<TaskWorker, {
  /**
   * Fails when the worker cannot continue, and otherwise never ends. A failed worker has stopped as at a shutdown: end
   * the process, so that its supervisor restarts it. `launch` does this for a program that consists of one layer.
   */
  readonly failure: Effect.Effect<never, TaskWorkerFailed>
}>()("duroxide-prisma/tasks/TaskWorker") {}

/**
 * The role of the connection may not claim tasks: the database has refused all claims for 10 seconds, and has never
 * given the worker a task.
 *
 * @category errors
 * @since 0.2.0
 */
export class TaskWorkerFailed
  extends Schema.TaggedError<TaskWorkerFailed>("duroxide-prisma/tasks/TaskWorker/TaskWorkerFailed")(
    "TaskWorkerFailed",
    { problem: Schema.String }
  )
{
  override get message() {
    return `the task worker has failed: ${this.problem}`
  }
}

/**
 * What a worker serves, and how. Only `tasks` is required.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options<Tasks extends ReadonlyArray<Task.Any>> {
  /** Each has its handler from a layer of `Task.toLayer`. */
  readonly tasks: Tasks
  /** Handlers that run at the same time, for each queue, 1 to 1,000. Defaults to 10. */
  readonly concurrency?: number | undefined
  /** Shown with attempts; 1 to 1,024 bytes. Defaults to `<host>/<process id>/<8 random characters>`. */
  readonly workerId?: string | undefined
  /**
   * How long handlers may keep running when the layer is released; then they are interrupted, and their tasks are given
   * back without counting the attempt. Their finalizers have 5 seconds. Defaults to 10 seconds.
   */
  readonly gracePeriod?: Duration.Input | undefined
  /** How long a wake-up is hidden from others, extended at half while its handler runs. Defaults to 30 seconds. */
  readonly visibilityTimeout?: Duration.Input | undefined
  /**
   * How long completed and cancelled tasks are kept, with their keys and attempts, up to 10 years. Of all workers of a
   * schema, the shortest time wins, also for tasks that this one does not serve. Defaults to 7 days.
   */
  readonly keepEnded?: Duration.Input | undefined
  /** How long dead tasks are kept, up to 10 years; the shortest time wins, as above. Defaults to 30 days. */
  readonly keepDead?: Duration.Input | undefined
}

/**
 * The options that environment variables give, as `docs/configuration.md` lists them; one error names each that cannot
 * be used. `tasks` is set in code.
 *
 * @category configuration
 * @since 0.2.0
 */
export const environment: Config.Config<Partial<Omit<Options<ReadonlyArray<Task.Any>>, "tasks">>> =
  variables.workerConfig

/**
 * Runs the given tasks. Their handlers must be provided as layers; a missing one does not compile.
 *
 * **Details**
 *
 * It consumes each queue of its tasks. The wake-up of a task that it does not serve is given back, first at once, then
 * with a growing delay, and one warning; at the 15th delivery it is dropped. Where the queue is in the database of the
 * tasks, a worker that serves the task takes it meanwhile. Even so, give workers that serve different tasks queues of
 * their own: in a shared one a task waits behind those of other names. A worker that starts wakes the tasks of its
 * names that no worker has served before. It also looks for attempts of lost workers and for lost wake-ups, including
 * those of other workers, and wakes their tasks through the outbox. Fails with `QueueError` if an option is out of its
 * range, or `Queue` does not have the queue of a task (`QueueNotFound`). Dies when two tasks have one name.
 *
 * A worker that runs fails only when its role may not claim: see `TaskWorkerFailed` and `launch`.
 *
 * **Example** (A process that serves a task on PostgreSQL alone)
 *
 * ```ts
 * const WorkerLive = TaskWorker.layer({ tasks: [Resize], concurrency: 20 }).pipe(
 *   Layer.provide([ResizeLive, Outbox.publisher()]),
 *   Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
 *   Layer.provide(PrismaProvider.layerDatabase({ url }))
 * )
 * ```
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = <const Tasks extends ReadonlyArray<Task.Any>>(
  options: Options<Tasks>
): Layer.Layer<
  TaskWorker,
  QueueError,
  Queue | TaskDriver | Topics | { readonly [I in keyof Tasks]: Task.Handler<Tasks[I]["name"]> }[number]
> =>
  Layer.effect(
    TaskWorker,
    Effect.gen(function*() {
      const served = yield* servedOf(options.tasks)
      const driver = yield* sealedDriver.driver
      const workerId = options.workerId ?? `${hostname()}/${process.pid}/${randomUUID().slice(0, 8)}`
      const problem = problemOfName(workerId, maxWorkerIdBytes)
      if (problem !== undefined) {
        return yield* check.fail("serve", "tasks", new InvalidInput({ field: "workerId", problem }))
      }
      const keepEndedMs = yield* check.retention("serve", "tasks", "keepEnded", options.keepEnded ?? "7 days")
      const keepDeadMs = yield* check.retention("serve", "tasks", "keepDead", options.keepDead ?? "30 days")
      const rights = yield* claimRights.make(driver.problems)
      let running = 0
      const core = Layer.effect(
        Attempts,
        attempts.make({ driver, served, watch: rights.watch, workerId }).pipe(withHarmlessLoggers)
      )
      const queues = [...new Set(options.tasks.map(({ queue }) => queue))]
      const sweep = Layer.effectDiscard(Effect.flatMap(Attempts, ({ inTouch }) =>
        withHarmlessLoggers(sweeps.run({
          driver,
          isBusy: () => running > 0,
          inTouch,
          names: [...served.keys()],
          queues,
          shortestLease: Duration.millis(Math.min(...[...served.values()].map(({ leaseMs }) => leaseMs), 3_600_000)),
          keeping: { endedMs: keepEndedMs, deadMs: keepDeadMs }
        }))))
      const consume = Effect.fnUntraced(function*(queue: string) {
        const settings = yield* consuming.readSettings({
          queue,
          concurrency: options.concurrency,
          maxMessages: Math.min(options.concurrency ?? 10, 1000),
          visibilityTimeout: options.visibilityTimeout,
          gracePeriod: options.gracePeriod
        })
        const attempts = yield* Attempts
        const work = wakeupWork.make(attempts, settings, (more) => {
          running += more
        })
        const ofQueue = options.tasks.filter((task) => task.queue === queue)
        const kinds = [...new Set(ofQueue.map(({ wakeupKind = "task_wakeup" }) => wakeupKind))]
        yield* consuming.consume(settings, kinds, wakeupWork.receiveBy(attempts, driver, settings), work)
      })
      const consumers = Layer.mergeAll(Layer.empty, ...queues.map((queue) => Layer.effectDiscard(consume(queue))))
      const log = (line: Effect.Effect<void>, annotations: Record<string, unknown> = {}) =>
        ours({ worker_id: workerId, ...annotations })(line)
      const lines = Layer.effectDiscard(Effect.andThen(
        log(Effect.logInfo("Task worker: started"), {
          tasks: [...served.keys()].join(", ") || "none",
          queues: queues.join(", ") || "none"
        }),
        Effect.addFinalizer(() => log(Effect.logInfo("Task worker: stopped")))
      ))
      // Consumers end first.
      const worker = Layer.merge(consumers, sweep).pipe(Layer.provide(core), Layer.provide(lines))
      const scope = yield* Scope.fork(yield* Effect.scope)
      yield* Layer.buildWithScope(worker, scope)
      const failure = Deferred.makeUnsafe<never, TaskWorkerFailed>()
      const stop = Effect.fnUntraced(function*({ reason: { _tag, message } }: ProviderError) {
        yield* log(Effect.logFatal("Task worker: its role may not claim, this process runs no more tasks"), {
          error_type: _tag,
          error: message
        })
        yield* Effect.uninterruptible(Scope.close(scope, Exit.void)).pipe(
          Effect.ensuring(Deferred.fail(failure, new TaskWorkerFailed({ problem: message })))
        )
      })
      yield* Effect.forkScoped(Effect.flatMap(Deferred.await(rights.denied), stop))
      return TaskWorker.of({ failure: Deferred.await(failure) })
    }).pipe(
      Effect.updateContext((context: Context.Context<any>) =>
        Context.add(context, SealsDefects, Option.isSome(Context.getOption(context, PayloadCodec)))
      )
    )
  ) as never

/**
 * Builds a layer that contains a worker, and keeps it until interruption; fails when the worker fails. Use it as the
 * main program of a process without a runtime, instead of `Layer.launch`.
 *
 * @category execution
 * @since 0.2.0
 */
export const launch = <A, E, R>(
  self: Layer.Layer<A | TaskWorker, E, R>
): Effect.Effect<never, E | TaskWorkerFailed, R> =>
  Effect.scoped(
    Effect.flatMap(
      Layer.build(self as Layer.Layer<TaskWorker, E, R>),
      (services) => Context.get(services, TaskWorker).failure
    )
  )

// internal

const maxWorkerIdBytes = 1024

class Attempts extends Context.Service<Attempts, attempts.Attempts>()("duroxide-prisma/tasks/TaskWorker/Attempts") {}
