/**
 * What waits in the outbox and in tasks, as operators read it.
 */
import type { TaskReport } from "../observability/Health.ts"
import type { Backlog } from "../outbox/OutboxDriver.ts"

/** The oldest 10,000 messages of the outbox. `oldestAgeMs`: since it was due; null if none waits or fails. */
export const outboxOf = ({ delayed, failing, oldestAgeMs, waiting }: Backlog) => ({
  waiting,
  later: delayed,
  failing,
  oldestAgeMs: waiting + failing === 0 ? null : oldestAgeMs
})

/** `oldestAgeMs` is null if none is due. */
export const tasksOf = ({ oldestAgeMs, ...counts }: TaskReport["tasks"]) => ({
  ...counts,
  oldestAgeMs: oldestAgeMs === 0 ? null : oldestAgeMs // some may be due later
})
