/**
 * Reports of what the code of this process cannot run.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import type { BlockReport } from "../model/Block.ts"
import { cures } from "../model/shared/cures.ts"
import { NewsOfTheHour } from "./policies.ts"

/** Logs and counts a turn, or a call of an activity, of this name. `why` is logged as well, once an hour like `log`. */
export type ReportBlock = (
  name: string,
  block: Omit<BlockReport, "build">,
  why?: Effect.Effect<void>
) => Effect.Effect<void>

export const make = ({ blocks, build, clock, log, logAgain }: {
  readonly clock: Clock.Clock
  /** Once an hour for each reason and name. */
  readonly log: (cure: string) => Effect.Effect<void>
  readonly logAgain: Effect.Effect<void>
  readonly build: string
  readonly blocks: (name: string, reason: string) => Metric.Counter<number>
}): ReportBlock => {
  const news = new NewsOfTheHour(clock)
  return (name, { eventId, problem, reason }, why = Effect.void) =>
    Effect.suspend(() =>
      (news.isNews(`${reason} ${name}`) ? Effect.andThen(log(cures[reason]), why) : logAgain).pipe(
        Effect.annotateLogs({ reason, error: problem, event_id: eventId, build }),
        Effect.andThen(Metric.update(blocks(name, reason), 1))
      )
    )
}
