/**
 * A terminal that is drawn as a whole, again and again, and is left as it was.
 */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { Process } from "./io.ts"
import type { Stream } from "./io.ts"

export interface Screen {
  /** Shows these lines in place of the last ones; an ellipsis stands for those that do not fit. */
  readonly draw: (lines: ReadonlyArray<string>) => Effect.Effect<void>
  /** Waits until someone presses q, or Ctrl-C. */
  readonly quit: Effect.Effect<void>
}

/** Lines that it can show. */
export const rowsOf = ({ rows }: Pick<Stream, "rows">): number => Math.max(2, (rows || 24) - 1)

/** Takes the terminal until the scope is closed. */
export const open: Effect.Effect<Screen, never, Process | Scope.Scope> = Effect.gen(function*() {
  const { stdin, stdout } = yield* Process
  const pressed = Deferred.makeUnsafe<void>()
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      stdout.write(enter)
      return stdin.keys((key) => {
        if (key === "q" || key === "Q" || key === ctrlC) Deferred.doneUnsafe(pressed, Effect.void)
      })
    }),
    (stop) =>
      Effect.sync(() => {
        stop()
        stdout.write(leave)
      })
  )
  return {
    draw: (lines) =>
      Effect.sync(() => {
        // The last row stays free: a line break there would scroll.
        const most = rowsOf(stdout)
        const shown = lines.length <= most ? lines : [...lines.slice(0, most - 1), "…"]
        stdout.write(home + shown.map((line) => `${line}${eraseRest}\r\n`).join("") + eraseBelow)
      }),
    quit: Deferred.await(pressed)
  }
})

// internal

const ctrlC = "\u0003"

/** The other screen of the terminal, without a cursor, and without a continuation of lines that are too long. */
const enter = "\u001b[?1049h\u001b[?25l\u001b[?7l"
const leave = "\u001b[?7h\u001b[?25h\u001b[?1049l"

const home = "\u001b[H"
const eraseRest = "\u001b[K"
const eraseBelow = "\u001b[J"
