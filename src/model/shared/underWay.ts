/**
 * A statement that claims work for waiting callers. The interruption of a caller does not cut it off: what it has
 * claimed for that caller would be lost until its lock ends. The interrupted caller waits until the statement has
 * ended, and what was meant for it has gone to other callers, or back to the store.
 */
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type * as Scope from "effect/Scope"

export class UnderWay<Caller> {
  private current: { readonly callers: ReadonlySet<Caller>; readonly ended: Deferred.Deferred<void> } | undefined

  /** Runs until it ends, also when the fiber is interrupted. */
  run<A, E, R>(callers: Iterable<Caller>, claim: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return Effect.suspend(() => {
      const ended = Deferred.makeUnsafe<void>()
      this.current = { callers: new Set(callers), ended }
      return Effect.ensuring(
        claim,
        Effect.sync(() => {
          this.current = undefined
          Deferred.doneUnsafe(ended, Effect.void)
        })
      )
    }).pipe(Effect.uninterruptible)
  }

  /** For an interrupted caller: waits for the end of a statement on its behalf, at most 2 seconds. */
  awaitFor(caller: Caller): Effect.Effect<void> {
    return Effect.suspend(() =>
      this.current?.callers.has(caller) === true
        ? Effect.asVoid(Effect.timeoutOption(Deferred.await(this.current.ended), longestWait))
        : Effect.void
    )
  }
}

/**
 * Forks the loop that runs the claims, until the scope is closed. Closing waits at most 2 seconds for a claim under
 * way: if the store does not answer, a claim lasts until its statement has timed out and has been repeated.
 */
export const forkLoop = (loop: Effect.Effect<void>): Effect.Effect<void, never, Scope.Scope> =>
  Effect.asVoid(
    Effect.acquireRelease(
      Effect.forkDetach(loop),
      (fiber) => Effect.timeoutOption(Fiber.interrupt(fiber), longestWait)
    )
  )

// internal

/** The store may not answer. */
const longestWait = Duration.seconds(2)
