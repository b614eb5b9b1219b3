/**
 * Whether the work of outbox and tasks gets done, for load balancers, alerts and people.
 *
 * `Health.check` of `duroxide-prisma/observability` includes it if it is in the context; a process without a runtime asks it
 * alone.
 *
 * @since 0.2.0
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { withHarmlessLoggers } from "../model/shared/logging.ts"
import { age } from "../model/shared/quantities.ts"
import { QueueHealth } from "../model/shared/queueHealth.ts"
import type { QueueReport } from "../model/shared/queueHealth.ts"
import { OutboxDriver } from "../outbox/OutboxDriver.ts"
import * as check from "../queue/internal/check.ts"
import { InvalidInput } from "../queue/QueueError.ts"
import type { QueueError } from "../queue/QueueError.ts"
import { problemsOf } from "../tasks/internal/claims.ts"
import { TaskDriver } from "../tasks/TaskDriver.ts"

export { QueueHealth } from "../model/shared/queueHealth.ts"
export type { QueueReport } from "../model/shared/queueHealth.ts"

/**
 * Reads outbox and tasks of the schema of `Database` with two statements.
 *
 * **Details**
 *
 * Unhealthy when the database does not answer within 5 seconds, when a message of the outbox that is due has waited longer than
 * `longestSend`, or a task that could begin longer than `longestWait`, and when the role of the connection may not claim for
 * a `TaskWorker` of this process that uses the same `Database`. Dead tasks are in the report, and no problem: they wait for
 * people.
 *
 * Fails with `QueueError`, reason `InvalidInput`, if an option is not a duration.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = (options: {
  /** Defaults to 65 seconds: a publisher that was not woken looks once a minute. */
  readonly longestSend?: Duration.Input | undefined
  /** Defaults to 5 minutes. Set it above your longest burst. */
  readonly longestWait?: Duration.Input | undefined
} = {}): Layer.Layer<QueueHealth, QueueError, OutboxDriver | TaskDriver> =>
  Layer.effect(
    QueueHealth,
    Effect.gen(function*() {
      const longestSendMs = yield* duration("longestSend", options.longestSend ?? "65 seconds")
      const longestWaitMs = yield* duration("longestWait", options.longestWait ?? "5 minutes")
      const outbox = yield* OutboxDriver
      const tasks = yield* TaskDriver
      const read: Effect.Effect<QueueReport | null> = Effect.all(
        { tasks: tasks.readBacklog, outbox: outbox.readBacklog },
        { concurrency: 2 }
      ).pipe(
        Effect.timeoutOrElse({
          duration: longestRead,
          orElse: () => noAnswer({ error_type: "Timeout", duration_ms: Duration.toMillis(longestRead) })
        }),
        Effect.catch(({ message, operation, reason }) =>
          noAnswer({ operation, error_type: reason._tag, error: message })
        )
      )
      return QueueHealth.of({
        check: Effect.map(read, (report) => ({
          report,
          problems: [
            ...problemsOf(tasks.database),
            ...(report === null ? ["the database of queues did not answer"] : [
              ...late("message of the outbox", report.outbox.oldestAgeMs, longestSendMs),
              ...late("task", report.tasks.oldestAgeMs, longestWaitMs)
            ])
          ]
        }))
      })
    })
  )

// internal

const longestRead = Duration.seconds(5)

const noAnswer = (annotations: Record<string, unknown>) =>
  Effect.logWarning("Health: the database of queues did not answer").pipe(
    Effect.annotateLogs({ package: "duroxide-prisma", ...annotations }),
    withHarmlessLoggers,
    Effect.as(null)
  )

const late = (what: string, ageMs: number, limitMs: number): ReadonlyArray<string> =>
  ageMs <= limitMs
    ? []
    : [`the oldest ${what} has waited for ${age(ageMs)}, more than ${age(limitMs)}`]

const duration = (field: string, input: Duration.Input) => {
  const ms = check.wholeMs(input)
  return ms === undefined
    ? check.fail("open", "", new InvalidInput({ field, problem: check.noDuration }))
    : Effect.succeed(ms)
}
