/**
 * Whether something that is tried again and again is in trouble: for one line in the log when that begins, and one
 * when it ends.
 */
import type * as Clock from "effect/Clock"
import { monotonicMs } from "./monotonic.ts"

export interface Trouble {
  /** Notes a failure; true for the first one. */
  readonly began: () => boolean
  /** Notes a success; answers how long the trouble lasted, milliseconds, or undefined if there was no trouble. */
  readonly ended: () => number | undefined
}

export const make = (clock: Clock.Clock): Trouble => {
  let sinceMs: number | undefined
  return {
    began: () => {
      if (sinceMs !== undefined) return false
      sinceMs = monotonicMs(clock)
      return true
    },
    ended: () => {
      if (sinceMs === undefined) return undefined
      const lastedMs = Math.round(monotonicMs(clock) - sinceMs)
      sinceMs = undefined
      return lastedMs
    }
  }
}
