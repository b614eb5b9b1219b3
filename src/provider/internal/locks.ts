/**
 * What this process remembers of the locks it holds. The store decides who holds a lock; all of this only spares
 * statements and keeps suspects apart.
 */
import type * as Clock from "effect/Clock"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import { groupOf, provingMs, suspectAfter, suspectGroups } from "../driver/suspects.ts"

/**
 * Instances this process holds, so that a wake-up for one of them is kept until its turn is settled.
 *
 * A message that arrives during a turn cannot be claimed yet: asking the store at once would be a wasted statement, and
 * forgetting it would leave the message to the next poll.
 */
export interface LockedInstances {
  /** `claim`: the statement that took the lock. */
  readonly lock: (lockToken: string, instanceId: string, claim?: Claim) => void
  /** True when a wake-up came meanwhile. */
  readonly release: (lockToken: string) => boolean
  /** True when the instance is locked: the wake-up is kept for its release. */
  readonly keepWakeup: (instanceId: string) => boolean
  /** Keeps a wake-up for every locked instance: another process has announced a message, and does not say for which. */
  readonly keepWakeups: () => void
  /**
   * A statement that claims instances begins. Until it has been answered, wake-ups are kept for what it may claim: a
   * message that is stored after it has looked, and before its answer is here, would have to wait otherwise.
   */
  readonly beginClaim: () => Claim
  readonly endClaim: (claim: Claim) => void
}

/** The wake-ups during a statement. */
export interface Claim {
  readonly woken: Set<string>
  isAllWoken: boolean
}

export const makeInstances = (): LockedInstances => {
  const byToken = new Map<string, { readonly instanceId: string; woken: boolean }>()
  const byInstance = new Map<string, string>()
  const claims = new Set<Claim>()
  return {
    lock: (lockToken, instanceId, claim) => {
      const woken = claim !== undefined && (claim.isAllWoken || claim.woken.has(instanceId))
      byToken.set(lockToken, { instanceId, woken })
      byInstance.set(instanceId, lockToken)
    },
    release: (lockToken) => {
      const locked = byToken.get(lockToken)
      if (locked === undefined) return false
      byToken.delete(lockToken)
      // The instance may be locked again under a newer token, after this one expired.
      if (byInstance.get(locked.instanceId) === lockToken) byInstance.delete(locked.instanceId)
      return locked.woken
    },
    keepWakeup: (instanceId) => {
      const lockToken = byInstance.get(instanceId)
      if (lockToken === undefined) {
        for (const { woken } of claims) woken.add(instanceId)
        return false
      }
      byToken.get(lockToken)!.woken = true
      return true
    },
    keepWakeups: () => {
      for (const locked of byToken.values()) locked.woken = true
      for (const claim of claims) claim.isAllWoken = true
    },
    beginClaim: () => {
      const claim = { woken: new Set<string>(), isAllWoken: false }
      claims.add(claim)
      return claim
    },
    endClaim: (claim) => void claims.delete(claim)
  }
}

/**
 * The suspects that this process holds, until they are settled or have proved themselves, or until their locks expire:
 * a cancelled activity, for example, is never settled. `driver/suspects.ts` has the rule.
 */
export interface Suspects {
  /** `deliveries`: without an end, before this one. Other work than suspects is ignored. */
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
