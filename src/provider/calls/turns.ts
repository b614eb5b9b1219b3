/**
 * What a claim hands out, and what a turn stores.
 */
import type * as Duration from "effect/Duration"
import type * as Option from "effect/Option"
import type * as Tracer from "effect/Tracer"
import type * as Event from "../../model/Event.ts"
import type { CoreVersion, ExecutionStatus, TagFilter } from "../../model/Instance.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import type { NewChunk } from "../driver/streams.ts"

/**
 * Everything one turn reads.
 *
 * @category models
 * @since 0.1.0
 */
export interface OrchestrationItem {
  readonly instanceId: string
  readonly orchestrationName: string
  /** `unknown` when no row and no message says it. */
  readonly orchestrationVersion: string
  readonly executionId: number
  /** The store's clock at the claim, milliseconds since the Unix epoch: the time of the turn. */
  readonly nowMs: number
  /** Empty if `isKnownHistory`. With `historyError`, only the start event, or nothing if that cannot be read either. */
  readonly history: ReadonlyArray<Event.Event>
  /** True when the caller said so of this history. */
  readonly isKnownHistory: boolean
  readonly historyError: Option.Option<string>
  /** In the order in which they were enqueued. */
  readonly messages: ReadonlyArray<WorkItem.WorkItem>
  /** Their ids, for `Turn.left`. */
  readonly messageIds: ReadonlyArray<number>
  /** When each of them was enqueued, milliseconds since the Unix epoch. */
  readonly enqueuedAtMs: ReadonlyArray<number>
  /** Values that ended executions left behind. */
  readonly keyValues: ReadonlyMap<string, { readonly value: string; readonly lastUpdatedAtMs: number }>
}

/**
 * How a stored history ends: enough to tell it from any other of its instance, as histories only ever grow.
 *
 * @category models
 * @since 0.1.0
 */
export interface HistoryEnd {
  readonly instanceId: string
  readonly executionId: number
  /** Row text. */
  readonly lastEvent: string
}

/**
 * A claimed item with its lock.
 *
 * @category models
 * @since 0.1.0
 */
export interface Claimed<A> {
  readonly item: A
  /** Opaque; ends with the first ack, abandon or expiry. */
  readonly lockToken: string
  /** Deliveries so far, this one included. */
  readonly attemptCount: number
  /**
   * For traces: makes the span of the statement that claimed the item, as a child of the first parent it is called
   * with.
   */
  readonly claimSpan?: ((parent: Tracer.AnySpan) => Tracer.AnySpan) | undefined
}

/**
 * What one turn stores, atomically.
 *
 * @category models
 * @since 0.1.0
 */
export interface Turn {
  readonly executionId: number
  /** New events; ids follow the stored ones. */
  readonly historyDelta: ReadonlyArray<Event.Event>
  readonly workerItems: ReadonlyArray<WorkItem.Of<"ActivityExecute">>
  /** Which of `workerItems` are run by processes of Duroxide in Rust. */
  readonly forRust?: ReadonlySet<WorkItem.Of<"ActivityExecute">>
  readonly orchestratorItems: ReadonlyArray<WorkItem.WorkItem>
  /**
   * The starts among `orchestratorItems` that also create their instances where the id is free, as `startOrchestration`
   * does, each with the version it is pinned to. A start that is not listed is only a message, which any process that
   * serves the name may take.
   */
  readonly startsPinnedTo?: ReadonlyMap<WorkItem.WorkItem, CoreVersion>
  readonly metadata: ExecutionMetadata
  /** Activities of any execution whose queue rows are deleted, claimed or not. */
  readonly cancelledActivities: ReadonlyArray<{
    readonly instanceId: string
    readonly executionId: number
    readonly activityId: number
  }>
  /** Timers of this execution that the program no longer waits for. They are deleted unless they are due by now. */
  readonly cancelledTimers?: ReadonlyArray<WorkItem.Of<"TimerFired">>
  /**
   * Messages of the batch, by their `messageIds`, that the turn has not used: they are not deleted, but wait in their
   * places, as if they had not been delivered. What begins the next execution is delivered no later than they are.
   */
  readonly left?: ReadonlyArray<number>
  /**
   * Ids of `ExternalEventPersistent` events of this execution, new ones included, whose messages are sent to the
   * instance again: in the order of the ids, after what begins the next execution, before all other messages.
   */
  readonly requeued?: ReadonlyArray<number>
  /** What the program appends to streams of the instance, in order. Absent: nothing. */
  readonly chunks?: ReadonlyArray<NewChunk>
}

/**
 * What a turn says of its execution. Absent fields leave the stored value alone.
 *
 * @category models
 * @since 0.1.0
 */
export interface ExecutionMetadata {
  readonly status?: ExecutionStatus
  readonly output?: string
  readonly orchestrationName?: string
  readonly orchestrationVersion?: string
  readonly parentInstanceId?: string
  readonly pinnedVersion?: CoreVersion
}

/**
 * Asks to store activities that a turn creates as already claimed, for slots of the caller that are free or will be
 * soon.
 *
 * @category models
 * @since 0.2.0
 */
export interface HandOver {
  /** Most activities to hand over, at least 1. */
  readonly limit: number
  /**
   * Further free slots, kept for activities that wait already. If more wait, none is handed over, so that none of them
   * is overtaken. Defaults to 0.
   */
  readonly spare?: number | undefined
  readonly lockTimeout: Duration.Duration
  /** Names of the activities that the caller serves. */
  readonly activities: ReadonlyArray<string>
  readonly tags: TagFilter
}

/**
 * A turn run without a claim, because its caller holds the program of the instance in memory.
 *
 * @category models
 * @since 0.2.0
 */
export interface OptimisticTurn {
  readonly instanceId: string
  /** The last event that the program has seen. */
  readonly lastEvent: Event.Event
  /** Claimed activities of this instance that have ended. At least one. */
  readonly results: ReadonlyArray<{
    readonly lockToken: string
    readonly completion: WorkItem.Of<"ActivityCompleted"> | WorkItem.Of<"ActivityFailed">
  }>
  /** Without `left`. */
  readonly turn: Turn
  /** What `storeNowMs` said when the turn began. The turn is stored only if that was right, give or take 2 seconds. */
  readonly clockMs: number
  readonly handOver?: HandOver | undefined
}

/**
 * The answer to an optimistic turn: the turn is stored, or only its results are, as messages to the instance, if the
 * locks of their activities were live.
 *
 * @category models
 * @since 0.2.0
 */
export type OptimisticAnswer =
  | { readonly _tag: "Advanced"; readonly handedOver: ReadonlyArray<Claimed<WorkItem.Of<"ActivityExecute">>> }
  | { readonly _tag: "Queued"; readonly results: ReadonlyArray<"Done" | "LockLost"> }

/**
 * The first turn of a start, run before the start is stored.
 *
 * @category models
 * @since 0.2.0
 */
export interface FirstTurn {
  /** Without `left`. */
  readonly turn: Turn
  readonly handOver?: HandOver | undefined
  /**
   * Called once: with the activities handed over if the turn is stored; with `none` if it is not, or if the answer is
   * lost.
   */
  readonly settled: (stored: Option.Option<ReadonlyArray<Claimed<WorkItem.Of<"ActivityExecute">>>>) => void
}

/**
 * The owner and the limits of the sessions that a claim may bind.
 *
 * @category models
 * @since 0.1.0
 */
export interface SessionConfig {
  readonly workerId: string
  readonly lockTimeout: Duration.Duration
  /**
   * Limit of the new sessions that the next claim may bind; called before each claim. If several callers of one worker
   * wait, one of their functions decides for all. Defaults to no limit.
   */
  readonly maxNew?: (() => number) | undefined
}
