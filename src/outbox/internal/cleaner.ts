/**
 * Deletes sent messages of the outbox after their retention: when the oldest one is due, at most once a minute. It
 * deletes small batches, and after each pauses for as long as the batch took. Without sent messages it sends no
 * statements.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { InBackground } from "../../model/shared/inBackground.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { OutboxDriver } from "../OutboxDriver.ts"

export interface OutboxCleaner {
  /** This process has sent messages. */
  readonly marked: () => void
}

/** Cleans until the scope is closed. */
export const make = Effect.fnUntraced(function*(
  { clean }: Pick<OutboxDriver["Service"], "clean">,
  keepMs: number
): Effect.fn.Return<OutboxCleaner, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const hasSent = Latch.makeUnsafe()

  const cleanAll = Effect.gen(function*() {
    while (true) {
      hasSent.closeUnsafe()
      const begunMs = monotonicMs(clock)
      const { deleted, nextMs } = yield* clean({ keepMs, limit: batchSize })
      if (deleted < batchSize) return nextMs
      yield* Effect.sleep(monotonicMs(clock) - begunMs)
    }
  })

  yield* cleanAll.pipe(
    // The publisher reports outages of the database.
    Effect.catch(() => Effect.succeed(0)),
    Effect.flatMap((nextMs) => nextMs === null ? Effect.as(hasSent.await, keepMs) : Effect.succeed(nextMs)),
    Effect.flatMap((ms) => Effect.sleep(Math.min(Math.max(ms, betweenMs), longestMs))),
    Effect.forever,
    Effect.provideService(InBackground, true),
    Effect.forkScoped
  )
  return { marked: () => void hasSent.openUnsafe() }
})

// internal

const batchSize = 1000

const betweenMs = 60_000

/** Timers of Node have 31 bits. */
const longestMs = 86_400_000
