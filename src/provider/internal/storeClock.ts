/**
 * The store's clock, as far as its answers tell it. Between two answers the monotonic clock of this process stands in for
 * it, so an estimate is late by no more than an answer was on its way.
 */
import type * as Clock from "effect/Clock"
import { monotonicMs } from "../../model/internal/monotonic.ts"

export interface StoreClock {
  /** The store has said its time, milliseconds since the Unix epoch. */
  readonly heard: (nowMs: number) => void
  /** Undefined without a recent answer. */
  readonly nowMs: () => number | undefined
}

export const make = (clock: Clock.Clock): StoreClock => {
  let heardMs = 0
  let heardAtMs = Number.NEGATIVE_INFINITY
  return {
    heard: (nowMs) => {
      heardMs = nowMs
      heardAtMs = monotonicMs(clock)
    },
    nowMs: () => {
      const ageMs = monotonicMs(clock) - heardAtMs
      return ageMs > longestAgeMs ? undefined : Math.floor(heardMs + ageMs)
    }
  }
}

// internal

/** The clock of the store may be set, and another server may take its place. */
const longestAgeMs = 300_000
