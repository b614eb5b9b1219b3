/**
 * The store's clock, as far as its answers tell it. Between two answers the monotonic clock of this process stands in
 * for it. An estimate lags by the travel time of its answer, so the fastest answer counts, as in NTP's clock filter
 * (RFC 5905, section 10).
 *
 * An estimate is wrong after a suspend, during which the monotonic clock of a process stands still, and after the clock
 * of the store was set. So a turn whose time comes from it is stored only if the store finds that time right, give or
 * take `clockTolerance`; otherwise the store's answer corrects the estimate.
 */
import type * as Clock from "effect/Clock"
import { monotonicMs } from "../model/shared/monotonic.ts"

export interface StoreClock {
  /** The store has said its time, milliseconds since the Unix epoch. */
  readonly heard: (nowMs: number) => void
  /** The store has said its time, and that what this clock showed is wrong. */
  readonly corrected: (nowMs: number) => void
  /** Undefined without a recent answer. */
  readonly nowMs: () => number | undefined
}

export const make = (clock: Clock.Clock): StoreClock => {
  let heardMs = 0
  let heardAtMs = Number.NEGATIVE_INFINITY
  return {
    heard: (nowMs) => {
      const atMs = monotonicMs(clock)
      const ageMs = atMs - heardAtMs
      if (ageMs <= filterMs && heardMs + ageMs > nowMs) return
      heardMs = nowMs
      heardAtMs = atMs
    },
    corrected: (nowMs) => {
      heardMs = nowMs
      heardAtMs = monotonicMs(clock)
    },
    nowMs: () => {
      const ageMs = monotonicMs(clock) - heardAtMs
      return ageMs > longestAgeMs ? undefined : Math.floor(heardMs + ageMs + roundingMs)
    }
  }
}

/** A clock that shows `clockMs` now: the time that a turn waits here is not a mistake of the clock that timed it. */
export const goingOn = (clockMs: number, clock: Clock.Clock): () => number => {
  const aheadMs = clockMs - monotonicMs(clock)
  return () => Math.floor(aheadMs + monotonicMs(clock))
}

// internal

/** Error of large numbers of nanoseconds. */
const roundingMs = 0.001

/** How long the least late answer counts. The two clocks do not drift apart by a millisecond meanwhile. */
const filterMs = 10_000

/** The clock of the store may be set, and another server may take its place. */
const longestAgeMs = 300_000
