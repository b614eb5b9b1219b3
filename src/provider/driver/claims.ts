/**
 * Claims of instances and of activities: what a driver may claim, what it hands out, and how a claim ends or is
 * renewed.
 */
import type { BlockReport } from "../../model/Block.ts"
import type { TagFilter, VersionRange } from "../../model/Instance.ts"

/**
 * An orchestration a process serves, in some of its versions.
 *
 * An instance is served when `name` is its orchestration and `versions` contains its version. That is the version of
 * its `instances` row; before the first turn, the one its start asks for; after continue-as-new, the one its message
 * asks for. A start that asks for no version is served by any; a continue-as-new that asks for none, by any that is not
 * older than the last.
 *
 * @category models
 * @since 0.2.0
 */
export interface ServedOrchestration {
  readonly name: string
  /** At least one. */
  readonly versions: ReadonlyArray<string>
}

/**
 * A batch with as many messages may be a part of those that the instance has: after its turn, the next one is claimed.
 *
 * @category constants
 * @since 0.2.0
 */
export const fullBatch = 1_000

/**
 * Which instances to claim, how many, and for how long.
 *
 * @category models
 * @since 0.1.0
 */
export interface FetchOrchestrationItems {
  /** Most instances to claim, at least 1. */
  readonly limit: number
  /** Length of the lock, milliseconds, more than 0. */
  readonly lockTimeoutMs: number
  /**
   * Whether the claim looks at all work, not only from where the store remembers that work begins: earlier work may be
   * free where locks have run out. Defaults to false.
   */
  readonly isThorough?: boolean
  /** Range of pinned versions, not of versions of an orchestration. Null claims every one. */
  readonly versions: VersionRange | null
  /** Claims only instances of these; all others stay as they are, uncounted. Defaults to every definition. */
  readonly serves?: ReadonlyArray<ServedOrchestration>
  /** Without `serves`, also claims messages that wait for their start: for tests and tools. Defaults to false. */
  readonly orphans?: boolean
  /**
   * How many suspects the call may claim, by their deliveries, as in `suspectGroups`, its default. The smallest number
   * of those it claims counts for all; a suspect that it passes over holds back the suspects behind it.
   */
  readonly suspects?: ReadonlyArray<number>
  /** False leaves alone what carries a lock that ran out: its holder may be about to renew it. Defaults to true. */
  readonly takesOver?: boolean
  /**
   * Called if the call claims fewer than `limit`, and a later one may claim more: other transactions may have locked
   * some.
   */
  readonly onLocked?: () => void
  /** Called if a start waits for a token of a rate: with when it may be claimed, milliseconds since the epoch. */
  readonly onNext?: (timeMs: number) => void
  /**
   * Called if starts that this process serves wait for slots of limits. Without the call, the process assumes that none
   * did when the claim was sent, and does not look when an instance ends.
   */
  readonly onAwaited?: () => void
  /**
   * Once this many bytes of messages and history are handed out, the call ends: further messages of the instance form
   * its next batch, further instances wait for the next call. At least one message is handed out. Defaults to 16 MiB.
   *
   * A driver may also end the batch of an instance when it has `fullBatch` messages.
   */
  readonly maxBytes?: number
  /**
   * An event id, at least 1. If a history has later events, only its last event is handed out: most callers hold such a
   * history in memory, and the others read it. Without a limit every history is handed out whole.
   */
  readonly historyLimit?: number
}

/**
 * One claimed instance: its lock, and everything a turn reads.
 *
 * @category models
 * @since 0.1.0
 */
export interface ClaimedInstance {
  readonly instanceId: string
  readonly lockToken: string
  /** The store's clock at the claim, milliseconds since the Unix epoch: the time of the turn. */
  readonly nowMs: number
  /** Null when there is no `instances` row. */
  readonly instance: { readonly orchestrationName: string; readonly orchestrationVersion: string | null } | null
  /** `current_execution_id` of the instance row, else the highest of `executions`, else 1. */
  readonly executionId: number
  /** Events of that execution by event id, or the last of them. */
  readonly history: ReadonlyArray<string>
  /** False when `history` is the last event of a longer one; never without an `instance` row. */
  readonly isWholeHistory: boolean
  /** Visible messages by row id, now carrying the lock's token; times in milliseconds since the Unix epoch. */
  readonly messages: ReadonlyArray<ClaimedMessage>
  /** What ended executions left in the key-value store (never the current execution's own changes). */
  readonly keyValues: ReadonlyArray<
    { readonly key: string; readonly value: string; readonly lastUpdatedAtMs: number }
  >
}

/**
 * A message of a claimed instance.
 *
 * @category models
 * @since 0.2.0
 */
export interface ClaimedMessage {
  readonly id: number
  readonly workItem: string
  /** Milliseconds since the Unix epoch. */
  readonly enqueuedAtMs: number
  /** Deliveries so far, this one included, without those that were taken back. */
  readonly attemptCount: number
}

/**
 * Which activities to claim, how many, and for how long.
 *
 * @category models
 * @since 0.1.0
 */
export interface FetchWorkItems {
  /** Most items to claim, at least 1. */
  readonly limit: number
  /** Length of the lock, milliseconds, more than 0. */
  readonly lockTimeoutMs: number
  /**
   * Whether the claim looks at all work, not only from where the store remembers that work begins: earlier work may be
   * free where locks have run out. Defaults to false.
   */
  readonly isThorough?: boolean
  readonly tags: TagFilter
  /** Claims only activities of these names; all others stay as they are, uncounted. Without it, of every name. */
  readonly activities?: ReadonlyArray<string>
  /**
   * How many suspects the call may claim, by their deliveries, as in `suspectGroups`, its default. The smallest number
   * of those it claims counts for all; a suspect that it passes over holds back the suspects behind it.
   */
  readonly suspects?: ReadonlyArray<number>
  /** False leaves alone what carries a lock that ran out: its holder may be about to renew it. Defaults to true. */
  readonly takesOver?: boolean
  /**
   * Called if the call claims fewer than `limit`, and a later one may claim more: other transactions may have locked
   * some.
   */
  readonly onLocked?: () => void
  /** Called if an activity waits for a token of a rate: with when it may be claimed, milliseconds since the epoch. */
  readonly onNext?: (timeMs: number) => void
  /**
   * Called if activities wait for slots of limits, served by this process or not. Without the call, the process assumes
   * that none did when the claim was sent, and does not look when its own activities free slots.
   */
  readonly onAwaited?: () => void
  /** Null takes only activities without a session. */
  readonly session: SessionClaim | null
}

/**
 * The worker that claims activities with sessions.
 *
 * @category models
 * @since 0.2.0
 */
export interface SessionClaim {
  readonly workerId: string
  readonly lockTimeoutMs: number
  /** How many sessions the call may bind that are not the worker's already. Defaults to no limit. */
  readonly maxNew?: number
}

/**
 * A claimed activity.
 *
 * @category models
 * @since 0.1.0
 */
export interface ClaimedWorkItem {
  readonly workItem: string
  readonly lockToken: string
  /** Deliveries so far, this one included. */
  readonly attemptCount: number
  /** Whether it has a slot of a limit, which its end frees. */
  readonly isLimited?: true
}

/**
 * The answer of a driver about one lock: to an ack, an abandon, a renewal or `deferMessages`. Only acks of turns get
 * `DuplicateEvent`.
 *
 * @category models
 * @since 0.1.0
 */
export type Settled = "Done" | "LockLost" | "DuplicateEvent"

/**
 * The answer of a driver to a renewal of an activity's lock. `Locked`: another transaction has locked its row, so
 * nothing was changed, and the caller asks again soon.
 *
 * @category models
 * @since 0.2.0
 */
export type WorkItemRenewed = "Done" | "LockLost" | "Locked"

/**
 * A claim to abandon.
 *
 * @category models
 * @since 0.1.0
 */
export interface Abandon {
  readonly lockToken: string
  /**
   * An activity becomes visible after that time. An instance is paused: until it has passed, neither the batch nor
   * later messages are claimed, so their order holds. Null: at once.
   */
  readonly delayMs: number | null
  /** True takes the delivery back: it does not count as an attempt. */
  readonly ignoreAttempt: boolean
  /**
   * Only for an instance. Messages that begin an execution, are due and not in the batch are put in front of all
   * others, so that the next batch begins with them. If there is one, `delayMs` does not apply. Defaults to false.
   */
  readonly beginsFirst?: boolean
  /** Why its turn, or the activity, was not run: the instance is blocked. Absent: the store keeps what it knows. */
  readonly block?: BlockReport | undefined
}

/**
 * A lock to extend.
 *
 * @category models
 * @since 0.1.0
 */
export interface Renewal {
  readonly lockToken: string
  /** New length of the lock from now, milliseconds. */
  readonly extendForMs: number
}
