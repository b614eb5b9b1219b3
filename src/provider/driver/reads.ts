/**
 * What a driver answers about instances, due times and locks, without a claim.
 */
import type { Pause } from "../../model/Pause.ts"

/**
 * An instance whose current execution has ended.
 *
 * @category models
 * @since 0.2.0
 */
export interface EndedInstance {
  readonly instanceId: string
  readonly status: "Completed" | "Failed"
  /** `output` of `InstanceState`. */
  readonly output: string | null
  /** `failure` of `InstanceState`. */
  readonly failure: string | null
}

/**
 * What is asked for a caller that waits for a status or a value, and up to which event it knows the instance.
 *
 * @category models
 * @since 0.2.0
 */
export interface ReadProgress {
  readonly instanceId: string
  /** Null: no value is read. */
  readonly key: string | null
  /** The last answer's; 0 without one. */
  readonly executionId: number
  /** The last answer's; 0 without one. */
  readonly lastEventId: number
}

/**
 * The status and a value of an instance, at a point of its history.
 *
 * @category models
 * @since 0.2.0
 */
export interface InstanceProgress {
  /** The current execution. */
  readonly executionId: number
  /** Id of the last event of the current execution; 0 without a history. */
  readonly lastEventId: number
  readonly customStatus: string | null
  readonly customStatusVersion: number
  /** The value that `readKeyValues` reads; null without one. */
  readonly value: string | null
  /** Whether the current execution is `Completed` or `Failed`. */
  readonly hasEnded: boolean
  /** Whether the current execution is one of Duroxide in Rust: not pinned, or pinned to a version below 1000. */
  readonly isOfRust: boolean
}

/**
 * Sizes of what an instance has stored.
 *
 * @category models
 * @since 0.1.0
 */
export interface StoredSizes {
  /** Events of the current execution, and the UTF-8 bytes of their texts. */
  readonly eventCount: number
  readonly historyBytes: number
  /** Event 1 of the current execution; null without a history. */
  readonly firstEvent: string | null
  /** Key-values as a reader sees them, and the UTF-8 bytes of their values. */
  readonly keyCount: number
  readonly valueBytes: number
}

/**
 * For each queue, the next time at which work becomes claimable that is not claimable now: a row becomes visible, or a
 * lock or a pause ends. Milliseconds since the Unix epoch, later than `nowMs`; null if there is no such work. Too early
 * is harmless, too late is not. Locks that processes hold may be left out: their holders announce them, and `readLocks`
 * finds those of dead holders. Pauses, which have no holder, must be included.
 *
 * @category models
 * @since 0.2.0
 */
export interface NextDue {
  /** The store's clock, milliseconds since the Unix epoch. */
  readonly nowMs: number
  readonly orchestratorMs: number | null
  readonly workerMs: number | null
  /** What `readPaused` reads, from the same look. Optional: without it, that is read after fallback looks. */
  readonly paused?: ReadonlyArray<Pause>
}

/**
 * When live locks run out that keep visible work from being claimed; null for a queue without such locks. Pauses of
 * instances are left out. An activity with a session is locked as long as its session is.
 *
 * @category models
 * @since 0.2.0
 */
export interface LiveLocks {
  /** The store's clock, milliseconds since the Unix epoch. */
  readonly nowMs: number
  readonly orchestrator: LockTimes | null
  readonly worker: LockTimes | null
}

/**
 * When the first and the last of some locks run out, milliseconds since the Unix epoch, later than now.
 *
 * @category models
 * @since 0.2.0
 */
export interface LockTimes {
  readonly firstMs: number
  readonly lastMs: number
}
