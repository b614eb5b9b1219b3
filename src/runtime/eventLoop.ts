/**
 * Names what blocks the event loop: code that computes for long without a break holds everything else of its process,
 * the renewal of locks included.
 *
 * Turns are measured one by one. Activities interleave, so all that are under way are named.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { withHarmlessLoggers } from "../model/internal/logging.ts"

export interface EventLoop {
  /** Runs a turn; `ms` is how long it held the event loop, when that is worth a warning. */
  readonly turn: <A>(run: () => A) => { readonly result: A; readonly blockedMs: number | undefined }
}

/** Measures real time, whatever clock the runtime uses: the process is what blocks. */
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
    if (blockedMs < warnedOfMs) return
    const names = [...activities()]
    if (names.length === 0) return
    Effect.logWarning("Worker dispatcher: the event loop was blocked, probably by an activity under way").pipe(
      Effect.annotateLogs({
        package: "duroxide-prisma",
        milliseconds: Math.round(blockedMs),
        activities: names.slice(0, namedAtMost).join(", "),
        ...(names.length > namedAtMost && { andOthers: names.length - namedAtMost })
      }),
      withHarmlessLoggers,
      runLog
    )
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      const timer = setInterval(tick, intervalMs)
      // Does not keep a process alive that has nothing else to do.
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
      return { result, blockedMs: ms < warnedOfMs ? undefined : Math.round(ms) }
    }
  }
})

// internal

/** The precision of what is measured. */
const intervalMs = 100

const warnedOfMs = 1_000

const namedAtMost = 5
