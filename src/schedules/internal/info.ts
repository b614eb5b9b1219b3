/**
 * Schedules and runs as the service returns them.
 */
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import type { Definition, Listed, RunKind, RunOutcome, StoredRun } from "../ScheduleDriver.ts"
import * as definitions from "./definition.ts"
import { jitterOf, lateMs } from "./plan.ts"
import { nextOf, occurrencesOf } from "./timing.ts"

/**
 * A schedule as it is stored.
 *
 * @category models
 * @since 0.3.0
 */
export interface ScheduleInfo {
  readonly name: string
  /**
   * `Overdue`: an occurrence is more than a minute late, and `problem` says why. `Ended`: no occurrence follows.
   */
  readonly state: "Active" | "Paused" | "Overdue" | "Ended"
  /** Why no process fires it; undefined unless it is overdue. */
  readonly problem: string | undefined
  /** Undefined if a newer version has written it in a form that this one cannot read. */
  readonly definition: Definition | undefined
  /** Whether code makes the payload from the occurrence: then only processes that have it fire the schedule. */
  readonly isCode: boolean
  readonly createdAt: Date
  /** When its definition last changed. */
  readonly updatedAt: Date
  readonly pause: { readonly since: Date; readonly reason: string | undefined } | undefined
  /** The next occurrences that are not settled, without jitter; none while it is paused. */
  readonly next: ReadonlyArray<Date>
  /** The occurrence that waits for the end of the last run. */
  readonly queued: Date | undefined
  /** Runs by hand and backfills that no scheduler has begun or finished. */
  readonly requests: number
  /** Whether its last run has not ended. */
  readonly isRunning: boolean
  readonly lastRun: RunInfo | undefined
}

/**
 * What happened to an occurrence.
 *
 * **Details**
 *
 * `Started` has the id of what it started. `Skipped` and `Refused` (its payload could not be made) have a `note` that
 * says why. `Queued` waits for the end of the run before it, and changes later. `Missed` stands for all occurrences
 * from `since` to `occurrence`: they were late, and `catchUp` left them out.
 *
 * @category models
 * @since 0.3.0
 */
export interface RunInfo {
  /** From 1, for each schedule. */
  readonly number: number
  readonly kind: RunKind
  readonly occurrence: Date
  readonly since: Date | undefined
  readonly outcome: RunOutcome
  readonly note: string | undefined
  readonly instanceId: string | undefined
  readonly taskId: string | undefined
  readonly settledAt: Date
}

export const scheduleOf = (listed: Listed, nowMs: number, count: number): ScheduleInfo => {
  const { hasPayload, lookMs, pauseReason, pausedMs } = listed
  const definition = Option.getOrUndefined(definitions.decode(listed.definition))
  const occurrences = definition === undefined ? undefined : Result.getOrUndefined(occurrencesOf(definition.timing))
  const isPaused = pausedMs !== null
  const next = isPaused || occurrences === undefined ? [] : nextOf(occurrences, listed.firedUntilMs, Math.max(1, count))
  // A scheduler that claims it and cannot fire it moves the look, not the occurrence.
  const dueMs = definition === undefined || next[0] === undefined
    ? Infinity
    : next[0] + jitterOf(listed.name, next[0], definition.jitterMs)
  const isOverdue = Math.min(lookMs ?? Infinity, dueMs) < nowMs - lateMs
  return {
    name: listed.name,
    state: isOverdue ? "Overdue" : isPaused ? "Paused" : next.length === 0 && lookMs === null ? "Ended" : "Active",
    problem: isOverdue ? hasPayload ? noScheduler : noCode : undefined,
    definition,
    isCode: !hasPayload,
    createdAt: new Date(listed.createdMs),
    updatedAt: new Date(listed.updatedMs),
    pause: isPaused ? { since: new Date(pausedMs), reason: pauseReason ?? undefined } : undefined,
    next: next.slice(0, count).map((ms) => new Date(ms)),
    queued: listed.queued === null ? undefined : new Date(listed.queued.occurrenceMs),
    requests: listed.requests,
    isRunning: listed.isRunning,
    lastRun: listed.lastRun === null ? undefined : runOf(listed.lastRun)
  }
}

/** At most one more than `most`; undefined if this version cannot read the definition. */
export const occurrencesBetween = (
  { definition: stored }: Pick<Listed, "definition">,
  fromMs: number,
  toMs: number,
  most: number
): ReadonlyArray<Date> | undefined => {
  const definition = Option.getOrUndefined(definitions.decode(stored))
  const occurrences = definition === undefined ? undefined : Result.getOrUndefined(occurrencesOf(definition.timing))
  if (occurrences === undefined) return undefined
  const all: Array<Date> = []
  for (const at of occurrences.after(fromMs - 1)) {
    if (at > toMs || all.length > most) break
    all.push(new Date(at))
  }
  return all
}

export const runOf = (
  { missedSinceMs, note, occurrenceMs, settledMs, instanceId, taskId, ...run }: StoredRun
): RunInfo => ({
  number: run.number,
  kind: run.kind,
  outcome: run.outcome,
  occurrence: new Date(occurrenceMs),
  since: missedSinceMs === null ? undefined : new Date(missedSinceMs),
  note: note ?? undefined,
  instanceId: instanceId ?? undefined,
  taskId: taskId ?? undefined,
  settledAt: new Date(settledMs)
})

// internal

const noScheduler = "no process runs a scheduler, or it cannot fire this schedule: see the log of Schedules.layer"

const noCode = "its payload is made by code, and no process that runs has that code in Schedules.layer, or it cannot " +
  "fire this schedule: see its log"
