/**
 * Abandons tasks of claims whose answers are lost: one fiber looks for all claims of a worker.
 *
 * A claim may still be under way at the server, so it is looked for three times. No index leads to its tasks, so claims
 * that are due together share a look, and in an outage the pauses grow.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { InBackground } from "../../model/shared/inBackground.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { problem, storeDelayAfter, verdict } from "../../provider/shared/unstored.ts"
import * as dueLoop from "../../waking/dueLoop.ts"
import type { Topics } from "../../waking/Topics.ts"
import { Topic } from "../../waking/Topics.ts"
import { farewellMs } from "./settlement.ts"

export const make = Effect.fnUntraced(function*({ returnClaims, topics }: {
  /** Returns the ids of claims that had taken tasks and now hold none. */
  readonly returnClaims: (claimIds: ReadonlyArray<number>) => Effect.Effect<ReadonlyArray<number>, ProviderError>
  readonly topics: Pick<Topics["Service"], "announce">
}): Effect.fn.Return<(claimId: number) => Effect.Effect<void>, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const claims = new Map<number, { looks: number; dueMs: number }>()
  let failures = 0
  /** Monotonic milliseconds until which the store is left alone. */
  let pausedUntilMs = -Infinity

  const look = (claimIds: ReadonlyArray<number>) =>
    Effect.tap(returnClaims(claimIds), (found) => {
      failures = 0
      for (const claimId of found) claims.delete(claimId)
      // A claim that is not found may still have given back some of its tasks.
      return topics.announce([{ topic: Topic.outbox }])
    })

  const lookAgain = (claimIds: ReadonlyArray<number>) =>
    Effect.matchEffect(look(claimIds), {
      onSuccess: () =>
        Effect.sync(() => {
          const nowMs = monotonicMs(clock)
          for (const claimId of claimIds) {
            const claim = claims.get(claimId)
            if (claim === undefined) continue
            const pauseMs = pausesMs[claim.looks++]
            if (pauseMs === undefined) claims.delete(claimId)
            else claim.dueMs = nowMs + pauseMs
          }
        }),
      onFailure: (error) => {
        if (verdict(error) === "Kept") {
          const pause = storeDelayAfter(failures++)
          pausedUntilMs = monotonicMs(clock) + Duration.toMillis(pause)
          return Effect.logDebug("Task worker: claims without an answer not given back yet").pipe(problem(error))
        }
        for (const claimId of claimIds) claims.delete(claimId)
        return notReturned(error)
      }
    })

  // Runs after the loop has ended. One last look: leases that a claim still under way takes end by themselves.
  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => claims.size === 0 ? Effect.void : look([...claims.keys()])).pipe(
      Effect.timeout(farewellMs),
      Effect.catch(notReturned)
    )
  )

  const loop = yield* dueLoop.make({
    nextMs: () => Math.max(pausedUntilMs, Math.min(...[...claims.values()].map(({ dueMs }) => dueMs))),
    act: Effect.suspend(() => {
      const nowMs = monotonicMs(clock)
      return lookAgain([...claims].flatMap(([claimId, { dueMs }]) => dueMs <= nowMs ? [claimId] : []))
    })
  }).pipe(Effect.provideService(InBackground, true))

  return (claimId) =>
    Effect.sync(() => {
      claims.set(claimId, { looks: 0, dueMs: monotonicMs(clock) })
      loop.wake()
    })
})

// internal

/** Before the second look, and the third. */
const pausesMs = [1_000, 10_000]

const notReturned = (error: { readonly message: string }) =>
  Effect.logWarning("Task worker: a claim without an answer was not given back; its leases must end").pipe(
    Effect.annotateLogs({ error: error.message })
  )
