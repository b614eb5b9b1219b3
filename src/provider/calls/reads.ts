/**
 * What the provider answers about instances.
 */
import type * as Option from "effect/Option"
import type * as ErrorDetails from "../../model/ErrorDetails.ts"

/**
 * How an instance has ended. `output` is JSON text, as encoded by the orchestration's Schema.
 *
 * @category models
 * @since 0.2.0
 */
export type End =
  | { readonly _tag: "Completed"; readonly output: string }
  | { readonly _tag: "Failed"; readonly details: ErrorDetails.ErrorDetails }

/**
 * What a running instance shows of itself: its custom status, and a value.
 *
 * @category models
 * @since 0.2.0
 */
export interface Progress {
  readonly status: Option.Option<string>
  /** Counts the turns that have set or removed the status; 0 before the first one. */
  readonly statusVersion: number
  /** The value that a reader sees; none without a key. */
  readonly value: Option.Option<string>
}

/**
 * The answer to a wait for progress. `Ended`: the instance has ended without it. `TimedOut`: it has not come yet.
 *
 * @category models
 * @since 0.2.0
 */
export type ProgressAnswer<A> =
  | { readonly _tag: "Found"; readonly found: A }
  | { readonly _tag: "Ended" }
  | { readonly _tag: "TimedOut" }

/**
 * Sizes of what an instance has stored.
 *
 * @category models
 * @since 0.1.0
 */
export interface InstanceStats {
  /** Events of the current execution, and the UTF-8 bytes of their texts. */
  readonly historyEventCount: number
  readonly historySizeBytes: number
  /** Signals not yet taken that the current execution started with; those still in the queue are not counted. */
  readonly queuePendingCount: number
  /** Key-values as a reader sees them. The bytes count strings without their quotes, as the limit of 65,536 does. */
  readonly kvUserKeyCount: number
  readonly kvTotalValueBytes: number
}
