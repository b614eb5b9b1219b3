/**
 * Reports of what the code of this process cannot run.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import type { BlockReport } from "../model/Block.ts"
import { cures } from "../model/shared/cures.ts"
import { NewsOfTheHour } from "./policies.ts"

/** Logs and counts a turn, or a call of an activity, of this name. */
export type ReportBlock = (name: string, block: Omit<BlockReport, "build">) => Effect.Effect<void>

export const make = ({ blocks, build, clock, subject }: {
  readonly clock: Clock.Clock
  /** What the lines are about: `<component>: instance`. */
  readonly subject: string
  readonly build: string
  readonly blocks: (name: string, reason: string) => Metric.Counter<number>
}): ReportBlock => {
  const news = new NewsOfTheHour(clock)
  return (name, { eventId, problem, reason }) =>
    Effect.suspend(() =>
      (news.isNews(`${reason} ${name}`)
        ? Effect.logError(`${subject} is blocked: ${cures[reason]}`)
        : Effect.logDebug(`${subject} is blocked`)).pipe(
          Effect.annotateLogs({ reason, error: problem, event_id: eventId, build }),
          Effect.andThen(Metric.update(blocks(name, reason), 1))
        )
    )
}
