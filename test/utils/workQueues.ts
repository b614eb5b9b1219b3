/**
 * Queues of a provider for tests of what is below it.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as alarms from "../../src/waking/alarms.ts"
import type { Settings } from "../../src/waking/pollMode.ts"
import * as workQueue from "../../src/waking/workQueue.ts"

export const settings: Settings = {
  isEnabled: true,
  fallbackPollMs: 300_000,
  maxWaitMs: 30_000,
  timerGraceMs: 100,
  aggressiveDurationMs: 60_000,
  aggressiveExitThreshold: 5,
  notifyDeliveryTimeoutMs: 100,
  aggressivePollMs: 100
}

/** Not connected; `changed` connects it. */
export const queueOf = (
  changed: Partial<Settings> = {},
  options: Partial<workQueue.Options> = {}
): Effect.Effect<workQueue.WorkQueue, never, Scope.Scope> =>
  Effect.gen(function*() {
    return workQueue.make({
      name: "worker",
      clock: yield* Clock.Clock,
      settings: { ...settings, ...changed },
      alarms: yield* alarms.make,
      storeNowMs: () => undefined,
      processes: () => 1,
      onServe: () => {},
      onDue: () => {},
      random: () => 0,
      findNextDue: () => {},
      othersRanOut: () => {},
      findLeftLocks: () => {},
      onLook: () => {},
      onMode: () => {},
      ...options
    })
  })
