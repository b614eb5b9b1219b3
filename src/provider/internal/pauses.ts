/**
 * What operators have paused, as this process knows it.
 *
 * The store is asked when the first listener comes, and when a hint says that something was paused or resumed. Answers
 * of `readNextDue` say it as well, which follows each fallback look; so an idle process sends no statement for it. A
 * process that does not look, because all it serves is paused, or is not connected, asks by itself.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { Pause } from "../../model/Pause.ts"
import { InBackground } from "../../model/shared/inBackground.ts"
import { ours } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as dueLoop from "../../waking/dueLoop.ts"
import type { Hints } from "../../waking/hints.ts"
import type { Settings } from "../../waking/pollMode.ts"
import type { Provider } from "../Provider.ts"
import type { NextDue, ProviderDriver } from "../ProviderDriver.ts"

export interface Pauses extends Pick<Provider["Service"], "onPaused"> {
  /** An answer of the store. */
  readonly heard: (nextDue: NextDue) => void
}

export const make = Effect.fnUntraced(function*(
  readPaused: ProviderDriver["Service"]["readPaused"],
  driverListeners: ProviderDriver["Service"]["pauseListeners"],
  hints: Hints,
  { aggressivePollMs, fallbackPollMs }: Settings,
  /** Work may be claimed that could not be claimed before. */
  wake: () => void
): Effect.fn.Return<Pauses, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const listeners = new Set<(pauses: ReadonlyArray<Pause>) => void>()
  let known: ReadonlyArray<Pause> | undefined
  let isDue = true
  // Monotonic milliseconds.
  let retryAtMs = Number.NEGATIVE_INFINITY
  let nextMs = Number.POSITIVE_INFINITY

  const answered = (pauses: ReadonlyArray<Pause>, isAnswer: boolean) => {
    // If all is paused that the process serves, its claims do not look, so this loop looks as often in their place.
    const connectedMs = pauses.length > 0 ? fallbackPollMs : fallbackPollMs * beyondLooks
    const betweenMs = hints.isConnected() ? connectedMs : Math.max(unconnectedMs, aggressivePollMs)
    nextMs = monotonicMs(clock) + betweenMs
    const isNews = known !== undefined && (isAnswer || JSON.stringify(pauses) !== JSON.stringify(known))
    known = pauses
    for (const listener of listeners) listener(pauses)
    if (isNews) wake()
  }

  const read = Effect.suspend(() => {
    const wasDue = isDue
    isDue = false
    nextMs = Infinity
    return Effect.matchEffect(readPaused, {
      onSuccess: (pauses) => Effect.sync(() => answered(pauses, wasDue)),
      onFailure: (error) => {
        isDue = true
        retryAtMs = monotonicMs(clock) + failedMs
        return Effect.logDebug("Provider: what is paused is not read yet").pipe(ours({ error: error.message }))
      }
    })
  })

  const loop = yield* Effect.provideService(
    dueLoop.make({
      nextMs: () => listeners.size === 0 ? Infinity : isDue ? retryAtMs : nextMs,
      act: read
    }),
    InBackground,
    true
  )

  const askSoon = () => {
    isDue = true
    loop.wake()
  }
  hints.subscribe({
    received: ({ hint }) => hint._tag === "Paused" ? askSoon() : undefined,
    // Hints of this time were lost.
    connected: askSoon,
    disconnected: askSoon,
    unreliable: askSoon
  })
  if (driverListeners !== undefined) {
    driverListeners.add(askSoon)
    yield* Effect.addFinalizer(() => Effect.sync(() => driverListeners.delete(askSoon)))
  }

  return {
    heard: ({ paused }) => paused === undefined ? askSoon() : answered(paused, false),
    onPaused: (listener) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          // A new function each time, because one listener may be added twice.
          const entry = (pauses: ReadonlyArray<Pause>) => listener(pauses)
          listeners.add(entry)
          if (known !== undefined) entry(known)
          loop.wake()
          return entry
        }),
        (entry) => Effect.sync(() => listeners.delete(entry))
      ).pipe(Effect.asVoid)
  }
})

// internal

/** Where looks come as often as they should, their answers come first. */
const beyondLooks = 1.25

/** Pause between two questions while no hints arrive, at least. */
const unconnectedMs = 1_000

const failedMs = 1_000
