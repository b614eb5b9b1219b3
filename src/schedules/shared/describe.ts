/**
 * Schedules in words, for the command line and pages.
 */
import * as Duration from "effect/Duration"
import type { Target, Timing } from "../ScheduleDriver.ts"

export const timingText = (timing: Timing): string => {
  switch (timing._tag) {
    case "Cron":
      return `${timing.expression} (${timing.timeZone})`
    case "Interval":
      return `every ${Duration.format(Duration.millis(timing.everyMs))}`
    case "Dates":
      return timing.at.length === 1 ? "1 date" : `${timing.at.length} dates`
  }
}

export const targetText = (target: Target): string =>
  target._tag === "Task"
    ? `task ${target.name}`
    : `orchestration ${target.name}${target.version === null ? "" : `@${target.version}`}`
