/**
 * The services as processes on this machine: started, killed, paused and stopped by the demo.
 */
import { Data, Deferred, Effect, type Scope } from "effect"
import { spawn } from "node:child_process"

export class ProcessEnded extends Data.TaggedError("ProcessEnded")<{
  readonly name: string
  readonly pid: number
  readonly log: string
}> {
  override get message() {
    return `${this.name} (process ${this.pid}) ended with a failure. It logged:\n${this.log}`
  }
}

export interface Process {
  readonly name: string
  readonly pid: number
  /** Waits until it is ready; the port where it serves HTTP, or 0. */
  readonly ready: Effect.Effect<number, ProcessEnded>
  /** Waits until it ends by itself; fails unless that is in good order. */
  readonly end: Effect.Effect<void, ProcessEnded>
  /** Fails when it ends without having been asked to. */
  readonly watch: Effect.Effect<never, ProcessEnded>
  readonly pause: Effect.Effect<void>
  readonly resume: Effect.Effect<void>
  /** Sends SIGKILL, and waits until it has ended. */
  readonly kill: Effect.Effect<void>
  /** SIGTERM; fails unless it ends in good order. */
  readonly stop: Effect.Effect<void, ProcessEnded>
  readonly tell: (message: string) => Effect.Effect<void>
  /** The last of what it logged. */
  readonly log: () => string
}

export interface Options {
  readonly file: string
  readonly name: string
  readonly environment: Readonly<Record<string, string>>
  /** Receives what it reports, besides the port. */
  readonly onMessage?: (message: unknown) => void
  /** Receives what it prints. By default that is part of the log. */
  readonly onPrint?: (text: string) => void
}

/** Killed with the scope. */
export const start = Effect.fnUntraced(function*(
  { environment, file, name, onMessage, onPrint }: Options
): Effect.fn.Return<Process, never, Scope.Scope> {
  const ready = yield* Deferred.make<number>()
  const ended = yield* Deferred.make<number | NodeJS.Signals | null>()
  let log = ""
  let asked = false
  const keep = (text: string) => {
    log = (log + text).slice(-20_000)
  }
  // The channel closes when this process ends, which the services notice.
  const child = spawn(process.execPath, [file, name], {
    env: { ...process.env, ...environment },
    stdio: ["ignore", "pipe", "pipe", "ipc"]
  })
  child.stdout!.setEncoding("utf8").on("data", onPrint ?? keep)
  child.stderr!.setEncoding("utf8").on("data", keep)
  child.on("message", (message: { readonly port?: number }) => {
    if (message.port === undefined) onMessage?.(message)
    else Deferred.doneUnsafe(ready, Effect.succeed(message.port))
  })
  child.on("close", (code, signal) => Deferred.doneUnsafe(ended, Effect.succeed(code ?? signal)))

  const pid = child.pid!
  const failure = Effect.suspend(() => Effect.fail(new ProcessEnded({ name, pid, log })))
  const end = Effect.flatMap(Deferred.await(ended), (code) => code === 0 ? Effect.void : failure)
  const ask = (signal: NodeJS.Signals) =>
    Effect.suspend(() => {
      asked = true
      child.kill(signal)
      return Deferred.await(ended)
    })
  const kill = Effect.asVoid(ask("SIGKILL"))
  yield* Effect.addFinalizer(() => kill)
  return {
    name,
    pid,
    ready: Effect.raceFirst(Deferred.await(ready), Effect.andThen(Deferred.await(ended), failure)),
    end,
    watch: Effect.flatMap(Deferred.await(ended), () => asked ? Effect.never : failure),
    pause: Effect.sync(() => void child.kill("SIGSTOP")),
    resume: Effect.sync(() => void child.kill("SIGCONT")),
    kill,
    stop: Effect.andThen(ask("SIGTERM"), end),
    tell: (message) => Effect.sync(() => void child.send(message)),
    log: () => log
  }
})
