/**
 * Decides about the occurrences of a schedule that are due now. Pure: the store says what time it is and what runs.
 *
 * An occurrence is due when its jitter has passed as well. It is late when it is a minute older than that: then the
 * rule for catching up decides whether it fires.
 */
import type { QueuedRun, Request, RunKind, RunOutcome } from "../ScheduleDriver.ts"
import type { Definition } from "./definition.ts"
import { firstAfter } from "./timing.ts"
import type { Occurrences } from "./timing.ts"

export interface State {
  readonly name: string
  readonly nowMs: number
  readonly isPaused: boolean
  readonly firedUntilMs: number
  readonly queued: QueuedRun | null
  readonly requests: ReadonlyArray<Request>
  readonly runCount: number
  /** Whether the last run has not ended. */
  readonly isRunning: boolean
}

export interface PlannedRun {
  readonly number: number
  readonly kind: RunKind
  readonly occurrenceMs: number
  readonly id: string
  readonly missedSinceMs: number | null
  readonly outcome: RunOutcome
  readonly note: string | null
}

export interface Plan {
  readonly runs: ReadonlyArray<PlannedRun>
  readonly firedUntilMs: number
  readonly nextMs: number | null
  readonly lookMs: number | null
  readonly queued: QueuedRun | null
  readonly requests: ReadonlyArray<Request>
  readonly runCount: number
  /** The number of the run that is the last one from now on; null: as it was. */
  readonly last: number | null
  /** Whether to interrupt the last run. */
  readonly interrupts: boolean
}

export const lateMs = 60_000

export const make = (
  { catchUp, jitterMs, overlap }: Pick<Definition, "catchUp" | "jitterMs" | "overlap">,
  occurrences: Occurrences,
  state: State,
  { most, refused }: {
    /** Runs that this plan may settle. What is left is due at once. */
    readonly most: number
    /** Why payloads could not be made, by id of the run. */
    readonly refused: ReadonlyMap<string, string>
  }
): Plan => {
  const { isPaused, name, nowMs } = state
  const runs: Array<PlannedRun> = []
  let { queued, runCount } = state
  let last: number | null = null
  let isBusy = state.isRunning && overlap !== "allow"

  const settle = (run: Omit<PlannedRun, "number" | "missedSinceMs" | "note"> & Partial<PlannedRun>) => {
    const settled = { missedSinceMs: null, note: null, ...run, number: run.number ?? ++runCount }
    // One that was queued above may be replaced: a run is stored once, as it is in the end.
    const index = runs.findIndex(({ number }) => number === settled.number)
    if (index < 0) runs.push(settled)
    else runs[index] = settled
  }

  const start = (run: Pick<PlannedRun, "kind" | "occurrenceMs" | "id"> & { readonly number?: number }) => {
    const problem = refused.get(run.id)
    if (problem !== undefined) return settle({ ...run, outcome: "Refused", note: problem })
    settle({ ...run, outcome: "Started" })
    if (run.kind === "Backfill") return
    last = run.number ?? runCount
    isBusy = overlap !== "allow"
    // It was the run before this one that was asked to end.
    if (queued !== null) queued = { ...queued, isInterrupted: false }
  }

  /** During a pause only runs by hand start. */
  const mayStart = ({ kind }: { readonly kind: RunKind }) => !isPaused || kind === "Manual"

  const offer = (run: Pick<PlannedRun, "kind" | "occurrenceMs" | "id">) => {
    if (overlap === "allow" || !isBusy && (queued === null || !mayStart(queued))) return start(run)
    if (overlap === "skip" || overlap === "queue" && queued !== null) {
      return settle({ ...run, outcome: "Skipped", note: queued === null ? isRunningNote : isQueuedNote })
    }
    const problem = refused.get(run.id)
    if (problem !== undefined) return settle({ ...run, outcome: "Refused", note: problem })
    // The newest takes the place of the one that waits.
    const isInterrupted = queued?.isInterrupted ?? false
    if (queued !== null) settle({ ...runOf(queued), number: queued.number, outcome: "Skipped", note: isReplacedNote })
    settle({ ...run, outcome: "Queued" })
    queued = { ...run, number: runCount, isInterrupted }
  }

  const hasRoom = () => runs.length < most

  if (queued !== null && !isBusy && mayStart(queued)) {
    const { number } = queued
    const run = runOf(queued)
    queued = null
    start({ ...run, number })
  }

  // What there is no room for stays a request.
  const requests = state.requests.filter((request) => {
    if (request.kind !== "Manual" || !hasRoom()) return true
    offer({ kind: "Manual", occurrenceMs: request.atMs, id: request.id })
    return false
  })

  let { firedUntilMs } = state
  let isCut = false
  let nextMs: number | null = null
  if (!isPaused) {
    const dueMs = (at: number) => at + jitterOf(name, at, jitterMs)
    const onTimeMs = nowMs - lateMs - jitterMs
    if (firedUntilMs + 1 < onTimeMs) {
      const fromMs = Math.max(firedUntilMs + 1, oldestMs(catchUp, occurrences, nowMs, onTimeMs))
      const missed = firstAfter(occurrences, firedUntilMs)
      if (missed !== undefined && missed < fromMs) {
        settle({
          kind: "Scheduled",
          occurrenceMs: occurrences.atOrBefore(fromMs - 1)!,
          missedSinceMs: missed,
          id: "",
          outcome: "Missed"
        })
      }
      firedUntilMs = fromMs - 1
    }
    let settledMs = Math.max(firedUntilMs, nowMs)
    for (const at of occurrences.after(firedUntilMs)) {
      isCut = dueMs(at) <= nowMs && !hasRoom()
      if (isCut || dueMs(at) > nowMs) {
        settledMs = Math.min(settledMs, at - 1)
        nextMs = at
        break
      }
      offer({ kind: "Scheduled", occurrenceMs: at, id: idOf(name, at) })
    }
    firedUntilMs = settledMs
  }

  // Those that are not settled yet start by themselves.
  const left = requests.flatMap((request): ReadonlyArray<Request> => {
    if (request.kind === "Manual") return [request]
    const untilMs = Math.min(request.untilMs, isPaused ? nowMs : firedUntilMs)
    let { afterMs } = request
    for (const at of occurrences.after(afterMs)) {
      if (at > untilMs) break
      if (!hasRoom()) return [{ ...request, afterMs }]
      start({ kind: "Backfill", occurrenceMs: at, id: idOf(name, at) })
      afterMs = at
    }
    return []
  })

  const isAwaited = overlap === "interrupt" && queued !== null && mayStart(queued)
  const interrupts = isAwaited && !queued!.isInterrupted && state.isRunning && last === null
  if (interrupts) queued = { ...queued!, isInterrupted: true }
  // What this plan starts can be interrupted by the next one.
  const isUnfinished = isCut || left.length > 0 || (isAwaited && last !== null)
  return {
    runs,
    firedUntilMs,
    nextMs,
    lookMs: isUnfinished ? nowMs : nextMs === null ? null : nextMs + jitterOf(name, nextMs, jitterMs),
    queued,
    requests: left,
    runCount,
    last,
    interrupts
  }
}

/** The id of an instance that an occurrence starts, and the key of a task. */
export const idOf = (name: string, occurrenceMs: number): string =>
  `schedule/${name}/${new Date(occurrenceMs).toISOString()}`

/** From 0 to `jitterMs`; every process computes the same. */
export const jitterOf = (name: string, occurrenceMs: number, jitterMs: number): number => {
  if (jitterMs === 0) return 0
  // FNV-1a, and a mix of its bits: names and times differ in their last characters.
  let hash = 0x811c9dc5
  for (const character of `${name}/${occurrenceMs}`) {
    hash = Math.imul(hash ^ character.codePointAt(0)!, 0x01000193)
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x45d9f3b)
  return ((hash ^ (hash >>> 16)) >>> 0) % (jitterMs + 1)
}

// internal

const isRunningNote = "the last run had not ended"

const isQueuedNote = "another occurrence waits for the end of the last run"

const isReplacedNote = "a newer occurrence waits for the end of the last run"

const runOf = ({ id, kind, occurrenceMs }: QueuedRun) => ({ kind, occurrenceMs, id })

/** Occurrences before this time do not fire. */
const oldestMs = (
  catchUp: Definition["catchUp"],
  occurrences: Occurrences,
  nowMs: number,
  onTimeMs: number
): number => {
  switch (catchUp._tag) {
    case "None":
      return onTimeMs
    case "Last":
      return occurrences.atOrBefore(onTimeMs - 1) ?? onTimeMs
    case "Within":
      return Math.min(onTimeMs, nowMs - catchUp.ms)
  }
}
