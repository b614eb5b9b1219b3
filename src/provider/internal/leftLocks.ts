/**
 * Locks that were held before this process could learn of them. Their holders may have died, and then nothing announces
 * that their work can be claimed again.
 *
 * The store says when the first and the last of these locks run out. This process looks when the first one has, asks
 * for the next, and so on until the last one of the first answer: later locks belong to processes that it hears.
 * Holders that live renew theirs long before, so a fleet at work costs a few questions, not one per lock.
 */
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { InBackground } from "../../model/shared/inBackground.ts"
import type { Queue } from "../../waking/Notifier.ts"
import type { LiveLocks, ProviderDriver } from "../ProviderDriver.ts"

export interface LeftLocks {
  /** Holders may have died unheard until now. */
  readonly follow: () => void
}

/** Follows such locks until the scope is closed. Without `readLocks` it does nothing. */
export const make = Effect.fnUntraced(function*(
  readLocks: ProviderDriver["Service"]["readLocks"],
  heard: {
    readonly answered: (locks: LiveLocks) => void
    readonly failed: () => void
    /** A lock has run out that was not renewed when the store was asked. */
    readonly ranOut: (queue: Queue) => void
  }
): Effect.fn.Return<LeftLocks, never, Scope.Scope> {
  if (readLocks === undefined) return { follow: () => {} }
  const asked = Latch.makeUnsafe()

  const ask = Effect.tap(readLocks, (locks) => Effect.sync(() => heard.answered(locks)))

  const followed = Effect.gen(function*() {
    let locks = yield* ask
    const last = locks
    while (true) {
      const open = queues.flatMap((queue) => {
        const firstMs = locks[queue]?.firstMs
        return firstMs === undefined || firstMs > (last[queue]?.lastMs ?? 0) ? [] : [{ queue, firstMs }]
      })
      if (open.length === 0) return
      const nextMs = Math.min(...open.map(({ firstMs }) => firstMs)) - locks.nowMs
      const pauseMs = Math.max(nextMs + afterMs, betweenLooksMs)
      yield* Effect.sleep(pauseMs)
      for (const { firstMs, queue } of open) if (firstMs <= locks.nowMs + pauseMs) heard.ranOut(queue)
      locks = yield* ask
    }
  }).pipe(Effect.catchCause(() => Effect.sync(heard.failed)))

  yield* Effect.forever(Effect.gen(function*() {
    yield* asked.await
    // Several reasons for it come together at the start.
    yield* Effect.sleep(betweenQuestionsMs)
    asked.closeUnsafe()
    yield* Effect.raceFirst(followed, asked.await)
  })).pipe(
    Effect.provideService(InBackground, true),
    Effect.forkScoped
  )

  return { follow: () => asked.openUnsafe() }
})

// internal

const queues: ReadonlyArray<Queue> = ["orchestrator", "worker"]

/** Locks that run out one soon after the other are noticed together. */
const betweenLooksMs = 250

const betweenQuestionsMs = 100

/** The clocks of store and process may differ in speed. */
const afterMs = 5
