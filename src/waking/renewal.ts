/**
 * Renewal of locks while work runs under them: whenever half of the lock is left, sooner after a claim that took long,
 * or more often if the caller asks for it; after a renewal without an answer, again after a tenth of the lock.
 *
 * A passing database error does not lose a lock: only the store's own answer ends its renewal.
 */
import type * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"

/** When a lock is renewed. */
export interface Pace {
  /** Time between two renewals. */
  readonly interval: Duration.Duration
  /** Time from an attempt without an answer to the next one. */
  readonly retryInterval: Duration.Duration
}

/** The pace for locks of this length; neither interval is longer than `maxInterval`. */
export const pace = (lockTimeout: Duration.Duration, maxInterval: Duration.Duration = Duration.infinity): Pace => ({
  interval: Duration.min(Duration.divideUnsafe(lockTimeout, 2), maxInterval),
  retryInterval: Duration.min(Duration.divideUnsafe(lockTimeout, 10), maxInterval)
})

/** Repeats an attempt until the store answers it. */
export const untilAnswered = <A, E, R>(attempt: Effect.Effect<A, E, R>, pace: Pace): Effect.Effect<A, never, R> =>
  Effect.retry(attempt, retries(pace)) as Effect.Effect<A, never, R>

/** Renews after each interval, the first one included, until `renew` answers that nothing is held. */
export const whileHeld = <E, R>(options: {
  readonly pace: Pace
  readonly firstInterval: Duration.Duration
  /** True while there is something to renew. */
  readonly renew: Effect.Effect<boolean, E, R>
  readonly onUnanswered: (cause: Cause.Cause<E>) => Effect.Effect<void>
}): Effect.Effect<void, never, R> =>
  Effect.sandbox(options.renew).pipe(
    Effect.tapError(options.onUnanswered),
    (attempt) => untilAnswered(attempt, options.pace),
    Effect.repeat({ schedule: renewals(options.pace), while: (isHeld) => isHeld }),
    Effect.delay(options.firstInterval),
    Effect.asVoid
  )

/**
 * Renews one lock of this length until it is lost. The first renewal comes early, because part of the lock has passed
 * already. `unanswered` is logged at level Debug when the store does not answer.
 */
export const untilLost = <E extends { readonly reason: { readonly _tag: string } }>(
  lockTimeout: Duration.Duration,
  renew: Effect.Effect<void, E>,
  unanswered: string
): Effect.Effect<void> =>
  whileHeld({
    pace: pace(lockTimeout),
    firstInterval: Duration.divideUnsafe(lockTimeout, 4),
    renew: Effect.as(renew, true).pipe(
      Effect.catch((error) => error.reason._tag === "LockLost" ? Effect.succeed(false) : Effect.fail(error))
    ),
    onUnanswered: (cause) => Effect.logDebug(unanswered, cause)
  })

// internal

const renewals = ({ interval }: Pace) => Schedule.spaced(interval)

const retries = ({ retryInterval }: Pace) => Schedule.spaced(retryInterval)
