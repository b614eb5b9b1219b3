/**
 * A clock that moves on demand only, and a scheduler that knows when no fiber can run.
 *
 * Time moves from one sleeper to the next, and only when everything that can happen at the present time has happened.
 * So a month takes milliseconds, and every run is the same.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Scheduler from "effect/Scheduler"
import * as Semaphore from "effect/Semaphore"
import type * as TestClock from "effect/testing/TestClock"
import * as Activity from "../../Activity.ts"
import { InBackground } from "../../model/shared/inBackground.ts"
import { InHandler } from "../../model/shared/inHandler.ts"
import { RunningHandler } from "./testProcess.ts"

export interface Options {
  /** Milliseconds since the Unix epoch. */
  readonly startMs: number
  /** Waits for work that time must not overtake. Runs before every step, at rest, and ends at rest. */
  readonly ready: Effect.Effect<void>
}

export interface VirtualTime {
  /** The clock and the scheduler, for all fibers that run in this time. */
  readonly context: Context.Context<never>
  readonly now: () => number
  /** Counts scheduled tasks that have run: two equal readings mean that no fiber ran in between. */
  readonly progress: () => number
  /** Waits until every fiber waits for the clock or for something outside this process. */
  readonly rest: Effect.Effect<void>
  /**
   * Moves to the next sleepers and wakes them, unless `isDone`, or no sleeper is due by `limitMs`. Without
   * `includeBackground`, time moves to sleepers in the foreground only, and wakes background sleepers on the way.
   */
  readonly step: (options: {
    readonly limitMs: number
    readonly isDone?: () => boolean
    readonly includeBackground?: boolean
  }) => Effect.Effect<"Done" | "Moved" | "NothingDue">
  /** Steps to `timeMs`, and ends there at rest. */
  readonly moveTo: (timeMs: number) => Effect.Effect<void>
  /** Whether a handler waits for the clock: the key of an activity, or that of a `RunningHandler`. */
  readonly isAsleep: (key: string) => boolean
}

export const make = Effect.fnUntraced(function*(options: Options): Effect.fn.Return<VirtualTime> {
  const outside = yield* Clock.Clock
  const scheduler = new CountingScheduler(yield* Scheduler.Scheduler)
  const oneStep = yield* Semaphore.make(1)
  let now = options.startMs
  // Ascending by time; sleepers of the same time in the order in which they began to sleep.
  const sleepers: Array<Sleeper> = []

  const rest = Effect.gen(function*() {
    let seen: number | undefined
    while (scheduler.pending > 0 || seen !== scheduler.progress) {
      seen = scheduler.progress
      yield* turnOfTheEventLoop
    }
  })

  const step: VirtualTime["step"] = ({ includeBackground = false, isDone = () => false, limitMs }) =>
    // Rests before it takes the permit, so that other callers get theirs first, and again once it has it, until what
    // they did has ended.
    Effect.andThen(
      rest,
      oneStep.withPermit(Effect.gen(function*() {
        yield* rest
        if (isDone()) return "Done"
        yield* options.ready
        if (isDone()) return "Done"
        const goal = sleepers.find((sleeper) => includeBackground || !sleeper.inBackground)?.at ?? Infinity
        if (goal > limitMs || goal === Infinity) return "NothingDue"
        const { at } = sleepers[0]!
        now = at
        const due = sleepers.findIndex((sleeper) => sleeper.at > at)
        for (const sleeper of sleepers.splice(0, due < 0 ? sleepers.length : due)) sleeper.wake()
        yield* rest
        return "Moved"
      }))
    )

  const moveTo = (timeMs: number): Effect.Effect<void> =>
    Effect.gen(function*() {
      while ((yield* step({ limitMs: timeMs, includeBackground: true })) === "Moved");
      now = Math.max(now, timeMs)
      yield* rest
    })

  const nanos = () => BigInt(Math.floor(now * 1_000)) * 1_000n
  const clock: TestClock.TestClock = {
    currentTimeMillisUnsafe: () => now,
    currentTimeMillis: Effect.sync(() => now),
    currentTimeNanosUnsafe: nanos,
    currentTimeNanos: Effect.sync(nanos),
    monotonicTimeNanosUnsafe: nanos,
    monotonicTimeNanos: Effect.sync(nanos),
    sleep: (duration) => {
      const millis = Duration.toMillis(duration)
      if (millis <= 0) return Effect.yieldNow
      return Effect.contextWith((context: Context.Context<never>) =>
        Effect.callback<void>((resume) => {
          const task = Context.get(context, RunningHandler)
          const handler = Option.match(Context.getOption(context, Activity.Call), {
            onNone: () => Context.get(context, InHandler) ? task : undefined,
            onSome: ({ activityId, executionId, instanceId }) => activityKey(instanceId, executionId, activityId)
          })
          const sleeper: Sleeper = {
            at: now + millis,
            handler,
            inBackground: handler === undefined && task === undefined && Context.get(context, InBackground),
            wake: () => resume(Effect.void)
          }
          const later = sleepers.findIndex(({ at }) => at > sleeper.at)
          sleepers.splice(later < 0 ? sleepers.length : later, 0, sleeper)
          return Effect.sync(() => {
            const index = sleepers.indexOf(sleeper)
            if (index >= 0) sleepers.splice(index, 1)
          })
        })
      )
    },
    adjust: (duration) => Effect.suspend(() => moveTo(now + Duration.toMillis(Duration.fromInputUnsafe(duration)))),
    setTime: moveTo,
    withLive: (effect) =>
      "withLive" in outside
        ? (outside as TestClock.TestClock).withLive(effect)
        : Effect.provideService(effect, Clock.Clock, outside)
  }

  return {
    context: Context.make(Clock.Clock, clock as Clock.Clock).pipe(Context.add(Scheduler.Scheduler, scheduler)),
    now: () => now,
    progress: () => scheduler.progress,
    rest,
    step,
    moveTo,
    isAsleep: (key) => sleepers.some(({ handler }) => handler === key)
  }
})

/** Milliseconds of real time since an arbitrary moment. */
export const realTime = (): number => performance.now()

/** A short pause in real time, for work outside this process. The caller checks again after it. */
export const realPause: Effect.Effect<void> = Effect.callback((resume) => {
  const timer = setTimeout(() => resume(Effect.void), 1)
  return Effect.sync(() => clearTimeout(timer))
})

export const activityKey = (instanceId: string, executionId: number, activityId: number) =>
  `${executionId}/${activityId}/${instanceId}`

// internal

interface Sleeper {
  readonly at: number
  /** The key of the handler that sleeps. */
  readonly handler: string | undefined
  readonly inBackground: boolean
  readonly wake: () => void
}

/** Promises that wait for nothing outside settle meanwhile. */
const turnOfTheEventLoop: Effect.Effect<void> = Effect.callback((resume) => {
  const timer = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(timer))
})

class CountingScheduler implements Scheduler.Scheduler {
  pending = 0
  progress = 0
  private readonly parent: Scheduler.Scheduler
  constructor(parent: Scheduler.Scheduler) {
    this.parent = parent
  }
  get executionMode() {
    return this.parent.executionMode
  }
  shouldYield(...args: Parameters<Scheduler.Scheduler["shouldYield"]>) {
    return this.parent.shouldYield(...args)
  }
  makeDispatcher(): Scheduler.SchedulerDispatcher {
    const dispatcher = this.parent.makeDispatcher()
    return {
      scheduleTask: (task, priority) => {
        this.pending++
        dispatcher.scheduleTask(() => {
          this.pending--
          this.progress++
          task()
        }, priority)
      },
      flush: () => dispatcher.flush()
    }
  }
}
