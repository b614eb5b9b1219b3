/**
 * The management seam a storage implements: what only the store can answer or do atomically.
 *
 * Rules (which instances may be deleted, trees, bulk operations, errors) are stated once, above it, by
 * `FromDriver.makeAdmin`. None of these calls is on the hot path.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { CoreVersion, ExecutionStatus, InstanceState, InstanceStatus } from "../model/Instance.ts"
import type { LimitKind } from "../model/Limit.ts"
import type { PauseTarget } from "../model/Pause.ts"
import type { ProgressStreamInfo } from "../model/ProgressChunk.ts"
import type { Condition, Encoded } from "../model/shared/attributes.ts"
import type { EncodedChanges, LimitRow } from "../model/shared/limits.ts"
import type { SlotsInUse } from "../waking/Notifier.ts"
import type { AttributeChange, EncodedEvent, ProcessReport, ProviderDriver } from "./ProviderDriver.ts"
import type { ProviderError } from "./ProviderError.ts"

/**
 * One execution of an instance.
 *
 * @category models
 * @since 0.1.0
 */
export interface ExecutionInfo {
  readonly executionId: number
  readonly status: ExecutionStatus
  readonly output: string | null
  /** Milliseconds since the Unix epoch. */
  readonly startedAtMs: number
  readonly completedAtMs: number | null
  readonly eventCount: number
  /** The version of the replay rules that its processes must support; null: any. */
  readonly pinnedVersion: CoreVersion | null
}

/**
 * Counts over all instances.
 *
 * @category models
 * @since 0.1.0
 */
export interface SystemMetrics {
  readonly totalInstances: number
  readonly totalExecutions: number
  /** Instances by the status of their current execution. */
  readonly runningInstances: number
  readonly completedInstances: number
  readonly failedInstances: number
  readonly totalEvents: number
}

/**
 * Messages and activities that could be claimed now: visible, without a live lock.
 *
 * @category models
 * @since 0.1.0
 */
export interface QueueDepths {
  readonly orchestratorQueue: number
  readonly workerQueue: number
}

/**
 * How many instances have the same name, status and version.
 *
 * @category models
 * @since 0.3.0
 */
export interface InstanceCount {
  readonly orchestrationName: string
  readonly status: InstanceStatus
  /** Null if versions are not distinguished, and for instances before their first turn. */
  readonly orchestrationVersion: string | null
  readonly instances: number
  /** Whether there are too many to count, and the number is an estimate. */
  readonly isEstimate: boolean
}

/**
 * Which instances to count; null passes every one.
 *
 * @category models
 * @since 0.3.0
 */
export interface Counting {
  readonly status: InstanceStatus | null
  readonly orchestrationName: string | null
  /** What their attributes must be. With any, every instance is counted. */
  readonly attributes: ReadonlyArray<Condition>
  readonly byVersion: boolean
  /** Most instances of a name and status to count; more are estimated. */
  readonly exactUpTo: number
}

/**
 * How much of a queue waits, runs, and falls due later.
 *
 * @category models
 * @since 0.2.0
 */
export interface QueueLoad {
  /** Items that could be claimed now. */
  readonly waiting: number
  /** Items that a process has locked. */
  readonly running: number
  /** Items that are not due yet: timers, delays, pauses. */
  readonly later: number
  /** How long the oldest item that waits has been visible; null without one. */
  readonly oldestAgeMs: number | null
}

/**
 * Messages to the instances of one version of an orchestration. A message is locked by the turn of its instance.
 *
 * @category models
 * @since 0.2.0
 */
export interface OrchestrationLoad extends QueueLoad {
  /** Null for messages whose instance has not been started. */
  readonly orchestration: string | null
  /** The version that must run them; `>=1.0.0`: that or a newer one; null: any. */
  readonly version: string | null
  /** Whether only processes of Duroxide in Rust run them. */
  readonly isOfRust: boolean
}

/**
 * Queued activities of one name and tag.
 *
 * @category models
 * @since 0.2.0
 */
export interface ActivityLoad extends QueueLoad {
  readonly activity: string
  readonly tag: string | null
  /** How many of `later` wait for a slot or a token of a limit. */
  readonly limited: number
}

/**
 * Where a message or an activity stands in its queue.
 *
 * @category models
 * @since 0.2.0
 */
export interface QueuePlace {
  /** Milliseconds since the Unix epoch. Of an activity that waits for a slot of a limit, when it was stored. */
  readonly visibleAtMs: number
  /** When the lock of a process expires, milliseconds since the Unix epoch; null when free. */
  readonly lockedUntilMs: number | null
  /** How often it was claimed. */
  readonly attemptCount: number
  /** Whether it is visible, by the store's clock. */
  readonly isDue: boolean
}

/**
 * A message of an instance as it is stored.
 *
 * @category models
 * @since 0.2.0
 */
export interface StoredMessage extends QueuePlace {
  /** The first key of its text. */
  readonly kind: string
  /** Null if it is longer than asked for. */
  readonly workItem: string | null
}

/**
 * A queued activity of an instance.
 *
 * @category models
 * @since 0.2.0
 */
export interface QueuedActivity extends QueuePlace {
  readonly executionId: number
  /** The event that scheduled it. */
  readonly eventId: number
  readonly waitsForLimit: LimitWait
}

/**
 * The key of what waits for a slot or a token of a limit, and how many of that key wait before it; null unless it
 * waits.
 *
 * @category models
 * @since 0.3.0
 */
export type LimitWait = { readonly key: string; readonly ahead: number } | null

/**
 * A process that runs work, or that has died without closing.
 *
 * @category models
 * @since 0.2.0
 */
export interface ProcessInfo extends ProcessReport {
  /** When it started, by the store's clock: milliseconds since the Unix epoch. */
  readonly sinceMs: number
  /**
   * When it was last known to live, milliseconds since the Unix epoch: now, for one that listens and lives. For one
   * that listened and is dead, when it last began to listen.
   */
  readonly seenMs: number
  /** Whether the store sees at once when it dies; if not, within three minutes. */
  readonly isListening: boolean
  readonly isAlive: boolean
  /**
   * The slots in use, and when the process said so, by the store's clock: milliseconds since the Unix epoch. Null if it
   * is dead, or has not said it in the last three minutes where this reader can see it.
   */
  readonly slotsInUse: SlotsInUse & { readonly atMs: number } | null
}

/**
 * What a deletion deleted.
 *
 * @category models
 * @since 0.1.0
 */
export interface Deleted {
  readonly instancesDeleted: number
  readonly executionsDeleted: number
  readonly eventsDeleted: number
  /** Rows of both queues. */
  readonly queueMessagesDeleted: number
}

/**
 * The outcome of a deletion.
 *
 * @category models
 * @since 0.1.0
 */
export type DeleteOutcome =
  | { readonly _tag: "Deleted"; readonly deleted: Deleted }
  /** Nothing was deleted: this instance has not ended. */
  | { readonly _tag: "StillRunning"; readonly instanceId: string }
  /** Nothing was deleted: this instance, or its queued start, has a parent in the set and is not in it. */
  | { readonly _tag: "ChildLeftBehind"; readonly instanceId: string }

/**
 * The outcome of holding instances for a deletion.
 *
 * @category models
 * @since 0.2.0
 */
export type HoldOutcome =
  /** With the ids whose parent is one of these: instances, and starts that are queued and not begun. */
  | { readonly _tag: "Held"; readonly childIds: ReadonlyArray<string> }
  /** Nothing was held: this instance has not ended. */
  | { readonly _tag: "StillRunning"; readonly instanceId: string }

/**
 * The outcome of a pause: an instance that is unknown or has ended is not paused.
 *
 * @category models
 * @since 0.2.0
 */
export type PauseOutcome = "Paused" | "NotFound" | "Ended"

/**
 * What came of an action: `refused` by a rule of the store or of the page, `failed` with an error.
 *
 * @category models
 * @since 0.3.0
 */
export type ActionOutcome = "done" | "refused" | "failed"

/**
 * What an operator did, as it is stored.
 *
 * @category models
 * @since 0.3.0
 */
export interface ActionRecord {
  /** Who did it, at most 256 characters. */
  readonly actor: string
  /** The name of the action, such as `retry`, at most 64 characters. */
  readonly action: string
  /** The id of an instance, a queue or a definition, or the filter of many; at most 2,000 characters. */
  readonly target: string
  /** What was said about it, such as a reason; at most 2,000 characters. */
  readonly details: string
  readonly outcome: ActionOutcome
}

/**
 * An action of an operator.
 *
 * @category models
 * @since 0.3.0
 */
export interface OperatorAction extends ActionRecord {
  /** A whole number as text; later ones are higher. */
  readonly id: string
  /** When it was recorded, by the store's clock: milliseconds since the Unix epoch. */
  readonly atMs: number
}

/**
 * Which instances a bulk operation is about.
 *
 * @category models
 * @since 0.1.0
 */
export interface Selection {
  /** Null: all. */
  readonly instanceIds: ReadonlyArray<string> | null
  /** Only those whose current execution ended before, milliseconds since the Unix epoch. */
  readonly completedBeforeMs: number | null
  /** Only instances without a parent that have ended. */
  readonly endedRootsOnly: boolean
  /** Only those that have ended in this way; null: any. */
  readonly status: "Completed" | "Failed" | "Cancelled" | null
  /** Leaves out those that Duroxide runs. */
  readonly exceptDuroxide: boolean
  readonly limit: number
}

/**
 * The order of a list: by the time at which the instances were created, or by their ids.
 *
 * @category models
 * @since 0.3.0
 */
export type ListOrder = "newest" | "oldest" | "id"

/**
 * Where a page of a list ends.
 *
 * @category models
 * @since 0.3.0
 */
export interface ListPosition {
  /** When that instance was created, microseconds since the Unix epoch. */
  readonly createdAtUs: number
  readonly instanceId: string
}

/**
 * Which instances to list; null passes every one.
 *
 * @category models
 * @since 0.2.0
 */
export interface Listing {
  /** `Blocked` and `Paused` ones are among the `Running`; `Ended` are all others. */
  readonly status: InstanceStatus | "Blocked" | "Paused" | "Ended" | null
  readonly orchestrationName: string | null
  readonly orchestrationVersion: string | null
  readonly parentInstanceId: string | null
  /** Only those without a parent. */
  readonly isRoot: boolean
  /**
   * Only those with an activity on its second try or delivery, or with a timer that began when an activity had failed:
   * they wait to try it again.
   */
  readonly isRetrying: boolean
  /** The beginning of their ids. */
  readonly idPrefix: string | null
  /** From this time on, milliseconds since the Unix epoch; as the next three. */
  readonly createdFromMs: number | null
  /** Before this time. */
  readonly createdBeforeMs: number | null
  readonly updatedFromMs: number | null
  readonly updatedBeforeMs: number | null
  /** Only those that ended before this time. */
  readonly endedBeforeMs: number | null
  /** Leaves out those that Duroxide runs. */
  readonly exceptDuroxide: boolean
  /** What their custom status contains, in upper or lower case. */
  readonly customStatus: string | null
  /** What the display text of their failure or cancellation, or what blocks them contains, in upper or lower case. */
  readonly error: string | null
  /** What their attributes must be; all must hold. */
  readonly attributes: ReadonlyArray<Condition>
  readonly orderBy: ListOrder
  /** Only those behind it. */
  readonly after: ListPosition | null
  readonly limit: number
}

/**
 * A page of a list.
 *
 * @category models
 * @since 0.3.0
 */
export interface ListPage {
  /** Fewer than asked for, even none, also where more follow. */
  readonly instanceIds: ReadonlyArray<string>
  /** Null if no instance follows. */
  readonly next: ListPosition | null
}

/**
 * An attribute of an instance as it is stored.
 *
 * @category models
 * @since 0.3.0
 */
export interface StoredAttribute {
  readonly instanceId: string
  readonly name: string
  readonly value: Encoded
}

/**
 * Which events of an instance are removed, and what it runs again with.
 *
 * @category models
 * @since 0.2.0
 */
export interface HistoryCut {
  readonly instanceId: string
  /** The current one. */
  readonly executionId: number
  /** The last event that the caller has read. */
  readonly lastEventId: number
  /** The status of the execution that the caller has read. */
  readonly status: ExecutionStatus
  /** The last event that stays. */
  readonly keep: number
  /** Appended, with an id after all that there were: so no later event has the id of a removed one. */
  readonly event: EncodedEvent
  /** For people who look at the removed events. */
  readonly reason: string
  readonly customStatus: string | null
  /** All attributes that the instance has then. */
  readonly attributes: ReadonlyArray<AttributeChange>
  /** Values that earlier executions have left; null: as stored. */
  readonly stored:
    | ReadonlyArray<
      { readonly key: string; readonly value: string; readonly executionId: number; readonly lastUpdatedAtMs: number }
    >
    | null
  /** Changes by the events that stay; a null value removes the key. */
  readonly changed: ReadonlyArray<
    { readonly key: string; readonly value: string | null; readonly lastUpdatedAtMs: number }
  >
  /** Texts of messages, in order; they come before all that wait for the instance. */
  readonly messages: ReadonlyArray<string>
  /** Event ids of activities whose rows are deleted, claimed or not. */
  readonly cancelledActivities: ReadonlyArray<number>
  /** Texts of messages that are deleted. */
  readonly withdrawn: ReadonlyArray<string>
  /** Calls of tasks that the instance waits for again. */
  readonly tasks: ReadonlyArray<RecalledTask>
}

/**
 * A task that an instance waits for again, by its id, or by name and key if calls share it. The end of one that has
 * completed is sent to the instance; one that is dead or was cancelled runs again.
 *
 * @category models
 * @since 0.2.0
 */
export interface RecalledTask {
  readonly id: string | null
  readonly name: string | null
  readonly key: string | null
  /** Brings its end; null: another call will ask for it, and the task need not exist. */
  readonly signal: string | null
}

/**
 * An instance that continues from a history. Texts are encoded.
 *
 * @category models
 * @since 0.2.0
 */
export interface ForkedInstance
  extends Pick<HistoryCut, "instanceId" | "executionId" | "customStatus" | "attributes" | "changed">
{
  /** The instance it is made from: it has the same key for limits. */
  readonly of: string
  readonly orchestrationName: string
  readonly orchestrationVersion: string
  readonly pinnedVersion: CoreVersion
  readonly history: ReadonlyArray<EncodedEvent>
  /** Values that earlier executions have left. */
  readonly stored: NonNullable<HistoryCut["stored"]>
  /** Texts of messages, in order. */
  readonly messages: ReadonlyArray<string>
}

/**
 * `Changed`: the history is not the one that the caller has read. `Locked`: a process runs the instance. `TaskMissing`:
 * one of the tasks does not exist, or the store cannot run tasks again. Only `Cut` changes anything.
 *
 * @category models
 * @since 0.2.0
 */
export type CutOutcome = "Cut" | "Changed" | "Locked" | "TaskMissing"

type Call<A> = Effect.Effect<A, ProviderError>

/**
 * An instance has ended when the status of its current execution is `Completed` or `Failed`, or `ContinuedAsNew`
 * without a queued message that continues it. An id without an instance has not ended while its start is queued.
 *
 * @category services
 * @since 0.1.0
 */
export class AdminDriver extends Context.Service<AdminDriver, {
  /**
   * One page, in the order asked for; ids created at the same time in the store's order of ids, which "newest"
   * reverses. Reads a bounded number of instances, so that a page may be short, and `next` says where to continue.
   */
  readonly listInstances: (listing: Listing) => Call<ListPage>
  /** States of the given instances; unknown ids are left out. */
  readonly readInstances: (instanceIds: ReadonlyArray<string>) => Call<ReadonlyArray<InstanceState>>
  /** Attributes of the given instances, those of an instance by name. */
  readonly readAttributes: (instanceIds: ReadonlyArray<string>) => Call<ReadonlyArray<StoredAttribute>>
  /** The streams of an instance, by name; empty for an unknown instance. */
  readonly listStreams: (instanceId: string) => Call<ReadonlyArray<ProgressStreamInfo>>
  /** `readChunks` of `ProviderDriver`. */
  readonly readChunks: ProviderDriver["Service"]["readChunks"]
  /** `readHistory` of `ProviderDriver`. */
  readonly readHistory: ProviderDriver["Service"]["readHistory"]
  /** Execution ids, ascending; empty for an unknown instance. Needs no instance row. */
  readonly listExecutions: (instanceId: string) => Call<ReadonlyArray<number>>
  /** Null when there is no such execution. Needs no instance row. */
  readonly readExecution: (
    options: { readonly instanceId: string; readonly executionId: number }
  ) => Call<ExecutionInfo | null>
  readonly systemMetrics: Call<SystemMetrics>
  readonly queueDepths: Call<QueueDepths>
  /** Counts in any order; no entry without instances. */
  readonly countInstances: (counting: Counting) => Call<ReadonlyArray<InstanceCount>>
  /** Messages whose instance has not been started: no claim takes them before its start. */
  readonly countMessagesBeforeStart: Call<number>
  /** The first `limit` of these, by the time they are visible; `maxBytes` as in `readMessages`. */
  readonly readMessagesBeforeStart: (
    options: { readonly limit: number; readonly maxBytes: number }
  ) => Call<ReadonlyArray<StoredMessage & { readonly instanceId: string }>>
  /**
   * Loads in the store's order of names, null last, then of versions, null first, then those of this package first; no
   * entry for an orchestration without messages.
   */
  readonly readOrchestrationLoads: Call<ReadonlyArray<OrchestrationLoad>>
  /** Loads in the store's order of names, then of tags, null first. */
  readonly readActivityLoads: Call<ReadonlyArray<ActivityLoad>>
  /** Messages to one instance, by the time they are visible: all timers, and the first `limit` others. */
  readonly readMessages: (options: {
    readonly instanceId: string
    readonly limit: number
    /** Longest text to return. */
    readonly maxBytes: number
  }) => Call<ReadonlyArray<StoredMessage>>
  /** Queued activities of one instance. */
  readonly readActivities: (instanceId: string) => Call<ReadonlyArray<QueuedActivity>>
  /** What the start of an instance waits for. */
  readonly readLimitWait: (instanceId: string) => Call<LimitWait>
  /** Processes that are registered, by the time of their start. */
  readonly listProcesses: Call<ReadonlyArray<ProcessInfo>>
  /** Ids of the instances whose parent is one of these. */
  readonly listChildren: (instanceIds: ReadonlyArray<string>) => Call<ReadonlyArray<string>>
  /** Removes the last events of the current execution, which runs again from there; atomic, and kept for people. */
  readonly cutHistory: (cut: HistoryCut) => Call<CutOutcome>
  /**
   * Creates a running instance with a history. Returns false and writes nothing if an execution, event, value, lock or
   * message is stored under its id. Atomic.
   */
  readonly forkInstance: (fork: ForkedInstance) => Call<boolean>
  readonly selectInstances: (selection: Selection) => Call<ReadonlyArray<string>>
  /**
   * Keeps instances that have not ended from running for `holdForMs`: no claim takes them, and turns under way lose
   * their lock. Their children are read after that.
   */
  readonly holdInstances: (options: {
    readonly instanceIds: ReadonlyArray<string>
    readonly mustHaveEnded: ReadonlyArray<string>
    readonly holdForMs: number
  }) => Call<HoldOutcome>
  /**
   * Pauses what an operator names until `resume`; pausing it again changes the reason. No claim, first turn or
   * optimistic turn takes a paused instance, and a turn of it under way loses its lock, uncounted. Processes take other
   * targets out of what they claim.
   */
  readonly pause: (options: { readonly target: PauseTarget; readonly reason: string | null }) => Call<PauseOutcome>
  /** Ends a pause of exactly this target; returns whether there was one. */
  readonly resume: (target: PauseTarget) => Call<boolean>
  /** `readPaused` of `ProviderDriver`. */
  readonly readPaused: ProviderDriver["Service"]["readPaused"]
  /** How many instances were paused by themselves. */
  readonly countPausedInstances: Call<number>
  /**
   * Changes the limits of a name; with `replaces: false` only if there are none. Activities that are queued and have no
   * lock wait for a slot from then on. Returns false if there were some, and `replaces` is false; else true.
   */
  readonly setLimit: (
    options: {
      readonly kind: LimitKind
      readonly name: string
      readonly changes: EncodedChanges
      readonly replaces: boolean
    }
  ) => Call<boolean>
  /** Removes the limits of a name, and lets all that waits begin; returns whether there were any. */
  readonly removeLimit: (options: { readonly kind: LimitKind; readonly name: string }) => Call<boolean>
  /**
   * The limits of a name, or all by kind and name, with the use of keys: those with bounds of their own and `mostKeys`
   * others, or only `key`.
   */
  readonly readLimits: (
    options: {
      /** Null: all. */
      readonly of: { readonly kind: LimitKind; readonly name: string } | null
      readonly key: string | null
      readonly mostKeys: number
    }
  ) => Call<ReadonlyArray<LimitRow>>
  /** Adds an action, at the time of the store's clock. */
  readonly recordAction: (action: ActionRecord) => Call<void>
  /** Actions whose id is lower than `before`, the highest id first; null: all. */
  readonly listActions: (
    options: { readonly before: string | null; readonly limit: number }
  ) => Call<ReadonlyArray<OperatorAction>>
  /**
   * Deletes all of the set, or nothing: history, executions, rows of both queues, locks, key-values, instances.
   * `mustHaveEnded` names those that must not be running, looked at while no claim can take them. With `updatedAtMs`,
   * one for each of them, one that was updated at another time counts as running.
   */
  readonly deleteInstances: (options: {
    readonly instanceIds: ReadonlyArray<string>
    readonly mustHaveEnded: ReadonlyArray<string>
    readonly updatedAtMs?: ReadonlyArray<number> | undefined
  }) => Call<DeleteOutcome>
  /**
   * Deletes executions of one instance with their histories: never the current one, never a running one; with
   * `keepLast` none of the so many highest, with `completedBeforeMs` only those that ended before.
   */
  readonly pruneExecutions: (options: {
    readonly instanceId: string
    readonly keepLast: number | null
    readonly completedBeforeMs: number | null
  }) => Call<{ readonly executionsDeleted: number; readonly eventsDeleted: number }>
}>()("duroxide-prisma/AdminDriver") {}
