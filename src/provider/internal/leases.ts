/**
 * Which instances this process holds, so that a wake-up for one of them is kept until its turn is settled.
 *
 * A message that arrives during a turn cannot be claimed yet: asking the store at once would be a wasted statement, and
 * forgetting it would leave the message to the next poll.
 */
export interface Leases {
  readonly hold: (lockToken: string, instanceId: string) => void
  /** Ends a hold; true when a wake-up came meanwhile. */
  readonly release: (lockToken: string) => boolean
  /** True when the instance is held: the wake-up is kept for its release. */
  readonly keepWakeup: (instanceId: string) => boolean
}

export const make = (): Leases => {
  const byToken = new Map<string, { readonly instanceId: string; woken: boolean }>()
  const byInstance = new Map<string, string>()
  return {
    hold: (lockToken, instanceId) => {
      byToken.set(lockToken, { instanceId, woken: false })
      byInstance.set(instanceId, lockToken)
    },
    release: (lockToken) => {
      const lease = byToken.get(lockToken)
      if (lease === undefined) return false
      byToken.delete(lockToken)
      // The instance may be held again under a newer token, after this one expired.
      if (byInstance.get(lease.instanceId) === lockToken) byInstance.delete(lease.instanceId)
      return lease.woken
    },
    keepWakeup: (instanceId) => {
      const lockToken = byInstance.get(instanceId)
      if (lockToken === undefined) return false
      byToken.get(lockToken)!.woken = true
      return true
    }
  }
}
