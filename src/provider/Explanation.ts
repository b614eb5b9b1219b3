/**
 * Why an instance is where it is: what it waits for, who could continue it, and what happens next.
 *
 * @since 0.3.0
 */
import * as Data from "effect/Data"
import type { Block } from "../model/Block.ts"
import type { InstanceStatus } from "../model/Instance.ts"
import type { Limit } from "../model/Limit.ts"
import type { Pause, PauseTarget } from "../model/Pause.ts"
import type { QueuePlace } from "./AdminDriver.ts"

/**
 * An open wait: the next turn runs as soon as one of them ends.
 *
 * @category models
 * @since 0.3.0
 */
export interface Wait {
  readonly kind: "signal" | "request" | "timer" | "activity" | "child"
  /** Name of the signal, request, activity or orchestration; null for a timer. */
  readonly name: string | null
  /** The child; null for other kinds. */
  readonly instanceId: string | null
  /** Tag of an activity; null without one, and for other kinds. */
  readonly tag: string | null
  /** The event that began it. */
  readonly eventId: number
  /** Milliseconds since the Unix epoch. */
  readonly sinceMs: number
  /** The row of the activity, or the message of the timer; null for other kinds, and for an activity without a row. */
  readonly place: QueuePlace | null
  /** Whether it is a child that was interrupted, and has not ended yet. */
  readonly isInterrupted?: true
}

/**
 * An activity that an instance waits for.
 *
 * @category models
 * @since 0.3.0
 */
export interface AwaitedActivity {
  readonly name: string
  /** Null without one. */
  readonly tag: string | null
  /** The event that scheduled it. */
  readonly eventId: number
  /** When it was scheduled, or a retry has carried it out again: milliseconds since the Unix epoch. */
  readonly scheduledAtMs: number
  /** From 1: one more for each failure of this activity with the same input, one after the other. */
  readonly tryNumber: number
  /** The text of the last of these failures; null at the first try. */
  readonly lastError: string | null
  /** How often workers have claimed this try: more than 1 after a crash. Null without a row in the queue. */
  readonly deliveries: number | null
}

/**
 * The one reason why an instance does not continue at this moment. Times are milliseconds since the Unix epoch.
 *
 * **Details**
 *
 * They are looked for in this order; the first one counts.
 *
 * - `Ended`: it has a result, has failed or was cancelled.
 * - `Paused`: an operator has paused it, its definition or everything.
 * - `Blocked`: no process could run its next turn.
 * - `OfDuroxide`: only processes with this version of Duroxide's rules run it.
 * - `TakesTurn`: a process runs its turn, until the lock ends at the latest.
 * - `Unserved`: messages wait for it, and no living process serves its definition.
 * - `Limited`: its start waits for a slot or a token of a limit.
 * - `Queued`: messages wait for it, the oldest since then, until a process has a free slot.
 * - `StartsLater`: it was started with a delay.
 * - `ActivityUnserved`: no living process takes an activity that it waits for.
 * - `ActivityPaused`: an operator has paused that activity or its tag.
 * - `Retries`: it waits to try a failed activity again.
 * - `ActivityDelayed`: the next delivery of an activity comes later, as its worker was shut down or could not run it.
 * - `ActivityLimited`: an activity waits for a slot or a token of a limit.
 * - `ActivityQueued`: an activity waits for a worker with a free slot.
 * - `ActivityRuns`: a worker runs it; the lock ends then unless the worker renews it. A dead worker does not.
 * - `Child`: it waits for the end of a child.
 * - `Task`: it waits for the end of a task.
 * - `Completion`: it waits for someone to complete activity `name` from outside, until `untilMs`; with the last
 *   heartbeat, whose `details` are JSON text.
 * - `Signal`: it waits for a signal, at most until `untilMs`, null without a timeout.
 * - `Request`: it waits for requests alone, at most until `untilMs`, null without a timeout.
 * - `Timer`: it sleeps until then.
 * - `Nothing`: nothing that is stored would wake it.
 *
 * @category models
 * @since 0.3.0
 */
export type Cause = Data.TaggedEnum<{
  Ended: { readonly atMs: number; readonly error: string | null }
  Paused: {
    readonly pause: Pause
    /** What else has paused it, and must be resumed as well. */
    readonly others: ReadonlyArray<PauseTarget>
  }
  Blocked: { readonly block: Block }
  OfDuroxide: { readonly version: string }
  TakesTurn: { readonly untilMs: number }
  Unserved: { readonly name: string; readonly version: string | null }
  Queued: { readonly sinceMs: number; readonly servedBy: number }
  Limited: {
    readonly name: string
    /** Its key; empty without one. */
    readonly key: string
    /** How many of this key wait before it. */
    readonly ahead: number
    readonly sinceMs: number
    /** Null if the limit was removed a moment ago. */
    readonly limit: Limit | null
  }
  StartsLater: { readonly atMs: number }
  ActivityUnserved: { readonly activity: AwaitedActivity }
  ActivityPaused: { readonly activity: AwaitedActivity; readonly pause: Pause }
  Retries: { readonly activity: AwaitedActivity; readonly atMs: number }
  ActivityDelayed: { readonly activity: AwaitedActivity; readonly atMs: number }
  ActivityLimited: {
    readonly activity: AwaitedActivity
    /** Its key; empty without one. */
    readonly key: string
    /** How many of this key wait before it. */
    readonly ahead: number
    /** Null if the limit was removed a moment ago. */
    readonly limit: Limit | null
  }
  ActivityQueued: { readonly activity: AwaitedActivity; readonly servedBy: number }
  ActivityRuns: { readonly activity: AwaitedActivity; readonly untilMs: number }
  Child: {
    readonly instanceId: string
    readonly name: string
    readonly sinceMs: number
    readonly isInterrupted: boolean
  }
  Task: { readonly name: string; readonly sinceMs: number }
  Completion: {
    readonly name: string
    readonly sinceMs: number
    readonly untilMs: number | null
    readonly heartbeat: { readonly atMs: number; readonly details: string } | null
  }
  Signal: { readonly name: string; readonly sinceMs: number; readonly untilMs: number | null }
  Request: { readonly name: string; readonly sinceMs: number; readonly untilMs: number | null }
  Timer: { readonly untilMs: number }
  Nothing: {}
}>

/**
 * Constructors and matchers of causes.
 *
 * @category constructors
 * @since 0.3.0
 */
export const Cause = Data.taggedEnum<Cause>()

/**
 * Explains an instance.
 *
 * @category models
 * @since 0.3.0
 */
export interface Explanation {
  readonly instanceId: string
  readonly status: InstanceStatus
  /** In one sentence, for people; it has no payloads but the text of an error. */
  readonly sentence: string
  readonly cause: Cause
  /** All that could continue it, in the order they began; one of them is enough. */
  readonly waits: ReadonlyArray<Wait>
  /** Signals that have come and that the program has not taken, oldest first. */
  readonly untaken: ReadonlyArray<{ readonly name: string; readonly eventId: number; readonly sinceMs: number }>
  /** Since when it is interrupted, and why; null if it is not. */
  readonly interruption: { readonly sinceMs: number; readonly reason: string } | null
}
