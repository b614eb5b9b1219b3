/**
 * Runs an Effect step by step, without the event loop.
 *
 * An orchestration's fibers share one scheduler whose queue is drained by the turn, so that between two events
 * everything that can run has run, in an order that only depends on the code.
 */
import type * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Random from "effect/Random"
import * as Scheduler from "effect/Scheduler"

/** What the code under replay sees of the world. */
export interface World {
  /** Milliseconds since the Unix epoch, as recorded. */
  readonly nowMs: () => number
  readonly sleep: (duration: Duration.Duration) => Effect.Effect<void>
  readonly randomSeed: () => string
}

export interface Program {
  /** Runs until every fiber waits or has ended. */
  readonly drain: () => void
  readonly exit: () => Exit.Exit<string, Cause.Cause<string> | string> | undefined
}

/** Starts `effect` and runs it until it waits. Its services are `context` and nothing of the caller's. */
export const start = (
  effect: Effect.Effect<string, string>,
  context: Context.Context<never>,
  world: World
): Program => {
  const scheduler = new TurnScheduler()
  const services = context.pipe(
    Context.add(Scheduler.Scheduler, scheduler),
    Context.add(Clock.Clock, makeClock(world)),
    Context.add(Random.Random, makeRandom(world.randomSeed))
  )
  const fiber = Effect.runForkWith(services)(effect)
  scheduler.drain()
  return {
    drain: () => scheduler.drain(),
    exit: () => fiber.pollUnsafe()
  }
}

// internal

// One dispatcher for all fibers; nothing runs until the turn drains it.
class TurnScheduler extends Scheduler.MixedScheduler {
  private readonly dispatcher: Scheduler.SchedulerDispatcher
  constructor() {
    super("sync", () => () => {})
    this.dispatcher = super.makeDispatcher()
  }
  override makeDispatcher() {
    return this.dispatcher as ReturnType<Scheduler.MixedScheduler["makeDispatcher"]>
  }
  drain() {
    this.dispatcher.flush()
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

// Seeding costs some ten microseconds, so it waits for the first draw.
const makeRandom = (seed: () => string): typeof Random.Random.Service => {
  let source: typeof Random.Random.Service | undefined
  const get = () => source ??= Effect.runSync(Random.withSeed(Effect.service(Random.Random), seed()))
  return {
    nextIntUnsafe: () => get().nextIntUnsafe(),
    nextDoubleUnsafe: () => get().nextDoubleUnsafe()
  }
}
