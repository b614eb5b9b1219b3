/**
 * All metrics, as `Metric`s of Effect: any exporter for Effect exports them. What each one is, and which test proves it, is
 * in docs/observability.md.
 *
 * Metrics of the provider have the names of Duroxide's observability guide for providers, those of the runtime have
 * Duroxide's names where both count the same. No label has unbounded values: none is an id.
 *
 * @since 0.1.0
 */
import { counter, gauge, histogram } from "./internal/labelled.ts"
import type { Labelled as Labels } from "./internal/labelled.ts"

/**
 * The names of a metric's labels. Each set of their values is a series of its own.
 *
 * @category models
 * @since 0.2.0
 */
export type Labelled<Names extends ReadonlyArray<string>> = Labels<Names>

// -- provider --------------------------------------------------------------------------------------

const duration = (name: string, description: string) =>
  histogram(name, {
    description,
    unit: "milliseconds",
    labels: [],
    boundaries: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000]
  })

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
 * Duration of enqueueing one message to an instance, including starts and the first turns stored with them. Milliseconds.
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const enqueueOrchestratorDuration = duration(
  "provider.enqueue_orchestrator_duration_ms",
  "Time to enqueue one message"
)

/**
 * Failed statements of every call of the driver, also those that a retry healed. Labels: `operation` (`fetch`, `ack_orch`,
 * `advance_orch`, `dequeue_worker`, `ack_worker`, `enqueue`, `enqueue_worker`, `abandon_orch`, …) and `error_type`
 * (`transaction_failed`, `lock_timeout`, `serialization_error`, `unknown`).
 *
 * @category provider metrics
 * @since 0.1.0
 */
export const infrastructureErrors = counter("provider.infrastructure_errors", {
  description: "Failed statements",
  labels: ["operation", "error_type"]
})

/**
 * Repeated sends of a turn: a retry of its statement, a statement of its own after its set has failed, and a turn that is
 * stored again because the store did not take it before.
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
 * Samples of the lag of the read replica that this process has taken. A reader of this counter, such as an exporter, asks
 * for the next sample. Absent without a `ReadReplica`.
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

// -- store -----------------------------------------------------------------------------------------

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

// -- runtime ---------------------------------------------------------------------------------------

/**
 * First turns of executions that were stored. Labels: `orchestration_name`, `version`, `initiated_by` (`client`,
 * `suborchestration`, `continueAsNew`).
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const orchestrationStarts = counter("duroxide_orchestration_starts_total", {
  description: "Orchestrations started",
  labels: ["orchestration_name", "version", "initiated_by"]
})

/**
 * Turns stored. Label: `orchestration_name`.
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const orchestrationTurns = counter("duroxide_orchestration_turns_total", {
  description: "Turns stored",
  labels: ["orchestration_name"]
})

/**
 * Turns that replayed a history because the instance was not warm. Label: `orchestration_name`.
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const orchestrationReplays = counter("duroxide_orchestration_replays_total", {
  description: "Turns that replayed a history",
  labels: ["orchestration_name"]
})

/**
 * Last turns of executions that were stored. Labels: `orchestration_name`, `version`, `status` (`success`, `failed`,
 * `cancelled`, `continuedAsNew`).
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const orchestrationCompletions = counter("duroxide_orchestration_completions_total", {
  description: "Orchestrations ended",
  labels: ["orchestration_name", "version", "status"]
})

/**
 * Failed executions, without cancelled ones. Labels: `orchestration_name`, `version`, `error_type` (`app_error`,
 * `infrastructure_error`, `config_error`, `poison`).
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const orchestrationFailures = counter("duroxide_orchestration_failures_total", {
  description: "Orchestrations failed",
  labels: ["orchestration_name", "version", "error_type"]
})

/**
 * Time from the first to the last turn of an execution, by the clock of the store, in seconds. Labels as for
 * `duroxide_orchestration_completions_total`.
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const orchestrationDuration = histogram("duroxide_orchestration_duration_seconds", {
  description: "Time from the first turn of an execution to its last",
  unit: "seconds",
  labels: ["orchestration_name", "version", "status"],
  boundaries: [0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 86_400, 604_800, 2_592_000]
})

/**
 * Events in the history of an execution when it ends. Label: `orchestration_name`.
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const orchestrationHistorySize = histogram("duroxide_orchestration_history_size", {
  description: "Events of an execution when it ends",
  labels: ["orchestration_name"],
  boundaries: [10, 50, 100, 500, 1_000, 5_000, 10_000]
})

/**
 * Time from the claim of an instance until its turn is settled. Milliseconds.
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const orchestrationProcessingDuration = duration(
  "duroxide_orchestration_dispatcher_processing_duration_ms",
  "Time from the claim of an instance until its turn is settled"
)

/**
 * Turns run without a claim. Labels: `turn` (`first`: with the start of an instance; `next`: with results of activities)
 * and `answer` (`advanced`: stored; `queued`: only the start or the results were; `failed`: the store did not answer).
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const optimisticTurns = counter("duroxide_optimistic_turns_total", {
  description: "Turns run without a claim",
  labels: ["turn", "answer"]
})

/**
 * Warm instances: those whose program waits in memory.
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const warmInstances = gauge("duroxide_warm_instances", {
  description: "Orchestrations whose program waits in memory",
  labels: []
})

/**
 * An upper bound of the memory of warm instances, in bytes.
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const warmInstanceBytes = gauge("duroxide_warm_instance_bytes", {
  description: "Estimated memory of these programs",
  unit: "bytes",
  labels: []
})

/**
 * Activity results stored, and cancellations. Labels: `activity_name`, `outcome` (`success`, `app_error`,
 * `cancelled`), `tag` (`default` without one).
 *
 * @category runtime metrics
 * @since 0.1.0
 */
export const activityExecutions = counter("duroxide_activity_executions_total", {
  description: "Activities run",
  labels: ["activity_name", "outcome", "tag"]
})

/**
 * Time that a handler ran, in seconds. Labels as for `duroxide_activity_executions_total`.
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const activityDuration = histogram("duroxide_activity_duration_seconds", {
  description: "Time that a handler ran",
  unit: "seconds",
  labels: ["activity_name", "outcome", "tag"],
  boundaries: [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 1_800, 3_600]
})

/**
 * Handlers that still run although they were interrupted and their grace period has passed.
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const uninterruptedHandlers = gauge("duroxide_uninterrupted_handlers", {
  description: "Handlers that ignore their interruption",
  labels: []
})

/**
 * Instances that failed as poison.
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const orchestrationPoison = counter("duroxide_orchestration_poison_total", {
  description: "Instances that failed as poison",
  labels: []
})

/**
 * Activities that failed as poison.
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const activityPoison = counter("duroxide_activity_poison_total", {
  description: "Activities that failed as poison",
  labels: []
})

// -- queues ----------------------------------------------------------------------------------------

/**
 * Messages delivered to this process, also those that were delivered before. Label: `queue`.
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueMessagesReceived = counter("duroxide_queue_messages_received_total", {
  description: "Messages delivered",
  labels: ["queue"]
})

/**
 * Messages delivered to this process that were delivered before. Label: `queue`.
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueMessagesRedelivered = counter("duroxide_queue_messages_redelivered_total", {
  description: "Messages delivered again",
  labels: ["queue"]
})

/**
 * Messages that this process has acknowledged. Label: `queue`.
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueMessagesAcked = counter("duroxide_queue_messages_acked_total", {
  description: "Messages acknowledged",
  labels: ["queue"]
})

/**
 * Messages that this process has moved to the dead letters: refused, or found delivered too often. SQS moves the latter
 * itself, so they are not counted there. Label: `queue`.
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueMessagesDead = counter("duroxide_queue_messages_dead_total", {
  description: "Messages moved to the dead letters",
  labels: ["queue"]
})

/**
 * Time that the handler of a message ran, in seconds. Labels: `queue`, `kind` of the message, and `outcome` (`acked`,
 * `later`, `failed`).
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueHandlerDuration = histogram("duroxide_queue_handler_duration_seconds", {
  description: "Time that the handler of a message ran",
  unit: "seconds",
  labels: ["queue", "kind", "outcome"],
  boundaries: [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 1_800, 3_600]
})

/**
 * Samples of a queue that this process has taken. A reader of this counter, such as an exporter, asks for the next sample; the
 * gauges of the queue hold it when they are read next. Label: `queue`.
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueSamples = counter("duroxide_queue_samples_total", {
  description: "Samples of a queue taken by this process",
  labels: ["queue"]
})

/**
 * Messages of a queue; in PostgreSQL up to 10,000 are counted, and as many dead letters. Labels: `queue` and `state` (`visible`,
 * `delayed`, `in_flight`: delivered and not settled, `dead`: in the dead letters).
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueMessages = gauge("duroxide_queue_messages", {
  description: "Messages of a queue",
  labels: ["queue", "state"]
})

/**
 * How long the oldest visible message of a queue has been visible, in seconds; 0 without one. SQS does not say it. Label:
 * `queue`.
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueOldestAge = gauge("duroxide_queue_oldest_age_seconds", {
  description: "How long the oldest visible message of a queue has been visible",
  unit: "seconds",
  labels: ["queue"]
})

// -- outbox ----------------------------------------------------------------------------------------

/**
 * Messages of the outbox that a queue has accepted, also when one is sent twice. Label: `queue`.
 *
 * @category outbox metrics
 * @since 0.2.0
 */
export const outboxPublished = counter("duroxide_outbox_published_total", {
  description: "Messages of the outbox that a queue has accepted",
  labels: ["queue"]
})

/**
 * Tries to send a message of the outbox that have failed. Label: `reason`, the tag of the reason (`Unavailable`,
 * `QueueNotFound`, …).
 *
 * @category outbox metrics
 * @since 0.2.0
 */
export const outboxFailures = counter("duroxide_outbox_failures_total", {
  description: "Failed tries to send a message of the outbox",
  labels: ["reason"]
})

/**
 * Samples of the outbox that this process has taken. A reader of this counter, such as an exporter, asks for the next
 * sample; the other gauges of the outbox hold it when they are read next.
 *
 * @category outbox metrics
 * @since 0.2.0
 */
export const outboxSamples = counter("duroxide_outbox_samples_total", {
  description: "Samples of the outbox taken by this process",
  labels: []
})

/**
 * Messages of the outbox that were not sent; of those that are due first, 10,000 are counted. Label: `state` (`waiting`: due
 * now, `delayed`: due later, `failing`: the last try has failed).
 *
 * @category outbox metrics
 * @since 0.2.0
 */
export const outboxMessages = gauge("duroxide_outbox_messages", {
  description: "Messages of the outbox that were not sent",
  labels: ["state"]
})

/**
 * Age of the oldest message of the outbox that should have been sent, in seconds: since it was due or, if tries have failed,
 * since it was written; 0 without one.
 *
 * @category outbox metrics
 * @since 0.2.0
 */
export const outboxOldestAge = gauge("duroxide_outbox_oldest_age_seconds", {
  description: "Age of the oldest message of the outbox that should have been sent",
  unit: "seconds",
  labels: []
})

// -- tasks -----------------------------------------------------------------------------------------

/**
 * Attempts at tasks that have ended in this process. Labels: `task_name` and `outcome` (`completed`, `failed`, `died`,
 * `unavailable`: a database, queue or network that it needs, `timed_out`, `lost`: its lease was lost or its task cancelled,
 * `stale`: its output was refused, `given_back`: ended by a shutdown).
 *
 * @category task metrics
 * @since 0.2.0
 */
export const taskAttempts = counter("duroxide_task_attempts_total", {
  description: "Attempts at tasks that have ended",
  labels: ["task_name", "outcome"]
})

/**
 * Time that a handler of a task ran, in seconds. Labels as for `duroxide_task_attempts_total`.
 *
 * @category task metrics
 * @since 0.2.0
 */
export const taskDuration = histogram("duroxide_task_duration_seconds", {
  description: "Time that a handler of a task ran",
  unit: "seconds",
  labels: ["task_name", "outcome"],
  boundaries: [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 1_800, 3_600]
})

/**
 * Outputs of attempts that were refused because a newer attempt had begun, or the task had ended.
 *
 * @category task metrics
 * @since 0.2.0
 */
export const taskStaleCommits = counter("duroxide_task_stale_commits_total", {
  description: "Outputs of stale attempts that were refused",
  labels: []
})

/**
 * Tasks that have not been completed or cancelled, by the last sweep of this worker, up to 1,000 of each. Label: `status`
 * (`pending`, `running`, `dead`).
 *
 * @category task metrics
 * @since 0.2.0
 */
export const tasks = gauge("duroxide_tasks", {
  description: "Tasks that have not been completed",
  labels: ["status"]
})

/**
 * Time since the oldest waiting task could have begun, by the last sweep of this worker, in seconds; 0 without one.
 *
 * @category task metrics
 * @since 0.2.0
 */
export const taskOldestAge = gauge("duroxide_task_oldest_age_seconds", {
  description: "Time since the oldest waiting task could have begun",
  unit: "seconds",
  labels: []
})

// -- deliveries ------------------------------------------------------------------------------------

/**
 * Attempts to deliver a webhook. Labels: `outcome` (`delivered`; `failed`: it may be tried again; `refused`: it cannot succeed)
 * and `status` of the response (`2xx` to `5xx`, `none` without one).
 *
 * @category delivery metrics
 * @since 0.2.0
 */
export const deliveryAttempts = counter("duroxide_delivery_attempts_total", {
  description: "Attempts to deliver a webhook",
  labels: ["outcome", "status"]
})

/**
 * Time of one attempt to deliver a webhook, in seconds. Label: `outcome`, as above.
 *
 * @category delivery metrics
 * @since 0.2.0
 */
export const deliveryDuration = histogram("duroxide_delivery_duration_seconds", {
  description: "Time of one attempt to deliver a webhook",
  unit: "seconds",
  labels: ["outcome"],
  boundaries: [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30]
})
