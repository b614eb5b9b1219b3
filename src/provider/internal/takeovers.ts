/**
 * After an outage, locks that ran out meanwhile are left to their holders for a while: what runs under them was not to
 * blame, and goes on under a renewed lock instead of running twice.
 *
 * A process that could neither claim nor renew for a quarter of a lock claims only what carries no lock, from then on
 * until the store has worked for the length of one lock. A lock that its holder does not renew in that time has a holder
 * that is dead, as in a time without outages. A shorter outage lets no lock run out: holders renew when half of it is
 * left.
 *
 * Only a process that asked during the outage knows of it. One that starts afterwards takes over at once.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { monotonicMs } from "../../model/internal/monotonic.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { isOfTheCall } from "./outages.ts"

type Driver = ProviderDriver["Service"]

/** The same driver, whose claims take over only what they may. */
export const spared = (driver: Driver, clock: Clock.Clock): Driver => {
  // A table may be locked while the other one works.
  const turns = make(clock)
  const activities = make(clock)
  return {
    ...driver,
    fetchOrchestrationItems: (options) =>
      turns.watch(options.lockTimeoutMs, (takesOver) => driver.fetchOrchestrationItems({ ...options, takesOver })),
    renewOrchestrationItemLocks: (items) =>
      turns.watch(lockTimeoutOf(items), () => driver.renewOrchestrationItemLocks(items)),
    fetchWorkItems: (options) =>
      activities.watch(options.lockTimeoutMs, (takesOver) => driver.fetchWorkItems({ ...options, takesOver })),
    renewWorkItemLocks: (items) => activities.watch(lockTimeoutOf(items), () => driver.renewWorkItemLocks(items))
  }
}

// internal

const make = (clock: Clock.Clock) => {
  // Monotonic milliseconds.
  let failingSinceMs: number | undefined
  let sparesUntilMs = Number.NEGATIVE_INFINITY

  const isOutage = (lockTimeoutMs: number, nowMs: number) =>
    failingSinceMs !== undefined && nowMs - failingSinceMs >= lockTimeoutMs / 4

  return {
    watch: <A>(lockTimeoutMs: number, call: (takesOver: boolean) => Effect.Effect<A, ProviderError>) =>
      Effect.suspend(() => {
        const begunMs = monotonicMs(clock)
        return call(begunMs >= sparesUntilMs && !isOutage(lockTimeoutMs, begunMs)).pipe(
          Effect.tap(() =>
            Effect.sync(() => {
              const nowMs = monotonicMs(clock)
              if (isOutage(lockTimeoutMs, nowMs)) sparesUntilMs = nowMs + lockTimeoutMs
              failingSinceMs = undefined
            })
          ),
          Effect.tapError((error) =>
            Effect.sync(() => {
              if (!isOfTheCall(error)) failingSinceMs ??= begunMs
            })
          )
        )
      })
  }
}

const lockTimeoutOf = (items: ReadonlyArray<{ readonly extendForMs: number }>) =>
  Math.max(...items.map(({ extendForMs }) => extendForMs))
