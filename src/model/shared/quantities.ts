/**
 * Numbers and times as people read them, in messages and on the command line.
 */

/** 1234567 as 1,234,567. */
export const count = (value: number): string => value.toLocaleString("en-US")

/** 1 message, 1,234 messages. */
export const counted = (value: number, singular: string, plural = `${singular}s`): string =>
  `${count(value)} ${value === 1 ? singular : plural}`

/** Text of a length of time: 12 s, 3 min, 5 h, 2 d. */
export const age = (ms: number): string => {
  const s = Math.max(0, Math.round(ms / 1000))
  return s < 120
    ? `${s} s`
    : s < 7200
    ? `${Math.round(s / 60)} min`
    : s < 172_800
    ? `${Math.round(s / 3600)} h`
    : `${Math.round(s / 86_400)} d`
}
