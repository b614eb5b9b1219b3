/**
 * The suspects that this process holds: work that was delivered before without an end. While it holds one, it claims no
 * other suspect, so that the guilty one collects its deliveries alone.
 *
 * A suspect is held until it is settled, or until its lock expires: a cancelled activity, for example, is never settled.
 */
import type * as Clock from "effect/Clock"

export interface Suspects {
  readonly enter: (lockToken: string, lockTimeoutMs: number) => void
  /** Its lock was extended; ignored when it is not a suspect. */
  readonly renew: (lockToken: string, lockTimeoutMs: number) => void
  /** True when it was one. */
  readonly settle: (lockToken: string) => boolean
  readonly count: () => number
}

export const make = (clock: Clock.Clock): Suspects => {
  /** When the lock ends, monotonic milliseconds. */
  const held = new Map<string, number>()
  const nowMs = () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)
  return {
    enter: (lockToken, lockTimeoutMs) => void held.set(lockToken, nowMs() + lockTimeoutMs),
    renew: (lockToken, lockTimeoutMs) => {
      if (held.has(lockToken)) held.set(lockToken, nowMs() + lockTimeoutMs)
    },
    settle: (lockToken) => held.delete(lockToken),
    count: () => {
      const now = nowMs()
      for (const [lockToken, untilMs] of held) if (untilMs <= now) held.delete(lockToken)
      return held.size
    }
  }
}
