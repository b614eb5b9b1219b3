/**
 * What callers give to start an instance.
 */
import type * as Duration from "effect/Duration"
import type * as Option from "effect/Option"
import type { CoreVersion } from "../../model/Instance.ts"
import type * as WorkItem from "../../model/WorkItem.ts"

/**
 * A start of an instance.
 *
 * @category models
 * @since 0.3.0
 */
export interface Start {
  readonly start: WorkItem.Of<"StartOrchestration">
  /** Which processes claim it: those that take executions of this version. */
  readonly pinnedVersion: CoreVersion
  /** Time before it begins. */
  readonly delay: Option.Option<Duration.Duration>
  /** When it begins, by the store's clock: milliseconds since the Unix epoch. Not with a delay. Defaults to at once. */
  readonly startAtMs?: number | undefined
  /**
   * Deletes an instance of this id that has ended, with its descendants, in the same transaction: `Ended` however it
   * has ended, `Failed` if it has failed or was cancelled. Defaults to none: an id is taken until it is deleted.
   */
  readonly replaces?: "Ended" | "Failed" | undefined
  /** A signal to the instance: behind its start, or, if the id is taken, for the instance that runs under it. */
  readonly message?: WorkItem.Of<"QueueMessage"> | WorkItem.Of<"ExternalRaised"> | undefined
}

/**
 * What has become of a start. `AlreadyExists`: the id is taken, and its message, if any, was sent. `Ended`, only with a
 * message: the instance of this id has ended, and nothing was sent.
 *
 * @category models
 * @since 0.3.0
 */
export type StartOutcome = "Started" | "AlreadyExists" | "Ended"
