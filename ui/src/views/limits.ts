/** Bounds of limits in words, and as people write them. */
import type { Bound } from "../client/models.ts"
import { duration, number } from "../parts/time.tsx"
import { durationOf } from "../parts/times.ts"

export const boundWords = (bound: Bound | null): string => {
  if (bound === null || (bound.concurrency === null && bound.rate === null)) return "no bound"
  const { concurrency, rate } = bound
  return [
    ...(concurrency === null ? [] : [`${number(concurrency)} at once`]),
    ...(rate === null
      ? []
      : [
        `${number(rate.count)} per ${duration(rate.perMs)}${
          rate.burst === 1 ? "" : `, ${number(rate.burst)} in a burst`
        }`
      ])
  ].join(", ")
}

export interface BoundDraft {
  readonly concurrency: string
  readonly count: string
  readonly per: string
  readonly burst: string
}

export const draftOf = (bound: Bound | null): BoundDraft => ({
  concurrency: bound?.concurrency?.toString() ?? "",
  count: bound?.rate?.count.toString() ?? "",
  per: bound?.rate === null || bound === null ? "1 min" : perText(bound.rate.perMs),
  burst: bound?.rate?.burst.toString() ?? ""
})

export interface BoundProblems {
  readonly concurrency?: string
  readonly count?: string
  readonly per?: string
  readonly burst?: string
}

export const problemsOf = (draft: BoundDraft): BoundProblems => {
  const whole = "Write a whole number from 1 to 1,000,000."
  const hasRate = draft.count.trim() !== ""
  return {
    ...(isEmptyOrCount(draft.concurrency) ? {} : { concurrency: whole }),
    ...(isEmptyOrCount(draft.count) ? {} : { count: whole }),
    ...(!hasRate || durationOf(draft.per) !== undefined ? {} : { per: "Write a duration such as 1s, 10 min or 2h." }),
    ...(isEmptyOrCount(draft.burst) ? {} : { burst: whole })
  }
}

/** Of a draft without problems. */
export const boundOf = (draft: BoundDraft): Bound => ({
  concurrency: draft.concurrency.trim() === "" ? null : Number(draft.concurrency),
  rate: draft.count.trim() === ""
    ? null
    : {
      count: Number(draft.count),
      perMs: durationOf(draft.per)!,
      burst: draft.burst.trim() === "" ? 1 : Number(draft.burst)
    }
})

// internal

const isEmptyOrCount = (text: string) => {
  const trimmed = text.trim()
  return trimmed === "" || (/^\d{1,7}$/.test(trimmed) && Number(trimmed) >= 1 && Number(trimmed) <= 1_000_000)
}

const perText = (ms: number): string => {
  for (const [unit, size] of [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]] as const) {
    if (ms >= size && ms % size === 0) return `${ms / size} ${unit}`
  }
  return `${Math.max(1, Math.round(ms / 1000))} s`
}
