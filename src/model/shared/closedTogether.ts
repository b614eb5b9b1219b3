/**
 * Resources of one scope that are closed at the same time. Otherwise each is closed only when those opened after it
 * are, and their waits for a silent database add up.
 */
import * as Effect from "effect/Effect"
import * as Scope from "effect/Scope"

/** Opens a resource in a scope of its own, which is closed with the others. */
export type Open = <A, E, R>(resource: Effect.Effect<A, E, R>) => Effect.Effect<A, E, Exclude<R, Scope.Scope>>

/** For resources of the current scope, which closes all of them when it would close the one that was opened first. */
export const make: Effect.Effect<Open, never, Scope.Scope> = Effect.map(Effect.scope, (scope) => {
  let all: Scope.Scope | undefined
  return (resource) =>
    Effect.suspend(() => {
      all ??= Scope.forkUnsafe(scope, "parallel")
      return Scope.provide(resource, Scope.forkUnsafe(all))
    })
})
