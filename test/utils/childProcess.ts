/**
 * Child processes, started, watched and killed by tests.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"

export interface Process {
  readonly pid: number
  /** Ends when the process has printed a line that holds `text`; dies when the process ends before. */
  readonly printed: (text: string) => Effect.Effect<void>
  /** SIGKILL: the process has ended when this returns. */
  readonly kill: Effect.Effect<void>
  /** SIGTERM, then the exit code. */
  readonly stop: Effect.Effect<number | null>
  /** Ends with the process, whatever ends it. */
  readonly ended: Effect.Effect<void>
  readonly output: () => string
}

/** Runs `build/test/programs/<name>.js`; killed with the scope. */
export const start = (name: string, ...args: ReadonlyArray<string>): Effect.Effect<Process, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const program = fileURLToPath(new URL(`../../build/test/programs/${name}.js`, import.meta.url))
      const child = spawn(process.execPath, [program, ...args], { stdio: ["ignore", "pipe", "pipe"] })
      let output = ""
      const listeners = new Set<() => void>()
      const collect = (chunk: Buffer) => {
        output += chunk.toString()
        listeners.forEach((listener) => listener())
      }
      child.stdout.on("data", collect)
      child.stderr.on("data", collect)
      let ended = false
      let code: number | null = null
      child.on("exit", (exitCode) => {
        ended = true
        code = exitCode
        listeners.forEach((listener) => listener())
      })
      const until = <A>(look: () => A | undefined) =>
        Effect.callback<A>((resume) => {
          const listener = () => {
            const found = look()
            if (found === undefined) return
            listeners.delete(listener)
            resume(Effect.succeed(found))
          }
          listeners.add(listener)
          listener()
        })
      const exited = until(() => ended ? { code } : undefined)
      const process_: Process = {
        pid: child.pid!,
        output: () => output,
        ended: Effect.asVoid(exited),
        printed: (text) =>
          Effect.flatMap(
            until(() => output.includes(text) ? "printed" as const : ended ? "ended" as const : undefined),
            (seen) =>
              seen === "printed"
                ? Effect.void
                : Effect.die(new Error(`${name} ended before it said "${text}":\n${output}`))
          ),
        kill: Effect.andThen(Effect.sync(() => child.kill("SIGKILL")), Effect.asVoid(exited)),
        stop: Effect.andThen(Effect.sync(() => child.kill("SIGTERM")), Effect.map(exited, ({ code }) => code))
      }
      return process_
    }),
    (child) => child.kill
  )
