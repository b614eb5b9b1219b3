/**
 * When the next attempt of a task begins.
 *
 * A schedule has a state that no attempt outlives: it is stepped from its beginning, as often as attempts have failed, with the
 * failure of the last one.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schedule from "effect/Schedule"
import type { TaskDied, TaskTimedOut, TaskUnavailable } from "./errors.ts"

/** `BadOutcome` of `Task`. */
export type Outcome<E> = E | TaskDied | TaskUnavailable | TaskTimedOut

/** Of `Retry` of `Task`. */
export interface Policy<E> {
  readonly schedule?: Schedule.Schedule<unknown, Outcome<E>> | undefined
  readonly while?: ((outcome: Outcome<E>) => boolean) | undefined
}

/** 1 second after the first failure, doubled with each, 5 minutes at most; each 20 percent more or less. */
export const defaultSchedule: Schedule.Schedule<unknown> = Schedule.exponential("1 second").pipe(
  Schedule.modifyDelay(({ duration }) => Effect.succeed(Duration.min(duration, Duration.minutes(5)))),
  Schedule.jittered
)

/** The pause after this many failed attempts; undefined if the schedule has ended. */
export const pauseAfter = <E>(
  schedule: Schedule.Schedule<unknown, E>,
  failures: number,
  error: E
): Effect.Effect<Duration.Duration | undefined> =>
  Effect.gen(function*() {
    const step = yield* Schedule.toStep(schedule)
    const now = yield* Clock.currentTimeMillis
    let pause: Duration.Duration | undefined
    for (let i = 0; i < Math.min(failures, mostSteps); i++) {
      const exit = yield* Effect.exit(step(now, error))
      if (Exit.isFailure(exit)) return undefined
      pause = exit.value[1]
    }
    return pause
  })

// internal

/** Of a task that is retried for months; schedules have reached their longest pause by then. */
const mostSteps = 1_000
