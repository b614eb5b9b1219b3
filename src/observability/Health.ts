/**
 * Whether the work of a store gets done, for load balancers, alerts and people: the store answers, nothing that could
 * be claimed waits longer than the recovery from a crash takes, and the runtime of this process works.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import type * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { withHarmlessLoggers } from "../model/shared/logging.ts"
import { age } from "../model/shared/quantities.ts"
import { QueueHealth } from "../model/shared/queueHealth.ts"
import type { QueueReport } from "../model/shared/queueHealth.ts"
import type { Backlog, Waiting } from "../provider/Backlog.ts"
import { Provider } from "../provider/Provider.ts"
import { Runtime } from "../Runtime.ts"
import { RuntimeConfig } from "../RuntimeConfig.ts"

/**
 * The result of a check.
 *
 * @category models
 * @since 0.2.0
 */
export interface Report {
  readonly status: "healthy" | "unhealthy"
  /** Why it is unhealthy, for people; no secrets. */
  readonly problems: ReadonlyArray<string>
  /** What waits in the store; null when it did not answer. */
  readonly backlog: Backlog | null
  /** What waits in outbox and tasks; null when the database did not answer, or `QueueHealth` is not in the context. */
  readonly queues: QueueReport | null
}

/**
 * Checks the store with one statement, and the `Runtime` and the `QueueHealth` of the context, if there are any.
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
 * Work may wait because of any process. So use this check for alerts and load balancers, not to restart the process:
 * for that, use `health` of `Runtime`, which does not query the store.
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
  const read = yield* provider.readBacklog.pipe(
    Effect.timeoutOption(longestRead),
    Effect.flatMap(Option.match({
      onNone: () =>
        noAnswer({ operation: "readBacklog", error_type: "Timeout", duration_ms: Duration.toMillis(longestRead) }),
      onSome: Effect.succeed
    })),
    Effect.catch(({ message, operation, reason }) => noAnswer({ operation, error_type: reason._tag, error: message }))
  )
  if (read === null) problems.push("the store did not answer")
  else {
    problems.push(...late("message", read.orchestrator, orchestrationLockTimeout))
    for (const { tag, ...waiting } of read.worker) {
      problems.push(...late(tag === null ? "activity" : `activity with the tag ${tag}`, waiting, workerLockTimeout))
    }
  }
  const queueHealth = yield* Effect.serviceOption(QueueHealth)
  const queues = Option.isSome(queueHealth) ? yield* queueHealth.value.check : { report: null, problems: [] }
  problems.push(...queues.problems)
  return { status: problems.length === 0 ? "healthy" : "unhealthy", problems, backlog: read, queues: queues.report }
})

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

const noAnswer = (annotations: Record<string, unknown>) =>
  Effect.logWarning("Health: the store did not answer").pipe(
    Effect.annotateLogs({ package: "duroxide-prisma", ...annotations }),
    withHarmlessLoggers,
    Effect.as(null)
  )

/** For the claim that takes over, and the statement that stores. */
const grace = Duration.seconds(2)

const late = (what: string, { oldestAgeMs }: Waiting, lockTimeout: Duration.Duration): ReadonlyArray<string> => {
  const limitMs = Duration.toMillis(Duration.sum(lockTimeout, grace))
  return oldestAgeMs === null || oldestAgeMs <= limitMs
    ? []
    : [`the oldest ${what} has waited for ${age(oldestAgeMs)}, more than ${age(limitMs)}`]
}
