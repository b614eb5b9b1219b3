/**
 * Timings in plain words.
 */
import * as Cron from "effect/Cron"
import * as Result from "effect/Result"
import type { Timing } from "../ScheduleDriver.ts"

/** Such as `at 04:00 on Monday to Friday`; a cron expression that has no short sentence stays as it is. */
export const timingWords = (timing: Timing): string => {
  switch (timing._tag) {
    case "Cron":
      return cronWords(timing.expression) ?? `at the times of ${timing.expression}`
    case "Interval":
      return `every ${whole[timing.everyMs] ?? durationWords(timing.everyMs)}${
        timing.offsetMs === 0 ? "" : `, ${durationWords(timing.offsetMs)} later`
      }`
    case "Dates":
      return timing.at.length === 1 ? "on 1 date" : `on ${timing.at.length} dates`
  }
}

/** Exact: `1 h 30 min`. */
export const durationWords = (ms: number): string => {
  const parts: Array<string> = []
  let rest = ms
  for (const [name, size] of units) {
    const count = Math.floor(rest / size)
    if (count > 0) parts.push(`${count} ${name}`)
    rest -= count * size
  }
  return parts.length === 0 ? "0 s" : parts.join(" ")
}

// internal

const units = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000], ["ms", 1]] as const

/** What is not counted. */
const whole: { readonly [ms: number]: string } = {
  1000: "second",
  60_000: "minute",
  3_600_000: "hour",
  86_400_000: "day"
}

const cronWords = (expression: string): string | undefined => {
  const parsed = Cron.parse(expression)
  if (Result.isFailure(parsed)) return undefined
  const { days, hours, minutes, months, seconds, weekdays } = parsed.success
  const time = timeWords([...seconds], [...minutes], [...hours])
  // A day of the month or of the week: which of the two counts is not for one sentence.
  if (time === undefined || days.size > 0 && weekdays.size > 0) return undefined
  const day = weekdays.size > 0
    ? `on ${weekdayWords([...weekdays])}`
    : days.size > 0
    ? `on ${days.size === 1 ? "day" : "days"} ${list([...days].map(String))} of the month`
    : time.startsWith("every")
    ? ""
    : "every day"
  const month = months.size === 0 ? "" : `in ${list([...months].map((at) => monthNames[at - 1]!))}`
  return [time, day, month].filter((part) => part !== "").join(" ")
}

type Values = ReadonlyArray<number>

const timeWords = (seconds: Values, minutes: Values, hours: Values): string | undefined => {
  if (seconds.length !== 1 || seconds[0] !== 0) return undefined
  if (hours.length === 0) {
    if (minutes.length === 0) return "every minute"
    if (minutes.length === 1) return minutes[0] === 0 ? "every hour" : `every hour at minute ${minutes[0]}`
    const step = stepOf(minutes, 60)
    return step === undefined ? undefined : `every ${step} minutes`
  }
  if (minutes.length !== 1) return undefined
  const step = hours.length > 2 ? stepOf(hours, 24) : undefined
  if (step !== undefined) return `every ${step} hours${minutes[0] === 0 ? "" : ` at minute ${minutes[0]}`}`
  return hours.length > mostTimes ? undefined : `at ${list(hours.map((hour) => `${two(hour)}:${two(minutes[0]!)}`))}`
}

const mostTimes = 4

/** If they are all multiples of one number below the end. */
const stepOf = (values: Values, end: number): number | undefined => {
  const step = values[1]! - values[0]!
  const isEven = values[0] === 0 && end % step === 0 && values.length === end / step &&
    values.every((value, index) => value === index * step)
  return isEven ? step : undefined
}

const weekdayWords = (weekdays: Values): string =>
  weekdays.length > 2 && weekdays.every((day, index) => day === weekdays[0]! + index)
    ? `${dayNames[weekdays[0]!]} to ${dayNames[weekdays.at(-1)!]}`
    : list(weekdays.map((day) => dayNames[day]!))

const list = (texts: ReadonlyArray<string>): string =>
  texts.length === 1 ? texts[0]! : `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)}`

const two = (n: number) => String(n).padStart(2, "0")

const dayNames = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]

const monthNames = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December"
]
