/**
 * Resources of one scope that are closed at the same time. Otherwise each is closed only when those opened after it
 * are, and what they wait for a silent database adds up.
 */
import * as Effect from "effect/Effect"
import * as Scope from "effect/Scope"

/** Opens a resource. */
export type Open = <A, E, R>(resource: Effect.Effect<A, E, R>) => Effect.Effect<A, E, Exclude<R, Scope.Scope>>

/** For the current scope, in whose order they take the place of the first that is opened. */
export const make: Effect.Effect<Open, never, Scope.Scope> = Effect.map(Effect.scope, (scope) => {
  let all: Scope.Scope | undefined
  return (resource) =>
    Effect.suspend(() => {
      all ??= Scope.forkUnsafe(scope, "parallel")
      return Scope.provide(resource, Scope.forkUnsafe(all))
    })
})
