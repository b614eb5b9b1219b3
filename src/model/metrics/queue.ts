/**
 * Metrics of queues, and of what stands on them: outbox, tasks and deliveries.
 */
import { counter, gauge, handlerSeconds, histogram } from "../shared/labelled.ts"

// -- queues ---------------------------------------------------------------------------------------

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
  boundaries: handlerSeconds
})

/**
 * Samples of a queue that this process has taken. A reader of this counter, such as an exporter, asks for the next
 * sample; the gauges of the queue hold it when they are read next. Label: `queue`.
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueSamples = counter("duroxide_queue_samples_total", {
  description: "Samples of a queue taken by this process",
  labels: ["queue"]
})

/**
 * Messages of a queue; in PostgreSQL up to 10,000 are counted, and as many dead letters. Labels: `queue` and `state`
 * (`visible`, `delayed`, `in_flight`: delivered and not settled, `dead`: in the dead letters).
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueMessages = gauge("duroxide_queue_messages", {
  description: "Messages of a queue",
  labels: ["queue", "state"]
})

/**
 * How long the oldest visible message of a queue has been visible, in seconds; 0 without one. SQS does not say it.
 * Label: `queue`.
 *
 * @category queue metrics
 * @since 0.2.0
 */
export const queueOldestAge = gauge("duroxide_queue_oldest_age_seconds", {
  description: "How long the oldest visible message of a queue has been visible",
  unit: "seconds",
  labels: ["queue"]
})

// -- outbox ---------------------------------------------------------------------------------------

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
 * Messages of the outbox that were not sent; of those that are due first, 10,000 are counted. Label: `state`
 * (`waiting`: due now, `delayed`: due later, `failing`: the last try has failed).
 *
 * @category outbox metrics
 * @since 0.2.0
 */
export const outboxMessages = gauge("duroxide_outbox_messages", {
  description: "Messages of the outbox that were not sent",
  labels: ["state"]
})

/**
 * Age of the oldest message of the outbox that should have been sent, in seconds: since it was due or, if tries have
 * failed, since it was written; 0 without one.
 *
 * @category outbox metrics
 * @since 0.2.0
 */
export const outboxOldestAge = gauge("duroxide_outbox_oldest_age_seconds", {
  description: "Age of the oldest message of the outbox that should have been sent",
  unit: "seconds",
  labels: []
})

// -- tasks ----------------------------------------------------------------------------------------

/**
 * Attempts at tasks that have ended in this process. Labels: `task_name` and `outcome` (`completed`, `failed`, `died`,
 * `unavailable`: a database, queue or network that it needs, `timed_out`, `lost`: its lease was lost or its task
 * cancelled, `stale`: its output was refused, `given_back`: ended by a shutdown).
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
  boundaries: handlerSeconds
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
 * Tasks that have not been completed or cancelled, by the last sweep of this worker, up to 1,000 of each. Label:
 * `status` (`pending`, `running`, `dead`).
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

// -- schedules ------------------------------------------------------------------------------------

/**
 * Occurrences of schedules that this process has settled. Label: `outcome` (`Started`, `Skipped`, `Queued`, `Missed`:
 * one for all that were missed together, `Refused`: the payload could not be made).
 *
 * @category schedule metrics
 * @since 0.3.0
 */
export const scheduleRuns = counter("duroxide_schedule_runs_total", {
  description: "Occurrences of schedules that were settled",
  labels: ["outcome"]
})

// -- deliveries -----------------------------------------------------------------------------------

/**
 * Attempts to deliver a webhook. Labels: `outcome` (`delivered`; `failed`: it may be tried again; `refused`: it cannot
 * succeed) and `status` of the response (`2xx` to `5xx`, `none` without one).
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
