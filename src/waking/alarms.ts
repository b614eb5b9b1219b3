/**
 * Things to do at some later time, all by one fiber. Times are monotonic milliseconds.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { InBackground } from "../model/shared/inBackground.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"

export interface Alarms {
  /** Replaces the alarm of this key. `ring` must not throw. */
  readonly set: (key: string, atMs: number, ring: () => void) => void
  readonly cancel: (key: string) => void
  readonly isSet: (key: string) => boolean
}

/** Rings until the scope is closed. */
export const make: Effect.Effect<Alarms, never, Scope.Scope> = Effect.gen(function*() {
  const clock = yield* Clock.Clock
  const alarms = new Map<string, { readonly atMs: number; readonly ring: () => void }>()
  const changed = Latch.makeUnsafe()
  let nextMs = Number.POSITIVE_INFINITY

  const ringDue = () => {
    const nowMs = monotonicMs(clock)
    for (const [key, { atMs, ring }] of alarms) {
      if (atMs > nowMs) continue
      alarms.delete(key)
      ring()
    }
    nextMs = Math.min(...[...alarms.values()].map(({ atMs }) => atMs))
    return nextMs - nowMs
  }

  yield* Effect.forever(Effect.suspend(() => {
    changed.closeUnsafe()
    const pauseMs = ringDue()
    return pauseMs === Infinity ? changed.await : Effect.raceFirst(changed.await, Effect.sleep(pauseMs))
  })).pipe(
    Effect.provideService(InBackground, true),
    Effect.forkScoped
  )

  return {
    set: (key, atMs, ring) => {
      // In whole milliseconds, as timers are.
      alarms.set(key, { atMs: Math.ceil(atMs), ring })
      if (atMs < nextMs) changed.openUnsafe()
    },
    cancel: (key) => void alarms.delete(key),
    isSet: (key) => alarms.has(key)
  }
})
