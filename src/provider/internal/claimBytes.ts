/**
 * How many bytes of messages a claim asks for.
 *
 * The lock of a claim begins in the store, before its messages travel. Where that takes long, a claim asks for less, so
 * that the lock is not over when it arrives.
 */
export interface ClaimBytes {
  readonly current: () => number
  /** Notes a claim with work; `bytes` is the size of its messages. True when it was slow: its lock may be over. */
  readonly arrived: (
    claim: { readonly bytes: number; readonly tookMs: number; readonly lockTimeoutMs: number }
  ) => boolean
}

export const make = (): ClaimBytes => {
  let current = firstBytes
  return {
    current: () => current,
    arrived: ({ bytes, lockTimeoutMs, tookMs }) => {
      const isSlow = tookMs > lockTimeoutMs / 4
      if (isSlow) current = Math.max(current / 2, fewestBytes)
      // A small claim does not show how long a large one takes. Twice as much takes twice as long.
      else if (tookMs <= lockTimeoutMs / 8 && bytes >= current / 2) current = Math.min(2 * current, mostBytes)
      return isSlow
    }
  }
}

// internal

const firstBytes = 4 * 1024 * 1024

const fewestBytes = 64 * 1024

const mostBytes = 16 * 1024 * 1024
