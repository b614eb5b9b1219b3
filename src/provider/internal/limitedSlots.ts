/**
 * Which activities of this process have a slot of a limit: the end of one lets another begin, for which a process has
 * to look. The store counts the slots; this only says when.
 */
export interface LimitedSlots {
  /** A claimed activity, or one that was handed over. */
  readonly taken: (lockToken: string) => void
  /** Its row or its lock is gone; true if it had a slot. */
  readonly freed: (lockToken: string) => boolean
  /** Whether this process has met a limit: what a turn cancels may have had a slot, too. */
  readonly hasMetLimits: () => boolean
}

export const make = (): LimitedSlots => {
  const tokens = new Set<string>()
  let hasMetLimits = false
  return {
    taken: (lockToken) => {
      hasMetLimits = true
      tokens.add(lockToken)
    },
    freed: (lockToken) => tokens.delete(lockToken),
    hasMetLimits: () => hasMetLimits
  }
}
