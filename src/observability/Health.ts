/**
 * Whether the work of a store gets done, for alerts and people: the store answers, nothing that could
 * be claimed waits longer than the recovery from a crash takes, and the runtime of this process works.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { noDuration, wholeMs } from "../model/shared/durations.ts"
import { ours } from "../model/shared/logging.ts"
import { OutboxDriver } from "../outbox/OutboxDriver.ts"
import type { Backlog as OutboxBacklog } from "../outbox/OutboxDriver.ts"
import type { Backlog } from "../provider/Backlog.ts"
import { Provider } from "../provider/Provider.ts"
import { InvalidInput, ProviderError } from "../provider/ProviderError.ts"
import { Runtime } from "../Runtime.ts"
import { RuntimeConfig } from "../RuntimeConfig.ts"
import { TaskDriver } from "../tasks/TaskDriver.ts"
import type { TaskBacklog } from "../tasks/TaskDriver.ts"
import * as Late from "./shared/late.ts"

/**
 * The result of a check.
 *
 * @category models
 * @since 0.2.0
 */
export interface Report {
  readonly status: "healthy" | "unhealthy"
  /** Why it is unhealthy, and the command that says more, for people; no secrets. */
  readonly problems: ReadonlyArray<string>
  /** What waits in the store; null when it did not answer. */
  readonly backlog: Backlog | null
  /** What waits in outbox and tasks; null when the database did not answer, or `TaskHealth` is not in the context. */
  readonly queues: TaskReport | null
}

/**
 * Checks the store with one statement, and the `Runtime` and the `TaskHealth` of the context, if there are any.
 *
 * **Details**
 *
 * Unhealthy when the store does not answer within 5 seconds, when the oldest message that could be claimed is older
 * than `orchestrationLockTimeout` + 2 seconds, or such an activity older than `workerLockTimeout` + 2 seconds, and when
 * the runtime is closing or has failed. After a crash, other processes take over when a lock has run out: work that
 * waits longer has no process that claims it.
 *
 * **Gotchas**
 *
 * Work may wait because of any process. So use this check for alerts, not to restart the process or to take it out
 * of a load balancer: for that, use `health` of `Runtime`, which does not query the store.
 *
 * @category checks
 * @since 0.2.0
 */
export const check: Effect.Effect<Report, never, Provider> = Effect.gen(function*() {
  const provider = yield* Provider
  const { orchestrationLockTimeout, workerLockTimeout } = yield* RuntimeConfig
  const runtime = yield* Effect.serviceOption(Runtime)
  const problems: Array<string> = []
  if (Option.isSome(runtime)) {
    const { state } = yield* runtime.value.health
    if (state !== "Running") {
      problems.push(`the runtime of this process is ${state === "Failed" ? "failed" : "closing"}`)
    }
  }
  const taskHealth = yield* Effect.serviceOption(TaskHealth)
  const [read, queues] = yield* Effect.all([
    answered("store", provider.readBacklog),
    Option.isSome(taskHealth) ? taskHealth.value.check : Effect.succeed({ report: null, problems: [] })
  ], { concurrency: 2 })
  if (read === null) problems.push("the store did not answer")
  else {
    const lockTimeouts = { orchestrationLockTimeout, workerLockTimeout }
    problems.push(...Late.ofBacklog(read, lockTimeouts).map(Late.problem))
  }
  problems.push(...queues.problems)
  return { status: problems.length === 0 ? "healthy" : "unhealthy", problems, backlog: read, queues: queues.report }
})

/**
 * What waits in outbox and tasks. Ages are milliseconds, 0 if nothing waits.
 *
 * @category models
 * @since 0.2.0
 */
export interface TaskReport {
  /** `oldestAgeMs`: since the oldest waiting task could have begun. At most 1,000 of each are counted. */
  readonly tasks: TaskBacklog
  /**
   * `oldestAgeMs`: since the oldest message should have been sent. Of the messages that are due first, 10,000 are
   * counted.
   */
  readonly outbox: OutboxBacklog
}

/**
 * The health of outbox and tasks. `check` includes it if it is in the context; a process without a runtime asks it
 * alone.
 *
 * @category services
 * @since 0.2.0
 */
export class TaskHealth extends Context.Service<TaskHealth, {
  /** `report` is null if the database did not answer. `problems` says why it is unhealthy, for people; no secrets. */
  readonly check: Effect.Effect<{ readonly report: TaskReport | null; readonly problems: ReadonlyArray<string> }>
}>()("duroxide-prisma/observability/TaskHealth") {}

/**
 * Reads outbox and tasks with two statements.
 *
 * **Details**
 *
 * Unhealthy when the database does not answer within 5 seconds, when a message of the outbox that is due has waited
 * longer than `longestSend`, or a task that could begin longer than `longestWait`, and when the role of the connection
 * may not claim for a `TaskWorker` of this process that uses the same `TaskDriver`. Dead tasks are reported but not
 * unhealthy; an operator decides.
 *
 * Fails with `ProviderError`, reason `InvalidInput`, if an option is not a duration.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerTasks = (options: {
  /** Defaults to 65 seconds: a publisher that was not woken looks once a minute. */
  readonly longestSend?: Duration.Input | undefined
  /** Defaults to 5 minutes. Set it above your longest burst. */
  readonly longestWait?: Duration.Input | undefined
} = {}): Layer.Layer<TaskHealth, ProviderError, OutboxDriver | TaskDriver> =>
  Layer.effect(
    TaskHealth,
    Effect.gen(function*() {
      const longestSendMs = yield* duration("longestSend", options.longestSend ?? Late.defaults.longestSendMs)
      const longestWaitMs = yield* duration("longestWait", options.longestWait ?? Late.defaults.longestWaitMs)
      const outbox = yield* OutboxDriver
      const tasks = yield* TaskDriver
      const read = answered(
        "database of queues",
        Effect.all({ tasks: tasks.readBacklog, outbox: outbox.readBacklog }, { concurrency: 2 })
      )
      return TaskHealth.of({
        check: Effect.map(read, (report) => ({
          report,
          problems: [
            ...new Set([...tasks.problems].flatMap((problem) => problem() ?? [])),
            ...(report === null
              ? ["the database of queues did not answer"]
              : Late.ofQueues(report, { longestSendMs, longestWaitMs }).map(Late.problem))
          ]
        }))
      })
    })
  )

/**
 * Adds a page at `path`, by default `GET /health`: a `Report` as JSON, with status 200 when healthy and 503 when not.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerHttp = (
  options?: { readonly path?: HttpRouter.PathInput | undefined }
): Layer.Layer<never, never, HttpRouter.HttpRouter | Provider> =>
  HttpRouter.use((router) =>
    Effect.contextWith((context: Context.Context<Provider>) =>
      router.add(
        "GET",
        options?.path ?? "/health",
        check.pipe(
          Effect.map((report) =>
            HttpServerResponse.jsonUnsafe(report, { status: report.status === "healthy" ? 200 : 503 })
          ),
          Effect.provideContext(context)
        )
      )
    )
  )

// internal

const longestRead = Duration.seconds(5)

/** Null, and a line in the log, if it does not answer. */
const answered = <A>(what: string, read: Effect.Effect<A, ProviderError>): Effect.Effect<A | null> => {
  const noAnswer = (annotations: Record<string, unknown>) =>
    Effect.logWarning(`Health: the ${what} did not answer`).pipe(
      ours(annotations),
      Effect.as(null)
    )
  return read.pipe(
    Effect.timeoutOrElse({
      duration: longestRead,
      orElse: () =>
        noAnswer({ operation: "readBacklog", error_type: "Timeout", duration_ms: Duration.toMillis(longestRead) })
    }),
    Effect.catch(({ message, operation, reason }) => noAnswer({ operation, error_type: reason._tag, error: message }))
  )
}

const duration = (field: string, input: Duration.Input) => {
  const ms = wholeMs(input)
  return ms === undefined
    ? Effect.fail(
      new ProviderError({ operation: "open", reason: new InvalidInput({ field, problem: noDuration }) })
    )
    : Effect.succeed(ms)
}
