/**
 * Watches whether the database permits the claims of a task worker. A worker whose login has the role of another kind
 * fails; health checks of its process report the problem.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Scope from "effect/Scope"
import type { ProviderError } from "../../provider/ProviderError.ts"
import * as refusalsOf from "../../provider/shared/refusals.ts"
import type { TaskDriver } from "../TaskDriver.ts"

/** Notes how each claim ends. */
export type Watch = <A>(
  foundWork: (answer: A) => boolean
) => (claim: Effect.Effect<A, ProviderError>) => Effect.Effect<A, ProviderError>

export interface ClaimRights {
  readonly watch: Watch
  /** Done when the worker has the role of another kind. */
  readonly denied: Deferred.Deferred<ProviderError>
}

/**
 * Watches the claims of one worker. Until the scope is closed, `problems` say, without secrets, why it claims nothing.
 */
export const make = Effect.fnUntraced(
  function*(problems: TaskDriver["Service"]["problems"]): Effect.fn.Return<ClaimRights, never, Scope.Scope> {
    const refusals = refusalsOf.make(yield* Clock.Clock, "a task worker")
    const denied = Deferred.makeUnsafe<ProviderError>()
    /** What the worker fails with. Its last claims, which end meanwhile, change nothing about it. */
    let failure: ProviderError | undefined
    const problem = () => {
      const error = failure ?? refusals.last()
      if (error === undefined) return undefined
      const state = failure === undefined ? "may not claim tasks" : "has failed"
      return `a task worker of this process ${state}: ${error.reason.message}`
    }
    yield* Effect.acquireRelease(
      Effect.sync(() => problems.add(problem)),
      () => Effect.sync(() => problems.delete(problem))
    )
    return {
      denied,
      watch: (foundWork) =>
        Effect.onExit((exit) =>
          Effect.sync(() => {
            if (Exit.isSuccess(exit)) return refusals.answered(foundWork(exit.value))
            failure ??= refusals.failed(exit.cause)
            if (failure !== undefined) Deferred.doneUnsafe(denied, Exit.succeed(failure))
          })
        )
    }
  }
)
