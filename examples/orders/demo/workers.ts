/**
 * Worker processes, started, killed and stopped by the demo.
 */
import * as Data from "effect/Data"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { spawn } from "node:child_process"

export class WorkerEnded extends Data.TaggedError("WorkerEnded")<{ readonly pid: number; readonly output: string }> {
  override get message() {
    return `worker process ${this.pid} ended by itself. It said:\n${this.output}`
  }
}

export interface Worker {
  readonly pid: number
  /** Waits until it serves. */
  readonly ready: Effect.Effect<void>
  /** Sends SIGKILL, and waits until the process has ended. */
  readonly kill: Effect.Effect<void>
  /** SIGTERM; fails unless the process ends in good order. */
  readonly stop: Effect.Effect<void, WorkerEnded>
  /** Fails when the process ends without having been asked to. */
  readonly watch: Effect.Effect<never, WorkerEnded>
  /** The last of what it logged. */
  readonly log: () => string
}

/** Killed with the scope. */
export const start = (
  file: string,
  environment: Readonly<Record<string, string>>
): Effect.Effect<Worker, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(process.execPath, [file], {
        env: { ...process.env, ...environment },
        stdio: ["ignore", "pipe", "pipe", "ipc"] // the channel closes when this process ends, which the worker notices
      })
      let log = ""
      const keep = (chunk: Buffer) => {
        log = (log + chunk.toString()).slice(-20_000)
      }
      child.stdout!.on("data", keep)
      child.stderr!.on("data", keep)
      const ready = Deferred.makeUnsafe<void>()
      child.on("message", () => Deferred.doneUnsafe(ready, Effect.void))
      let asked = false
      const ended = Deferred.makeUnsafe<number | NodeJS.Signals | null>()
      child.on("close", (code, signal) => Deferred.doneUnsafe(ended, Effect.succeed(code ?? signal)))
      const ask = (signal: NodeJS.Signals) =>
        Effect.suspend(() => {
          asked = true
          child.kill(signal)
          return Deferred.await(ended)
        })
      const failure = Effect.suspend(() => Effect.fail(new WorkerEnded({ pid: child.pid!, output: log })))
      return {
        pid: child.pid!,
        ready: Deferred.await(ready),
        kill: Effect.asVoid(ask("SIGKILL")),
        // A process that has only just started does not listen to signals yet, and simply ends.
        stop: Effect.flatMap(ask("SIGTERM"), (end) => end === 0 || end === "SIGTERM" ? Effect.void : failure),
        watch: Effect.flatMap(Deferred.await(ended), () => asked ? Effect.never : failure),
        log: () => log
      }
    }),
    (worker) => worker.kill
  )
