/** What a nightly run holds our numbers to: latencies beside an empty statement of the same run, and counts. */
import type { Result } from "./report.ts"

/** The numbers of a scenario by variant in, one sentence for each mark that was missed out. */
export const judge = (
  scenario: string,
  results: ReadonlyMap<string, Pick<Result, "p50Ms" | "statementsPerMinute">>
): ReadonlyArray<string> => {
  const marks = (marksOf[scenario] ?? []).filter(({ variant }) => results.has(variant))
  if (marks.length === 0) return [`${scenario}: no mark to judge by`]
  return marks.flatMap(({ field, most, variant }) => {
    const found = results.get(variant)![field]
    const limit = most((other) => results.get(other)?.p50Ms ?? Number.NaN)
    return found !== null && found <= limit
      ? []
      : [`${scenario}, ${variant}: ${field} is ${found ?? "unknown"}, at most ${limit} allowed`]
  })
}

// internal

interface Mark {
  readonly variant: string
  readonly field: "p50Ms" | "statementsPerMinute"
  readonly most: (p50MsOf: (variant: string) => number) => number
}

/** `ms` where an empty statement takes half a millisecond or less; in proportion on a slower machine. */
const latency = (variant: string, ms: number): Mark => ({
  variant,
  field: "p50Ms",
  most: (p50MsOf) => ms * Math.max(1, p50MsOf("SELECT 1") / 0.5)
})

const statements = (variant: string, perMinute: number): Mark => ({
  variant,
  field: "statementsPerMinute",
  most: () => perMinute
})

/**
 * About twice what a quiet machine shows. Polling every 50 ms takes 19 ms, and 1,200 statements and more per minute.
 */
const marksOf: Readonly<Record<string, ReadonlyArray<Mark>>> = {
  N: [latency("start to claim", 5), latency("end to waiter", 13)],
  Q: [
    statements("woken", 5),
    // A fallback look every five minutes, two statements each.
    statements("20 processes", 20),
    statements("after one start", 60),
    statements("after one start, 20 processes", 200)
  ]
}
