/**
 * The service of schedules without a scheduler: checks its input, and announces changes to the schedulers.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Repetition from "effect/Schedule"
import { randomUUID } from "node:crypto"
import { problemOf } from "../../model/shared/text.ts"
import { InvalidInput, ProviderError } from "../../provider/ProviderError.ts"
import { isAnswerLost, isLockedElsewhere, retried } from "../../provider/shared/statement.ts"
import { Topic, Topics } from "../../waking/Topics.ts"
import { ScheduleDriver } from "../ScheduleDriver.ts"
import type { Service } from "./api.ts"
import { ScheduleExists, ScheduleNotFound } from "./errors.ts"
import * as info from "./info.ts"
import * as made from "./made.ts"
import type { Schedule } from "./made.ts"

/** What this process can make payloads of. */
export const storeAll = Effect.fnUntraced(function*(schedules: ReadonlyArray<Schedule>) {
  const names = schedules.map(({ name }) => name)
  const twice = names.find((name, index) => names.indexOf(name) < index)
  if (twice !== undefined) return yield* invalid("storeSchedules", "schedules", `two have the name "${twice}"`)
  if (schedules.length > 0) {
    const driver = yield* ScheduleDriver
    const sealing = yield* made.sealing
    const topics = yield* Topics
    const { answer, mayBeSecond } = yield* patient(
      driver.store(yield* Effect.forEach(schedules, (schedule) => made.stored(schedule, sealing, driver, true)), true)
    )
    if (mayBeSecond || answer.some((outcome) => outcome !== "Unchanged")) {
      yield* topics.announce([{ topic: Topic.schedules }])
    }
  }
  return new Map(schedules.flatMap(({ code, payload }) => code === undefined ? [] : [[code, payload] as const]))
})

/** An answer of the store; `mayBeSecond`: an earlier try may have changed the schedule, and its answer was lost. */
interface Patient<A> {
  readonly answer: A
  readonly mayBeSecond: boolean
}

/** While a scheduler fires the schedule, its row is locked. */
const patient = <A>(call: Effect.Effect<A, ProviderError>): Effect.Effect<Patient<A>, ProviderError> =>
  Effect.suspend(() => {
    let mayBeSecond = false
    const once = Effect.tapError(call, (error) =>
      Effect.sync(() => {
        if (isAnswerLost(error)) mayBeSecond = true
      }))
    return Effect.retry(retried(once, (error) => !isLockedElsewhere(error)), {
      while: isLockedElsewhere,
      schedule: Repetition.recurs(100).pipe(Repetition.addDelay(() => Effect.succeed(Duration.millis(100))))
    }).pipe(Effect.map((answer) => ({ answer, mayBeSecond })))
  })

export const make = (
  { delete: remove, pause: pauseOrResume, request: ask, store, ...driver }: ScheduleDriver["Service"],
  topics: Topics["Service"],
  sealing: made.Sealing
): Service => {
  const changed = topics.announce([{ topic: Topic.schedules }])

  const request = Effect.fnUntraced(function*(name: string, request: Parameters<typeof ask>[1]) {
    yield* storable("requestRuns", "name", name)
    const { answer } = yield* patient(ask(name, request))
    if (answer === "Missing") return yield* new ScheduleNotFound({ schedule: name })
    if (answer === "Full") {
      return yield* invalid("requestRuns", "schedule", "100 requests wait already: see whether a scheduler runs")
    }
    yield* changed
  })

  const pause = Effect.fnUntraced(function*(name: string, pause: Parameters<typeof pauseOrResume>[1]) {
    yield* storable("pauseSchedule", "name", name)
    const { answer, mayBeSecond } = yield* patient(pauseOrResume(name, pause))
    if (answer === "Missing") return yield* new ScheduleNotFound({ schedule: name })
    const isDone = answer === "Done" || mayBeSecond
    if (isDone) yield* changed
    return isDone
  })

  const occurrences = Effect.fnUntraced(function*(
    operation: string,
    name: string,
    { from, to }: { readonly from: Date; readonly to: Date },
    { areInPast = false }: { readonly areInPast?: boolean } = {}
  ) {
    yield* storable(operation, "name", name)
    const [fromMs, toMs] = [from.getTime(), to.getTime()]
    if (!(fromMs <= toMs)) return yield* invalid(operation, "range", "from must be a time that is not after to")
    const { nowMs, schedules: [found] } = yield* driver.list({ name, after: null, limit: 1 })
    if (found === undefined) return yield* new ScheduleNotFound({ schedule: name })
    const all = info.occurrencesBetween(found, fromMs, areInPast ? Math.min(toMs, nowMs) : toMs, mostOccurrences)
    if (all === undefined) return yield* invalid(operation, "schedule", "this version cannot read its definition")
    if (all.length > mostOccurrences) {
      return yield* invalid(operation, "range", `it has more than ${mostOccurrences} occurrences: take a part of it`)
    }
    return all
  })

  return {
    create: Effect.fn("Schedules.create")(function*(schedule, options) {
      const replaces = options?.ifExists === "replace"
      const { answer: [outcome], mayBeSecond } = yield* patient(
        store([yield* made.stored(schedule, sealing, driver, replaces)], replaces)
      )
      if (outcome === "Exists") return yield* new ScheduleExists({ schedule: schedule.name })
      if (outcome !== "Unchanged" || mayBeSecond) yield* changed
      return outcome!
    }),

    list: Effect.fn("Schedules.list")(function*({ after, limit = 100, next = 1 } = {}) {
      yield* whole("listSchedules", "limit", limit, 1, 1000)
      yield* whole("listSchedules", "next", next, 0, 100)
      if (after !== undefined) yield* storable("listSchedules", "after", after)
      const { nowMs, schedules } = yield* driver.list({ name: null, after: after ?? null, limit: limit + 1 })
      return {
        schedules: schedules.slice(0, limit).map((one) => info.scheduleOf(one, nowMs, next)),
        next: schedules.length > limit ? schedules[limit - 1]!.name : undefined
      }
    }),

    get: Effect.fn("Schedules.get")(function*(name, { next = 1 } = {}) {
      yield* storable("readSchedule", "name", name)
      yield* whole("readSchedule", "next", next, 0, 100)
      const { nowMs, schedules } = yield* driver.list({ name, after: null, limit: 1 })
      return Option.map(Option.fromUndefinedOr(schedules[0]), (one) => info.scheduleOf(one, nowMs, next))
    }),

    runs: Effect.fn("Schedules.runs")(function*(name, { limit = 100 } = {}) {
      yield* storable("readRuns", "name", name)
      yield* whole("readRuns", "limit", limit, 1, 100)
      const runs = yield* driver.runs(name, limit)
      if (runs.length === 0 && (yield* driver.list({ name, after: null, limit: 1 })).schedules.length === 0) {
        return yield* new ScheduleNotFound({ schedule: name })
      }
      return runs.map(info.runOf)
    }),

    pause: Effect.fn("Schedules.pause")(function*(name, { reason } = {}) {
      if (reason !== undefined) yield* storable("pauseSchedule", "reason", reason)
      return yield* pause(name, { reason: reason ?? null })
    }),

    resume: Effect.fn("Schedules.resume")((name) => pause(name, null)),

    runNow: Effect.fn("Schedules.runNow")(function*(name) {
      const id = `schedule/${name}/now/${randomUUID()}`
      yield* request(name, { kind: "Manual", id })
      return id
    }),

    occurrences: Effect.fn("Schedules.occurrences")((name, range) => occurrences("readOccurrences", name, range)),

    backfill: Effect.fn("Schedules.backfill")(function*(name, range) {
      const all = yield* occurrences("requestRuns", name, range, { areInPast: true })
      if (all.length === 0) return 0
      const [afterMs, untilMs] = [range.from.getTime() - 1, range.to.getTime()]
      yield* request(name, { kind: "Backfill", afterMs, untilMs })
      return all.length
    }),

    delete: Effect.fn("Schedules.delete")(function*(name) {
      yield* storable("deleteSchedule", "name", name)
      const { answer: wasThere, mayBeSecond } = yield* patient(remove(name))
      if (!wasThere && !mayBeSecond) return yield* new ScheduleNotFound({ schedule: name })
      yield* changed
    })
  }
}

const mostOccurrences = 10_000

const invalid = (operation: string, field: string, problem: string) =>
  Effect.fail(new ProviderError({ operation, reason: new InvalidInput({ field, problem }) }))

/** A text that is looked for or stored. */
const storable = (operation: string, field: string, text: string) => {
  const problem = problemOf(text)
  return problem === undefined ? Effect.void : invalid(operation, field, problem)
}

const whole = (operation: string, field: string, value: number, least: number, most: number) =>
  Number.isInteger(value) && value >= least && value <= most
    ? Effect.void
    : invalid(operation, field, `it is ${value}; it must be a whole number from ${least} to ${most}`)
