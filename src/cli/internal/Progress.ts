/**
 * How far a long command is: one line that is rewritten on a terminal, a plain line every 10 seconds elsewhere.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { Output } from "./Output.ts"

export interface Progress {
  /** The state in one line, and as JSON. Called as often as the state changes; most calls print nothing. */
  readonly report: (text: string, json: object) => Effect.Effect<void>
}

export const make: Effect.Effect<Progress, never, Output> = Effect.gen(function*() {
  const output = yield* Output
  const pauseMs = output.canRewrite ? 100 : 10_000
  // A short command leaves no line in a file.
  let nextMs = output.canRewrite ? Number.NEGATIVE_INFINITY : (yield* Clock.currentTimeMillis) + pauseMs
  return {
    report: (text, json) =>
      Effect.flatMap(Clock.currentTimeMillis, (nowMs) => {
        if (nowMs < nextMs) return Effect.void
        nextMs = nowMs + pauseMs
        return output.canRewrite ? output.rewrite(text) : output.note(text, { progress: json })
      })
  }
})
