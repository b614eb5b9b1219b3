/**
 * What the dashboard does with schedules.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { counted } from "../../model/shared/quantities.ts"
import { ScheduleNotFound, Schedules } from "../../schedules/Schedules.ts"
import { countWithin } from "../../schedules/shared/occurrences.ts"
import { Refused } from "../Api.ts"
import type * as Api from "../Api.ts"
import { storeNowMs } from "./now.ts"

export const runNow = (name: string) =>
  Effect.map(
    Effect.flatMap(Schedules, (schedules) => schedules.runNow(name)),
    (id) => ({ message: `asked for a run of ${name} as ${id}` })
  )

export const pause = Effect.fnUntraced(function*(name: string, reason: string | undefined) {
  const isNew = yield* (yield* Schedules).pause(name, { reason })
  if (!isNew) return yield* new Refused({ code: "Paused", message: `schedule ${name} is paused already` })
  return { message: `paused schedule ${name}` }
})

export const resume = Effect.fnUntraced(function*(name: string) {
  const wasPaused = yield* (yield* Schedules).resume(name)
  if (!wasPaused) return yield* new Refused({ code: "NotPaused", message: `schedule ${name} is not paused` })
  return { message: `resumed schedule ${name}` }
})

interface Range {
  readonly fromMs: number
  readonly toMs: number
}

/** What `backfill` would ask for. */
export const countBackfill = Effect.fnUntraced(function*(name: string, { fromMs, toMs }: Range) {
  if (fromMs > toMs) {
    return yield* new Refused({ code: "InvalidInput", message: "the range must begin before it ends" })
  }
  const found = yield* (yield* Schedules).get(name)
  if (Option.isNone(found)) return yield* new ScheduleNotFound({ schedule: name })
  const { definition, next: [next] } = found.value
  if (definition === undefined) {
    return yield* new Refused({
      code: "Unreadable",
      message: `a newer version of this package has written ${name}: use a dashboard of that version`
    })
  }
  // The next ones start by themselves; a schedule that is paused or has ended has none.
  const settledMs = next === undefined ? yield* storeNowMs : next.getTime() - 1
  const { first, isMore, occurrences } = countWithin(
    definition.timing,
    { fromMs, toMs: Math.min(toMs, settledMs) },
    mostCounted
  )
  const backfilled: typeof Api.Backfilled.Type = {
    occurrences,
    isMore,
    firstMs: first,
    message: `${isMore ? "more than " : ""}${counted(occurrences, "occurrence")} of ${name}`
  }
  return backfilled
})

export const backfill = Effect.fnUntraced(function*(name: string, range: Range) {
  const found = yield* countBackfill(name, range)
  if (found.occurrences === 0) {
    return yield* new Refused({
      code: "NothingToDo",
      message: `${name} has no occurrence in this range that is settled: choose another range`
    })
  }
  yield* (yield* Schedules).backfill(name, { from: new Date(range.fromMs), to: new Date(range.toMs) })
  return { ...found, message: `asked for ${found.message}` }
})

export const remove = Effect.fnUntraced(function*(name: string) {
  yield* (yield* Schedules).delete(name)
  return { message: `deleted schedule ${name}` }
})

// internal

const mostCounted = 10_000
