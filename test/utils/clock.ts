/**
 * Clocks that differ from another one.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"

/** The same clock, but for what `changes` holds. */
export const changed = (clock: Clock.Clock, changes: Partial<Clock.Clock>): Clock.Clock =>
  Object.assign(Object.create(clock) as Clock.Clock, changes)

/** Shows a wall clock that can be set back; its intervals are not touched. */
export const stepping = (clock: Clock.Clock) => {
  let setBackMs = 0
  const now = () => clock.currentTimeMillisUnsafe() - setBackMs
  return {
    clock: changed(clock, { currentTimeMillisUnsafe: now, currentTimeMillis: Effect.sync(now) }),
    setBack: (ms: number) => void (setBackMs += ms)
  }
}
