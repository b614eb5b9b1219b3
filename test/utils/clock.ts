/**
 * Clocks derived from another clock.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"

/** Changes some methods of a clock. */
export const changed = (clock: Clock.Clock, changes: Partial<Clock.Clock>): Clock.Clock =>
  Object.assign(Object.create(clock) as Clock.Clock, changes)

/** A wall clock that can be set back; its intervals do not change. */
export const stepping = (clock: Clock.Clock) => {
  let setBackMs = 0
  const now = () => clock.currentTimeMillisUnsafe() - setBackMs
  return {
    clock: changed(clock, { currentTimeMillisUnsafe: now, currentTimeMillis: Effect.sync(now) }),
    setBack: (ms: number) => void (setBackMs += ms)
  }
}
