/**
 * The start and the end of dispatchers.
 *
 * A shutdown stops all claims at once. Work that is being handled may end within the shutdown timeout; after that it is
 * interrupted, and may clean up during the grace period. Work that has not ended by then is left running, and its lock
 * expires.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import { ours } from "../model/shared/logging.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import type { Looks } from "./claims.ts"
import type { Settings } from "./settings.ts"
import type { Supervisor } from "./supervisor.ts"

/** Claims work and handles it, until the supervisor stops it. */
export interface Dispatcher {
  readonly start: Effect.Effect<void>
  readonly looks: Looks
  /** Number of items being handled. */
  readonly underWay: () => number
  /** Once it was stopped: waits until all its work has ended. */
  readonly ended: Effect.Effect<void>
  /** Interrupts its work, and waits until it has ended. */
  readonly interrupt: Effect.Effect<void>
}

/** Starts dispatchers. Add their finalizer to the scope last, so that it runs first. */
export const run = Effect.fnUntraced(function*(
  dispatchers: ReadonlyArray<Dispatcher>,
  settings: Settings,
  supervisor: Supervisor
): Effect.fn.Return<void, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const all = (what: "ended" | "interrupt") =>
    Effect.forEach(dispatchers, (dispatcher) => dispatcher[what], { concurrency: "unbounded", discard: true })
  yield* Effect.addFinalizer(() =>
    Effect.gen(function*() {
      const begunMs = monotonicMs(clock)
      yield* supervisor.stop
      const ended = yield* Effect.timeoutOption(all("ended"), settings.shutdownTimeout)
      if (Option.isNone(ended)) {
        yield* Effect.logWarning("Runtime: running work is interrupted, the shutdown timeout has passed")
        const interrupted = yield* Effect.timeoutOption(
          all("interrupt"),
          Duration.sum(settings.activityGracePeriod, lastStatements)
        )
        if (Option.isNone(interrupted)) {
          yield* Effect.logWarning("Runtime: interrupted work has not ended, its locks expire")
        }
      }
      yield* Effect.annotateLogs(Effect.logInfo("Runtime: stopped"), {
        duration_ms: Math.round(monotonicMs(clock) - begunMs)
      })
    }).pipe(ours())
  )
  for (const dispatcher of dispatchers) yield* dispatcher.start
})

// internal

/** Time after the grace period to abandon the interrupted work. */
const lastStatements = Duration.seconds(2)
