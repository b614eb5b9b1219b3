/** The value below which the share `p` of the sorted values lies; 0 without any value. */
export const percentile = (sorted: ReadonlyArray<number>, p: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))] ?? 0

export const sum = (values: ReadonlyArray<number>): number => values.reduce((total, value) => total + value, 0)

/** Three significant digits, and no digit of a whole number lost. */
export const round = (value: number): number =>
  Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3))
