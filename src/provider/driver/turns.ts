/**
 * What a driver stores: the turns of claimed instances, starts, and turns that are run without a claim.
 */
import type { CoreVersion, ExecutionStatus, TagFilter } from "../../model/Instance.ts"
import type { Encoded } from "../../model/shared/attributes.ts"
import type { NewChunk } from "./streams.ts"

/**
 * What one turn stores.
 *
 * @category models
 * @since 0.1.0
 */
export interface OrchestrationAck {
  readonly lockToken: string
  /** Null deletes the batch and releases the lock, nothing else: no row of `executions` appears. */
  readonly executionId: number | null
  readonly history: ReadonlyArray<EncodedEvent>
  /** Null leaves the custom status alone; otherwise sets it (or clears it) and counts its version up by one. */
  readonly customStatus: { readonly value: string | null } | null
  /** Applied in order to the current execution's changes. */
  readonly keyValues: ReadonlyArray<KeyValueChange>
  /** Changes of the instance's attributes; the last one of a name counts. Absent: none. */
  readonly attributes?: ReadonlyArray<AttributeChange>
  /** Appended to streams of the instance, in order. Absent: none. */
  readonly chunks?: ReadonlyArray<NewChunk>
  /** Null leaves status, output and end time alone. */
  readonly status: ExecutionStatus | null
  readonly output: string | null
  /** The instance row is written only when name and version are both present. */
  readonly orchestrationName: string | null
  readonly orchestrationVersion: string | null
  /**
   * With status `ContinuedAsNew`: the version the next execution asks for; null takes one that is not older than this
   * one's.
   */
  readonly nextVersion?: string | null
  /** Written once; later values are ignored. */
  readonly parentInstanceId: string | null
  /** Null leaves the execution's pinned version alone. */
  readonly pinnedVersion: CoreVersion | null
  readonly workerItems: ReadonlyArray<EncodedActivity>
  readonly orchestratorItems: ReadonlyArray<EncodedMessage>
  /**
   * Worker rows to delete, claimed or not, after the `workerItems` of all turns of the set are inserted. Rows may be
   * missing.
   */
  readonly cancelledActivities: ReadonlyArray<ActivityKey>
  /**
   * Texts of timers of this instance that are deleted, after `orchestratorItems` are inserted, unless they are due by
   * now.
   */
  readonly cancelledTimers?: ReadonlyArray<string>
  /**
   * Ids of messages of the batch that are not deleted: unlocked, with no delivery counted, they keep their places among
   * the messages of the instance. That happens before `orchestratorItems` are inserted, among which one that begins an
   * execution comes before them. Ids that are not part of the batch are ignored.
   */
  readonly left?: ReadonlyArray<number>
  /**
   * With status `ContinuedAsNew`, ids of events of this execution, those of `history` included: the message of each
   * that is an `ExternalEventPersistent` is inserted again, as `WorkItem.encode` writes a `QueueMessage`. They come
   * before all other messages of the instance, in the order of the ids: before those that are `left`, and before those
   * that transactions commit later. `orchestratorItems` are inserted after that. Other ids are ignored.
   */
  readonly requeued?: ReadonlyArray<number>
}

/**
 * A change of the values of an instance.
 *
 * @category models
 * @since 0.1.0
 */
export type KeyValueChange =
  | { readonly action: "set"; readonly key: string; readonly value: string; readonly lastUpdatedAtMs: number }
  | { readonly action: "clear_key"; readonly key: string }
  | { readonly action: "clear_all" }

/**
 * A change of an attribute of an instance: its new value, or null for its removal.
 *
 * @category models
 * @since 0.3.0
 */
export interface AttributeChange {
  readonly name: string
  readonly value: Encoded | null
}

/**
 * Identifies an activity by its schedule event.
 *
 * @category models
 * @since 0.1.0
 */
export interface ActivityKey {
  readonly instanceId: string
  readonly executionId: number
  readonly activityId: number
}

/**
 * A worker queue row to insert, visible at once unless it waits for a slot of a limit.
 *
 * @category models
 * @since 0.1.0
 */
export interface EncodedActivity {
  readonly workItem: string
  readonly name: string
  readonly instanceId: string | null
  readonly executionId: number | null
  readonly activityId: number | null
  readonly sessionId: string | null
  readonly tag: string | null
  /** Processes of Duroxide in Rust run it. Only a store that they work in as well need look at this. */
  readonly servedBy?: "rust"
  /** The key by which a limit of its name distinguishes it. Absent: the key `""`. */
  readonly limitKey?: string
}

/**
 * A row of `history`.
 *
 * @category models
 * @since 0.2.0
 */
export interface EncodedEvent {
  readonly eventId: number
  /**
   * Duroxide's name of the event, the `type` in `eventData`, for people and their queries; the runtime never reads it.
   */
  readonly eventType: string
  /** What `Event.encode` writes. */
  readonly eventData: string
}

/**
 * An orchestrator queue row to insert: visible at the later of `visibleAtMs` (absolute, milliseconds since the Unix
 * epoch) and now + `delayMs`; null means now. In an ack a `visibleAtMs` in the past is kept as it is.
 *
 * @category models
 * @since 0.1.0
 */
export interface EncodedMessage {
  readonly instanceId: string
  readonly workItem: string
  readonly visibleAtMs: number | null
  readonly delayMs: number | null
  /** `enqueueForOrchestrator` refuses the message when its instance is full. */
  readonly bounds?: Bounds
  /**
   * In an ack, of a start message that also creates its instance, as `startOrchestrations` does, if the id is free. The
   * message itself is inserted in any case.
   */
  readonly start?: StartedInstance
}

/**
 * When an instance is full: as many messages wait for it, or its current history has as many events.
 *
 * @category models
 * @since 0.2.0
 */
export interface Bounds {
  readonly mostWaiting: number
  readonly mostEvents: number
}

/**
 * What a start writes of its instance.
 *
 * @category models
 * @since 0.2.0
 */
export interface StartedInstance {
  readonly orchestrationName: string
  /** The version asked for; null: the newest version served by the process that runs the first turn. */
  readonly orchestrationVersion: string | null
  readonly parentInstanceId: string | null
  readonly pinnedVersion: CoreVersion
  /** Those that it begins with. Absent: none. */
  readonly attributes?: ReadonlyArray<AttributeChange>
  /** The key by which a limit of the orchestration counts it. Absent: none. */
  readonly limitKey?: string
}

/**
 * Asks to store activities that a turn creates as already claimed by the caller, which has room for them. They need no
 * claim, and no other process is woken for them.
 *
 * Handed over are the first `limit` `workerItems` of the turn that the caller serves: by name and tag, without a
 * session, not `servedBy` others. If more than `spare` such activities are visible and have no live lock before the
 * call, none is handed over: no activity overtakes another for which no slot is kept. A store that has too many under
 * way to know may hand over none. Not handed over, nor counted among the first, is an activity that waits for a slot of
 * a limit, or that a turn of the set cancels, stored or not. A delivery counts as after a claim.
 *
 * @category models
 * @since 0.2.0
 */
export interface HandOver {
  /** Most activities to hand over, at least 1. */
  readonly limit: number
  /** Further free slots of the caller, kept for activities that wait already. */
  readonly spare: number
  /** Length of their locks, milliseconds, more than 0. */
  readonly lockTimeoutMs: number
  /** What the caller serves. */
  readonly activities: ReadonlyArray<string>
  readonly tags: TagFilter
}

/**
 * An activity that was stored claimed.
 *
 * @category models
 * @since 0.2.0
 */
export interface HandedOver {
  /** Its index in `workerItems` of the turn. */
  readonly index: number
  readonly lockToken: string
  /** Whether it has a slot of a limit, which its end frees. */
  readonly isLimited?: true
}

/**
 * What a turn stores that was run without a claim of its instance.
 *
 * @category models
 * @since 0.2.0
 */
export type UnclaimedTurn = Omit<OrchestrationAck, "lockToken" | "left" | "executionId"> & {
  readonly executionId: number
  /**
   * Returns the store's clock, as the caller estimates it, by the clock that gave the turn its time. The driver asks
   * when it sends the turn. The turn is stored only if the estimate is right within 2 seconds: the clock of a suspended
   * process, or of a store whose clock was set, would let timers fire early or late. Without it, the turn may have any
   * time.
   */
  readonly clockMs?: (() => number) | undefined
}

/**
 * An optimistic turn: results of activities, and the turn they lead to. The caller has run that turn before anything
 * was stored, because it holds the program of the instance in memory.
 *
 * The turn is stored only if the instance is exactly where the caller believes it to be. At the moment of the call:
 *
 * - `clockMs` of the turn is the store's clock, give or take 2 seconds;
 * - no other transaction is claiming the instance, and it has no lock, live or expired;
 * - no message for it is visible;
 * - `executionId` of the turn is its current execution, that execution is `Running`, and no event id of the turn is
 *   taken or given twice;
 * - its last event has the id `lastEventId` and the text `lastEvent`. The id is not enough: after a failover that lost
 *   turns, another event may have it;
 * - every activity in `results` is one of the instance, has its live lock, and is given once;
 * - no other turn of the set has been stored for the instance.
 *
 * Otherwise the call does what `ackWorkItems` does with the results, and nothing else. It does that after the turns of
 * the set are stored.
 *
 * @category models
 * @since 0.2.0
 */
export interface OptimisticTurn {
  readonly instanceId: string
  readonly lastEventId: number
  /** The stored text, byte for byte. */
  readonly lastEvent: string
  /** Claimed activities of this instance that have ended, each with its completion. At least one. */
  readonly results: ReadonlyArray<{ readonly lockToken: string; readonly workItem: string }>
  readonly turn: UnclaimedTurn
  readonly handOver: HandOver | null
}

/**
 * The answer to an optimistic turn.
 *
 * @category models
 * @since 0.2.0
 */
export type OptimisticAnswer =
  /** Stored: the activities are deleted, their results are part of the history. */
  | {
    readonly _tag: "Advanced"
    /** The store's clock, milliseconds since the Unix epoch. */
    readonly nowMs: number
    readonly handedOver: ReadonlyArray<HandedOver>
  }
  /** Not stored. Each result is a message to the instance now (`Done`), or its activity's lock is lost. */
  | {
    readonly _tag: "Queued"
    readonly results: ReadonlyArray<"Done" | "LockLost">
    /** The store's clock, if `clockMs` of the turn is not. */
    readonly nowMs?: number
  }

/**
 * A start that creates its instance as well, so that the instance is visible at once and its id is taken only once.
 *
 * @category models
 * @since 0.1.0
 */
export interface OrchestrationStart {
  readonly instanceId: string
  readonly orchestrationName: string
  /** The version asked for; null: the newest version served by the process that runs the first turn. */
  readonly orchestrationVersion: string | null
  /** The `StartOrchestration` message. */
  readonly workItem: string
  readonly pinnedVersion: CoreVersion
  /** Time before dispatchers see it; null: at once. */
  readonly delayMs: number | null
  /**
   * When dispatchers see it, by the store's clock: milliseconds since the Unix epoch. Not with `delayMs`. Absent: at
   * once.
   */
  readonly startAtMs?: number
  /**
   * Deletes an instance of this id that has ended, with all its descendants, in the same transaction: `Ended` however
   * it has ended, `Failed` only if it has failed or was cancelled. One that has a parent or a descendant that has not
   * ended keeps its id, and so may one with more than 1,000 descendants. Absent: an id is taken until it is deleted.
   */
  readonly replaces?: "Ended" | "Failed"
  /**
   * A message to the instance, inserted in the same transaction: behind its start, or, if the id is taken, for the
   * instance that runs under it. The bounds hold for the latter.
   */
  readonly message?: { readonly workItem: string; readonly bounds?: Bounds }
  /** Attributes that it begins with, stored with the instance. Absent: none. */
  readonly attributes?: ReadonlyArray<AttributeChange>
  /** The key by which a limit of the orchestration counts it. Absent: none. */
  readonly limitKey?: string
  /**
   * The first turn, which the caller has run already: it is stored with the instance, and no message is inserted. That
   * needs an id under which nothing is stored, no message, lock or history, a `clockMs` within 2 seconds of the store's
   * clock, and a slot at once if the orchestration has limits; otherwise the start is stored without a first turn. Not
   * with `startAtMs`, `replaces` or `message`. A driver may always ignore it. A set first creates all its instances and
   * inserts its start messages; then its first turns are stored in the steps of an ack.
   */
  readonly firstTurn?: { readonly turn: UnclaimedTurn; readonly handOver: HandOver | null }
}

/**
 * The answer to a start. `Begun`: the instance and its first turn are stored. A `Started` that has the store's clock:
 * `clockMs` of the first turn differs from it.
 *
 * `AlreadyExists` of a start with a message: the message was sent to the running instance. `Full`: it was not, because
 * of its bounds; `Ended`: it was not, because the instance has ended.
 *
 * @category models
 * @since 0.2.0
 */
export type StartAnswer =
  | "Started"
  | "AlreadyExists"
  | "Ended"
  | "Full"
  | { readonly _tag: "Started"; readonly nowMs: number }
  | {
    readonly _tag: "Begun"
    /** The store's clock, milliseconds since the Unix epoch. */
    readonly nowMs: number
    readonly handedOver: ReadonlyArray<HandedOver>
  }

/**
 * How far the time of a turn without a claim may be from the store's clock, milliseconds.
 *
 * @category constants
 * @since 0.2.0
 */
export const clockTolerance = 2_000
