/**
 * How many activities a claim asks for, where a process has room for many: their texts are in memory together.
 */
export interface ClaimCount {
  readonly most: () => number
  /** Notes what a claim has brought. */
  readonly arrived: (activities: ReadonlyArray<{ readonly workItem: string }>) => void
}

export const make = (): ClaimCount => {
  let meanBytes: number | undefined
  return {
    most: () => Math.max(fewest, Math.floor(mostBytes / Math.max(meanBytes ?? mostBytes, 1))),
    arrived: (activities) => {
      if (activities.length === 0) return
      const mean = activities.reduce((sum, { workItem }) => sum + workItem.length, 0) / activities.length
      // Larger ones count at once, smaller ones by and by.
      meanBytes = meanBytes === undefined ? mean : Math.max(mean, (4 * meanBytes + mean) / 5)
    }
  }
}

// internal

/** Whatever their size. */
const fewest = 64

const mostBytes = 4 * 1024 * 1024
