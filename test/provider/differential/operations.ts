/**
 * Sequences of driver calls, as data.
 *
 * Nothing here names a token or a row: calls point at earlier answers (`Handle`) and at times relative to now, so that
 * a sequence means the same for every driver and survives shrinking.
 */
import type { BlockReport } from "../../../src/model/Block.ts"
import type {
  CoreVersion,
  ExecutionStatus,
  InstanceStatus,
  TagFilter,
  VersionRange
} from "../../../src/model/Instance.ts"
import type { LimitKind } from "../../../src/model/Limit.ts"
import type { PauseTarget } from "../../../src/model/Pause.ts"
import type { EncodedChanges } from "../../../src/model/shared/limits.ts"
import type { HandOver, ServedOrchestration, SessionClaim } from "../../../src/provider/ProviderDriver.ts"

/** Ids the calls share: few, so that they collide; one contains the separator of tokens. */
export const instanceIds = ["a", "b.1", "ç 😀"] as const
export const lastExecutionId = 3

/**
 * A token: of a claim that was not settled yet, counted back from the newest; of any claim; or one that was never
 * handed out.
 */
export type Handle = { readonly open: number } | { readonly any: number } | { readonly forged: string }

export interface Message {
  readonly instanceId: string
  readonly kind: "start" | "startOfChild" | "namedStart" | "brokenStart" | "continueAsNew" | "cancel"
  /** In a turn, of a start: whether it creates its instance. */
  readonly creates: boolean
  readonly visibleInMs: number | null
  readonly delayMs: number | null
}

export interface Activity {
  readonly name: string
  readonly instanceId: string
  readonly executionId: number
  readonly activityId: number
  readonly sessionId: string | null
  readonly tag: string | null
  readonly limitKey?: string
}

export interface HistoryEvent {
  /** Null takes an id that was never used. */
  readonly eventId: number | null
  readonly type: "OrchestrationStarted" | "OrchestrationFailed" | "TimerCreated" | "ExternalEventPersistent"
}

export type KeyValue =
  | { readonly action: "set"; readonly key: string; readonly value: string; readonly lastUpdatedAtMs: number }
  | { readonly action: "clear_key"; readonly key: string }
  | { readonly action: "clear_all" }

export interface Turn {
  readonly token: Handle
  /** Added to the claimed execution's id; null consumes the batch only. */
  readonly executionOffset: number | null
  readonly history: ReadonlyArray<HistoryEvent>
  readonly customStatus: { readonly value: string | null } | null
  readonly keyValues: ReadonlyArray<KeyValue>
  readonly status: ExecutionStatus | null
  readonly output: string | null
  readonly orchestrationName: string | null
  readonly orchestrationVersion: string | null
  readonly parentInstanceId: string | null
  readonly nextVersion?: string | null
  readonly pinnedVersion: CoreVersion | null
  readonly workerItems: ReadonlyArray<Activity>
  readonly orchestratorItems: ReadonlyArray<Message>
  readonly cancelledActivities: ReadonlyArray<Pick<Activity, "instanceId" | "executionId" | "activityId">>
  /** Places in its batch of the messages it leaves. */
  readonly leaves?: ReadonlyArray<number>
  /** Places in its `history` of the events that it requeues, with stored ones of the same numbers. */
  readonly requeues?: ReadonlyArray<number>
  /** Whether its own `orchestratorItems` are cancelled timers at once. */
  readonly cancelsItems?: boolean
}

/** What a turn stores that was run without a claim. */
export type UnclaimedTurn = Omit<Turn, "token" | "leaves" | "executionOffset"> & {
  /** Added to the id of the current execution. */
  readonly executionOffset: number
  /** Added to the store's clock; without it, the turn may have any time. */
  readonly clockOffMs?: number
}

export interface OptimisticTurn {
  readonly instanceId: string
  /** Added to the id of the last event. */
  readonly lastEventOffset: number
  /** Believes the last event to be another one. */
  readonly isOther: boolean
  /** Results of activities of this instance, or of any. */
  readonly results: ReadonlyArray<{ readonly token: Handle; readonly isOwn: boolean }>
  readonly turn: UnclaimedTurn
  readonly handOver: HandOver | null
}

interface Abandon {
  readonly token: Handle
  readonly delayMs: number | null
  readonly ignoreAttempt: boolean
  readonly beginsFirst?: boolean
  readonly block?: BlockReport | undefined
}

interface Renewal {
  readonly token: Handle
  readonly extendForMs: number
}

/** Chunks of a claimed activity, for its own instance or for another one. */
interface Append {
  readonly token: Handle
  readonly otherInstanceId: string | null
  readonly stream: string
  readonly delivery: number
  readonly number: number
  readonly isRepeat: boolean
  readonly chunks: ReadonlyArray<string>
  readonly keepChunks: number
  readonly keepBytes: number
}

export type Operation =
  | { readonly call: "wait"; readonly ms: number }
  | {
    readonly call: "startOrchestrations"
    readonly starts: ReadonlyArray<
      {
        readonly instanceId: string
        readonly orchestrationVersion: string | null
        readonly pinnedVersion: CoreVersion
        readonly delayMs: number | null
        readonly replaces?: "Ended" | "Failed" | null
        /** Whether a message comes with it. */
        readonly hasMessage?: boolean
        readonly firstTurn?: { readonly turn: UnclaimedTurn; readonly handOver: HandOver | null } | null
      }
    >
  }
  | { readonly call: "advanceOrchestrations"; readonly turns: ReadonlyArray<OptimisticTurn> }
  | { readonly call: "enqueueForOrchestrator"; readonly messages: ReadonlyArray<Message> }
  | { readonly call: "enqueueForWorker"; readonly activities: ReadonlyArray<Activity> }
  | {
    readonly call: "fetchOrchestrationItems"
    readonly limit: number
    readonly lockTimeoutMs: number
    readonly versions: VersionRange | null
    readonly serves?: ReadonlyArray<ServedOrchestration>
    readonly orphans: boolean
    readonly suspects?: ReadonlyArray<number>
    readonly takesOver?: boolean
    readonly maxBytes: number
  }
  | { readonly call: "ackOrchestrationItems"; readonly turns: ReadonlyArray<Turn> }
  | { readonly call: "abandonOrchestrationItems"; readonly items: ReadonlyArray<Abandon> }
  | {
    readonly call: "wakeBlocked"
    readonly orchestrations: ReadonlyArray<string>
    readonly activities: ReadonlyArray<string>
  }
  | {
    readonly call: "setLimit"
    readonly kind: LimitKind
    readonly name: string
    readonly changes: EncodedChanges
    readonly replaces: boolean
  }
  | { readonly call: "removeLimit"; readonly kind: LimitKind; readonly name: string }
  | { readonly call: "pause"; readonly target: PauseTarget; readonly reason: string | null }
  | { readonly call: "resume"; readonly target: PauseTarget }
  | { readonly call: "renewOrchestrationItemLocks"; readonly items: ReadonlyArray<Renewal> }
  | {
    readonly call: "deferMessages"
    readonly items: ReadonlyArray<
      { readonly token: Handle; readonly positions: ReadonlyArray<number>; readonly delayMs: number }
    >
  }
  | { readonly call: "sweepMessages"; readonly maxAgeMs: number }
  | {
    readonly call: "fetchWorkItems"
    readonly limit: number
    readonly lockTimeoutMs: number
    readonly tags: TagFilter
    readonly activities?: ReadonlyArray<string>
    readonly suspects?: ReadonlyArray<number>
    readonly takesOver?: boolean
    readonly session: SessionClaim | null
  }
  | {
    readonly call: "ackWorkItems"
    readonly items: ReadonlyArray<{ readonly token: Handle; readonly completes: string | null }>
  }
  | { readonly call: "abandonWorkItems"; readonly items: ReadonlyArray<Abandon> }
  | {
    readonly call: "renewWorkItemLocks"
    readonly items: ReadonlyArray<Renewal & { readonly sufficientMs?: number }>
  }
  | { readonly call: "appendChunks"; readonly items: ReadonlyArray<Append> }
  | {
    readonly call: "renewSessionLocks"
    readonly workerIds: ReadonlyArray<string>
    readonly extendForMs: number
    readonly idleTimeoutMs: number
  }
  | { readonly call: "cleanupOrphanedSessions" }
  | {
    readonly call: "appendHistory"
    readonly instanceId: string
    readonly executionId: number
    readonly history: ReadonlyArray<HistoryEvent>
  }
  | { readonly call: "readInstanceStats"; readonly instanceId: string }
  | {
    readonly call: "readChunks"
    readonly items: ReadonlyArray<
      {
        readonly instanceId: string
        readonly stream: string
        readonly from: number | null
        readonly maxBytes: number
      }
    >
  }
  | { readonly call: "resumeChunks"; readonly instanceId: string; readonly stream: string; readonly activityId: number }
  | { readonly call: "readKeyValues"; readonly instanceId: string; readonly key: string | null }
  | { readonly call: "readHistory"; readonly instanceId: string; readonly executionId: number | null }
  | {
    readonly call: "holdInstances"
    readonly instanceIds: ReadonlyArray<string>
    readonly force: boolean
    readonly holdForMs: number
  }
  | { readonly call: "deleteInstances"; readonly instanceIds: ReadonlyArray<string>; readonly force: boolean }
  | {
    readonly call: "pruneExecutions"
    readonly instanceId: string
    readonly keepLast: number | null
    readonly completedAgoMs: number | null
  }
  | {
    readonly call: "cutHistory"
    readonly instanceId: string
    /** Added to the id of the last event. */
    readonly lastEventOffset: number
    /** Events to remove. */
    readonly removes: number
    readonly customStatus: string | null
    readonly stored: string | null
    readonly changed: string | null
    readonly messages: number
    readonly cancelledActivities: ReadonlyArray<number>
  }
  | {
    readonly call: "forkInstance"
    readonly instanceId: string
    readonly executionId: number
    readonly customStatus: string | null
    readonly stored: string | null
    readonly changed: string | null
    readonly messages: number
  }
  | {
    readonly call: "selectInstances"
    readonly instanceIds: ReadonlyArray<string> | null
    readonly completedAgoMs: number | null
    readonly endedRootsOnly: boolean
    readonly status: "Completed" | "Failed" | "Cancelled" | null
    readonly exceptDuroxide: boolean
  }
  /** The rest of the search follows from the number of the operation. */
  | {
    readonly call: "listInstances"
    readonly status: InstanceStatus | null
    readonly orchestrationName: string | null
    readonly parentInstanceId: string | null
    readonly idPrefix: string | null
    readonly isBlocked: boolean
    readonly isPaused: boolean
  }
  | { readonly call: "listChildren"; readonly instanceIds: ReadonlyArray<string> }
  | { readonly call: "readExecution"; readonly instanceId: string; readonly executionId: number }
  | { readonly call: "listExecutions"; readonly instanceId: string }
  | { readonly call: "systemMetrics" }
  | { readonly call: "queueDepths" }
