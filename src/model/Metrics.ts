/**
 * All metrics.
 *
 * Metrics of the provider have the names of Duroxide's observability guide for providers. Histograms are in milliseconds
 * and change once per call, including calls that fail.
 *
 * @since 0.1.0
 */
import * as Metric from "effect/Metric"

const milliseconds = (name: string, description: string) =>
  Metric.histogram(name, {
    description: `${description}, milliseconds`,
    boundaries: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000]
  })

/**
 * Duration of one statement that claims instances, however many it claims.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const fetchOrchestrationItemDuration = milliseconds(
  "provider.fetch_orchestration_item_duration_ms",
  "Time of one claim of instances"
)

/**
 * Duration of storing one turn, from the call until it is stored, including retries.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const ackOrchestrationItemDuration = milliseconds(
  "provider.ack_orchestration_item_duration_ms",
  "Time to store one turn"
)

/**
 * Duration of one statement that claims activities, however many it claims.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const dequeueWorkerDuration = milliseconds(
  "provider.dequeue_worker_duration_ms",
  "Time of one claim of activities"
)

/**
 * Duration of storing one activity result, from the call until it is stored.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const ackWorkerDuration = milliseconds("provider.ack_worker_duration_ms", "Time to store one activity result")

/**
 * Duration of enqueueing one message to an instance, including starts and the first turns stored with them.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const enqueueOrchestratorDuration = milliseconds(
  "provider.enqueue_orchestrator_duration_ms",
  "Time to enqueue one message"
)

/**
 * Failed calls. Labels: `operation` (`fetch`, `ack_orch`, `advance_orch`, `ack_worker`, `enqueue`, …) and `error_type`
 * (`transaction_failed`, `lock_timeout`, `serialization_error`, `unknown`).
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const infrastructureErrors = Metric.counter("provider.infrastructure_errors", {
  description: "Failed provider calls",
  incremental: true
})

/**
 * Second and later attempts to store a turn.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const ackOrchestrationRetries = Metric.counter("provider.ack_orchestration_retries", {
  description: "Repeated attempts to store a turn",
  incremental: true
})

const counter = (name: string, description: string) => Metric.counter(name, { description, incremental: true })

/**
 * First turns stored. Label: `orchestration_name`.
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const orchestrationStarts = counter("duroxide_orchestration_starts_total", "Orchestrations started")

/**
 * Turns stored. Label: `orchestration_name`.
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const orchestrationTurns = counter("duroxide_orchestration_turns_total", "Turns stored")

/**
 * Turns that replayed a history because the instance was not warm. Label: `orchestration_name`.
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const orchestrationReplays = counter("duroxide_orchestration_replays_total", "Turns that replayed a history")

/**
 * Turns run without a claim when activities of a warm instance ended here. Label: `answer` (`advanced`: stored; `queued`:
 * only the outcomes of the activities were; `failed`: the store did not answer). First turns are not among them.
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const optimisticTurns = counter("duroxide_optimistic_turns_total", "Turns run without a claim")

/**
 * Warm instances: those whose program waits in memory.
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const warmInstances = Metric.gauge("duroxide_warm_instances", {
  description: "Orchestrations whose program waits in memory"
})

/**
 * An upper bound of the memory of warm instances, in bytes.
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const warmInstanceBytes = Metric.gauge("duroxide_warm_instance_bytes", {
  description: "Estimated memory of these programs, bytes"
})

/**
 * Last turns stored. Labels: `orchestration_name`, `status` (`success`, `failed`).
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const orchestrationCompletions = counter("duroxide_orchestration_completions_total", "Orchestrations ended")

/**
 * Activity results stored, and cancellations. Labels: `activity_name`, `outcome` (`success`, `app_error`,
 * `cancelled`), `tag`.
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const activityExecutions = counter("duroxide_activity_executions_total", "Activities run")
