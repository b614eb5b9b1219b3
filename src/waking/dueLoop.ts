/**
 * A loop that acts when something is due, and sleeps until then. It costs nothing while nothing is due.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { monotonicMs } from "../model/shared/monotonic.ts"

export interface DueLoop {
  /** Something may be due earlier than the loop expects. Defaults to now; the loop ignores a later time. */
  readonly wake: (atMs?: number) => void
}

/**
 * Runs `act` whenever the time of `nextMs` has come, until the scope is closed. Times are monotonic milliseconds;
 * `Infinity`: until it is woken. `act` must change `nextMs`, and must not fail.
 */
export const make = Effect.fnUntraced(function*({ act, nextMs }: {
  readonly nextMs: () => number
  readonly act: Effect.Effect<void>
}): Effect.fn.Return<DueLoop, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const woken = Latch.makeUnsafe()
  let wakesAtMs = Number.NEGATIVE_INFINITY
  yield* Effect.forkScoped(Effect.forever(Effect.suspend(() => {
    woken.closeUnsafe()
    const nowMs = monotonicMs(clock)
    wakesAtMs = nextMs()
    if (wakesAtMs <= nowMs) return act
    return wakesAtMs === Infinity
      ? woken.await
      : Effect.raceFirst(woken.await, Effect.sleep(Math.ceil(wakesAtMs - nowMs)))
  })))
  return {
    wake: (atMs = Number.NEGATIVE_INFINITY) => {
      if (atMs < wakesAtMs) woken.openUnsafe()
    }
  }
})
