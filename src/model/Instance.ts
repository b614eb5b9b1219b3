/**
 * The state of an instance in the store, and the filters by which processes select executions and activities.
 *
 * @since 0.1.0
 */

import type { Block } from "./Block.ts"
import type { Pause } from "./Pause.ts"

/**
 * A Duroxide core version, the space in which executions are pinned.
 *
 * @category models
 * @since 0.1.0
 */
export interface CoreVersion {
  readonly major: number
  readonly minor: number
  readonly patch: number
}

/**
 * Executions whose pinned version lies in `min` … `max`, both ends included, compared as tuples. An execution without
 * a pinned version passes every filter.
 *
 * @category models
 * @since 0.1.0
 */
export interface VersionRange {
  readonly min: CoreVersion
  readonly max: CoreVersion
}

/**
 * Which activities a worker takes, by tag.
 *
 * @category models
 * @since 0.1.0
 */
export type TagFilter =
  | { readonly _tag: "DefaultOnly" }
  | { readonly _tag: "Tags"; readonly tags: ReadonlyArray<string> }
  | { readonly _tag: "DefaultAnd"; readonly tags: ReadonlyArray<string> }
  | { readonly _tag: "Any" }
  | { readonly _tag: "None" }

/**
 * The stored status of an execution. A cancelled one is stored as `Failed`; the status of its instance is `Cancelled`.
 *
 * @category models
 * @since 0.1.0
 */
export type ExecutionStatus = "Running" | "Completed" | "Failed" | "ContinuedAsNew"

/**
 * The status of an instance. One that is blocked or paused is `Running`, as is one between two executions.
 *
 * @category models
 * @since 0.3.0
 */
export type InstanceStatus = "Running" | "Completed" | "Failed" | "Cancelled"

/**
 * The stored state of one instance and its current execution.
 *
 * @category models
 * @since 0.1.0
 */
export interface InstanceState {
  readonly instanceId: string
  readonly orchestrationName: string
  readonly orchestrationVersion: string | null
  readonly parentInstanceId: string | null
  readonly executionId: number
  readonly status: ExecutionStatus
  /** Result of `Completed`, display text of `Failed`, new input of `ContinuedAsNew`. */
  readonly output: string | null
  /**
   * The `OrchestrationFailed` event that ended a `Failed` execution. It is the last event, except that one
   * `…CancelRequested` event may follow for each activity that was open.
   */
  readonly failure: string | null
  readonly customStatus: string | null
  readonly customStatusVersion: number
  /** Why a `Running` instance is blocked; null unless no process could run its next turn. */
  readonly block: Block | null
  /** What keeps an instance that has not ended paused; null unless an operator has paused it. */
  readonly pause: Pause | null
  /** When an instance that was started for later begins; null for all others. Milliseconds since the Unix epoch. */
  readonly startsAtMs: number | null
  /** Milliseconds since the Unix epoch. */
  readonly createdAtMs: number
  readonly updatedAtMs: number
}
