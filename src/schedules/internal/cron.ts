/**
 * The occurrences of a cron expression.
 *
 * **Daylight saving**
 *
 * A time of the day that the clocks leave out is due later by what they go forward; of several such times, only the
 * first. A time that they repeat is due the first time. An expression whose field of hours begins with `*` names an
 * interval, which continues through both hours.
 */
import * as Cron from "effect/Cron"
import * as Result from "effect/Result"

export interface Occurrences {
  /** Those after this time, in order. */
  readonly after: (ms: number) => Iterable<number>
  /** The last one that is not after this time; undefined if all are. */
  readonly atOrBefore: (ms: number) => number | undefined
}

/** A problem, or the occurrences. Expressions that no date fits have none. */
export const parse = (expression: string, timeZone: string): Result.Result<Occurrences, string> => {
  const key = `${timeZone} ${expression}`
  const known = parsed.get(key)
  if (known !== undefined) return known
  const result = Result.mapBoth(
    Cron.parse(expression, timeZone, {
      onDstOverlap: expression.trim().split(/\s+/).at(-4)?.startsWith("*") ? "both" : "earlier"
    }),
    { onFailure: ({ message }) => message, onSuccess: occurrencesOf }
  )
  if (parsed.size >= mostParsed) parsed.clear()
  parsed.set(key, result)
  return result
}

// internal

/** Expressions are read with each look at their schedule. */
const parsed = new Map<string, Result.Result<Occurrences, string>>()

const mostParsed = 10_000

const occurrencesOf = (cron: Cron.Cron): Occurrences => {
  /**
   * The last neighbours that were found. A search takes a tenth of a millisecond or more, and most ask for the same: a
   * scheduler for those around now, and schedules that share an expression.
   */
  const known: Array<readonly [at: number, next: number]> = []

  const nextOf = (at: number): number | undefined => {
    const pair = known.find(([before]) => before === at)
    if (pair !== undefined) return pair[1]
    const next = found(() => Cron.next(cron, new Date(at)))
    if (next !== undefined && known.unshift([at, next]) > mostKnown) known.pop()
    return next
  }

  const atOrBefore = (ms: number): number | undefined => {
    const pair = known.find(([at, next]) => at <= ms && ms < next)
    if (pair !== undefined) return pair[0]
    // Occurrences are whole seconds, and the search excludes the time that it begins with.
    const before = found(() => Cron.prev(cron, new Date((Math.floor(ms / 1000) + 1) * 1000)))
    // Of several times that the clocks leave out, it finds the last one: the first follows a time before that hour.
    if (before === undefined || Cron.match(cron, new Date(before))) return before
    let at: number | undefined
    for (let next = nextOf(before - longestGapMs); next !== undefined && next <= ms; next = nextOf(next)) at = next
    return at
  }

  return {
    atOrBefore,
    after: function*(ms) {
      // From the one before: a search that begins in an hour that the clocks leave out, or repeat, finds others.
      const before = atOrBefore(ms)
      let at = before === undefined ? found(() => Cron.next(cron, new Date(ms))) : nextOf(before)
      while (at !== undefined) {
        if (at > ms) yield at
        at = nextOf(at)
      }
    }
  }
}

const mostKnown = 4

/** What clocks go forward by, at most. */
const longestGapMs = 2 * 3_600_000

/** A search throws if no date fits. */
const found = (search: () => Date): number | undefined => {
  try {
    return search().getTime()
  } catch {
    return undefined
  }
}
