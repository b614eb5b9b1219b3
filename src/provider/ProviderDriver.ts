/**
 * The seam a storage implements: sets of encoded items in, one answer per item out.
 *
 * A driver stores, says which rows a claim may take, and passes on the wake-ups of its store. Decoding, retries, batching
 * and waiting are done once, above it, by `FromDriver.make`. Strings of the types below are row texts (`Event.encode`,
 * `WorkItem.encode`); ids and milliseconds are safe integers.
 *
 * **Promises every driver keeps**
 *
 * - One call is one atomic statement. A call that fails has changed nothing, unless the connection was lost.
 * - Items of a set succeed or fail on their own: a lost lock or a duplicate event never fails its neighbours. Answers
 *   stand in the order of the items.
 * - The turns of one set are stored at one moment, in steps over the whole set: insert the activities of all turns; apply
 *   all cancellations; delete the timers of ended executions; send all messages. So a cancellation deletes an activity
 *   that another turn of the set schedules, whatever their order.
 * - A claim never waits for another claim; it takes the next candidate instead.
 * - A call that stores items waits only shortly for what a transaction of others holds, then fails with `Contention`,
 *   `sqlState` 55P03: the caller tries each item again by itself, so that one that is held delays no other.
 * - "Now" is the driver's own clock, read once per call: the database's by default, `Clock` in tests.
 * - `lockToken` is opaque to callers; the driver finds the row by primary key from it.
 *
 * **What a driver recognises in texts**
 *
 * The kind of a message is the first thing in its text, and its only key: `{"TimerFired":{…}}`, without a space before
 * the colon. That holds for texts of Duroxide in Rust as well. A driver looks for no more than this:
 *
 * - `{"StartOrchestration"` and `{"ContinueAsNew"` begin an execution. A claim with `serves` needs their fields
 *   `orchestration` and `version` where no instance says them; a deletion needs `parent_instance` of a start, because a
 *   queued start is a child that has no row yet.
 * - `{"TimerFired"` messages are deleted when their execution ends, unless they are due by then.
 * - `requeued` makes `{"QueueMessage":{"instance":…,"name":…,"data":…}}` of the `name` and the `data` of an event.
 * - An event has its kind in `type`: `InstanceState.failure` is the last event of a failed execution, passing over those
 *   whose kind ends with `CancelRequested`, if it is `OrchestrationFailed`.
 *
 * Everything else is opaque. Compare kinds as prefixes of the text. Where a field is needed, a text that no parser can
 * read has none: it must fail neither a claim nor a deletion.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { CoreVersion, ExecutionStatus, InstanceState, TagFilter, VersionRange } from "../model/Instance.ts"
import type { Backlog } from "./Backlog.ts"
import type { ProviderError } from "./ProviderError.ts"

/**
 * An orchestration a process serves, in some of its versions.
 *
 * An instance is served when `name` is its orchestration and `versions` contains its version. That is the version of its
 * `instances` row; before the first turn, the one its start asks for; after continue-as-new, the one its message asks
 * for. A start that asks for no version is served by any; a continue-as-new that asks for none, by any that is not older
 * than the last.
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
 * Deliveries without an end after which work is a suspect: it may be what ends the processes that claim it. A suspect is
 * claimed alone, so that it cannot take other work down with it.
 *
 * A claim looks at the deliveries of an instance's first visible message. The claimed item carries the highest count in
 * its batch, and from then on that one counts, also for `maxAttempts`.
 *
 * @category constants
 * @since 0.2.0
 */
export const suspectAfter = 2

/**
 * A batch with as many messages may be a part of those that the instance has: after its turn, the next one is claimed.
 *
 * @category constants
 * @since 0.2.0
 */
export const fullBatch = 1_000

/**
 * For each queue, the next time at which work becomes claimable that is not claimable now: a row becomes visible, or a
 * lock or a pause ends. Milliseconds since the Unix epoch, later than `nowMs`; null if there is no such work. Too early is
 * harmless, too late is not. Locks that processes hold may be left out: their holders announce them, and `readLocks` finds
 * those of holders that have died. Pauses, which have no holder, may not.
 *
 * @category models
 * @since 0.2.0
 */
export interface NextDue {
  /** The store's clock, milliseconds since the Unix epoch. */
  readonly nowMs: number
  readonly orchestratorMs: number | null
  readonly workerMs: number | null
}

/**
 * When live locks run out that keep visible work from being claimed; null for a queue without any. Pauses of instances are
 * not among them. An activity with a session is locked as long as its session is.
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
  /** Range of pinned versions, not of versions of an orchestration. Null claims every one. */
  readonly versions: VersionRange | null
  /** Claims only instances of these; all others stay as they are, uncounted. Without it, instances of every definition. */
  readonly serves?: ReadonlyArray<ServedOrchestration>
  /** Without `serves`, also claims messages that wait for their start: for tests and tools. Defaults to false. */
  readonly orphans?: boolean
  /** False passes over suspects. Defaults to true: a suspect that is next is claimed, alone. */
  readonly suspects?: boolean
  /** False leaves alone what carries a lock that ran out: its holder may be about to renew it. Defaults to true. */
  readonly takesOver?: boolean
  /**
   * Once this many bytes of messages and history are handed out, the call ends: further messages of the instance form its
   * next batch, further instances wait for the next call. At least one message is handed out. Defaults to 16 MiB.
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
  /** Null leaves the status text alone; otherwise sets it (or clears it) and counts its version up by one. */
  readonly customStatus: { readonly value: string | null } | null
  /** Applied in order to the current execution's changes. */
  readonly keyValues: ReadonlyArray<KeyValueChange>
  /** Null leaves status, output and end time alone. */
  readonly status: ExecutionStatus | null
  readonly output: string | null
  /** The instance row is written only when name and version are both present. */
  readonly orchestrationName: string | null
  readonly orchestrationVersion: string | null
  /** With status `ContinuedAsNew`: the version the next execution asks for; null takes one not older than this one's. */
  readonly nextVersion?: string | null
  /** Written once; later values are ignored. */
  readonly parentInstanceId: string | null
  /** Null leaves the execution's pinned version alone. */
  readonly pinnedVersion: CoreVersion | null
  readonly workerItems: ReadonlyArray<EncodedActivity>
  readonly orchestratorItems: ReadonlyArray<EncodedMessage>
  /** Worker rows deleted after the `workerItems` of all turns of the set are inserted, claimed or not; missing are fine. */
  readonly cancelledActivities: ReadonlyArray<ActivityKey>
  /**
   * Texts of timers of this instance that are deleted, after `orchestratorItems` are inserted, unless they are due by
   * now.
   */
  readonly cancelledTimers?: ReadonlyArray<string>
  /**
   * Ids of messages of the batch that are not deleted: unlocked, with no delivery counted, they keep their places among
   * the messages of the instance. That happens before `orchestratorItems` are inserted, so what begins an execution comes
   * before them. Ids that are not part of the batch are ignored.
   */
  readonly left?: ReadonlyArray<number>
  /**
   * With status `ContinuedAsNew`, ids of events of this execution, those of `history` included: the message of each that
   * is an `ExternalEventPersistent` is inserted again, as `WorkItem.encode` writes a `QueueMessage`. In order of the ids
   * they come before all other messages of the instance, also those that are `left`, and those that transactions commit
   * later; `orchestratorItems` are inserted after that. Other ids are ignored.
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
 * A worker queue row to insert, visible at once.
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
}

/**
 * A row of `history`.
 *
 * @category models
 * @since 0.2.0
 */
export interface EncodedEvent {
  readonly eventId: number
  /** Duroxide's name of the event, the `type` in `eventData`: for people and their queries; the runtime never reads it. */
  readonly eventType: string
  /** As `Event.encode` writes it. */
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
  /**
   * In an ack, of a start message that also creates its instance, as `startOrchestrations` does, if the id is free. The
   * message itself is inserted in any case.
   */
  readonly start?: StartedInstance
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
 * Asks that activities a turn creates are stored already claimed by the caller, which has room for them: they need
 * no claim, and no other process is woken for them.
 *
 * Handed over are the first `limit` `workerItems` of the turn that the caller serves: by name and tag, without a session,
 * not `servedBy` others. If more than `spare` such activities are visible and have no live lock before the call, none is
 * handed over: no activity overtakes another for which no slot is kept. An activity that the set also cancels is not handed
 * over. A delivery counts as after a claim.
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
}

/**
 * What a turn stores that was run without a claim of its instance.
 *
 * @category models
 * @since 0.2.0
 */
export type UnclaimedTurn = Omit<OrchestrationAck, "lockToken" | "left" | "executionId"> & {
  readonly executionId: number
}

/**
 * An optimistic turn: results of activities, and the turn they lead to. The caller has run that turn before anything was
 * stored, because it holds the program of the instance in memory.
 *
 * The turn is stored only if the instance is exactly where the caller believes it to be. At the moment of the call:
 *
 * - no other transaction is claiming the instance, and it has no lock, live or expired;
 * - no message for it is visible;
 * - `executionId` of the turn is its current execution, that execution is `Running`, and `lastEventId` is the id of its
 *   last event, and no event id of the turn is taken or given twice;
 * - every activity in `results` is one of the instance, has its live lock, and is given once;
 * - no other turn of the set has been stored for the instance.
 *
 * Otherwise the call does what `ackWorkItems` does with the results, and nothing else. It does that after the turns of the
 * set are stored.
 *
 * @category models
 * @since 0.2.0
 */
export interface OptimisticTurn {
  readonly instanceId: string
  readonly lastEventId: number
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
  | { readonly _tag: "Queued"; readonly results: ReadonlyArray<"Done" | "LockLost"> }

/**
 * A claim to abandon.
 *
 * @category models
 * @since 0.1.0
 */
export interface Abandon {
  readonly lockToken: string
  /**
   * An activity becomes visible after that time. An instance is paused: until it has passed, neither the batch nor later
   * messages are claimed, so their order holds. Null: at once.
   */
  readonly delayMs: number | null
  /** True takes the delivery back: it does not count as an attempt. */
  readonly ignoreAttempt: boolean
  /**
   * Of an instance: of the messages that are due and not in the batch, those that begin an execution are put in front of
   * all others, so that the next batch begins with them. Where there is one, `delayMs` does not apply. Defaults to false.
   */
  readonly beginsFirst?: boolean
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
  readonly tags: TagFilter
  /** Claims only activities of these names; all others stay as they are, uncounted. Without it, of every name. */
  readonly activities?: ReadonlyArray<string>
  /** False passes over suspects. Defaults to true: a suspect that is next is claimed, alone. */
  readonly suspects?: boolean
  /** False leaves alone what carries a lock that ran out: its holder may be about to renew it. Defaults to true. */
  readonly takesOver?: boolean
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
   * The first turn, which the caller has run already: it is stored with the instance, and no message is inserted. That
   * needs a free id, and that nothing is stored under it: no message, lock or history; otherwise the start is stored as
   * it is without a first turn. A driver may always ignore it. A set first creates all its instances and inserts its start
   * messages; then its first turns are stored in the steps of an ack.
   */
  readonly firstTurn?: { readonly turn: UnclaimedTurn; readonly handOver: HandOver | null }
}

/**
 * The answer to a start. `Begun`: the instance and its first turn are stored.
 *
 * @category models
 * @since 0.2.0
 */
export type StartAnswer =
  | "Started"
  | "AlreadyExists"
  | {
    readonly _tag: "Begun"
    /** The store's clock, milliseconds since the Unix epoch. */
    readonly nowMs: number
    readonly handedOver: ReadonlyArray<HandedOver>
  }

/**
 * An instance whose current execution has ended.
 *
 * @category models
 * @since 0.2.0
 */
export interface EndedInstance {
  readonly instanceId: string
  readonly status: "Completed" | "Failed"
  /** As in `InstanceState`. */
  readonly output: string | null
  /** As in `InstanceState`. */
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
  /** Of the current execution; 0 without a history. */
  readonly lastEventId: number
  readonly customStatus: string | null
  readonly customStatusVersion: number
  /** As `readKeyValues` reads it; null without one. */
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

type Call<A> = Effect.Effect<A, ProviderError>

/**
 * The storage contract over encoded sets.
 *
 * @category services
 * @since 0.1.0
 */
export class ProviderDriver extends Context.Service<ProviderDriver, {
  /** For logs and metrics: `prisma`, `memory`. */
  readonly name: string

  /**
   * Claims up to `limit` instances that have a visible message and no live lock, earliest message first, and marks
   * their visible messages with the lock's token. Messages of an id that has neither an instance nor a queued start stay
   * where they are: they wait for the start.
   */
  readonly fetchOrchestrationItems: (options: FetchOrchestrationItems) => Call<ReadonlyArray<ClaimedInstance>>
  /** Stores turns and releases their locks. Needs a live lock. */
  readonly ackOrchestrationItems: (acks: ReadonlyArray<OrchestrationAck>) => Call<ReadonlyArray<Settled>>
  /** Abandons claims: their batches may be claimed again. The lock may have expired, but not have been taken over. */
  readonly abandonOrchestrationItems: (items: ReadonlyArray<Abandon>) => Call<ReadonlyArray<Settled>>
  /** Extends locks that no other claim took over, expired ones too, and the marks of their batches. */
  readonly renewOrchestrationItemLocks: (items: ReadonlyArray<Renewal>) => Call<ReadonlyArray<Settled>>
  /**
   * Takes single messages out of a claimed batch and hides them for `delayMs`: for rows this version cannot read, which
   * must neither block their instance nor be lost. Their delivery does not count.
   */
  readonly deferMessages: (
    items: ReadonlyArray<{ readonly lockToken: string; readonly ids: ReadonlyArray<number>; readonly delayMs: number }>
  ) => Call<ReadonlyArray<Settled>>

  /**
   * Inserts messages. The instance need not exist and is not created; duplicates are allowed. A message for an instance
   * whose start is not due yet becomes visible with the start.
   */
  readonly enqueueForOrchestrator: (messages: ReadonlyArray<EncodedMessage>) => Call<void>
  /** Inserts activities. */
  readonly enqueueForWorker: (activities: ReadonlyArray<EncodedActivity>) => Call<void>
  /**
   * Creates instance, execution 1 (status `Running`, pinned) and start message together, where the id is free. Messages
   * that came before are claimable from then on, together with the start.
   */
  readonly startOrchestrations: (
    starts: ReadonlyArray<OrchestrationStart>
  ) => Call<ReadonlyArray<StartAnswer>>
  /**
   * Stores optimistic turns. A driver without it works as well: results and turns are then stored one after the other.
   */
  readonly advanceOrchestrations?: (
    turns: ReadonlyArray<OptimisticTurn>
  ) => Call<ReadonlyArray<OptimisticAnswer>>

  /**
   * Looks through messages for ids without an instance, in steps of `limit` rows. A message whose instance exists by now
   * becomes claimable; one that has been visible for longer than `maxAgeMs` is deleted. `next` continues the pass,
   * as `after` of the next call; null ends it.
   */
  readonly sweepMessages: (
    options: { readonly maxAgeMs: number; readonly limit: number; readonly after: string | null }
  ) => Call<{ readonly deleted: number; readonly next: string | null }>

  /** Claims up to `limit` visible activities, the one visible longest first; claims their sessions where asked. */
  readonly fetchWorkItems: (options: FetchWorkItems) => Call<ReadonlyArray<ClaimedWorkItem>>
  /** Deletes claimed activities and inserts their completions. Needs a live lock. Null: delete only. */
  readonly ackWorkItems: (
    items: ReadonlyArray<
      {
        readonly lockToken: string
        readonly completion: { readonly instanceId: string; readonly workItem: string } | null
      }
    >
  ) => Call<ReadonlyArray<Settled>>
  /** Abandons claims of activities. The lock may have expired, but not have been taken over. */
  readonly abandonWorkItems: (items: ReadonlyArray<Abandon>) => Call<ReadonlyArray<Settled>>
  /**
   * Extends locks that no other worker took over. `LockLost` is how a running activity learns that it was cancelled: it
   * asks more often than its lock needs, so a lock that lasts for `sufficientMs` more may be left as it is.
   */
  readonly renewWorkItemLocks: (
    items: ReadonlyArray<Renewal & { readonly sufficientMs?: number }>
  ) => Call<ReadonlyArray<Settled>>

  /** Events of one execution by event id; null means the highest execution. Unknown: empty. */
  readonly readHistory: (
    options: { readonly instanceId: string; readonly executionId: number | null }
  ) => Call<ReadonlyArray<string>>
  /** Plain insert for tools and tests; a repeated event id fails with `DuplicateEvent`. */
  readonly appendHistory: (options: {
    readonly instanceId: string
    readonly executionId: number
    readonly history: ReadonlyArray<EncodedEvent>
  }) => Call<void>
  /** States of the given instances, in any order; unknown ids are left out. */
  readonly readInstances: (instanceIds: ReadonlyArray<string>) => Call<ReadonlyArray<InstanceState>>
  /**
   * Those of the given instances that have ended, in any order. It is asked repeatedly about up to 1,000 instances that
   * have not, on behalf of callers that wait: an instance that has not ended should cost a lookup or two by its id.
   */
  readonly readEnds: (instanceIds: ReadonlyArray<string>) => Call<ReadonlyArray<EndedInstance>>
  /**
   * The progress of instances that have ended, or have events that the caller does not know; null for all others, unknown
   * ones included. Asked as often as `readEnds`: an item that is answered with null should cost a few lookups.
   */
  readonly readProgress: (items: ReadonlyArray<ReadProgress>) => Call<ReadonlyArray<InstanceProgress | null>>

  /**
   * Key-values as a reader sees them: what the current execution changed, else what ended ones left. Null: every key.
   */
  readonly readKeyValues: (
    options: { readonly instanceId: string; readonly key: string | null }
  ) => Call<ReadonlyArray<{ readonly key: string; readonly value: string }>>
  /** Null for an unknown instance. */
  readonly readInstanceStats: (instanceId: string) => Call<StoredSizes | null>

  /**
   * Extends live locks of sessions of these workers that were active within the idle timeout; returns their number. An
   * expired one is never revived.
   */
  readonly renewSessionLocks: (options: {
    readonly workerIds: ReadonlyArray<string>
    readonly extendForMs: number
    readonly idleTimeoutMs: number
  }) => Call<number>
  /** Deletes sessions whose lock has expired and for which no activity is queued; returns their number. */
  readonly cleanupOrphanedSessions: Call<number>

  /**
   * What could be claimed now. It may stop counting at `limit` rows of each definition, the longest visible first.
   */
  readonly readBacklog: (options: { readonly limit: number }) => Call<Backlog>

  /**
   * When work becomes claimable next by the passing of time alone. Optional: without it, what other processes have left is
   * found by the fallback looks. It is called rarely: after each connection of the notifier, with fallback looks, and when
   * a time has come that another process had stored.
   */
  readonly readNextDue?: Call<NextDue>

  /**
   * When live locks run out. It may look at the oldest work of each definition only, because that is claimed first.
   * Optional: without it, a process finds locks of others that died before it began half a second after its own lock
   * timeout, and longer ones by the fallback looks. It is called rarely: after each connection of the notifier, and when
   * the first of these locks has run out.
   */
  readonly readLocks?: Call<LiveLocks>
}>()("duroxide-prisma/ProviderDriver") {}
