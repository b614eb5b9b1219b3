/**
 * Things to do at some later time, all by one fiber. Times are monotonic milliseconds.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { InBackground } from "../model/shared/inBackground.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import * as dueLoop from "./dueLoop.ts"

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

  const ringDue = () => {
    const nowMs = monotonicMs(clock)
    for (const [key, { atMs, ring }] of alarms) {
      if (atMs > nowMs) continue
      alarms.delete(key)
      ring()
    }
  }

  const loop = yield* dueLoop.make({
    nextMs: () => Math.min(...[...alarms.values()].map(({ atMs }) => atMs)),
    act: Effect.sync(ringDue)
  }).pipe(Effect.provideService(InBackground, true))

  return {
    set: (key, atMs, ring) => {
      // In whole milliseconds, as timers are.
      alarms.set(key, { atMs: Math.ceil(atMs), ring })
      loop.wake(atMs)
    },
    cancel: (key) => void alarms.delete(key),
    isSet: (key) => alarms.has(key)
  }
})
