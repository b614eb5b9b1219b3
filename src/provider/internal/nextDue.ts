/**
 * Asks the store when something is due next, for work that this process has not stored itself: what was there before it
 * started, what a hint did not say, what another process has left.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { InBackground } from "../../model/shared/inBackground.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { NextDue, ProviderDriver } from "../ProviderDriver.ts"

export interface Finder {
  /** Asks soon; if it is not urgent, only when it has not asked in the last ten seconds. */
  readonly find: (isUrgent: boolean) => void
}

/** Asks one question at a time, until the scope is closed. Without `readNextDue` it never asks. */
export const make = Effect.fnUntraced(function*(
  readNextDue: ProviderDriver["Service"]["readNextDue"],
  heard: {
    readonly answered: (nextDue: NextDue) => void
    readonly failed: () => void
  }
): Effect.fn.Return<Finder, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const asked = Latch.makeUnsafe()
  let lastMs = Number.NEGATIVE_INFINITY
  if (readNextDue === undefined) return { find: () => {} }

  const ask = Effect.suspend(() => {
    asked.closeUnsafe()
    lastMs = monotonicMs(clock)
    return Effect.matchCause(readNextDue, { onSuccess: heard.answered, onFailure: heard.failed })
  })

  yield* asked.await.pipe(
    Effect.andThen(ask),
    Effect.andThen(Effect.sleep(betweenQuestionsMs)),
    Effect.forever,
    Effect.provideService(InBackground, true),
    Effect.forkScoped
  )

  return {
    find: (isUrgent) => {
      if (isUrgent || monotonicMs(clock) - lastMs > notUrgentMs) asked.openUnsafe()
    }
  }
})

// internal

/** Least pause between two questions: as often as a process that polls looks at a queue. */
const betweenQuestionsMs = 100

const notUrgentMs = 10_000
