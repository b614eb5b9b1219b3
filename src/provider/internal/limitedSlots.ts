/**
 * Which activities of this process, or instances, have a slot of a limit: the end of one lets another begin, for which
 * a process has to look. The store counts the slots; this only says when.
 *
 * Where nothing waits for a slot, nothing has to look: a claim has found none, and nothing was stored since.
 */
export interface LimitedSlots {
  /** A claimed activity, or one that was handed over. */
  readonly taken: (lockToken: string, activity: string) => void
  /** Its row or its lock is gone; true if it had a slot that another one may wait for. */
  readonly freed: (lockToken: string) => boolean
  /** An instance has ended that may have had a slot; true if another one may wait for one. */
  readonly ended: () => boolean
  /** A turn has cancelled activities, so that none settles. True if another one may wait for a slot of theirs. */
  readonly cancelled: (activities: ReadonlyArray<string>) => boolean
  /** Some were stored, by this process or another one. */
  readonly stored: () => void
  /**
   * A claim is about to be sent. The returned function is called with whether some wait for a slot. It says whether
   * one of this process was freed meanwhile, which the claim may not have seen.
   */
  readonly claiming: () => (isAwaited: boolean) => boolean
}

/** `looks`: whether what is stored from now on leads to a look of this process. */
export const make = (looks: () => boolean): LimitedSlots => {
  /** Activities by lock token. */
  const taken = new Map<string, string>()
  let freed = 0
  let stored = 0
  /** None waited when so much had been stored. */
  let noneAt = -1
  let hasMetLimits = false
  const ended = () => {
    freed++
    return hasMetLimits && (noneAt !== stored || !looks())
  }
  return {
    taken: (lockToken, activity) => {
      hasMetLimits = true
      taken.set(lockToken, activity)
    },
    freed: (lockToken) => taken.delete(lockToken) && ended(),
    ended,
    cancelled: (activities) => {
      const gone = new Set(activities)
      for (const [lockToken, activity] of taken) if (gone.has(activity)) taken.delete(lockToken)
      return ended()
    },
    stored: () => void stored++,
    claiming: () => {
      const before = { freed, stored }
      return (isAwaited) => {
        if (!isAwaited) {
          noneAt = Math.max(noneAt, before.stored)
          return false
        }
        hasMetLimits = true
        stored++ // An older answer says no longer that none waits.
        return freed !== before.freed
      }
    }
  }
}
