/** Times and durations as people write and read them; the same as on the command line. */

const units: Readonly<Record<string, number>> = { s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 }

/**
 * Milliseconds since the Unix epoch of `now`, of an age such as `2h`, of a date or time such as `2026-11-27T08:00Z`, or
 * of the milliseconds of a link; undefined for another text.
 */
export const timeOf = (text: string, nowMs: number): number | undefined => {
  const trimmed = text.trim()
  if (trimmed === "now") return nowMs
  const [, count, unit] = /^(\d{1,6})([smhd])$/.exec(trimmed) ?? []
  if (count !== undefined && unit !== undefined) return nowMs - Number(count) * units[unit]!
  if (/^\d{13}$/.test(trimmed)) return Number(trimmed)
  const [, year, month, day] =
    /^(\d{4})-(\d{2})-(\d{2})(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2})?)?$/.exec(trimmed) ?? []
  // JavaScript takes 30 February for 2 March.
  if (day === undefined || Number(day) > daysOf(Number(year), Number(month))) return undefined
  const ms = Date.parse(trimmed)
  return Number.isNaN(ms) ? undefined : ms
}

/** Milliseconds of `90s`, `10 min`, `10m`, `2h` or `1d`; undefined for another text. */
export const durationOf = (text: string): number | undefined => {
  const [, count, unit] = /^(\d{1,6})\s?(s|m|min|h|d)$/.exec(text.trim()) ?? []
  return count === undefined || unit === undefined || Number(count) === 0 ? undefined : Number(count) * units[unit]!
}

// internal

const daysOf = (year: number, month: number) => new Date(Date.UTC(year, month, 0)).getUTCDate()
