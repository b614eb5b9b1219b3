/**
 * Gauges of what waits in the store, and the counter whose readers ask for them.
 */
import { counter, gauge } from "../shared/labelled.ts"

/**
 * Samples of the store that this process has taken. A reader of this counter, such as an exporter, asks for the next
 * sample; the gauges of this category hold it when they are read next.
 *
 * @category store metrics
 * @since 0.2.0
 */
export const storeSamples = counter("duroxide_store_samples_total", {
  description: "Samples of the store taken by this process",
  labels: []
})

/**
 * Age of the oldest message that could be claimed now, in seconds; 0 for a queue without one. Labels: `queue`
 * (`orchestrator`, `worker`) and `tag` of the activity (`default` without one).
 *
 * @category store metrics
 * @since 0.2.0
 */
export const oldestMessageAge = gauge("duroxide_oldest_message_age_seconds", {
  description: "Age of the oldest message that could be claimed",
  unit: "seconds",
  labels: ["queue", "tag"]
})

/**
 * Messages to instances that could be claimed now.
 *
 * @category store metrics
 * @since 0.2.0
 */
export const orchestratorQueueDepth = gauge("duroxide_orchestrator_queue_depth", {
  description: "Messages that could be claimed",
  labels: []
})

/**
 * Activities that could be claimed now. Label: `tag` (`default` without one).
 *
 * @category store metrics
 * @since 0.2.0
 */
export const workerQueueDepth = gauge("duroxide_worker_queue_depth", {
  description: "Activities that could be claimed",
  labels: ["tag"]
})

/**
 * Instances that have started and not ended. An estimate in large stores.
 *
 * @category store metrics
 * @since 0.2.0
 */
export const activeOrchestrations = gauge("duroxide_active_orchestrations", {
  description: "Instances that have not ended",
  labels: []
})

/**
 * Instances that are blocked: no process could run their next turn. Alert on it.
 *
 * @category store metrics
 * @since 0.2.0
 */
export const blockedInstances = gauge("duroxide_blocked_instances", {
  description: "Instances whose next turn no process could run",
  labels: []
})

/**
 * Activities that wait for a slot or a token of a limit.
 *
 * @category store metrics
 * @since 0.3.0
 */
export const limitedActivities = gauge("duroxide_limited_activities", {
  description: "Activities that wait for a limit",
  labels: []
})

/**
 * Instances whose start waits for a slot or a token of a limit.
 *
 * @category store metrics
 * @since 0.3.0
 */
export const limitedInstances = gauge("duroxide_limited_instances", {
  description: "Instances whose start waits for a limit",
  labels: []
})
