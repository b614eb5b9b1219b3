/**
 * Management of what is stored: listing, inspection, deletion, pruning, metrics.
 *
 * For operators and tools; no runtime needs it.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type * as Attribute from "../model/Attribute.ts"
import type * as Event from "../model/Event.ts"
import type { ExecutionStatus, InstanceState, InstanceStatus } from "../model/Instance.ts"
import type { Limit, LimitChanges, LimitKind } from "../model/Limit.ts"
import type { Pause, PauseTarget } from "../model/Pause.ts"
import type { ProgressChunk, ProgressStreamInfo } from "../model/ProgressChunk.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type {
  ActionRecord,
  ActivityLoad,
  Deleted,
  ExecutionInfo,
  InstanceCount,
  LimitWait,
  ListOrder,
  OperatorAction,
  OrchestrationLoad,
  ProcessInfo,
  QueuedActivity,
  QueueDepths,
  QueuePlace,
  SystemMetrics
} from "./AdminDriver.ts"
import type { Explanation } from "./Explanation.ts"
import type { ProviderError } from "./ProviderError.ts"

/**
 * An instance with all its descendants.
 *
 * @category models
 * @since 0.1.0
 */
export interface InstanceTree {
  readonly rootId: string
  /** The root first, then level by level. */
  readonly allIds: ReadonlyArray<string>
}

/**
 * Selects instances; every given field must match.
 *
 * @category models
 * @since 0.1.0
 */
export interface InstanceFilter {
  /** Only these; an empty list selects nothing. */
  readonly instanceIds?: ReadonlyArray<string> | undefined
  /** Only those whose current execution ended before, milliseconds since the Unix epoch. */
  readonly completedBeforeMs?: number | undefined
  /**
   * Most instances to select, the oldest first. Defaults to 1,000, also for an empty filter; for a deletion with
   * `instanceIds`, to all of these.
   */
  readonly limit?: number | undefined
}

/**
 * Selects instances to look at; every given field must match.
 *
 * @category models
 * @since 0.2.0
 */
export interface InstanceSearch {
  /**
   * `Blocked` finds those that no process could run, `Paused` those that are paused by any target; both are also
   * `Running`.
   */
  readonly status?: InstanceStatus | "Blocked" | "Paused" | undefined
  /** Name of the orchestration. */
  readonly name?: string | undefined
  /** Version of the orchestration; of those that have not begun, the one that they were started with. */
  readonly version?: string | undefined
  /** Only those without a parent. Defaults to false: all. */
  readonly isRoot?: boolean | undefined
  /** Only direct children of this one. */
  readonly parentId?: string | undefined
  /** Leaves out those that Duroxide runs. Defaults to false. */
  readonly exceptDuroxide?: boolean | undefined
  /**
   * Only running ones that try an activity again: it is on its second try or delivery, or waits for its next try.
   * Defaults to false: all.
   */
  readonly isRetrying?: boolean | undefined
  /** The beginning of their ids. */
  readonly idPrefix?: string | undefined
  /** Created from this time on, milliseconds since the Unix epoch; as the next three. */
  readonly createdFromMs?: number | undefined
  /** Created before this time. */
  readonly createdBeforeMs?: number | undefined
  /** Whose last turn was stored from this time on. */
  readonly updatedFromMs?: number | undefined
  /** Whose last turn was stored before this time. */
  readonly updatedBeforeMs?: number | undefined
  /** Ended before this time. */
  readonly endedBeforeMs?: number | undefined
  /** What the custom status contains, in upper or lower case. */
  readonly customStatus?: string | undefined
  /** What their failure, the reason of their cancellation, or what blocks them contains, in upper or lower case. */
  readonly error?: string | undefined
  /**
   * What their attributes must be: equal to a text, a number or a time, or a number or a time in a range. All must
   * hold; an instance without one of them is left out.
   */
  readonly attributes?: Attribute.Conditions | undefined
  /** By the time of their creation or by id. Defaults to `newest`, with `idPrefix` to `id`. */
  readonly orderBy?: ListOrder | undefined
}

/**
 * Selects a page of instances.
 *
 * @category models
 * @since 0.3.0
 */
export interface PageSearch extends InstanceSearch {
  /** `next` of the page before, of a search with the same order. Defaults to the beginning. */
  readonly cursor?: string | undefined
  /** Most instances of a page: 1 to 1,000. Defaults to 100. */
  readonly limit?: number | undefined
}

/**
 * The state of an instance, with its attributes.
 *
 * @category models
 * @since 0.3.0
 */
export interface InstanceInfo extends Omit<InstanceState, "status"> {
  /** `Cancelled` where the execution is stored as `Failed`. `ContinuedAsNew` only between two executions. */
  readonly status: ExecutionStatus | "Cancelled"
  /** By name, in order. */
  readonly attributes: { readonly [name: string]: Attribute.Value }
}

/**
 * A page of instances, in the order asked for.
 *
 * @category models
 * @since 0.3.0
 */
export interface InstancePage {
  /** Fewer than the limit, even none, also where more follow: only `next` says whether any does. */
  readonly instances: ReadonlyArray<InstanceInfo>
  /** The cursor of the next page; null if no instance follows. */
  readonly next: string | null
}

/**
 * Selects instances to count, and what to tell apart.
 *
 * @category models
 * @since 0.3.0
 */
export interface CountOptions {
  readonly status?: InstanceStatus | undefined
  /** Name of the orchestration. */
  readonly name?: string | undefined
  /** What their attributes must be, as in `InstanceSearch`. */
  readonly attributes?: Attribute.Conditions | undefined
  /** Counts versions apart. Defaults to false. */
  readonly byVersion?: boolean | undefined
}

/**
 * How many living processes serve something.
 *
 * @category models
 * @since 0.2.0
 */
export interface Served {
  /** Null where only processes of Duroxide in Rust can, and for messages whose instance has not been started. */
  readonly servedBy: number | null
}

/**
 * How much waits in the queues, and since when.
 *
 * @category models
 * @since 0.2.0
 */
export interface QueueLoads {
  /** By orchestration and version; last the messages whose instance has not been started. */
  readonly orchestrations: ReadonlyArray<OrchestrationLoad & Served>
  /** By name and tag. */
  readonly activities: ReadonlyArray<ActivityLoad & Served>
}

/**
 * Work that waits and that no living process serves: none has its code, this version of it, or its tag.
 *
 * @category models
 * @since 0.2.0
 */
export interface UnservedWork {
  readonly kind: "orchestration" | "activity"
  readonly name: string
  /** The version that is asked for; `>=1.0.0`: that or a newer one; null: any, and for activities. */
  readonly version: string | null
  /** Tag of activities; null without one. */
  readonly tag: string | null
  /** Messages, or activities, that could be claimed now. */
  readonly waiting: number
  /** How long the oldest of them has been visible. */
  readonly oldestAgeMs: number | null
}

/**
 * A message that no turn has read.
 *
 * @category models
 * @since 0.2.0
 */
export interface QueuedMessage extends QueuePlace {
  /** The variant of `WorkItem`, or what a later release calls it. */
  readonly kind: string
  /** Null if it cannot be read, or has more than 64 KiB. */
  readonly item: WorkItem.WorkItem | null
}

/**
 * A message whose instance has not been started.
 *
 * @category models
 * @since 0.3.0
 */
export interface MessageBeforeStart extends QueuedMessage {
  readonly instanceId: string
}

/**
 * What an instance has in the queues.
 *
 * @category models
 * @since 0.2.0
 */
export interface QueuedWork {
  /** In the order of delivery: all timers, and the first 50 others. */
  readonly messages: ReadonlyArray<QueuedMessage>
  readonly activities: ReadonlyArray<QueuedActivity>
  /** What its start waits for; null if it has begun, or needs no slot of a limit. */
  readonly waitsForLimit: LimitWait
}

/**
 * What operators have paused.
 *
 * @category models
 * @since 0.2.0
 */
export interface Pauses {
  /** Besides single instances, the oldest first. */
  readonly targets: ReadonlyArray<Pause>
  /** How many instances were paused by themselves; `list` with the status `Paused` finds them. */
  readonly instances: number
}

/**
 * A page of what operators did, the newest first.
 *
 * @category models
 * @since 0.3.0
 */
export interface ActionPage {
  readonly actions: ReadonlyArray<OperatorAction>
  /** The cursor of the next page; null if no action follows. */
  readonly next: string | null
}

/**
 * Which executions to delete: those that meet both conditions. The current execution always stays.
 *
 * @category models
 * @since 0.1.0
 */
export interface PruneOptions {
  /** Keeps so many of the newest, the current one counted. Absent, 0 and 1 keep the current one only. */
  readonly keepLast?: number | undefined
  /** Only executions that ended before, milliseconds since the Unix epoch. */
  readonly completedBeforeMs?: number | undefined
}

/**
 * What a pruning examined and deleted.
 *
 * @category models
 * @since 0.1.0
 */
export interface Pruned {
  readonly instancesProcessed: number
  readonly executionsDeleted: number
  readonly eventsDeleted: number
}

/**
 * Selects ended roots to delete; every given field must match.
 *
 * @category models
 * @since 0.3.0
 */
export interface DeletionFilter extends InstanceFilter {
  /** Defaults to all three. */
  readonly status?: "Completed" | "Failed" | "Cancelled" | undefined
  /** Leaves out those that Duroxide runs. Defaults to false. */
  readonly exceptDuroxide?: boolean | undefined
  /** Skips a tree while any instance in it runs. Defaults to false: only the root must have ended. */
  readonly isWholeTreeEnded?: boolean | undefined
  /**
   * The `updatedAtMs` that you have read of each instance, by id, descendants included. Skips a tree if one of its
   * instances runs, is missing here, or has another time now. Implies `isWholeTreeEnded`.
   */
  readonly updatedAtMs?: ReadonlyMap<string, number> | undefined
  /** `next` of the deletion before, with the same filter. Not with `instanceIds`. Defaults to the beginning. */
  readonly cursor?: string | undefined
}

/**
 * A tree that a bulk deletion could not delete, or not completely: its root is still there.
 *
 * @category models
 * @since 0.2.0
 */
export interface FailedDeletion {
  /** The root. */
  readonly instanceId: string
  readonly error: ProviderError
}

/**
 * What a bulk deletion deleted; parts of trees in `failed` are not counted.
 *
 * @category models
 * @since 0.2.0
 */
export interface BulkDeleted extends Deleted {
  readonly failed: ReadonlyArray<FailedDeletion>
  /** The cursor of the next deletion; null if no root follows, and with `instanceIds`. */
  readonly next: string | null
}

/**
 * From where to retry.
 *
 * @category models
 * @since 0.2.0
 */
export interface RetryOptions {
  /**
   * The last event that stays. Defaults to the one before the failed answer, the interruption or the termination that
   * ended the instance; without such an event, to the one before its last turn; for a blocked instance, to its last.
   */
  readonly from?: number | undefined
  /** Kept with the removed events, for people. */
  readonly reason?: string | undefined
  /** Only say what a retry would do. Defaults to false. */
  readonly dryRun?: boolean | undefined
}

/**
 * Where to fork.
 *
 * @category models
 * @since 0.2.0
 */
export interface ForkOptions {
  /** The last event of the current execution that the fork has, from 1. */
  readonly atEvent: number
  /** The id of the fork. It must be free. */
  readonly newId: string
}

/**
 * What a retry has brought back, or would bring back: the instance, then its children that had failed or were
 * cancelled, as far as it waits for them.
 *
 * @category models
 * @since 0.2.0
 */
export interface Retried {
  readonly instances: ReadonlyArray<RetriedInstance>
}

/**
 * How the history of an instance is cut for a retry.
 *
 * @category models
 * @since 0.3.0
 */
export interface RetriedInstance {
  readonly instanceId: string
  /** The last event that stays. */
  readonly from: number
  /** The first and the last event that are removed; null if all stay. */
  readonly removed: readonly [number, number] | null
  /** Activities that run again, with the same idempotency keys. */
  readonly again: ReadonlyArray<RetriedActivity>
  /**
   * Activities whose calls are removed. Their effects stay. If the program calls them again, they get new idempotency
   * keys; a further try of a call that stays has the key of that call.
   */
  readonly forgotten: ReadonlyArray<RetriedActivity>
  /**
   * Tasks that it waits for again. Those that are dead or were cancelled run again, under the same id; those that have
   * completed send their ends again.
   */
  readonly tasks: ReadonlyArray<RetriedTask>
}

/**
 * A task that an instance waits for again, by the event that has created it.
 *
 * @category models
 * @since 0.3.0
 */
export interface RetriedTask {
  /** Null if calls share the task: then it has a key. */
  readonly id: string | null
  /** Null if the input of the call is sealed, as the key. */
  readonly name: string | null
  readonly key: string | null
  readonly eventId: number
}

/**
 * An activity, by the event of its call.
 *
 * @category models
 * @since 0.3.0
 */
export interface RetriedActivity {
  readonly name: string
  readonly eventId: number
}

/**
 * Which chunks of a stream to read: from an offset on, or the newest. Defaults to the oldest that are kept.
 *
 * @category models
 * @since 0.3.0
 */
export type ChunksSelection =
  | { readonly from?: number | undefined; readonly last?: undefined }
  | { readonly last: number; readonly from?: undefined }

/**
 * Chunks of a stream, and where it is.
 *
 * @category models
 * @since 0.3.0
 */
export interface ChunksPage {
  /** At most 256 KiB, and the rest of the last one. Empty also if the offset asked for is no longer kept. */
  readonly chunks: ReadonlyArray<ProgressChunk>
  /** Offset of the oldest chunk that is kept. */
  readonly firstOffset: number
  /** Offset of the next chunk that is appended. */
  readonly nextOffset: number
  /** Whether the instance has ended, so that no chunk follows. */
  readonly hasEnded: boolean
}

type Call<A> = Effect.Effect<A, ProviderError>

/**
 * Lists, inspects, deletes and prunes instances, for operators and tools.
 *
 * **Details**
 *
 * Every call fails with `ProviderError`. Bad input is refused with `InvalidInput` before anything is read or written:
 * texts PostgreSQL cannot hold; ids, counts and times that are not whole numbers from 0 to 2^53 - 1.
 *
 * @category services
 * @since 0.2.0
 */
export class Admin extends Context.Service<Admin, {
  /**
   * A page of instances.
   *
   * An index leads to the next instances of a status, a name or both, of a parent, with an attribute of a value or in a
   * range, or created between two times: such a page costs the same however many instances there are. Other fields are
   * compared in 1,000 instances a page, so that a page may be short or empty although more follow. Beside an attribute,
   * these are also a status, a name and further attributes; a range of more than 10,000 instances is one as well. An id
   * prefix, in the order of ids, has an index if the database sorts by bytes, or if you add one.
   */
  readonly list: (search?: PageSearch) => Call<InstancePage>
  /**
   * How many instances there are, by name, status and version: the most first. Statuses that no instance has are left
   * out. Beyond 10,000 of a name and status, the number is an estimate from the server's statistics; but with
   * `attributes`, every instance that has them is read and counted.
   */
  readonly count: (options?: CountOptions) => Call<ReadonlyArray<InstanceCount>>
  /**
   * Why an instance does not continue at this moment: one cause of those that `Explanation.Cause` lists, in a sentence
   * and its parts. Reads the history of its current execution. Fails with `InstanceNotFound`.
   */
  readonly explain: (instanceId: string) => Call<Explanation>
  /** The streams of an instance to which something was appended, by name; empty for an unknown instance. */
  readonly listStreams: (instanceId: string) => Call<ReadonlyArray<ProgressStreamInfo>>
  /** A page of a stream, without waiting; empty without such a stream. Chunks are JSON text. */
  readonly readChunks: (instanceId: string, stream: string, selection?: ChunksSelection) => Call<ChunksPage>
  /** Ascending; empty for an unknown instance. */
  readonly listExecutions: (instanceId: string) => Call<ReadonlyArray<number>>
  /** Fails with `InstanceNotFound`. */
  readonly latestExecutionId: (instanceId: string) => Call<number>
  /** History of the current execution; fails with `InstanceNotFound`. */
  readonly readHistory: (instanceId: string) => Call<ReadonlyArray<Event.Event>>
  /** Empty when unknown. */
  readonly readHistoryWithExecutionId: (instanceId: string, executionId: number) => Call<ReadonlyArray<Event.Event>>
  /** A cancelled instance is `Failed`, with the reason in `output`. Fails with `InstanceNotFound`. */
  readonly getInstanceInfo: (instanceId: string) => Call<InstanceInfo>
  /** Fails with `ExecutionNotFound`. */
  readonly getExecutionInfo: (instanceId: string, executionId: number) => Call<ExecutionInfo>
  readonly getSystemMetrics: Call<SystemMetrics>
  readonly getQueueDepths: Call<QueueDepths>
  /** Messages whose instance has not been started. No process can claim them before its start. */
  readonly countMessagesBeforeStart: Call<number>
  /** These messages, the oldest first; `limit` is 1 to 1000. They are deleted after `RuntimeConfig.orphanRetention`. */
  readonly listMessagesBeforeStart: (
    options: { readonly limit: number }
  ) => Call<ReadonlyArray<MessageBeforeStart>>
  /** Reads every row of both queues. */
  readonly getQueueLoads: Call<QueueLoads>
  /**
   * Reads every row of both queues. Processes of Duroxide in Rust are not known: their messages are left out, but an
   * activity that only they serve is listed.
   */
  readonly findUnserved: Call<ReadonlyArray<UnservedWork>>
  /** Messages and activities of one instance that are queued; none for an unknown instance. */
  readonly getQueuedWork: (instanceId: string) => Call<QueuedWork>
  /**
   * Processes of this package that run orchestrations or activities, by the time of their start. Those that died
   * without closing are listed for a day, and are not alive.
   */
  readonly listProcesses: Call<ReadonlyArray<ProcessInfo>>
  /** Direct children; empty for an unknown instance. */
  readonly listChildren: (instanceId: string) => Call<ReadonlyArray<string>>
  /** Fails with `InstanceNotFound`. */
  readonly getParentId: (instanceId: string) => Call<Option.Option<string>>
  /** An unknown id is a tree of itself. */
  readonly getInstanceTree: (instanceId: string) => Call<InstanceTree>
  readonly getPauses: Call<Pauses>
  /**
   * Pauses an instance, a definition, activities of a name or a tag, or everything, until `resume`. Pausing it again
   * changes the reason alone.
   *
   * No process claims the turns of a paused instance or definition, nor activities of a paused name or tag; those of a
   * paused instance still run. Starts and messages are accepted and wait, in order; timers that fall due fire after the
   * resume. Activities that run are not interrupted, and their outcomes are stored. A turn of a paused instance that is
   * under way is not stored, and runs again after the resume. All processes learn of a pause at once where
   * notifications arrive, otherwise with their next look.
   *
   * Fails with `InstanceNotFound` and `InstanceEnded` for an instance that cannot be paused.
   */
  readonly pause: (target: PauseTarget, options?: { readonly reason?: string | undefined }) => Call<void>
  /**
   * Ends the pause of exactly this target: an instance that was paused by itself stays paused when its definition is
   * resumed. Returns whether the target was paused.
   */
  readonly resume: (target: PauseTarget) => Call<boolean>
  /**
   * Changes the limits of a definition, for all processes, at once. A bound that is given (`total`, `eachKey`, one of
   * `keys`) replaces that bound as a whole, concurrency and rate together; null removes it. With `replaces: false` it
   * only sets them where there are none, as a program does at its start. Returns false if it has done nothing, because
   * there are limits already and `replaces` is false; else true, even if the limits are what they were.
   *
   * What waits begins as soon as the new limits have room; what runs is not interrupted, and counts. What Duroxide in
   * Rust stores, or runs, has no limits.
   */
  readonly setLimit: (
    kind: LimitKind,
    name: string,
    changes: LimitChanges,
    options?: { readonly replaces?: boolean | undefined }
  ) => Call<boolean>
  /** Removes the limits of a definition and of its keys: all that waits may begin. Returns whether it had one. */
  readonly removeLimit: (kind: LimitKind, name: string) => Call<boolean>
  /** All limits by kind and name, and how they are used. It counts what is queued under limits. */
  readonly getLimits: Call<ReadonlyArray<Limit>>
  /** The limits of a definition; null without one. With `key`, `keys` has only that one, if it is in use or bounded. */
  readonly getLimit: (kind: LimitKind, name: string, key?: string) => Call<Limit | null>
  /**
   * Records what an operator did, for those who ask later; tools for operators call it after each action. `actor` is
   * cut after 256 characters, `action` after 64, `target` and `details` after 2,000. No process deletes what is
   * recorded.
   */
  readonly recordAction: (action: ActionRecord) => Call<void>
  /** These actions, the newest first. `limit` is 1 to 1,000, by default 100; `cursor` is `next` of the page before. */
  readonly listActions: (
    options?: { readonly cursor?: string | undefined; readonly limit?: number | undefined }
  ) => Call<ActionPage>
  /**
   * Deletes an instance with all its descendants. Fails with `InstanceNotFound`, with `InstanceHasParent` for a child
   * (also with force), and with `InstanceRunning` when one of them has not ended, unless `force`.
   *
   * Up to 1,000 instances are deleted in one transaction. A bigger tree is first taken away from the processes that run
   * it, then deleted from the leaves up, 1,000 at a time. If that fails half way, call it again: the root is deleted
   * last. Otherwise the instances that are left continue after ten minutes.
   */
  readonly deleteInstance: (instanceId: string, options?: { readonly force?: boolean | undefined }) => Call<Deleted>
  /**
   * Deletes exactly these, or nothing; at most 5,000, else it fails with `InvalidInput`. Fails with `InstanceRunning`,
   * unless `force`, and with `ChildLeftBehind` when a child of one of them is not listed.
   */
  readonly deleteInstancesAtomic: (
    instanceIds: ReadonlyArray<string>,
    options?: { readonly force?: boolean | undefined }
  ) => Call<Deleted>
  /**
   * Deletes ended roots with their trees, the oldest first, as `deleteInstance` does. Running instances are left out. A
   * tree that cannot be deleted delays no other, and is reported in `failed`. Fails only with errors that every tree
   * would meet, such as `ConnectionLost`.
   *
   * One call takes `limit` roots (1,000) at most, fewer where it meets others between them: repeat it with `next` as
   * the cursor until that is null.
   */
  readonly deleteInstanceBulk: (filter: DeletionFilter) => Call<BulkDeleted>
  /**
   * Runs an instance again that has failed, was cancelled or is blocked, from its last good event.
   *
   * Removes the events after it from the history; the table `removed_events` keeps them. Arrivals among them return to
   * the queue in their order, in front of later ones. What failed is carried out again under its old event id, so with
   * the same idempotency key; so are activities and timers that the end cut off. Children that the instance waits for
   * are retried, too, if they have failed or were cancelled. Values and custom status are again what they were then.
   *
   * Removed requests are made again if the program still makes them; their effects are not undone.
   *
   * Fails with `InstanceNotFound`; and with `RetryRefused` if it runs or has completed, if Duroxide runs it, if its
   * parent no longer waits for it, if a child was started after the cut or is still being cancelled, if earlier
   * executions with values were pruned; and, without `from`, if it or a child that is retried with it has cleaned up.
   */
  readonly retry: (instanceId: string, options?: RetryOptions) => Call<Retried>
  /**
   * Makes an instance that continues from an event of another one, which stays as it is: it may run or have ended.
   *
   * The fork has its events up to there, its values and its custom status of that moment, and no parent. What was open
   * then (activities, timers, children) begins again for the fork, with idempotency keys and ids of its own: effects
   * happen again. Effects up to there are shared: a clean-up of the fork undoes them for both. Signals that arrived
   * later are not copied.
   *
   * The program must not have used its own instance id in a request before: the fork has another one, and is blocked.
   *
   * Fails with `InstanceNotFound`; and with `ForkRefused` if the id is taken or signals wait for it, if Duroxide runs
   * the instance, if a task or a child under an id of its own is open at that event, or if earlier executions were
   * pruned.
   */
  readonly fork: (instanceId: string, options: ForkOptions) => Call<void>
  /** Deletes old executions of one instance. Fails with `InstanceNotFound`. */
  readonly pruneExecutions: (instanceId: string, options: PruneOptions) => Call<Pruned>
  /** Prunes every selected instance by itself, running and child instances included. */
  readonly pruneExecutionsBulk: (filter: InstanceFilter, options: PruneOptions) => Call<Pruned>
}>()("duroxide-prisma/Admin") {}

/**
 * All instances that match, read page by page as the stream is consumed. One that matches all the while is among them
 * exactly once.
 *
 * @category operations
 * @since 0.3.0
 */
export const stream = (search?: InstanceSearch): Stream.Stream<InstanceInfo, ProviderError, Admin> =>
  Stream.paginate(
    undefined as string | undefined,
    (cursor): Effect.Effect<readonly [ReadonlyArray<InstanceInfo>, Option.Option<string>], ProviderError, Admin> =>
      Effect.map(
        Effect.flatMap(Admin, ({ list }) => list({ ...search, cursor, limit: 1000 })),
        ({ instances, next }) => [instances, Option.fromNullOr(next)]
      )
  )
