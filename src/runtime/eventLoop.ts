/**
 * Finds the code that blocks the event loop. Code that computes for a long time without a break stops everything else
 * in its process, including the renewal of locks.
 *
 * Turns are measured one by one. Activities interleave, so the log names all activities that are running.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { ours } from "../model/shared/logging.ts"

export interface EventLoop {
  /** Runs a turn; `blockedMs` is how long it blocked the event loop, if that is worth a warning. */
  readonly turn: <A>(run: () => A) => { readonly result: A; readonly blockedMs: number | undefined }
}

/** Measures real time, whatever clock the runtime uses: it is the process that blocks. */
export const watch = Effect.fnUntraced(function*(
  activities: () => Iterable<string>
): Effect.fn.Return<EventLoop, never, Scope.Scope> {
  const runLog = Effect.runForkWith(yield* Effect.context<never>())
  let lastMs = performance.now()
  let turnsMs = 0
  const tick = () => {
    const nowMs = performance.now()
    const blockedMs = nowMs - lastMs - turnsMs
    lastMs = nowMs
    turnsMs = 0
    if (blockedMs < warningMs) return
    const names = [...activities()]
    if (names.length === 0) return
    Effect.logWarning("Worker dispatcher: the event loop was blocked, probably by a running activity").pipe(
      ours({
        duration_ms: Math.round(blockedMs),
        activities: names.slice(0, maxNamed).join(", "),
        ...(names.length > maxNamed && { and_others: names.length - maxNamed })
      }),
      runLog
    )
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      const timer = setInterval(tick, intervalMs)
      // The timer alone does not keep the process alive.
      timer.unref()
      return timer
    }),
    (timer) => Effect.sync(() => clearInterval(timer))
  )
  return {
    turn: (run) => {
      const begunMs = performance.now()
      const result = run()
      const ms = performance.now() - begunMs
      turnsMs += ms
      return { result, blockedMs: ms < warningMs ? undefined : Math.round(ms) }
    }
  }
})

// internal

/** The precision of the measurement. */
const intervalMs = 100

const warningMs = 1_000

const maxNamed = 5
