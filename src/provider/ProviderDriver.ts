/**
 * The seam a storage implements: sets of encoded items in, one answer per item out.
 *
 * A driver stores, says which rows a claim may take, and passes on the wake-ups of its store. Decoding, retries,
 * batching and waiting are done once, above it, by `FromDriver.make`. Strings of the types below are row texts
 * (`Event.encode`, `WorkItem.encode`); ids and milliseconds are safe integers.
 *
 * The types of its calls are in the folder `driver`: what a driver claims, stores and reads.
 *
 * **Promises every driver keeps**
 *
 * - One call is one atomic statement. A call that fails has changed nothing, unless the connection was lost.
 * - Items of a set succeed or fail on their own: a lost lock or a duplicate event never fails its neighbours. Answers
 *   stand in the order of the items.
 * - The turns of one set are stored at one moment, in steps over the whole set: insert the activities of all turns;
 *   apply all cancellations; delete the timers of ended executions; send all messages. So a cancellation deletes an
 *   activity that another turn of the set schedules, whatever their order.
 * - A claim never waits for another claim; it takes the next candidate instead.
 * - A call that stores items waits only shortly for what another transaction holds, then fails with `Contention`,
 *   `sqlState` 55P03. The caller then tries each item by itself, so that one that is held delays no other.
 * - "Now" is the driver's own clock, read once per call: the database's by default, `Clock` in tests. If it is set
 *   back, a claim that finds nothing else still sees, within seconds, messages and activities that were not to wait;
 *   such messages keep their order.
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
 * - An event has its kind in `type`: `InstanceState.failure` is the last event of a failed execution, passing over
 *   those whose kind ends with `CancelRequested`, if it is `OrchestrationFailed`.
 *
 * Everything else is opaque. Compare kinds as prefixes of the text. Where a field is needed, treat a text that no
 * parser can read as one without it: it must fail neither a claim nor a deletion.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { InstanceState } from "../model/Instance.ts"
import type { Pause } from "../model/Pause.ts"
import type { TransactionConnection } from "../model/shared/transactionConnection.ts"
import type { Backlog } from "./Backlog.ts"
import type {
  Abandon,
  ClaimedInstance,
  ClaimedWorkItem,
  FetchOrchestrationItems,
  FetchWorkItems,
  Renewal,
  Settled,
  WorkItemRenewed
} from "./driver/claims.ts"
import type { ProcessRegistration } from "./driver/processes.ts"
import type { EndedInstance, InstanceProgress, LiveLocks, NextDue, ReadProgress, StoredSizes } from "./driver/reads.ts"
import type { ChunksAppend, ChunksAppended, ChunksPage, ReadChunks, ResumedChunks } from "./driver/streams.ts"
import type {
  EncodedActivity,
  EncodedEvent,
  EncodedMessage,
  OptimisticAnswer,
  OptimisticTurn,
  OrchestrationAck,
  OrchestrationStart,
  StartAnswer
} from "./driver/turns.ts"
import type { ProviderError } from "./ProviderError.ts"

export * from "./driver/claims.ts"
export type * from "./driver/processes.ts"
export type * from "./driver/reads.ts"
export type * from "./driver/streams.ts"
export { groupOf, makeAdmission, suspectAfter, suspectGroups } from "./driver/suspects.ts"
export * from "./driver/turns.ts"

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
   * their visible messages with the lock's token. Messages of an id that has neither an instance nor a queued start
   * stay where they are: they wait for the start.
   */
  readonly fetchOrchestrationItems: (options: FetchOrchestrationItems) => Call<ReadonlyArray<ClaimedInstance>>
  /** Stores turns and releases their locks. Needs a live lock. */
  readonly ackOrchestrationItems: (acks: ReadonlyArray<OrchestrationAck>) => Call<ReadonlyArray<Settled>>
  /** Abandons claims: their batches may be claimed again. The lock may have expired, but not have been taken over. */
  readonly abandonOrchestrationItems: (items: ReadonlyArray<Abandon>) => Call<ReadonlyArray<Settled>>
  /**
   * Ends the pauses of blocked instances of these orchestrations, and the delays of activities of these names that
   * block their instances. Forgets the blocks of instances that have continued. Returns how many it ended.
   */
  readonly wakeBlocked: (options: {
    readonly orchestrations: ReadonlyArray<string>
    readonly activities: ReadonlyArray<string>
  }) => Call<number>
  /**
   * Writes what a process is and serves or, where it has been written, that it still lives. Returns for how many
   * milliseconds that holds without another call; null: as long as the notifier shows it, or until it is removed. A
   * process that is new finds dead ones; those found dead more than a day ago are forgotten.
   */
  readonly registerProcess: (process: ProcessRegistration) => Call<number | null>
  /** Forgets a process that closes. */
  readonly removeProcess: (id: string) => Call<void>
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
   * whose start is not due yet becomes visible with the start. One with `bounds` is not inserted if its instance is
   * full; concurrent calls may exceed a bound by what they send.
   */
  readonly enqueueForOrchestrator: (
    messages: ReadonlyArray<EncodedMessage>
  ) => Call<ReadonlyArray<"Sent" | "Full">>
  /** Inserts activities; those with a limit wait for a slot of it. */
  readonly enqueueForWorker: (activities: ReadonlyArray<EncodedActivity>) => Call<void>
  /**
   * Creates instance, execution 1 (status `Running`, pinned) and start message together, where the id is free. Messages
   * that came before are claimable from then on, together with the start.
   */
  readonly startOrchestrations: (
    starts: ReadonlyArray<OrchestrationStart>
  ) => Call<ReadonlyArray<StartAnswer>>
  /**
   * Stores optimistic turns. A driver without it works as well: results and turns are then stored one after another.
   */
  readonly advanceOrchestrations?: (
    turns: ReadonlyArray<OptimisticTurn>
  ) => Call<ReadonlyArray<OptimisticAnswer>>

  /**
   * Looks through messages for ids without an instance, in steps of `limit` rows. A message whose instance exists by
   * now becomes claimable; one that has been visible for longer than `maxAgeMs` is deleted. `next` continues the pass,
   * as `after` of the next call; null ends it.
   */
  readonly sweepMessages: (
    options: { readonly maxAgeMs: number; readonly limit: number; readonly after: string | null }
  ) => Call<{ readonly deleted: number; readonly next: string | null }>

  /**
   * Claims up to `limit` visible activities, the one visible longest first; claims their sessions where asked. Before,
   * it gives free slots of limits to activities that wait for one: the keys of a limit take turns.
   */
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
  /**
   * `ackWorkItems` of one item by a statement on a connection of the application, in its transaction: the answer counts
   * once that commits. Until then the row of the activity stays locked, so that a renewal answers `Locked`. Optional:
   * without it, no activity can be transactional.
   */
  readonly ackWorkItemWithin?: (
    options: {
      readonly connection: TransactionConnection
      readonly lockToken: string
      readonly completion: { readonly instanceId: string; readonly workItem: string }
    }
  ) => Call<Settled>
  /** Abandons claims of activities. The lock may have expired, but not have been taken over. */
  readonly abandonWorkItems: (items: ReadonlyArray<Abandon>) => Call<ReadonlyArray<Settled>>
  /**
   * Extends locks that no other worker took over. `LockLost` is how a running activity learns that it was cancelled: it
   * asks more often than its lock needs, so a lock that lasts for `sufficientMs` more may be left as it is.
   */
  readonly renewWorkItemLocks: (
    items: ReadonlyArray<Renewal & { readonly sufficientMs?: number }>
  ) => Call<ReadonlyArray<WorkItemRenewed>>

  /**
   * Appends chunks of claimed activities to streams of their instances; offsets count from 0 without gaps. Needs a lock
   * that no other worker has taken over: a chunk of an older delivery never follows one of a newer delivery.
   */
  readonly appendChunks: (items: ReadonlyArray<ChunksAppend>) => Call<ReadonlyArray<ChunksAppended>>
  /** Where streams are, and chunks of them. Unknown instances and streams without chunks are accepted. */
  readonly readChunks: (items: ReadonlyArray<ReadChunks>) => Call<ReadonlyArray<ChunksPage>>
  /**
   * What the tries of a call have appended. `call` is what their writers begin with, `<execution>/<first try>/`. Waits
   * for appends that are under way.
   */
  readonly resumeChunks: (
    options: { readonly instanceId: string; readonly stream: string; readonly call: string }
  ) => Call<ResumedChunks>

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
   * Which of the given instances have ended, in any order. Called repeatedly for up to 1,000 instances that callers
   * wait for: one that has not ended should cost a lookup or two by its id.
   */
  readonly readEnds: (instanceIds: ReadonlyArray<string>) => Call<ReadonlyArray<EndedInstance>>
  /**
   * The progress of instances that have ended, or have events that the caller does not know; null for all others,
   * unknown ones included. Called as often as `readEnds`: an item that is answered with null should cost a few lookups.
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
   * What is paused besides single instances, the oldest pause first. Called when a process starts, when it learns that
   * something was paused or resumed, and in place of fallback looks.
   */
  readonly readPaused: Call<ReadonlyArray<Pause>>

  /**
   * Called by a store in this process when something was paused or resumed. Optional: others have the hint `Paused`.
   */
  readonly pauseListeners?: Set<() => void>

  /**
   * When work next becomes claimable by the passing of time alone. Optional: without it, fallback looks find what other
   * processes have left. Called rarely: after each connection of the notifier, with fallback looks, and when a time has
   * come that another process had stored.
   */
  readonly readNextDue?: Call<NextDue>

  /**
   * When live locks run out. It may look only at the oldest work of each definition, because that is claimed first.
   * Optional: without it, a process looks for locks of processes that died before it began half a second after its own
   * lock timeout, and finds longer ones by the fallback looks. Called rarely: after each connection of the notifier,
   * and when the first of these locks has run out.
   */
  readonly readLocks?: Call<LiveLocks>
}>()("duroxide-prisma/ProviderDriver") {}
