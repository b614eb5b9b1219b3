/**
 * What a publisher reports: counts of every try, and one line in the log for the beginning and the end of each trouble.
 */
import * as Cause from "effect/Cause"
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import { ours } from "../../model/shared/logging.ts"
import * as trouble from "../../model/shared/trouble.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { QueueError } from "../../queue/QueueError.ts"
import type { ClaimedMessage } from "../OutboxDriver.ts"

export interface Failed {
  readonly message: ClaimedMessage
  readonly error: QueueError
}

export interface OutboxReports {
  /** `sent` by queue. */
  readonly settled: (sent: ReadonlyMap<string, number>, failed: ReadonlyArray<Failed>) => Effect.Effect<void>
  /** What was sent could not be marked, or what failed could not be given back: it is sent again after the lease. */
  readonly unsettled: (error: ProviderError) => Effect.Effect<void>
  /** Messages wait for queues that this publisher does not have. */
  readonly unclaimed: (queues: ReadonlyArray<string>) => Effect.Effect<void>
  /** Answers how often in a row it had failed before. */
  readonly storeFailed: (cause: Cause.Cause<ProviderError>) => Effect.Effect<number>
  readonly storeAnswered: Effect.Effect<void>
}

/** The queue rejects this message, and would accept others. */
export const isRejected = ({ reason }: QueueError): boolean => rejections.has(reason._tag)

/** `queueServer` is the name of the service that receives the messages. */
export const make = (queueServer: string, clock: Clock.Clock): OutboxReports => {
  const log = (line: Effect.Effect<void>, annotations: Record<string, unknown>) =>
    ours({ queue_server: queueServer, ...annotations })(line)
  const rejected = new Set<string>()
  const unclaimed = new Set<string>()
  const queueTrouble = trouble.make(clock)
  const storeTrouble = trouble.make(clock)

  const reportRejections = (failed: ReadonlyArray<Failed>) =>
    Effect.forEach(failed, ({ error, message }) => {
      const key = `${message.queue} ${error.reason._tag}`
      if (!isRejected(error) || rejected.has(key) || rejected.size >= mostRejections) return Effect.void
      rejected.add(key)
      return log(
        Effect.logError("Outbox: the queue refuses a message; it stays in queue_outbox and is tried every 5 minutes"),
        { queue: message.queue, outbox_id: message.id, error_type: error.reason._tag, error: error.message }
      )
    }, { discard: true })

  const reportTrouble = (sent: ReadonlyMap<string, number>, failed: ReadonlyArray<Failed>) => {
    const failure = failed.find(({ error }) => !isRejected(error))
    if (failure !== undefined) {
      const { error, message } = failure
      return queueTrouble.failed() === 0
        ? log(Effect.logWarning("Outbox: a queue cannot be used; its messages wait and are tried again"), {
          queue: message.queue,
          error_type: error.reason._tag,
          error: error.message
        })
        : Effect.void
    }
    const trouble = sent.size > 0 ? queueTrouble.ended() : undefined
    return trouble === undefined
      ? Effect.void
      : log(Effect.logInfo("Outbox: messages are sent again"), { duration_ms: trouble.lastedMs })
  }

  return {
    settled: (sent, failed) =>
      Effect.gen(function*() {
        for (const [queue, count] of sent) {
          yield* Metric.update(published(queue), count)
        }
        for (const [reason, count] of countBy(failed, ({ error }) => error.reason._tag)) {
          yield* Metric.update(failures(reason), count)
        }
        yield* reportRejections(failed)
        yield* reportTrouble(sent, failed)
      }),
    unsettled: (error) =>
      log(Effect.logWarning("Outbox: a batch could not be marked; its messages are sent again after its lease"), {
        error_type: error.reason._tag,
        error: error.message
      }),
    unclaimed: (queues) =>
      Effect.forEach(queues, (queue) => {
        if (unclaimed.has(queue) || unclaimed.size >= mostUnclaimed) return Effect.void
        unclaimed.add(queue)
        return log(Effect.logWarning("Outbox: messages wait for a queue that this publisher does not know"), { queue })
      }, { discard: true }),
    storeFailed: (cause) =>
      Effect.suspend(() => {
        const failures = storeTrouble.failed()
        const reason = cause.reasons[0]
        const error = reason?._tag === "Fail" ? reason.error : undefined
        const report = failures > 0
          ? Effect.void
          : log(Effect.logWarning("Outbox: the database cannot be used; messages wait"), {
            error_type: error?.reason._tag ?? "Unexpected",
            error: error?.message ?? "an unexpected failure"
          })
        return Effect.as(report, failures)
      }),
    storeAnswered: Effect.suspend(() => {
      const trouble = storeTrouble.ended()
      return trouble === undefined
        ? Effect.void
        : log(Effect.logInfo("Outbox: the database can be used again"), { duration_ms: trouble.lastedMs })
    })
  }
}

// internal

const published = seriesOf(Metrics.outboxPublished)
const failures = seriesOf(Metrics.outboxFailures)

const rejections: ReadonlySet<QueueError["reason"]["_tag"]> = new Set([
  "QueueNotFound",
  "PayloadInvalid",
  "PayloadTooLarge",
  "DelayTooLong",
  "InvalidInput"
])

/** Kinds of rejections that are remembered. */
const mostRejections = 1000

/** Queues that are remembered. */
const mostUnclaimed = 1000

export const countBy = <A>(items: ReadonlyArray<A>, keyOf: (item: A) => string): ReadonlyMap<string, number> => {
  const counts = new Map<string, number>()
  for (const item of items) counts.set(keyOf(item), (counts.get(keyOf(item)) ?? 0) + 1)
  return counts
}
