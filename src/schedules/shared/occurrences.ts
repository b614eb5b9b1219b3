/**
 * How many occurrences a range of time has.
 */
import * as Result from "effect/Result"
import { occurrencesOf } from "../internal/timing.ts"
import type { Timing } from "../ScheduleDriver.ts"

/** Counts those from one time to another, both included, at most `most`; `first` are the first five. */
export const countWithin = (
  timing: Timing,
  range: { readonly fromMs: number; readonly toMs: number },
  most: number
): { readonly occurrences: number; readonly isMore: boolean; readonly first: ReadonlyArray<number> } => {
  const found = { occurrences: 0, isMore: false, first: [] as Array<number> }
  for (const at of Result.match(occurrencesOf(timing), { onFailure: () => [], onSuccess: after(range.fromMs - 1) })) {
    if (at > range.toMs) break
    if (found.occurrences === most) return { ...found, isMore: true }
    found.occurrences++
    if (found.first.length < mostFirst) found.first.push(at)
  }
  return found
}

// internal

const mostFirst = 5

const after = (ms: number) => (occurrences: { readonly after: (ms: number) => Iterable<number> }) =>
  occurrences.after(ms)
