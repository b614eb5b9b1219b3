/**
 * When a schedule is due, as data: the occurrences of a timing.
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type { Occurrences } from "./cron.ts"
import * as cron from "./cron.ts"

/**
 * When a schedule is due. Times are milliseconds since the Unix epoch; occurrences of `Cron` are whole seconds.
 *
 * @category models
 * @since 0.3.0
 */
export type Timing =
  | { readonly _tag: "Cron"; readonly expression: string; readonly timeZone: string }
  | { readonly _tag: "Interval"; readonly everyMs: number; readonly offsetMs: number }
  | { readonly _tag: "Dates"; readonly at: ReadonlyArray<number> }

export const Timing: Schema.Codec<Timing> = Schema.Union([
  Schema.TaggedStruct("Cron", { expression: Schema.String, timeZone: Schema.String }),
  Schema.TaggedStruct("Interval", { everyMs: Schema.Int, offsetMs: Schema.Int }),
  Schema.TaggedStruct("Dates", { at: Schema.Array(Schema.Finite) })
])

export type { Occurrences } from "./cron.ts"

/** A text says why there are none. */
export const occurrencesOf = (timing: Timing): Result.Result<Occurrences, string> => {
  switch (timing._tag) {
    case "Cron":
      return cron.parse(timing.expression, timing.timeZone)
    case "Interval":
      // A row that something else has written: one of 0 ms would never end.
      return timing.everyMs >= 1
        ? Result.succeed(interval(timing.everyMs, timing.offsetMs))
        : Result.fail(`an interval of ${timing.everyMs} ms`)
    case "Dates":
      return Result.succeed(dates(timing.at))
  }
}

/** Those after a time, at most so many. */
export const nextOf = (occurrences: Occurrences, afterMs: number, most: number): ReadonlyArray<number> => {
  const next: Array<number> = []
  if (most < 1) return next
  for (const at of occurrences.after(afterMs)) {
    next.push(at)
    if (next.length >= most) break
  }
  return next
}

/** The first occurrence after a time; undefined after the last one. */
export const firstAfter = (occurrences: Occurrences, ms: number): number | undefined => nextOf(occurrences, ms, 1)[0]

// internal

const interval = (everyMs: number, offsetMs: number): Occurrences => {
  const atOrBefore = (ms: number) => Math.floor((ms - offsetMs) / everyMs) * everyMs + offsetMs
  return {
    atOrBefore,
    after: function*(ms) {
      for (let at = atOrBefore(ms) + everyMs;; at += everyMs) yield at
    }
  }
}

const dates = (at: ReadonlyArray<number>): Occurrences => {
  const sorted = [...new Set(at)].sort((a, b) => a - b)
  return {
    atOrBefore: (ms) => sorted.findLast((date) => date <= ms),
    after: (ms) => sorted.filter((date) => date > ms)
  }
}
