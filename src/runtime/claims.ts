/**
 * Claims that are repeated: until there is work, and after failures.
 */
import * as Cause from "effect/Cause"
import type * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { monotonicMs } from "../model/shared/monotonic.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import * as refusalsOf from "../provider/shared/refusals.ts"
import { delayAfter } from "../provider/shared/unstored.ts"
import { Backoff } from "./policies.ts"

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

/**
 * Repeats the claims of one dispatcher, `name` in logs, that fail. After a claim that found no work it pauses, unless
 * the provider has waited for work: some do not wait at all.
 *
 * Dies if the store refuses every claim for 10 seconds for lack of rights, and has never given any work:
 * the process has the role of another kind. Shorter refusals happen while rights are granted anew.
 */
export const repeated = (name: string, clock: Clock.Clock) => {
  const defects = new Backoff()
  const refusals = refusalsOf.make(clock, "a runtime")
  // All that find no work share one pause, so that they claim again together.
  let shared: Deferred.Deferred<void> | undefined
  const pause = (ms: number) =>
    Effect.suspend(() => {
      if (shared !== undefined) return Deferred.await(shared)
      const mine = shared = Deferred.makeUnsafe<void>()
      return Effect.ensuring(
        Effect.sleep(ms),
        Effect.sync(() => {
          shared = undefined
          Deferred.doneUnsafe(mine, Effect.void)
        })
      )
    })

  return <A>(claim: Effect.Effect<A, ProviderError>, foundNothing: (answer: A) => boolean): Effect.Effect<A> => {
    const next = (failures: number): Effect.Effect<A> =>
      Effect.suspend(() => {
        const begunMs = monotonicMs(clock)
        return Effect.matchCauseEffect(claim, {
          onSuccess: (answer) => {
            refusals.answered(!foundNothing(answer))
            const leftMs = foundNothing(answer) ? shortestPollMs - (monotonicMs(clock) - begunMs) : 0
            return leftMs <= 0 ? Effect.succeed(answer) : Effect.as(pause(leftMs), answer)
          },
          onFailure: (cause) => {
            const refused = refusals.failed(cause)
            if (refused !== undefined) return Effect.die(refused)
            // The provider logs outages; only a defect, which should never happen, is logged here.
            const log = Cause.hasDies(cause) && defects.next(name).isFirst
              ? Effect.logError(`${name}: claim broke, it is repeated`, cause)
              : Effect.logDebug(`${name}: claim failed, it is repeated`, cause)
            return log.pipe(
              Effect.andThen(Effect.sleep(Duration.min(delayAfter(failures), longestClaimDelay))),
              Effect.andThen(next(failures + 1))
            )
          }
        })
      })
    return next(0)
  }
}

// internal

/** A claim without work is not repeated sooner. */
const shortestPollMs = 100

const longestClaimDelay = Duration.seconds(3)
