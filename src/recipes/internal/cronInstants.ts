/**
 * Which instants of a cron expression are to fire.
 */
import * as Cron from "effect/Cron"

/**
 * What happens to instants that are more than a minute old when a trigger runs, because no scheduler ran or the
 * dispatcher could not be reached: the newest of them fires (`latest`), all fire, or none. Instants of the last minute
 * all fire.
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

/**
 * An expression whose field of hours begins with `*` names an interval, which continues through an hour that the clocks
 * repeat. Other hours are times of the day, which come once.
 */
export const parse = (expression: string, timeZone: string) =>
  Cron.parse(expression, timeZone, {
    onDstOverlap: expression.trim().split(/\s+/).at(-4)?.startsWith("*") ? "both" : "earlier"
  })

/** The instants after `firedUntilMs`, up to and including `untilMs`. */
export const dueInstants = (
  { catchUp, firedUntilMs, schedule, untilMs }: {
    readonly schedule: Cron.Cron
    readonly catchUp: CatchUp
    /** `null` before the first run. */
    readonly firedUntilMs: number | null
    readonly untilMs: number
  }
): Due => {
  const onTimeFromMs = untilMs - onTimeMs
  // A new trigger begins with the instant that its first run was called for. That call may have come a little later.
  const firstMs = firedUntilMs === null
    ? Math.max(lastInstant(schedule, untilMs).getTime(), onTimeFromMs)
    : Math.max(firedUntilMs + 1, oldestMs[catchUp](schedule, onTimeFromMs))
  const instants: Array<Date> = []
  // From the instant before: a search that begins in an hour that the clocks leave out, or repeat, finds other
  // instants.
  for (const instant of Cron.sequence(schedule, lastInstant(schedule, firstMs - 1))) {
    if (instant.getTime() < firstMs) continue
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

/** Instants before this time do not fire. */
const oldestMs: Record<CatchUp, (schedule: Cron.Cron, onTimeFromMs: number) => number> = {
  latest: (schedule, onTimeFromMs) => lastInstant(schedule, onTimeFromMs - 1).getTime(),
  all: () => 0,
  none: (_, onTimeFromMs) => onTimeFromMs
}

/** At or before the time. Instants are whole seconds, and the search excludes the time that it begins with. */
const lastInstant = (schedule: Cron.Cron, ms: number) =>
  Cron.prev(schedule, new Date((Math.floor(ms / 1000) + 1) * 1000))
