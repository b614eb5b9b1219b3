/**
 * The Duroxide storage contract as the runtime sees it: typed, one item at a time.
 *
 * Both queues deliver at least once. What a turn decides is stored by one acknowledgement, completely or not at all.
 * `FromDriver.layer` makes a `Provider` of any `ProviderDriver`: calls in flight at the same time travel in one
 * statement, and one pump per queue claims work on behalf of all callers that wait.
 *
 * The types of its calls are in the folder `calls`.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { BlockReport } from "../model/Block.ts"
import type * as Event from "../model/Event.ts"
import type { CoreVersion, InstanceState, TagFilter, VersionRange } from "../model/Instance.ts"
import type { Pause } from "../model/Pause.ts"
import type { TransactionConnection } from "../model/shared/transactionConnection.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { SlotsInUse } from "../waking/Notifier.ts"
import type { Backlog } from "./Backlog.ts"
import type { End, InstanceStats, Progress, ProgressAnswer } from "./calls/reads.ts"
import type { Start, StartOutcome } from "./calls/starts.ts"
import type { ReadStream, StreamPage } from "./calls/streams.ts"
import type {
  Claimed,
  FirstTurn,
  HistoryEnd,
  OptimisticAnswer,
  OptimisticTurn,
  OrchestrationItem,
  SessionConfig,
  Turn
} from "./calls/turns.ts"
import type {
  ChunksAppend,
  ChunksAppended,
  ProcessDuties,
  ResumedChunks,
  ServedOrchestration
} from "./ProviderDriver.ts"
import type { ProviderError } from "./ProviderError.ts"

export type * from "./calls/reads.ts"
export type * from "./calls/starts.ts"
export type * from "./calls/streams.ts"
export type * from "./calls/turns.ts"

/**
 * The storage service of the runtime and the client.
 *
 * **Details**
 *
 * Every call fails with `ProviderError`; `isRetryable` says whether the same call may succeed later.
 *
 * **How often a call is sent**
 *
 * Claims, acks of turns, renewals, sweeps of messages, `wakeBlocked` and reads repeat a retryable failure after 50, 100
 * and 150 milliseconds, so they are sent up to four times. All other calls are sent once: a repeated enqueue could
 * deliver twice, and the caller that acks an activity keeps its outcome and acks again itself. Calls share statements.
 * When a shared statement fails because of one call, it has stored nothing, and each call is then sent alone, once or
 * up to four times as above. While another transaction locks what a call writes, the call is sent again until
 * `statementTimeout` is over, then fails with `Contention`. The ack of a turn gives up after half a second, because its
 * caller keeps other instances from their turns. Nothing above the provider repeats a failed call at once: the runtime
 * pauses the instance, or keeps the outcome, and comes back after 100 milliseconds or more.
 *
 * **How much a claim of instances carries**
 *
 * The first claim asks for 4 MiB of messages, and always gets at least one message. After a claim that took longer than
 * a quarter of its lock, as on a slow link, the next one asks for half as much, down to 64 KiB; after quick full
 * claims, for twice as much, up to 16 MiB. The lock of a slow claim is renewed before the instance is handed out;
 * without that renewal it is not handed out.
 *
 * **Input**
 *
 * Bad input is refused with `InvalidInput` before anything is sent: texts with NUL or half of a surrogate pair; ids and
 * counts that are not whole numbers up to 2^53 - 1; negative durations, locks of no duration, durations beyond the year
 * 9999, infinity included. What is stored has limits in bytes of UTF-8: 2,048 for ids of instances, 1,024 for names,
 * versions and ids of sessions, 2,560 for a key together with the id of its instance, 256 for tags. Fractions of a
 * millisecond are rounded up. Unknown ids and tokens, empty sets and a poll timeout of any length are accepted.
 *
 * @category services
 * @since 0.1.0
 */
export class Provider extends Context.Service<Provider, {
  /**
   * Claims one instance with all its visible messages.
   *
   * Waits up to `pollTimeout` for work, or looks only once (`Options.polling`); `none` when there was none. An instance
   * is claimed by one caller at a time; the lock expires after `lockTimeout` unless renewed.
   */
  readonly fetchOrchestrationItem: (options: {
    readonly lockTimeout: Duration.Duration
    readonly pollTimeout: Duration.Duration
    readonly versions: Option.Option<VersionRange>
    /** Claims only instances of these; without it, of every definition. */
    readonly serves?: ReadonlyArray<ServedOrchestration> | undefined
    /**
     * Asked of every claimed history that is not empty. True leaves it out of the item, for a caller that holds it in
     * memory; long ones are then not even read.
     */
    readonly isKnown?: ((end: HistoryEnd) => boolean) | undefined
    /** Called whenever the store has answered a claim on behalf of this caller, also when it found nothing. */
    readonly onLook?: (() => void) | undefined
  }) => Effect.Effect<Option.Option<Claimed<OrchestrationItem>>, ProviderError>

  /**
   * Stores a turn, deletes its batch except the messages that are `left`, and ends the lock. Fails with `LockLost` if
   * the lock is no longer live, and with `DuplicateEvent` if an event id is taken; then nothing is stored.
   */
  readonly ackOrchestrationItem: (lockToken: string, turn: Turn) => Effect.Effect<void, ProviderError>

  /** Deletes the batch and ends the lock without writing anything else. */
  readonly dropOrchestrationItem: (lockToken: string) => Effect.Effect<void, ProviderError>

  /**
   * Abandons a claim: its batch may be claimed again. `delay` pauses the instance: until it has passed, neither the
   * batch nor later messages are claimed, so their order holds. `ignoreAttempt` takes the delivery back. `beginsFirst`
   * is for a batch that lacks what begins the execution: if that message is due, it is put in front of all others of
   * the instance, and `delay` does not apply. Works on an expired lock that was not taken over; otherwise fails with
   * `LockLost`. `block` says why the turn could not be run: the instance is blocked until a turn of it is stored.
   */
  readonly abandonOrchestrationItem: (options: {
    readonly lockToken: string
    readonly delay: Option.Option<Duration.Duration>
    readonly ignoreAttempt: boolean
    readonly beginsFirst?: boolean | undefined
    readonly block?: BlockReport | undefined
  }) => Effect.Effect<void, ProviderError>

  /**
   * Lets processes claim blocked instances of these orchestrations at once, and activities of these names that block
   * their instances. Returns how many had to wait.
   */
  readonly wakeBlocked: (options: {
    readonly orchestrations: ReadonlyArray<string>
    readonly activities: ReadonlyArray<string>
  }) => Effect.Effect<number, ProviderError>

  /**
   * Shows to operators (`Admin.listProcesses`) what this process is and serves, until the scope is closed. Returns at
   * once: what is written is repeated in the background until the store answers. The slots in use go with what is sent
   * in any case.
   */
  readonly announceProcess: (
    duties: ProcessDuties,
    slotsInUse: () => SlotsInUse
  ) => Effect.Effect<void, never, Scope.Scope>

  /**
   * Extends the lock to now + `extendFor`, even an expired one if it was not taken over; otherwise fails with
   * `LockLost`.
   */
  readonly renewOrchestrationItemLock: (options: {
    readonly lockToken: string
    readonly extendFor: Duration.Duration
  }) => Effect.Effect<void, ProviderError>

  /**
   * Sends a message to an instance, visible after `delay`. The instance need not exist and is not created.
   * `ActivityExecute` is refused with `InvalidInput`, and a signal with `InstanceFull` if 10,000 messages wait for the
   * instance or its history has 50,000 events.
   */
  readonly enqueueForOrchestrator: (options: {
    readonly message: WorkItem.WorkItem
    readonly delay: Option.Option<Duration.Duration>
  }) => Effect.Effect<void, ProviderError>

  /** Enqueues an activity, visible at once. */
  readonly enqueueForWorker: (activity: WorkItem.Of<"ActivityExecute">) => Effect.Effect<void, ProviderError>

  /**
   * Creates an instance, pinned to `pinnedVersion`, together with its start message and the signal that goes with it.
   * Fails with `InstanceFull` if that signal is for a running instance that has too many messages.
   */
  readonly startOrchestration: (start: Start) => Effect.Effect<StartOutcome, ProviderError>

  /**
   * Starts many instances, and answers for each of them, in order. All are checked before any is written. Up to 10,000
   * starts and 8 MiB of their texts travel in one statement, and are stored together or not at all; after a failure
   * those of earlier statements are stored. A signal is refused with `InvalidInput`.
   */
  readonly startOrchestrations: (
    starts: ReadonlyArray<Start>
  ) => Effect.Effect<ReadonlyArray<StartOutcome>, ProviderError>

  /**
   * Stores results of activities together with the turn they lead to, if the instance is exactly where the caller
   * believes it to be; otherwise only the results, as `ackWorkItem` does. Sent once: after a failure the turn may be
   * stored or not. A later `ackWorkItem` of its results that fails with `LockLost` means that it may be.
   */
  readonly advanceOrchestration: (turn: OptimisticTurn) => Effect.Effect<OptimisticAnswer, ProviderError>

  /**
   * Asks `begin` for the first turn of each start without a delay, until the scope is closed. The turn is stored
   * together with the start, if that is possible. `nowMs` is the time of the turn. The start is for processes that
   * claim executions pinned to `pinnedVersion`.
   */
  readonly onStart: (
    begin: (
      start: WorkItem.Of<"StartOrchestration">,
      nowMs: number,
      pinnedVersion: CoreVersion
    ) => FirstTurn | undefined
  ) => Effect.Effect<void, never, Scope.Scope>

  /**
   * The time of optimistic turns: the store's clock, milliseconds since the Unix epoch, as far as its last answers say.
   * Undefined without a recent answer, and with a driver that stores no optimistic turns.
   */
  readonly storeNowMs: () => number | undefined

  /**
   * Claims activities, oldest first; waits for the first as `fetchOrchestrationItem` does, and returns none when there
   * is no work.
   */
  readonly fetchWorkItems: (options: {
    readonly lockTimeout: Duration.Duration
    readonly pollTimeout: Duration.Duration
    readonly tags: TagFilter
    /** Claims only activities of these names; without it, of every name. */
    readonly activities?: ReadonlyArray<string> | undefined
    readonly session: Option.Option<SessionConfig>
    /**
     * Most activities to claim, read before each claim, as it may change during the wait. Below 1 the call ends at
     * once, without a claim. Defaults to 1.
     */
    readonly most?: (() => number) | undefined
    /** See `fetchOrchestrationItem`. */
    readonly onLook?: (() => void) | undefined
  }) => Effect.Effect<ReadonlyArray<Claimed<WorkItem.Of<"ActivityExecute">>>, ProviderError>

  /** Deletes a claimed activity and delivers its completion, if any. Fails with `LockLost` without a live lock. */
  readonly ackWorkItem: (
    lockToken: string,
    completion: Option.Option<WorkItem.Of<"ActivityCompleted"> | WorkItem.Of<"ActivityFailed">>
  ) => Effect.Effect<void, ProviderError>

  /**
   * `ackWorkItem` in a transaction of the application, by one statement on its connection. Nothing has happened until
   * that commits; then run `committed`, which wakes the instance. If the answer to the commit is lost,
   * `renewWorkItemLock` says how it has ended: it succeeds after a rollback, and fails with `LockLost` after a commit,
   * and with `Contention` while the server has not ended the transaction.
   *
   * Absent if the driver cannot join transactions.
   */
  readonly ackWorkItemWithin?: (
    options: {
      readonly connection: TransactionConnection
      readonly lockToken: string
      readonly completion: WorkItem.Of<"ActivityCompleted"> | WorkItem.Of<"ActivityFailed">
    }
  ) => Effect.Effect<{ readonly committed: Effect.Effect<void> }, ProviderError>

  /**
   * Abandons the claim of an activity, which is visible again after `delay`; otherwise as `abandonOrchestrationItem`.
   */
  readonly abandonWorkItem: (options: {
    readonly lockToken: string
    readonly delay: Option.Option<Duration.Duration>
    readonly ignoreAttempt: boolean
    readonly block?: BlockReport | undefined
  }) => Effect.Effect<void, ProviderError>

  /**
   * Extends the lock to now + `extendFor`, also one that expired and was not taken over. `LockLost` is how a running
   * activity learns that it was cancelled.
   */
  readonly renewWorkItemLock: (options: {
    readonly lockToken: string
    readonly extendFor: Duration.Duration
    /** A lock that lasts longer than this may be left as it is: the call then only asks whether it is still held. */
    readonly sufficient?: Duration.Duration | undefined
  }) => Effect.Effect<void, ProviderError>

  /** Whether payloads pass through a `PayloadCodec`: then they are not logged either, as parts of defects. */
  readonly sealsPayloads: boolean

  /**
   * The row text of an event that this provider has read or stored: `HistoryEnd.lastEvent` of a history that ends with
   * it.
   */
  readonly storedText: (event: Event.Event) => string

  /**
   * Appends chunks of a claimed activity to a stream of its instance. Sent once: after a failure they may be stored,
   * and a call with `isRepeat` stores those that are missing. `LockLost` is an answer here, not a failure. After
   * `Locked` the call is to be repeated.
   */
  readonly appendChunks: (append: ChunksAppend) => Effect.Effect<ChunksAppended, ProviderError>

  /** What the tries of a call have appended to a stream. `call` is `<execution>/<first try>/`. */
  readonly resumeChunks: (options: {
    readonly instanceId: string
    readonly stream: string
    readonly call: string
  }) => Effect.Effect<ResumedChunks, ProviderError>

  /**
   * The next page of a stream of an instance, which need not exist yet: at most 256 KiB of chunks and the rest of the
   * last one. With `waits`, it waits for a page that has news.
   */
  readonly readStream: (options: ReadStream) => Effect.Effect<StreamPage, ProviderError>

  /** History of the newest execution; empty when unknown. Fails with `DataCorrupted` on an unreadable event. */
  readonly read: (instanceId: string) => Effect.Effect<ReadonlyArray<Event.Event>, ProviderError>

  /** History of one execution; empty when unknown. */
  readonly readWithExecution: (
    instanceId: string,
    executionId: number
  ) => Effect.Effect<ReadonlyArray<Event.Event>, ProviderError>

  /** Adds events outside a turn, for tools and tests. Fails with `DuplicateEvent` on a taken id. */
  readonly appendWithExecution: (
    instanceId: string,
    executionId: number,
    events: ReadonlyArray<Event.Event>
  ) => Effect.Effect<void, ProviderError>

  /** State of an instance and its current execution, without reading the history; `none` when unknown. */
  readonly readInstance: (instanceId: string) => Effect.Effect<Option.Option<InstanceState>, ProviderError>

  /**
   * The custom status and its version, when the version is greater than `lastSeenVersion`; `none` otherwise, and for an
   * unknown instance. A new instance has version 0 and no text.
   */
  readonly getCustomStatus: (
    instanceId: string,
    lastSeenVersion: number
  ) => Effect.Effect<
    Option.Option<{ readonly status: Option.Option<string>; readonly version: number }>,
    ProviderError
  >

  /** A value as it is now, changes of the running execution included. */
  readonly getKvValue: (instanceId: string, key: string) => Effect.Effect<Option.Option<string>, ProviderError>

  /** All values as they are now; empty for an unknown instance. */
  readonly getKvAllValues: (instanceId: string) => Effect.Effect<ReadonlyMap<string, string>, ProviderError>

  /** `none` for an unknown instance. */
  readonly getInstanceStats: (instanceId: string) => Effect.Effect<Option.Option<InstanceStats>, ProviderError>

  /**
   * Extends the live locks of these workers' sessions that were active within `idleTimeout`; returns their number.
   * An expired one is never revived; an idle timeout of zero extends nothing.
   */
  readonly renewSessionLock: (options: {
    readonly workerIds: ReadonlyArray<string>
    readonly extendFor: Duration.Duration
    readonly idleTimeout: Duration.Duration
  }) => Effect.Effect<number, ProviderError>

  /**
   * A number that changes when this process stores work or learns that others have. While it cannot learn that, the
   * number changes with each call. Housekeeping can be left out while it stays the same.
   */
  readonly activity: Effect.Effect<number>

  /**
   * Looks through messages for ids without an instance: those whose instance exists by now become claimable, those that
   * have been visible for longer than `maxAge` are deleted. Returns the number of deleted messages.
   */
  readonly sweepMessages: (options: { readonly maxAge: Duration.Duration }) => Effect.Effect<number, ProviderError>

  /** Deletes sessions whose lock has expired and for which no activity is queued; returns their number. */
  readonly cleanupOrphanedSessions: Effect.Effect<number, ProviderError>

  /** What could be claimed now, by all processes together. */
  readonly readBacklog: Effect.Effect<Backlog, ProviderError>

  /**
   * Waits until the instance has ended, also for the start of an unknown one; `none` if it has not ended after
   * `timeout`.
   *
   * An end stored by this process is known at once, without a read. For other ends the store is asked, in statements
   * that all callers share: at once, then when another process announces a change of the instance, and repeatedly while
   * changes are not announced. A slow first look does not count for `timeout`. The first look is left out for an
   * instance that this process started within the last 100 milliseconds.
   */
  readonly awaitEnd: <E = never>(options: {
    readonly instanceId: string
    /** Defaults to no limit. */
    readonly timeout?: Duration.Duration | undefined
    /** Starts the instance: run before the wait, so that no end that follows it is missed. */
    readonly start?: Effect.Effect<unknown, E> | undefined
  }) => Effect.Effect<Option.Option<End>, E | ProviderError>

  /**
   * Waits until `until` finds what it looks for in the progress of the instance, also for the start of an unknown one.
   *
   * `until` is called with what is stored when the wait begins, and after each turn that changes the status or the
   * value; turns that follow each other quickly may be seen as one. The store is asked as in `awaitEnd`. An ended
   * instance has the progress of its last turn.
   */
  readonly awaitProgress: <A>(options: {
    readonly instanceId: string
    /** Key of a value to look at. Without one, only the status is looked at. */
    readonly key?: string | undefined
    readonly until: (progress: Progress) => Option.Option<A>
    /** Defaults to no limit. */
    readonly timeout?: Duration.Duration | undefined
  }) => Effect.Effect<ProgressAnswer<A>, ProviderError>

  /**
   * Calls `listener` with the activities that a turn stored by this process cancels, until the scope is closed: a hint,
   * so that those which run here end at once. Others learn of it by `renewWorkItemLock`.
   */
  readonly onCancelled: (
    listener: (activities: Turn["cancelledActivities"]) => void
  ) => Effect.Effect<void, never, Scope.Scope>

  /**
   * Calls `listener` when another process announces that instances have changed, or that their activities are
   * cancelled, until the scope is closed. `hasChanged` says whether an instance may be one of them: every instance,
   * when announcements may have been lost, as at the beginning and the end of a connection.
   */
  readonly onChanged: (
    listener: (hasChanged: (instanceId: string) => boolean) => void
  ) => Effect.Effect<void, never, Scope.Scope>

  /**
   * Calls `listener` with what is paused besides single instances, at each answer of the store, until the scope is
   * closed. A caller that claims leaves out what is paused, and everything before the first answer.
   */
  readonly onPaused: (
    listener: (pauses: ReadonlyArray<Pause>) => void
  ) => Effect.Effect<void, never, Scope.Scope>

  /** Whether other processes that use this package announce to this one which activities they cancel. */
  readonly isNotified: () => boolean
}>()("duroxide-prisma/Provider") {}
