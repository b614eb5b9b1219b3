/**
 * Trouble of something that is tried again and again: when it begins and ends, for one line in the log each, and the
 * pauses between the tries.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import { monotonicMs } from "./monotonic.ts"

export interface Trouble {
  /** Notes a failure; answers how many in a row came before it. */
  readonly failed: () => number
  /** Notes a success; answers with the trouble that it ends, or undefined if there was no trouble. */
  readonly ended: () => { readonly failures: number; readonly lastedMs: number } | undefined
}

export const make = (clock: Clock.Clock): Trouble => {
  let failures = 0
  let sinceMs = 0
  return {
    failed: () => {
      if (failures === 0) sinceMs = monotonicMs(clock)
      return failures++
    },
    ended: () => {
      if (failures === 0) return undefined
      const ended = { failures, lastedMs: Math.round(monotonicMs(clock) - sinceMs) }
      failures = 0
      return ended
    }
  }
}

/** The pause after a failure: `firstMs`, doubled with each of the `failures` before it, at most `longestMs`. */
export const growingMs = (firstMs: number, longestMs: number, failures: number): number =>
  Math.min(firstMs * 2 ** failures, longestMs)

/** Sleeps for half of the time at least: those that have failed together do not try again together. */
export const sleepUpTo = (ms: number): Effect.Effect<void> =>
  Effect.flatMap(Random.nextBetween(0.5, 1), (part) => Effect.sleep(part * ms))
