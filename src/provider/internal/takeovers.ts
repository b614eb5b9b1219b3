/**
 * After an outage, locks that expired meanwhile are left to their holders for a while: work under them was not at
 * fault, and continues under a renewed lock instead of running twice.
 *
 * A process that could neither claim nor renew for a quarter of a lock claims only work without a lock until the store
 * has worked for the length of one lock. If the holder of a lock does not renew it in that time, it has died, as
 * without an outage. No lock expires in a shorter outage, because holders renew when half of the lock is left.
 *
 * Only a process that called the store during the outage knows of it. One that starts afterwards takes over at once.
 */

/** Claims and renewals of one queue: one table may be locked alone. Monotonic milliseconds. */
export interface Takeovers {
  /** Whether a claim that is sent now takes over expired locks. */
  readonly allowed: (lockTimeoutMs: number, nowMs: number) => boolean
  readonly succeeded: (lockTimeoutMs: number, nowMs: number) => void
  /** A statement that began then has failed, and not because of its request. */
  readonly failed: (begunMs: number) => void
}

export const make = (): Takeovers => {
  let failingSinceMs: number | undefined
  let lastSuccessMs = Number.NEGATIVE_INFINITY
  let sparesUntilMs = Number.NEGATIVE_INFINITY

  const isOutage = (lockTimeoutMs: number, nowMs: number) =>
    failingSinceMs !== undefined && nowMs - failingSinceMs >= lockTimeoutMs / 4

  return {
    allowed: (lockTimeoutMs, nowMs) => nowMs >= sparesUntilMs && !isOutage(lockTimeoutMs, nowMs),
    succeeded: (lockTimeoutMs, nowMs) => {
      if (isOutage(lockTimeoutMs, nowMs)) sparesUntilMs = nowMs + lockTimeoutMs
      failingSinceMs = undefined
      lastSuccessMs = nowMs
    },
    failed: (begunMs) => {
      // Other calls may have succeeded while this one hung.
      failingSinceMs ??= Math.max(begunMs, lastSuccessMs)
    }
  }
}
