/**
 * What this process remembers of the suspects it holds. The store decides who holds a lock; this only keeps
 * suspects apart.
 */
import type * as Clock from "effect/Clock"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import { groupOf, provingMs, suspectAfter, suspectGroups } from "../driver/suspects.ts"

/**
 * The suspects that this process holds, until they are settled or have proved themselves, or until their locks expire:
 * a cancelled activity, for example, is never settled. `driver/suspects.ts` has the rule.
 */
export interface Suspects {
  /** `deliveries`: how many came before this one without an outcome. Ignored unless they make a suspect. */
  readonly lock: (lockToken: string, deliveries: number, lockTimeoutMs: number) => void
  /** Its lock was extended; ignored when it is not a suspect. */
  readonly renew: (lockToken: string, lockTimeoutMs: number) => void
  /** True when it held back others. */
  readonly release: (lockToken: string) => boolean
  /** How many further ones may be claimed, as in `suspectGroups`. */
  readonly room: () => ReadonlyArray<number>
}

/** `proving` is called with each suspect, and how long it holds back others if it is not settled before. */
export const makeSuspects = (clock: Clock.Clock, proving: (forMs: number) => void): Suspects => {
  interface Suspect {
    readonly group: number
    /** Monotonic milliseconds. */
    readonly provedMs: number
    lockedUntilMs: number
  }
  const locked = new Map<string, Suspect>()
  const isHeld = ({ lockedUntilMs, provedMs }: Suspect) => Math.min(lockedUntilMs, provedMs) > monotonicMs(clock)
  return {
    lock: (lockToken, deliveries, lockTimeoutMs) => {
      if (deliveries < suspectAfter) return
      const now = monotonicMs(clock)
      const forMs = provingMs(deliveries)
      locked.set(lockToken, {
        group: groupOf(deliveries),
        provedMs: now + forMs,
        lockedUntilMs: now + lockTimeoutMs
      })
      proving(forMs)
    },
    renew: (lockToken, lockTimeoutMs) => {
      const suspect = locked.get(lockToken)
      if (suspect !== undefined) suspect.lockedUntilMs = monotonicMs(clock) + lockTimeoutMs
    },
    release: (lockToken) => {
      const suspect = locked.get(lockToken)
      return locked.delete(lockToken) && isHeld(suspect!)
    },
    room: () => {
      let most = Infinity
      for (const [lockToken, suspect] of locked) {
        if (isHeld(suspect)) most = Math.min(most, suspect.group)
        else locked.delete(lockToken)
      }
      return suspectGroups.map((group) => Math.max(0, Math.min(group, most) - locked.size))
    }
  }
}
