/**
 * Watches the loops of a runtime. One that ends before the runtime is closed fails the runtime, so that no process is
 * alive without claiming work.
 */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { withHarmlessLoggers } from "../model/internal/logging.ts"

export interface Supervisor {
  /** Runs a loop, with loggers that cannot break it. */
  readonly watch: <E>(name: string, loop: Effect.Effect<void, E>) => Effect.Effect<void, E>
  /** Done when no more work is to be claimed: the runtime is being closed, or has failed. */
  readonly stopping: Deferred.Deferred<void>
  readonly stop: Effect.Effect<void>
  /** Done with the first loop that ended, and what it ended with. */
  readonly failure: Deferred.Deferred<Failure>
}

export interface Failure {
  readonly loop: string
  readonly cause: Cause.Cause<unknown>
}

export const make = (): Supervisor => {
  const stopping = Deferred.makeUnsafe<void>()
  const failure = Deferred.makeUnsafe<Failure>()
  return {
    stopping,
    failure,
    stop: Effect.sync(() => Deferred.doneUnsafe(stopping, Effect.void)),
    watch: (name, loop) =>
      loop.pipe(
        Effect.onExit((exit) => {
          if (Deferred.isDoneUnsafe(stopping)) return Effect.void
          const cause = Exit.isFailure(exit) ? exit.cause : Cause.die(new Error("it returned"))
          Deferred.doneUnsafe(failure, Effect.succeed({ loop: name, cause }))
          Deferred.doneUnsafe(stopping, Effect.void)
          return Effect.logFatal(`Runtime: a loop of "${name}" has ended, this process takes no more work`, cause)
        }),
        withHarmlessLoggers,
        Effect.annotateLogs({ package: "duroxide-prisma" })
      )
  }
}
