/**
 * Time that passes in a test: virtual time moves at once, real time is slept.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import { Settings } from "./services.ts"

/** The suite's lock timeout, times `factor`. */
export const lockTimeout = (factor = 1): Effect.Effect<Duration.Duration, never, Settings> =>
  Effect.map(Settings, (settings) => Duration.millis(Duration.toMillis(settings.lockTimeout) * factor))

/** Lets this time pass. No other function sleeps. */
export const elapse = (duration: Duration.Input): Effect.Effect<void, never, Settings> =>
  Effect.gen(function*() {
    const { time } = yield* Settings
    const clockMovesByItself = time === "real" || (yield* InParallel)
    yield* clockMovesByItself ? Effect.sleep(duration) : TestClock.adjust(duration)
  })

/** Lets a lock that was just taken with the suite's lock timeout expire. */
export const elapseLockTimeout: Effect.Effect<void, never, Settings> = Effect.flatMap(
  lockTimeout(),
  (timeout) => elapse(Duration.sum(timeout, Duration.millis(100)))
)

/** Lets time pass until that moment, milliseconds since the Unix epoch, has passed for the store, too. */
export const elapseUntil = (timeMs: number): Effect.Effect<void, never, Settings> =>
  Effect.flatMap(Clock.currentTimeMillis, (nowMs) => elapse(Math.max(0, timeMs - nowMs) + 100))

/** Runs effects at the same time, with time passing while they wait; inside, `elapse` waits for that. */
export const parallel = <A, E, R>(
  effects: ReadonlyArray<Effect.Effect<A, E, R>>
): Effect.Effect<ReadonlyArray<A>, E, R | Settings> =>
  Effect.gen(function*() {
    const { time } = yield* Settings
    const all = Effect.all(effects, { concurrency: "unbounded" }).pipe(Effect.provideService(InParallel, true))
    if (time === "real") return yield* all
    const fiber = yield* Effect.forkChild(all)
    while (fiber.pollUnsafe() === undefined) yield* TestClock.adjust(1)
    return yield* Fiber.join(fiber)
  })

/** The outcome of an effect together with the milliseconds it took. */
export const timed = <A, E, R>(
  effect: Effect.Effect<A, E, R>
): Effect.Effect<{ readonly outcome: A; readonly millis: number }, E, R | Settings> =>
  Effect.gen(function*() {
    const start = yield* Clock.currentTimeMillis
    const [outcome] = yield* parallel([effect])
    return { outcome: outcome as A, millis: (yield* Clock.currentTimeMillis) - start }
  })

/** Whether another fiber moves the clock. */
const InParallel = Context.Reference("duroxide-prisma/testing/ProviderTest/InParallel", { defaultValue: () => false })

/** None without an input. */
export const duration = (input: Duration.Input | undefined) =>
  Option.map(Option.fromUndefinedOr(input), Duration.fromInputUnsafe)
