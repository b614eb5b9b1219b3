/**
 * After an outage, locks that expired meanwhile are left to their holders for a while: work under them was not at fault,
 * and continues under a renewed lock instead of running twice.
 *
 * A process that could neither claim nor renew for a quarter of a lock claims only work without a lock until the store
 * has worked for the length of one lock. If the holder of a lock does not renew it in that time, it has died, as without
 * an outage. No lock expires in a shorter outage, because holders renew when half of the lock is left.
 *
 * Only a process that called the store during the outage knows of it. One that starts afterwards takes over at once.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { ProviderError } from "../ProviderError.ts"
import { isOfTheCall } from "../shared/isOfTheCall.ts"

/** Of one queue: its table may be locked while the other one works. */
export interface Takeovers {
  /** Sends a claim, and says in its request whether it takes over. */
  readonly claiming: <Request extends { readonly lockTimeoutMs: number }, A>(
    request: Request,
    claim: (request: Request & { readonly takesOver: boolean }) => Effect.Effect<A, ProviderError>
  ) => Effect.Effect<A, ProviderError>
  /** The renewal, with its outcome noted. */
  readonly renewing: <Item extends { readonly extendForMs: number }, A>(
    renew: (items: ReadonlyArray<Item>) => Effect.Effect<A, ProviderError>
  ) => (items: ReadonlyArray<Item>) => Effect.Effect<A, ProviderError>
}

export const make = (clock: Clock.Clock): Takeovers => {
  // Monotonic milliseconds.
  let failingSinceMs: number | undefined
  let lastSuccessMs = Number.NEGATIVE_INFINITY
  let sparesUntilMs = Number.NEGATIVE_INFINITY

  const isOutage = (lockTimeoutMs: number, nowMs: number) =>
    failingSinceMs !== undefined && nowMs - failingSinceMs >= lockTimeoutMs / 4

  const watch = <A>(lockTimeoutMs: number, call: (takesOver: boolean) => Effect.Effect<A, ProviderError>) =>
    Effect.suspend(() => {
      const begunMs = monotonicMs(clock)
      return call(begunMs >= sparesUntilMs && !isOutage(lockTimeoutMs, begunMs)).pipe(
        Effect.tap(() =>
          Effect.sync(() => {
            const nowMs = monotonicMs(clock)
            if (isOutage(lockTimeoutMs, nowMs)) sparesUntilMs = nowMs + lockTimeoutMs
            failingSinceMs = undefined
            lastSuccessMs = nowMs
          })
        ),
        Effect.tapError((error) =>
          Effect.sync(() => {
            if (isOfTheCall(error)) return
            // Other calls may have succeeded while this one hung.
            failingSinceMs ??= Math.max(begunMs, lastSuccessMs)
          })
        )
      )
    })

  return {
    claiming: (request, claim) => watch(request.lockTimeoutMs, (takesOver) => claim({ ...request, takesOver })),
    renewing: (renew) => (items) => watch(lockTimeoutOf(items), () => renew(items))
  }
}

// internal

const lockTimeoutOf = (items: ReadonlyArray<{ readonly extendForMs: number }>) =>
  Math.max(...items.map(({ extendForMs }) => extendForMs))
