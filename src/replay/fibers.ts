/**
 * The fibers of a program, run step by step and without the event loop.
 *
 * They share one scheduler, and only the turn drains its queue. So between two events everything that can run has run,
 * in an order that depends on the code alone.
 */
import type * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Random from "effect/Random"
import * as Scheduler from "effect/Scheduler"
import * as Tracer from "effect/Tracer"
import { Budget } from "./endless.ts"
import type { Turns } from "./endless.ts"

/** What the code sees of the world. */
export interface World extends Turns {
  /** Milliseconds since the Unix epoch, as recorded. */
  readonly nowMs: () => number
  readonly sleep: (duration: Duration.Duration) => Effect.Effect<void>
  readonly randomSeed: () => string
}

export interface Fibers {
  /** Runs them until each waits or has ended; false when that does not happen. */
  readonly drain: () => boolean
  /** Interrupts the first fiber; it runs until it waits. */
  readonly interrupt: () => void
  readonly exit: () => Exit.Exit<string, Cause.Cause<string> | string> | undefined
}

/** Starts `effect`; `drain` runs the rest of it. It gets the services of `context`, and none of the caller's. */
export const start = (
  effect: Effect.Effect<string, string>,
  context: Context.Context<never>,
  world: World
): Fibers => {
  const budget = new Budget(world)
  const scheduler = new TurnScheduler(budget)
  const services = context.pipe(
    Context.add(Scheduler.Scheduler, scheduler),
    Context.add(Tracer.Tracer, budget.tracer),
    Context.add(Clock.Clock, makeClock(world)),
    Context.add(Random.Random, makeRandom(world.randomSeed))
  )
  const fiber = Effect.runForkWith(services)(effect)
  return {
    drain: () => scheduler.drain(),
    interrupt: () => fiber.interruptUnsafe(),
    exit: () => fiber.pollUnsafe()
  }
}

// internal

// One queue for all fibers, by priority, then first in, first out; nothing runs until the turn drains it.
class TurnScheduler implements Scheduler.Scheduler, Scheduler.SchedulerDispatcher {
  readonly executionMode = "sync"
  private queue: Array<{ readonly task: () => void; readonly priority: number }> = []
  private readonly budget: Budget

  constructor(budget: Budget) {
    this.budget = budget
  }

  // Called before every operation of every fiber.
  shouldYield(fiber: Fiber.Fiber<unknown, unknown>) {
    return !this.budget.take() || fiber.currentOpCount >= fiber.cache.maxOpsBeforeYield
  }
  makeDispatcher() {
    return this
  }
  scheduleTask(task: () => void, priority: number) {
    if (this.budget.usedUp) return
    let index = this.queue.length
    while (index > 0 && this.queue[index - 1]!.priority > priority) index--
    this.queue.splice(index, 0, { task, priority })
  }
  /** False when the program does not come to rest. */
  drain(): boolean {
    while (this.queue.length > 0) {
      const tasks = this.queue
      this.queue = []
      for (const { task } of tasks) {
        if (this.budget.usedUp) return false
        task()
      }
    }
    if (this.budget.usedUp) return false
    this.budget.renew()
    return true
  }
  flush() {
    this.drain()
  }
}

const makeClock = ({ nowMs, sleep }: World): Clock.Clock => {
  const nanos = () => BigInt(nowMs()) * 1_000_000n
  return {
    currentTimeMillisUnsafe: nowMs,
    currentTimeMillis: Effect.sync(nowMs),
    currentTimeNanosUnsafe: nanos,
    currentTimeNanos: Effect.sync(nanos),
    monotonicTimeNanosUnsafe: nanos,
    monotonicTimeNanos: Effect.sync(nanos),
    sleep
  }
}

// Seeding costs about ten microseconds, so it is deferred to the first draw.
const makeRandom = (seed: () => string): typeof Random.Random.Service => {
  let source: typeof Random.Random.Service | undefined
  const get = () => source ??= Effect.runSync(Random.withSeed(Effect.service(Random.Random), seed()))
  return {
    nextIntUnsafe: () => get().nextIntUnsafe(),
    nextDoubleUnsafe: () => get().nextDoubleUnsafe()
  }
}
