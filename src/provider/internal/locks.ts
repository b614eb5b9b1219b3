/**
 * What this process remembers of the instances it holds. The store decides who holds a lock; this only spares
 * statements.
 */

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
  /**
   * Keeps a wake-up for every locked instance: another process has announced a message, or one has fallen due, and
   * nothing says for which.
   */
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
