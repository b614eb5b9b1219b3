/**
 * Slots of turns: each is a loop that claims an item, handles it, and starts again.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import type { ProviderError } from "../provider/ProviderError.ts"
import * as claims from "./claims.ts"
import type { Dispatcher } from "./shutdown.ts"
import type { Supervisor } from "./supervisor.ts"

export interface Source {
  /** For logs. */
  readonly name: string
  /** Number of slots. */
  readonly concurrency: number
  /**
   * Claims one item and returns the effect that handles it. That effect settles the claim whatever happens, also when
   * it is interrupted.
   */
  readonly claim: Effect.Effect<Option.Option<Effect.Effect<void>>, ProviderError>
  readonly looks: claims.Looks
}

export const make = Effect.fnUntraced(function*(
  { claim, concurrency, looks, name }: Source,
  supervisor: Supervisor
): Effect.fn.Return<Dispatcher> {
  const stopped = Effect.as(Deferred.await(supervisor.stopping), Option.none<Effect.Effect<void>>())
  const next = claims.repeated(name, yield* Clock.Clock)(claim, Option.isNone)
  let underWay = 0

  const slot = Effect.whileLoop({
    while: () => !Deferred.isDoneUnsafe(supervisor.stopping),
    // No local variable holds the item, because it would not be collected during the next wait.
    body: () =>
      Effect.flatMap(
        Effect.raceFirst(next, stopped),
        Option.match({
          onNone: () => Effect.void,
          onSome: (work) =>
            Effect.suspend(() => (underWay++, work)).pipe(
              Effect.catchCause((cause) =>
                Cause.hasInterruptsOnly(cause)
                  ? Effect.failCause(cause)
                  : Effect.logError(`${name}: claimed work not settled, its lock expires`, cause)
              ),
              Effect.ensuring(Effect.sync(() => underWay--))
            )
        })
      ),
    step: () => {}
  })

  const fibers: Array<Fiber.Fiber<void>> = []
  return {
    looks,
    underWay: () => underWay,
    start: Effect.gen(function*() {
      for (let i = 0; i < concurrency; i++) {
        fibers.push(yield* Effect.forkDetach(supervisor.watch(name, slot)))
      }
    }),
    ended: Effect.suspend(() => Effect.asVoid(Fiber.awaitAll(fibers))),
    interrupt: Effect.suspend(() => Fiber.interruptAll(fibers))
  }
})
