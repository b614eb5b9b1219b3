/**
 * Runs the handler of a task, and says how the attempt ended and when the next one begins.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import { describe, logDeath } from "../../model/shared/defect.ts"
import { errorTypeOf } from "../../model/shared/errorType.ts"
import { InHandler } from "../../model/shared/inHandler.ts"
import * as payloads from "../../model/shared/payload.ts"
import * as sealed from "../../model/shared/sealed.ts"
import { outageIn } from "../../provider/shared/outage.ts"
import { failedUnscheduled } from "../shared/code.ts"
import type { Failed, TaskCode } from "../shared/code.ts"
import { StaleAttempt, TaskDied, TaskTimedOut, TaskUnavailable } from "../shared/errors.ts"
import type { Failure } from "../shared/failure.ts"
import type { Attempt } from "./attempt.ts"

export const runner = <P, A, E, R>({ codecs, handler, name, retry, timeout }: {
  readonly name: string
  readonly codecs: {
    readonly payload: payloads.Payload<P>
    readonly success: payloads.Payload<A>
    readonly error: payloads.Payload<E>
  }
  readonly handler: (payload: P) => Effect.Effect<A, E, R>
  readonly retry: Policy<E> | undefined
  readonly timeout: Option.Option<Duration.Duration>
}): TaskCode["run"] => {
  const schedule = retry?.schedule ?? defaultSchedule

  const failed = Effect.fnUntraced(function*(
    counted: number,
    outcome: Outcome<E>,
    failure: Failure,
    errorType = errorTypeOf(outcome)
  ) {
    const retryAfter = retry?.while?.(outcome) === false
      ? undefined
      : yield* scheduledPause(schedule, counted, outcome)
    return yield* Effect.fail<Failed>({ failure, errorType, retryAfter })
  })

  const died = (counted: number, problem: string, errorType?: string) =>
    failed(counted, new TaskDied({ taskName: name, problem }), { _tag: "Died", problem }, errorType)

  const limited = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E | Expired, R> => {
    if (Option.isNone(timeout)) return self
    const timeoutMs = Duration.toMillis(timeout.value)
    return Effect.timeoutOrElse(self, { duration: timeoutMs, orElse: () => Effect.fail(new Expired(timeoutMs)) })
  }

  const run: TaskCode["run"] = (text, counted) =>
    Effect.suspend(() => codecs.payload.decode(text)).pipe(
      Effect.orDie,
      Effect.flatMap((value) => Effect.scoped(Effect.suspend(() => handler(value)))),
      Effect.provideService(InHandler, true),
      limited as <A, E>(self: Effect.Effect<A, E, any>) => Effect.Effect<A, E | Expired, Attempt>,
      Effect.flatMap((value) => Effect.orDie(codecs.success.encode(value))),
      Effect.catchCause((cause) => {
        const typed = Cause.findErrorOption(cause)
        if (Option.isSome(typed)) {
          const error = typed.value
          if (error instanceof Expired) {
            const { timeoutMs } = error
            return failed(counted, new TaskTimedOut({ taskName: name, timeoutMs }), { _tag: "TimedOut", timeoutMs })
          }
          return Effect.matchEffect(payloads.encodeError(codecs.error, error), {
            onSuccess: (text) => failed(counted, error, { _tag: "Failed", error: text }),
            onFailure: ({ message }) => died(counted, message)
          })
        }
        const death = cause.reasons.find((reason) => reason._tag === "Die")
        if (death === undefined) return Effect.failCause(cause as Cause.Cause<never>)
        const { message } = describe(death.defect)
        const stale = staleIn(death.defect)
        if (stale !== undefined) return Effect.fail(failedUnscheduled(message, stale._tag))
        const outage = outageIn(death.defect)
        if (outage !== undefined) {
          const { errorType, problem } = outage
          const error = new TaskUnavailable({ taskName: name, problem })
          return failed(counted, error, { _tag: "Unavailable", problem }, errorType)
        }
        return Effect.andThen(
          logDeath("Task worker: handler died", death.defect),
          died(counted, message, errorTypeOf(death.defect))
        )
      })
    )
  return (text, counted) => sealed.isSealed(text) ? Effect.fail(unread(text)) : run(text, counted)
}

// internal

/** The task is not at fault: a process with the key may have it next. */
const unread = (text: string): Failed => ({
  failure: { _tag: "Unavailable", problem: `of its payload, ${sealed.problemOf(text)}` },
  errorType: "PayloadSealed",
  retryAfter: Duration.minutes(1),
  counts: false
})

/** A stale `commit` or `lock` rejects the promise of the transaction, and so becomes a defect or the cause of one. */
const staleIn = (defect: unknown): StaleAttempt | undefined =>
  defect instanceof StaleAttempt
    ? defect
    : defect instanceof Error && defect.cause instanceof StaleAttempt
    ? defect.cause
    : undefined

class Expired {
  readonly timeoutMs: number
  constructor(timeoutMs: number) {
    this.timeoutMs = timeoutMs
  }
}

// -- pauses ------------------------------------------------------------------------------------------

/** `BadOutcome` of `Task`. */
type Outcome<E> = E | TaskDied | TaskUnavailable | TaskTimedOut

/** The part of `Retry` of `Task` that decides on pauses. */
interface Policy<E> {
  readonly schedule?: Schedule.Schedule<unknown, Outcome<E>> | undefined
  readonly while?: ((outcome: Outcome<E>) => boolean) | undefined
}

/** 1 second after the first failure, doubled with each, 5 minutes at most; each 20 percent more or less. */
const defaultSchedule: Schedule.Schedule<unknown> = Schedule.exponential("1 second").pipe(
  Schedule.modifyDelay(({ duration }) => Effect.succeed(Duration.min(duration, Duration.minutes(5)))),
  Schedule.jittered
)

/**
 * The pause after this many failed attempts; undefined if the schedule has ended. No attempt outlives the state of a
 * schedule: it is stepped from its beginning, as often as attempts have failed, with the failure of the last one.
 */
const scheduledPause = <E>(
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

/** Limit of steps for a task that is retried for months; schedules have reached their longest pause by then. */
const mostSteps = 1_000
