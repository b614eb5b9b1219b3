/**
 * What a health check learns of queues, outbox and tasks: the seam between those who read them and those who report.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"

/**
 * What waits in queues, outbox and tasks. Ages are milliseconds, 0 if nothing waits.
 *
 * @category models
 * @since 0.2.0
 */
export interface QueueReport {
  /** `oldestAgeMs`: since the oldest waiting task could have begun. At most 1,000 of each are counted. */
  readonly tasks: {
    readonly pending: number
    readonly running: number
    readonly dead: number
    readonly oldestAgeMs: number
  }
  /**
   * `oldestAgeMs`: since the oldest message should have been sent. Of the messages that are due first, 10,000 are
   * counted.
   */
  readonly outbox: {
    readonly waiting: number
    readonly delayed: number
    readonly failing: number
    readonly oldestAgeMs: number
  }
}

/**
 * The health of queues, outbox and tasks.
 *
 * @category services
 * @since 0.2.0
 */
export class QueueHealth extends Context.Service<QueueHealth, {
  /** `report` is null if the database did not answer. `problems` says why it is unhealthy, for people; no secrets. */
  readonly check: Effect.Effect<{ readonly report: QueueReport | null; readonly problems: ReadonlyArray<string> }>
}>()("duroxide-prisma/queue/QueueHealth") {}
