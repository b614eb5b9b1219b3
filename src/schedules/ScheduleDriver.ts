/**
 * The seam that a storage of schedules implements.
 *
 * A driver stores schedules, says which have something to do, and starts what a scheduler has decided. It reads neither
 * definitions nor payloads, and computes no occurrence. Times are milliseconds since the Unix epoch, by the clock of
 * the store.
 *
 * **Promises every driver keeps**
 *
 * - One call is one atomic statement. A call that fails has changed nothing, unless the connection was lost.
 * - Each change of a schedule has its own `revision`, also after a schedule of the same name was deleted. A `Fire` with
 *   another one changes and starts nothing.
 * - The runs of a `Fire`, what they start, and the state after it are stored together or not at all.
 *
 * @since 0.3.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { CoreVersion } from "../model/Instance.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import type { NewTask } from "../tasks/TaskDriver.ts"
import type { Definition } from "./internal/definition.ts"

export type { Definition, Overlap, Target } from "./internal/definition.ts"
export type { Timing } from "./internal/timing.ts"

type Call<A> = Effect.Effect<A, ProviderError>

/**
 * The storage contract of schedules.
 *
 * @category services
 * @since 0.3.0
 */
export class ScheduleDriver extends Context.Service<ScheduleDriver, {
  /**
   * Stores definitions. With `replaces`, a schedule of the name gets the new one; a new timing counts from now on, and
   * all else of the schedule stays.
   */
  readonly store: (
    schedules: ReadonlyArray<NewSchedule>,
    replaces: boolean
  ) => Call<ReadonlyArray<"Created" | "Replaced" | "Unchanged" | "Exists">>
  /** Deletes the schedule and its runs. False if no schedule has the name. */
  readonly delete: (name: string) => Call<boolean>
  /** Pauses the schedule, or resumes it with null. After a resume, earlier occurrences are settled. */
  readonly pause: (
    name: string,
    pause: { readonly reason: string | null } | null
  ) => Call<"Done" | "Unchanged" | "Missing">
  /**
   * Asks for runs. A schedule holds at most 100 requests. A run by hand whose id waits or has started is not asked for
   * again.
   */
  readonly request: (name: string, request: NewRequest) => Call<"Done" | "Full" | "Missing">

  /**
   * Claims schedules that have something to do, at most `limit`, and keeps other schedulers away from them for
   * `holdMs`. Only those with a payload, or with a code among `codes`.
   */
  readonly claim: (options: {
    readonly codes: ReadonlyArray<string>
    readonly limit: number
    readonly holdMs: number
  }) => Call<Claimed>
  /** Settles occurrences; answers which of the schedules had not changed since they were claimed. */
  readonly fire: (fires: ReadonlyArray<Fire>) => Call<ReadonlyArray<boolean>>

  /** Schedules by name in order, from after a name on, or one. */
  readonly list: (options: {
    readonly name: string | null
    readonly after: string | null
    readonly limit: number
  }) => Call<{ readonly nowMs: number; readonly schedules: ReadonlyArray<Listed> }>
  /** The last runs of a schedule, the newest first. A driver keeps 100 of each. */
  readonly runs: (name: string, limit: number) => Call<ReadonlyArray<StoredRun>>
}>()("duroxide-prisma/schedules/ScheduleDriver") {}

/**
 * A schedule to store.
 *
 * @category models
 * @since 0.3.0
 */
export interface NewSchedule {
  readonly name: string
  readonly definition: Definition
  /** JSON text; null: code makes it from the occurrence. */
  readonly payload: string | null
  /** The id of that code; null with a payload. */
  readonly code: string | null
}

/**
 * A run by hand, or runs of occurrences from after one time up to another.
 *
 * @category models
 * @since 0.3.0
 */
export type NewRequest =
  | { readonly kind: "Manual"; readonly id: string }
  | { readonly kind: "Backfill"; readonly afterMs: number; readonly untilMs: number }

/**
 * A request, and when it came.
 *
 * @category models
 * @since 0.3.0
 */
export type Request = NewRequest & { readonly atMs: number }

/**
 * What a claim has found.
 *
 * @category models
 * @since 0.3.0
 */
export interface Claimed {
  readonly nowMs: number
  /** When to look again; null: when something changes. */
  readonly nextMs: number | null
  /** Whether more schedules may be due now. */
  readonly isFull: boolean
  readonly schedules: ReadonlyArray<ClaimedSchedule>
  /** Runs whose end lets an occurrence start. */
  readonly waiting: ReadonlyArray<RunningRun>
}

/**
 * What a schedule has started last, while it runs.
 *
 * @category models
 * @since 0.3.0
 */
export interface RunningRun {
  readonly name: string
  readonly instanceId: string | null
  readonly taskId: string | null
}

/**
 * A schedule that was claimed.
 *
 * @category models
 * @since 0.3.0
 */
export interface ClaimedSchedule {
  readonly name: string
  /** A `Definition`, if this version can read it. */
  readonly definition: unknown
  readonly payload: string | null
  readonly code: string | null
  readonly revision: number
  readonly firedUntilMs: number
  readonly isPaused: boolean
  readonly queued: QueuedRun | null
  readonly requests: ReadonlyArray<Request>
  readonly runCount: number
  readonly lastInstanceId: string | null
  readonly lastTaskId: string | null
  /** Whether its last run has not ended. */
  readonly isRunning: boolean
}

/**
 * An occurrence that waits for the end of the last run.
 *
 * @category models
 * @since 0.3.0
 */
export interface QueuedRun {
  readonly number: number
  readonly kind: RunKind
  readonly occurrenceMs: number
  readonly id: string
  /** Whether the last run was asked to end. */
  readonly isInterrupted: boolean
}

/**
 * Why an occurrence came: by the timing, by hand, or by a backfill.
 *
 * @category models
 * @since 0.3.0
 */
export type RunKind = "Scheduled" | "Manual" | "Backfill"

/**
 * What happened to an occurrence. `Missed` stands for all from `missedSinceMs` on; `Refused`: its payload could not be
 * made.
 *
 * @category models
 * @since 0.3.0
 */
export type RunOutcome = "Started" | "Skipped" | "Queued" | "Missed" | "Refused"

/**
 * A run to store. One with a number that exists replaces it.
 *
 * @category models
 * @since 0.3.0
 */
export interface NewRun {
  readonly number: number
  readonly kind: RunKind
  readonly occurrenceMs: number
  readonly missedSinceMs: number | null
  readonly outcome: RunOutcome
  readonly note: string | null
  /** What to start; null unless `Started`. */
  readonly start: RunStart | null
}

/**
 * An orchestration or a task to start. One that exists already stays as it is, and is what the run has started.
 *
 * @category models
 * @since 0.3.0
 */
export type RunStart =
  | {
    readonly _tag: "Orchestration"
    readonly start: WorkItem.Of<"StartOrchestration">
    readonly pinnedVersion: CoreVersion
  }
  | { readonly _tag: "Task"; readonly task: NewTask }

/**
 * What a scheduler has decided about a schedule that it has claimed.
 *
 * @category models
 * @since 0.3.0
 */
export interface Fire {
  readonly name: string
  /** The revision that was claimed. */
  readonly revision: number
  readonly firedUntilMs: number
  readonly nextMs: number | null
  readonly lookMs: number | null
  readonly queued: QueuedRun | null
  readonly requests: ReadonlyArray<Request>
  readonly runCount: number
  readonly runs: ReadonlyArray<NewRun>
  /** The number of the run that is the last one from now on; null: as it was. */
  readonly last: number | null
  /** What to interrupt, with its reason. */
  readonly interrupts:
    | { readonly instanceId: string | null; readonly taskId: string | null; readonly reason: string }
    | null
}

/**
 * A schedule in a list.
 *
 * @category models
 * @since 0.3.0
 */
export interface Listed {
  readonly name: string
  readonly definition: unknown
  readonly hasPayload: boolean
  /** Stored text, if the schedule was asked for by its name; null in a list. */
  readonly payload: string | null
  readonly createdMs: number
  readonly updatedMs: number
  readonly firedUntilMs: number
  readonly lookMs: number | null
  readonly pausedMs: number | null
  readonly pauseReason: string | null
  readonly queued: QueuedRun | null
  readonly requests: number
  readonly isRunning: boolean
  readonly lastRun: StoredRun | null
}

/**
 * A run as it is stored.
 *
 * @category models
 * @since 0.3.0
 */
export interface StoredRun {
  readonly number: number
  readonly kind: RunKind
  readonly occurrenceMs: number
  readonly missedSinceMs: number | null
  readonly outcome: RunOutcome
  readonly note: string | null
  readonly instanceId: string | null
  readonly taskId: string | null
  readonly settledMs: number
}
