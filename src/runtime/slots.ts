/**
 * Slots: the loop of both dispatchers, which claims an item, handles it, and starts again. Each dispatcher has as many
 * slots as its concurrency.
 *
 * A shutdown stops all claims at once. Work that is being handled may end within the shutdown timeout; after that it is
 * interrupted, and may clean up during the grace period. Work that has not ended by then is left running, and its lock
 * expires.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import { withHarmlessLoggers } from "../model/internal/logging.ts"
import { monotonicMs } from "../model/internal/monotonic.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { pauseAfter, Pauses } from "./policies.ts"
import type { Settings } from "./settings.ts"
import type { Supervisor } from "./supervisor.ts"

export interface Dispatcher {
  /** For logs. */
  readonly name: string
  readonly concurrency: number
  /**
   * Claims one item and returns the effect that handles it. That effect settles the claim whatever happens, also when
   * it is interrupted.
   */
  readonly claim: Effect.Effect<Option.Option<Effect.Effect<void>>, ProviderError>
  readonly looks: Looks
}

/** When the store last answered a claim. */
export interface Looks {
  readonly answered: () => void
  /** Milliseconds since then; undefined before the first answer. */
  readonly ageMs: () => number | undefined
}

export const looks = (clock: Clock.Clock): Looks => {
  let lastMs: number | undefined
  return {
    answered: () => void (lastMs = monotonicMs(clock)),
    ageMs: () => lastMs === undefined ? undefined : monotonicMs(clock) - lastMs
  }
}

export interface Slots {
  /** Items being handled, by dispatcher, in the order given. */
  readonly underWay: () => ReadonlyArray<number>
}

/** Starts all slots. Add their finalizer to the scope last, so that it runs first. */
export const run = Effect.fnUntraced(function*(
  dispatchers: ReadonlyArray<Dispatcher>,
  settings: Settings,
  supervisor: Supervisor
): Effect.fn.Return<Slots, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const stopped = Effect.as(Deferred.await(supervisor.stopping), Option.none<Effect.Effect<void>>())
  const isStopping = () => Deferred.isDoneUnsafe(supervisor.stopping)
  const defects = new Pauses()

  /** All slots of a dispatcher that find no work share one pause, so that they claim again together. */
  const pauses = new Map<string, Deferred.Deferred<void>>()
  const pause = (name: string, ms: number) =>
    Effect.suspend(() => {
      const shared = pauses.get(name)
      if (shared !== undefined) return Deferred.await(shared)
      const mine = Deferred.makeUnsafe<void>()
      pauses.set(name, mine)
      return Effect.ensuring(
        Effect.sleep(ms),
        Effect.sync(() => {
          pauses.delete(name)
          Deferred.doneUnsafe(mine, Effect.void)
        })
      )
    })

  /** Waits until there is work, and repeats claims that fail. */
  const next = (
    { claim, name }: Pick<Dispatcher, "claim" | "name">,
    failures = 0
  ): Effect.Effect<Option.Option<Effect.Effect<void>>> =>
    Effect.suspend(() => {
      const begunMs = monotonicMs(clock)
      return Effect.matchCauseEffect(claim, {
        onSuccess: (work) => {
          const leftMs = shortestPollMs - (monotonicMs(clock) - begunMs)
          return Option.isSome(work) || leftMs <= 0 ? Effect.succeed(work) : Effect.as(pause(name, leftMs), work)
        },
        onFailure: (cause) => {
          // The provider logs outages; only a defect, which should never happen, is logged here.
          const log = Cause.hasDies(cause) && defects.next(name).isFirst
            ? Effect.logError(`${name}: claim broke, it is repeated`, cause)
            : Effect.logDebug(`${name}: claim failed, it is repeated`, cause)
          return log.pipe(
            Effect.andThen(Effect.sleep(Duration.min(pauseAfter(failures), longestClaimPause))),
            Effect.andThen(next({ claim, name }, failures + 1))
          )
        }
      })
    })

  const counts = dispatchers.map(() => 0)
  const slot = (dispatcher: Dispatcher, index: number) =>
    Effect.whileLoop({
      while: () => !isStopping(),
      // No local variable holds the item, because it would not be collected during the next wait.
      body: () =>
        Effect.flatMap(
          Effect.raceFirst(next(dispatcher), stopped),
          Option.match({
            onNone: () => Effect.void,
            onSome: (work) =>
              Effect.suspend(() => (counts[index]!++, work)).pipe(
                Effect.catchCause((cause) =>
                  Cause.hasInterruptsOnly(cause)
                    ? Effect.failCause(cause)
                    : Effect.logError(`${dispatcher.name}: claimed work not settled, its lock expires`, cause)
                ),
                Effect.ensuring(Effect.sync(() => counts[index]!--))
              )
          })
        ),
      step: () => {}
    })

  const fibers: Array<Fiber.Fiber<void>> = []
  yield* Effect.addFinalizer(() =>
    Effect.gen(function*() {
      const begunMs = monotonicMs(clock)
      yield* supervisor.stop
      const ended = yield* Effect.timeoutOption(Fiber.awaitAll(fibers), settings.shutdownTimeout)
      if (Option.isNone(ended)) {
        yield* Effect.logWarning("Runtime: running work is interrupted, the shutdown timeout has passed")
        const interrupted = yield* Effect.timeoutOption(
          Fiber.interruptAll(fibers),
          Duration.sum(settings.activityGracePeriod, lastStatements)
        )
        if (Option.isNone(interrupted)) {
          yield* Effect.logWarning("Runtime: interrupted work has not ended, its locks expire")
        }
      }
      yield* Effect.annotateLogs(Effect.logInfo("Runtime: stopped"), {
        stoppingTookSeconds: Math.round((monotonicMs(clock) - begunMs) / 100) / 10
      })
    }).pipe(Effect.annotateLogs({ package: "duroxide-prisma" }), withHarmlessLoggers)
  )
  for (const [index, dispatcher] of dispatchers.entries()) {
    for (let i = 0; i < dispatcher.concurrency; i++) {
      fibers.push(yield* Effect.forkDetach(supervisor.watch(dispatcher.name, slot(dispatcher, index))))
    }
  }
  return { underWay: () => counts }
})

// internal

/** A claim without work is not repeated sooner, even if the provider does not wait for work. */
const shortestPollMs = 100

const longestClaimPause = Duration.seconds(3)

/** Time after the grace period to abandon the interrupted work. */
const lastStatements = Duration.seconds(2)
