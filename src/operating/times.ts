/**
 * Points in time as people write and read them.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"

/**
 * Milliseconds since the Unix epoch of `2026-12-01T08:00Z`, of `now`, or of an age such as `2h`; undefined for another
 * text.
 */
export const timeOf = (text: string): Effect.Effect<number | undefined> =>
  Effect.map(Clock.currentTimeMillis, (nowMs) => {
    if (text === "now") return nowMs
    const [, count, unit] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
    if (count !== undefined && unit !== undefined) return nowMs - Number(count) * units[unit]!
    const [, year, month, day] = /^(\d{4})-(\d{2})-(\d{2})/.exec(text) ?? []
    // JavaScript takes 30 February for 2 March.
    if (day === undefined || Number(day) > daysOf(Number(year), Number(month))) return undefined
    const ms = Date.parse(text)
    return Number.isNaN(ms) ? undefined : ms
  })

/** UTC to the second, as 2026-11-22 18:16:05Z. */
export const time = (ms: number): string => `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")}Z`

/** A time in the form 2026-11-22T18:16:05.123Z. */
export const isoTime = (ms: number): string => new Date(ms).toISOString()

// internal

const units: { readonly [unit: string]: number } = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

const daysOf = (year: number, month: number) => new Date(Date.UTC(year, month, 0)).getUTCDate()
