/**
 * How far a call is, and how long it still takes.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"

export interface Progress {
  /** `reading` checks the file before anything is written. */
  readonly phase: "reading" | "copying" | "comparing"
  /** Rows of the file that this phase is through with. */
  readonly done: number
  /** Rows of the file. */
  readonly total: number
  /** Since this phase began. */
  readonly elapsedMs: number
  /** Time that this phase still takes at its speed until now; null before it has a speed. */
  readonly remainingMs: number | null
}

export type OnProgress = ((progress: Progress) => Effect.Effect<void>) | undefined

/** Begins a phase, of which `before` rows were done by an earlier call. */
export const phase = Effect.fnUntraced(function*(
  onProgress: OnProgress,
  name: Progress["phase"],
  total: number,
  before = 0
) {
  const started = yield* Clock.currentTimeMillis
  return Effect.fnUntraced(function*(done: number) {
    // Reading the file does not wait for anything: others get their turn here.
    yield* Effect.yieldNow
    if (onProgress === undefined) return
    const elapsedMs = (yield* Clock.currentTimeMillis) - started
    const remainingMs = done === before ? null : Math.round(elapsedMs / (done - before) * Math.max(0, total - done))
    yield* onProgress({ phase: name, done, total, elapsedMs, remainingMs })
  })
})
