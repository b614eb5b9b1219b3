/**
 * Metrics of orchestrations and activities that this process runs.
 */
import { counter, duration, gauge, handlerSeconds, histogram } from "../shared/labelled.ts"

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
 * Turns that this process could not run: their instances are blocked. An instance counts at each try. Labels:
 * `orchestration_name` and `reason` (see `Block`).
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const orchestrationBlocks = counter("duroxide_orchestration_blocks_total", {
  description: "Turns that could not be run, of instances that are blocked",
  labels: ["orchestration_name", "reason"]
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
 * Turns run without a claim. Labels: `turn` (`first`: with the start of an instance; `next`: with results of
 * activities) and `answer` (`advanced`: stored; `queued`: only the start or the results were; `failed`: the store did
 * not answer).
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
 * Deliveries of activities whose payload the handler's Schema refuses: their instances are blocked. Labels:
 * `activity_name` and `reason` (see `Block`).
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const activityBlocks = counter("duroxide_activity_blocks_total", {
  description: "Activities whose payload their handler could not read",
  labels: ["activity_name", "reason"]
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
  boundaries: handlerSeconds
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
 * Lossy signals that found no open wait. Label: `orchestration_name`.
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const signalsLost = counter("duroxide_signals_lost_total", {
  description: "Lossy signals that found no open wait",
  labels: ["orchestration_name"]
})

/**
 * Signals that no process could read, and that their instances continued without. Label: `orchestration_name`.
 *
 * @category runtime metrics
 * @since 0.2.0
 */
export const signalsSetAside = counter("duroxide_signals_set_aside_total", {
  description: "Signals that no process could read, and that their instances continued without",
  labels: ["orchestration_name"]
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
