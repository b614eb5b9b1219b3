/**
 * Which instants of a cron expression are to fire.
 */
import * as Cron from "effect/Cron"

/**
 * What happens to instants that are due when a trigger fires, if no scheduler ran for a while or the dispatcher was
 * unreachable: only the last one fires (`latest`), all fire, or only those of the last minute (`none`).
 *
 * @category models
 * @since 0.2.0
 */
export type CatchUp = "latest" | "all" | "none"

export interface Due {
  readonly instants: ReadonlyArray<Date>
  /** Up to this time they are complete, milliseconds since the Unix epoch. */
  readonly untilMs: number
  /** There are more after these. */
  readonly hasMore: boolean
}

/** An instant that is older was missed. */
export const onTimeMs = 60_000

/** At once. */
export const maxInstants = 1000

/** The instants after `firedUntilMs`, up to and including `untilMs`. A trigger that has never fired has missed nothing. */
export const dueInstants = (
  { catchUp, firedUntilMs, schedule, untilMs }: {
    readonly schedule: Cron.Cron
    readonly catchUp: CatchUp
    readonly firedUntilMs: number | null
    readonly untilMs: number
  }
): Due => {
  const onTimeFromMs = untilMs - onTimeMs
  const fromMs = Math.max(firedUntilMs ?? onTimeFromMs, catchUp === "none" ? onTimeFromMs : 0)
  if (catchUp === "latest") {
    const last = lastInstant(schedule, untilMs)
    return { instants: last.getTime() > fromMs ? [last] : [], untilMs, hasMore: false }
  }
  const instants: Array<Date> = []
  for (const instant of Cron.sequence(schedule, new Date(fromMs))) {
    if (instant.getTime() > untilMs) break
    if (instants.length === maxInstants) {
      return { instants, untilMs: instants[maxInstants - 1]!.getTime(), hasMore: true }
    }
    instants.push(instant)
  }
  return { instants, untilMs, hasMore: false }
}

export const isInstant = (schedule: Cron.Cron, date: Date): boolean =>
  date.getTime() % 1000 === 0 && lastInstant(schedule, date.getTime()).getTime() === date.getTime()

// internal

/** At or before the time. Instants are whole seconds, and the search excludes the time that it begins with. */
const lastInstant = (schedule: Cron.Cron, ms: number) =>
  Cron.prev(schedule, new Date((Math.floor(ms / 1000) + 1) * 1000))
