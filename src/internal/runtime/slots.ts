/**
 * The loop both dispatchers share: claim one item, handle it, again. As many of them as the concurrency says.
 *
 * Shutting down: claims stop at once, what is being handled may end within the grace period, then it is interrupted.
 */
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { ProviderError } from "../../ProviderError.ts"

export interface Options<A> {
  readonly name: string
  readonly concurrency: number
  readonly claim: Effect.Effect<Option.Option<A>, ProviderError>
  /** Must settle the item whatever happens, also when it is interrupted. */
  readonly handle: (item: A) => Effect.Effect<void>
  readonly shutdownTimeout: Duration.Duration
}

export const run = Effect.fnUntraced(function*<A>(options: Options<A>): Effect.fn.Return<void, never, Scope.Scope> {
  const stopping = yield* Deferred.make<void>()
  const stopped = Effect.as(Deferred.await(stopping), Option.none<A>())

  const claimNext = (failures: number): Effect.Effect<Option.Option<A>> =>
    Effect.catch(options.claim, (error) =>
      Effect.logWarning("A claim failed and is tried again").pipe(
        Effect.annotateLogs({ problem: error.message }),
        Effect.andThen(Effect.sleep(claimPause(failures + 1))),
        Effect.andThen(Effect.suspend(() => claimNext(failures + 1)))
      ))

  const slot = Effect.gen(function*() {
    while (!Deferred.isDoneUnsafe(stopping)) {
      const item = yield* Effect.raceFirst(claimNext(0), stopped)
      if (Option.isSome(item)) yield* options.handle(item.value)
    }
  })

  const fibers: Array<Fiber.Fiber<void>> = []
  yield* Effect.addFinalizer(() =>
    Effect.gen(function*() {
      yield* Deferred.succeed(stopping, undefined)
      const ended = yield* Effect.timeoutOption(Fiber.awaitAll(fibers), options.shutdownTimeout)
      if (Option.isSome(ended)) return
      yield* Effect.logWarning(`${options.name}: work is interrupted, the shutdown timeout is over`)
      yield* Fiber.interruptAll(fibers)
    })
  )
  for (let i = 0; i < options.concurrency; i++) {
    fibers.push(
      yield* Effect.forkDetach(Effect.annotateLogs(slot, { package: "duroxide-prisma", fiber: `${options.name}-${i}` }))
    )
  }
})

// internal

// 200, 400, 800, … milliseconds, at most 3 seconds.
const claimPause = (failures: number) => Duration.millis(Math.min(100 * 2 ** failures, 3_000))
