/**
 * When gathered hints leave: five times at once, then once in a while, whatever waits by then together. Urgent ones do
 * not wait for that pause.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import { InBackground } from "../model/shared/inBackground.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"

export interface Options {
  /** Sends all that waits. `Done`: it was sent, or dropped. `Again`: it still waits, for a call in a second. */
  readonly send: Effect.Effect<"Done" | "Again" | "Nothing">
  /** Time between two announcements, on average. Defaults to 20 milliseconds. */
  readonly everyMs?: number
  /**
   * Longest time for the last hints when the scope is closed: a notifier that does not answer delays it by that much.
   */
  readonly farewellMs: number
}

/**
 * Sends until the scope is closed; what waits then leaves before. The caller says with the returned function that
 * something waits, and whether it is urgent.
 */
export const make = Effect.fnUntraced(function*(
  { everyMs = 20, farewellMs, send }: Options
): Effect.fn.Return<(isUrgent?: boolean) => void, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const waiting = Latch.makeUnsafe()
  const urgent = Latch.makeUnsafe()
  /** Announcements that may leave at once. */
  let credit = mostAtOnce
  let creditedMs = monotonicMs(clock)
  const pauseAfterSending = () => {
    const nowMs = monotonicMs(clock)
    credit = Math.min(mostAtOnce, credit + (nowMs - creditedMs) / everyMs) - 1
    creditedMs = nowMs
    return credit >= 1
      ? Effect.void
      : Effect.raceFirst(Effect.sleep(Math.ceil((1 - credit) * everyMs)), urgent.await)
  }

  /** Sends after what is being sent. */
  const sendInTurn = Semaphore.makeUnsafe(1).withPermits(1)(send)
  const round = Effect.suspend(() => {
    waiting.closeUnsafe()
    urgent.closeUnsafe()
    return Effect.flatMap(sendInTurn, (outcome) => {
      if (outcome === "Nothing") return waiting.await
      return outcome === "Again" ? Effect.sleep(retryMs) : pauseAfterSending()
    })
  })
  yield* Effect.forkScoped(Effect.provideService(Effect.forever(round), InBackground, true))
  // Before the loop ends.
  yield* Effect.addFinalizer(() => Effect.timeoutOption(sendInTurn, farewellMs))
  return (isUrgent = false) => {
    waiting.openUnsafe()
    if (isUrgent) urgent.openUnsafe()
  }
})

// internal

/** A start, its locks and its end follow each other within milliseconds. */
const mostAtOnce = 5

const retryMs = 1_000
