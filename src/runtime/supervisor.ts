/**
 * Watches the loops of a runtime. When a loop ends before the runtime is closed, the runtime fails, so that no process
 * stays alive without claiming work.
 */
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { ours } from "../model/shared/logging.ts"

export interface Supervisor {
  /** Runs a loop, with loggers that cannot break it. */
  readonly watch: <E>(name: string, loop: Effect.Effect<void, E>) => Effect.Effect<void, E>
  /** Done when the runtime must claim no more work, because it is closing or has failed. */
  readonly stopping: Deferred.Deferred<void>
  readonly stop: Effect.Effect<void>
  /** Done with the first loop that ended, and its cause. */
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
          return Effect.logFatal(`Runtime: a loop of "${name}" has ended, this process claims no more work`, cause)
        }),
        ours()
      )
  }
}

/**
 * Starts a runtime. What fails or interrupts its start ends its loops, too: they are not at fault then.
 */
export const starting = <A, E, R>(start: (supervisor: Supervisor) => Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const supervisor = make()
    return Effect.onError(start(supervisor), () => supervisor.stop)
  })
