/**
 * What excuses a handler that runs again: its process died or was suspended, or could not renew what it kept.
 */
import type { Injected, Kept } from "./faults.ts"
import type { EffectLine } from "./logs.ts"
import type { Process } from "./processes.ts"

/** A run of a handler that was given up for lost. Times are milliseconds since the Unix epoch. */
export interface Lost {
  readonly of: Kept
  readonly pid: number
  /** Length of its lock. */
  readonly lockMs: number
  readonly from: number
  readonly until: number
}

/** Longest time between a claim and the start of its handlers in a process that is suspended in between. */
const claimedBeforeMs = 5_000

/** How late a renewal can be on a busy machine, and how long a process needs to connect again. */
const lateMs = 1_500

export type Excuses = (lost: Lost) => boolean

export const make = (options: {
  readonly effects: ReadonlyArray<EffectLine>
  readonly processes: ReadonlyArray<Process>
  readonly injected: ReadonlyArray<Injected>
  /** When the machine was too busy for a renewal. */
  readonly starved: ReadonlyArray<Span>
}): Excuses => {
  const { effects, injected, processes, starved } = options
  const byPid = new Map(processes.map((process) => [process.pid, process]))
  const blocks = effects.filter((line) => line.event === "block")
  const steps = forwardSteps(injected)

  return ({ from, lockMs, of, pid, until }) => {
    const process = byPid.get(pid)
    // A requested shutdown abandons work before the process ends.
    const goneAt = Math.min(process?.endingAt ?? Infinity, process?.endedAt ?? Infinity)
    if (goneAt < until) return true
    const since = from - claimedBeforeMs
    const hindrances: ReadonlyArray<Span> = [
      ...process?.frozen ?? [],
      ...blocks.filter((line) => line.pid === pid).map(({ at, ms }) => ({ from: at - ms, to: at + ms })),
      ...injected.filter(({ roles, stops }) =>
        stops.includes(of) && (roles === null || process === undefined || roles.includes(process.role))
      ),
      ...steps,
      ...starved
    ].filter(({ from, to }) => from < until && to + 1_000 > since)
    // A renewal falls due after half of the lock. What is shorter than the other half costs nothing.
    return longest(hindrances) >= lockMs / 2 - lateMs
  }
}

/** Times are milliseconds since the Unix epoch. */
export interface Span {
  readonly from: number
  readonly to: number
  /** Time that passed at once, by a step of the server's clock. */
  readonly stepMs?: number
}

/** The longest time without a renewal, milliseconds; negative without any hindrance. */
const longest = (spans: ReadonlyArray<Span>): number => {
  let most = -Infinity
  let end = -Infinity
  let total = 0
  for (const { from, stepMs = 0, to } of [...spans].sort((a, b) => a.from - b.from)) {
    if (from > end + lateMs) [total, end] = [0, from]
    total += Math.max(0, to - end) + stepMs
    end = Math.max(end, to)
    most = Math.max(most, total)
  }
  return most
}

/** When the clock of the server stepped forward, so that all locks lost time. */
const forwardSteps = (injected: ReadonlyArray<Injected>): ReadonlyArray<Span> =>
  injected.flatMap(({ aheadMs, from, to }) => {
    const at = aheadMs > 0 ? from : to
    return aheadMs === 0 ? [] : [{ from: at, to: at, stepMs: Math.abs(aheadMs) }]
  })

/** The latest time that the clock of the server has shown until then. */
export const latestShown = (injected: ReadonlyArray<Injected>, until: number): number =>
  Math.max(until, ...injected.flatMap(({ aheadMs, from, to }) => from < until ? [Math.min(to, until) + aheadMs] : []))
