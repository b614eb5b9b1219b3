/**
 * Metrics of the provider: its calls, how a process looks for work, its connections and its read replica.
 */
import { counter, duration, gauge, histogram } from "../shared/labelled.ts"

/**
 * Duration of one claim of instances, however many it claims, including retries and calls that fail. Milliseconds.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const fetchOrchestrationItemDuration = duration(
  "provider.fetch_orchestration_item_duration_ms",
  "Time of one claim of instances"
)

/**
 * Duration of storing one turn, from the call until it is stored, including retries and calls that fail. Milliseconds.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const ackOrchestrationItemDuration = duration(
  "provider.ack_orchestration_item_duration_ms",
  "Time to store one turn"
)

/**
 * Duration of one claim of activities, however many it claims, including retries and calls that fail. Milliseconds.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const dequeueWorkerDuration = duration(
  "provider.dequeue_worker_duration_ms",
  "Time of one claim of activities"
)

/**
 * Duration of storing one activity result, from the call until it is stored or the call fails. Milliseconds.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const ackWorkerDuration = duration("provider.ack_worker_duration_ms", "Time to store one activity result")

/**
 * Duration of enqueueing one message to an instance, including starts and the first turns stored with them.
 * Milliseconds.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const enqueueOrchestratorDuration = duration(
  "provider.enqueue_orchestrator_duration_ms",
  "Time to enqueue one message"
)

/**
 * Failed statements of every call of the driver, also those that a retry healed. Labels: `operation` (`fetch`,
 * `ack_orch`, `advance_orch`, `dequeue_worker`, `ack_worker`, `enqueue`, `enqueue_worker`, `abandon_orch`, …) and
 * `error_type` (`transaction_failed`, `lock_timeout`, `serialization_error`, `unknown`).
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const infrastructureErrors = counter("provider.infrastructure_errors", {
  description: "Failed statements",
  labels: ["operation", "error_type"]
})

/**
 * Repeated sends of a turn: a retry of its statement, a statement of its own after its set has failed, and a turn that
 * is stored again because the store did not take it before.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const ackOrchestrationRetries = counter("provider.ack_orchestration_retries", {
  description: "Repeated sends of a turn",
  labels: []
})

/**
 * Number of calls that share a statement. Label: `operation`, as in `provider.infrastructure_errors`.
 *
 * @category provider metrics
 * @since 0.2.0
 */
export const statementBatchSize = histogram("duroxide_statement_batch_size", {
  description: "Calls that share one statement",
  labels: ["operation"],
  boundaries: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024]
})

/**
 * Items claimed by one statement, 0 included. Label: `queue` (`orchestrator`, `worker`).
 *
 * @category provider metrics
 * @since 0.2.0
 */
export const claimBatchSize = histogram("duroxide_claim_batch_size", {
  description: "Items claimed by one statement",
  labels: ["queue"],
  boundaries: [0, 1, 2, 4, 8, 16, 32, 64, 128]
})

/**
 * Why a process looked for work. Labels: `queue` (`orchestrator`, `worker`) and `reason`.
 *
 * @category provider metrics
 * @since 0.2.0
 */
export const wakeReasons = counter("duroxide_wake_reasons_total", {
  description: "Reasons to look for work",
  labels: ["queue", "reason"]
})

/**
 * Time from the arrival of a hint of another process until the store has answered the next claim, if that claimed work;
 * including the wait for a free slot. Milliseconds. One value for each such claim, however many hints and items. Label:
 * `queue` (`orchestrator`, `worker`).
 *
 * @category provider metrics
 * @since 0.2.0
 */
export const hintToClaim = histogram("duroxide_hint_to_claim_ms", {
  description: "Time from the arrival of a hint to the next claim, if it finds work",
  unit: "milliseconds",
  labels: ["queue"],
  boundaries: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000]
})

/**
 * 1 while the process polls a queue at short intervals, 0 while it waits to be woken. Label: `queue` (`orchestrator`,
 * `worker`).
 *
 * @category provider metrics
 * @since 0.2.0
 */
export const aggressivePolling = gauge("duroxide_aggressive_polling", {
  description: "1 while a queue is polled at short intervals",
  labels: ["queue"]
})

/**
 * 1 while hints of other processes arrive, 0 while they do not. Absent without a `Notifier`.
 *
 * @category provider metrics
 * @since 0.2.0
 */
export const listenerConnected = gauge("duroxide_listener_connected", {
  description: "1 while hints of other processes arrive",
  labels: []
})

/**
 * Open connections of the pool. Label: `state` (`busy`, `idle`).
 *
 * @category provider metrics
 * @since 0.2.0
 */
export const poolConnections = gauge("duroxide_pool_connections", {
  description: "Open connections of the pool",
  labels: ["state"]
})

/**
 * Statements that wait for a connection of the pool.
 *
 * @category provider metrics
 * @since 0.2.0
 */
export const poolWaiting = gauge("duroxide_pool_waiting", {
  description: "Statements that wait for a connection",
  labels: []
})

/**
 * Samples of the lag of the read replica that this process has taken. A reader of this counter, such as an exporter,
 * asks for the next sample. Absent without a `ReadReplica`.
 *
 * @category provider metrics
 * @since 0.2.0
 */
export const replicaSamples = counter("duroxide_replica_samples_total", {
  description: "Samples of the lag of the read replica taken by this process",
  labels: []
})

/**
 * How far the read replica is behind its primary, in seconds. Absent while it cannot be reached, or is not a standby.
 *
 * @category provider metrics
 * @since 0.2.0
 */
export const replicaLag = gauge("duroxide_replica_lag_seconds", {
  description: "How far the read replica is behind its primary",
  labels: [],
  unit: "seconds"
})
