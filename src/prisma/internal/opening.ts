/**
 * What is opened by its first use.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import { monotonicMs } from "../../model/shared/monotonic.ts"

/**
 * Opens at the first use, in the scope of the caller. Uses that come while it opens wait for the same attempt. If the
 * attempt fails, uses fail with its error, at once, for as long as the attempt took; the next use tries again. So an
 * attempt that hangs does not delay every use.
 */
export const opening = Effect.fnUntraced(function*<A, E>(
  open: Effect.Effect<A, E, Scope.Scope>
): Effect.fn.Return<Effect.Effect<A, E>, never, Scope.Scope> {
  const scope = yield* Effect.scope
  const context = yield* Effect.context<never>()
  const clock = yield* Clock.Clock
  let attempt: Fiber.Fiber<A, E> | undefined
  let pausedUntilMs = Number.NEGATIVE_INFINITY

  const once = Effect.suspend(() => {
    const begunMs = monotonicMs(clock)
    return Effect.acquireUseRelease(
      Scope.fork(scope),
      (own) => Scope.provide(open, own),
      (own, exit) => {
        if (Exit.isSuccess(exit)) return Effect.void
        const endedMs = monotonicMs(clock)
        pausedUntilMs = endedMs + (endedMs - begunMs)
        return Scope.close(own, exit)
      }
    )
  }).pipe(Effect.provideContext(context), Effect.interruptible)

  // A use that is interrupted does not end the attempt.
  return Effect.uninterruptibleMask((restore) =>
    Effect.suspend(() => {
      const exit = attempt?.pollUnsafe()
      const mayBegin = attempt === undefined ||
        (exit !== undefined && Exit.isFailure(exit) && monotonicMs(clock) >= pausedUntilMs)
      const current = mayBegin
        ? Effect.tap(Effect.forkIn(once, scope), (fiber) => Effect.sync(() => attempt = fiber))
        : Effect.succeed(attempt!)
      return Effect.flatMap(current, (fiber) => restore(Fiber.join(fiber)))
    })
  )
})
