/**
 * When a start begins, as flags and lines of a file say.
 */
import * as Flag from "effect/cli/Flag"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Client from "../../Client.ts"
import { durationOf } from "./durations.ts"
import { misused } from "./failure.ts"

export const flags = {
  at: Flag.String("at").pipe(
    Flag.withMetavar("<time>"),
    Flag.withDescription("When it begins, such as 2026-12-01T08:00Z. Defaults to at once"),
    Flag.optional
  ),
  delay: Flag.String("delay").pipe(
    Flag.withMetavar("<duration>"),
    Flag.withDescription("How long until it begins, such as \"2 hours\". Defaults to at once"),
    Flag.optional
  )
}

export const timeOf = Effect.fnUntraced(function*({ at, delay }: {
  readonly at: Option.Option<string>
  readonly delay: Option.Option<string>
}) {
  if (Option.isSome(at) && Option.isSome(delay)) return yield* misused("give --at or --delay, not both")
  const duration = yield* durationOf("delay", delay)
  if (Option.isNone(at)) return { delay: duration } satisfies Client.StartTime
  const time = DateTime.make(at.value)
  return Option.isNone(time)
    ? yield* misused(`--at is a time such as 2026-12-01T08:00Z, not ${JSON.stringify(at.value)}`)
    : { startAt: time.value } satisfies Client.StartTime
})
