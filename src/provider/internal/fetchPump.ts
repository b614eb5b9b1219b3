/**
 * One pump per queue and filter: it alone asks the store for work, on behalf of all callers that wait for it.
 *
 * The pump sends one statement for all waiting callers, when it was woken or when the poll interval has passed, and
 * nothing while no caller waits. Wake-ups are hints: with every one of them lost, polling still finds the work. Intervals
 * are measured by the monotonic clock; only due times of work are dates.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import * as Scope from "effect/Scope"
import { monotonicMs } from "../../model/internal/monotonic.ts"

export interface Options<A, E> {
  /** Claims up to `limit` items with one statement. `more` asks for another round at once. */
  readonly fetch: (limit: number) => Effect.Effect<{ readonly items: ReadonlyArray<A>; readonly more: boolean }, E>
  /** Abandons a claimed item whose caller no longer waits. */
  readonly abandon: (item: A) => Effect.Effect<void>
  /** Most items to claim with one statement. */
  readonly maxBatch: number
  /** Longest pause between two statements while a caller waits. */
  readonly pollInterval: Duration.Duration
  /** The failure of callers that wait when the scope is closed, or come later. */
  readonly closed: E
}

export interface FetchPump<A, E> {
  /** Waits up to `timeout` for items; none when there was no work in that time, after a last look. */
  readonly take: (timeout: Duration.Duration, asking?: Asking) => Effect.Effect<ReadonlyArray<A>, E>
  /** Work may be there: look at once if a caller waits, else when one does. */
  readonly wake: () => void
  /** Work may be there from then on, milliseconds since the Unix epoch. */
  readonly wakeAt: (timeMs: number) => void
}

/** What a caller asks for. */
export interface Asking {
  /** Most items for this caller; asked before each look. Below 1, the call ends without a look. Defaults to 1. */
  readonly most?: (() => number) | undefined
  /** Called whenever the store has answered a look on behalf of this caller. */
  readonly onLook?: (() => void) | undefined
}

interface Waiter<A, E> extends Asking {
  readonly resume: (exit: Exit.Exit<ReadonlyArray<A>, E>) => void
  /** Monotonic milliseconds; from then on the next look is the last one. */
  readonly deadline: number
}

export const make = Effect.fnUntraced(function*<A, E>(
  options: Options<A, E>
): Effect.fn.Return<FetchPump<A, E>, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const bell = Latch.makeUnsafe()
  const pollMs = Duration.toMillis(options.pollInterval)
  let waiters: Array<Waiter<A, E>> = []
  let woken = true
  let isClosed = false
  /** Monotonic milliseconds. */
  let lastLook = Number.NEGATIVE_INFINITY
  // When work becomes visible that this process knows of, milliseconds since the Unix epoch, ascending.
  const due: Array<number> = []

  /** Milliseconds until the next look. */
  const untilNextLook = () =>
    woken ? 0 : Math.min(
      Math.min(lastLook + pollMs, ...waiters.map((waiter) => waiter.deadline)) - monotonicMs(clock),
      (due[0] ?? Infinity) - clock.currentTimeMillisUnsafe()
    )

  const leave = (waiter: Waiter<A, E>, items: ReadonlyArray<A>) => {
    waiters.splice(waiters.indexOf(waiter), 1)
    waiter.resume(Exit.succeed(items))
  }

  /** What each caller wants now. Those that want nothing any more leave. */
  const wishes = () => {
    const wanted = new Map(waiters.map((waiter) => [waiter, wholeNumber(waiter.most?.() ?? 1)]))
    for (const [waiter, most] of wanted) {
      if (most >= 1) continue
      wanted.delete(waiter)
      leave(waiter, [])
    }
    return wanted
  }

  const look = Effect.gen(function*() {
    // Callers that come during the look, such as answered ones that ask again, are for the next one.
    const asked = wishes()
    // A wake-up that came before is kept for the next caller.
    if (asked.size === 0) return
    woken = false
    lastLook = monotonicMs(clock)
    due.splice(0, insertionIndex(due, clock.currentTimeMillisUnsafe()))
    const limit = Math.min([...asked.values()].reduce((sum, most) => sum + most), options.maxBatch)
    const exit = yield* Effect.exit(Effect.suspend(() => options.fetch(limit)))
    if (Exit.isFailure(exit)) {
      // Fails all callers; each retries on its own schedule.
      woken = true
      for (const waiter of waiters.splice(0)) waiter.resume(Exit.failCause(exit.cause))
      return
    }
    for (const waiter of asked.keys()) waiter.onLook?.()
    const { items, more } = exit.value
    if (more || items.length >= limit) woken = true
    let given = 0
    while (given < items.length && waiters.length > 0) {
      const [waiter] = waiters as [Waiter<A, E>]
      // One that came during the look stands in for one that went.
      const share = items.slice(given, given + (asked.get(waiter) ?? 1))
      given += share.length
      leave(waiter, share)
    }
    for (const item of items.slice(given)) yield* options.abandon(item)
    // While there is more to look at, no caller leaves empty-handed, even after its deadline.
    if (more) return
    for (const waiter of asked.keys()) {
      if (waiters.includes(waiter) && waiter.deadline <= lastLook) leave(waiter, [])
    }
  })

  yield* Effect.gen(function*() {
    while (true) {
      if (waiters.length === 0) yield* bell.await
      // All that ask in this tick share the statement.
      yield* Effect.yieldNow
      bell.closeUnsafe()
      const pause = waiters.length === 0 ? 0 : untilNextLook()
      if (pause > 0) yield* Effect.raceFirst(bell.await, Effect.sleep(pause))
      // What breaks one look, be it the giving back of an item, must not end the next.
      else if (waiters.length > 0) yield* Effect.ignoreCause(Effect.uninterruptible(look))
    }
  }).pipe(Effect.forkScoped)

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isClosed = true
      for (const waiter of waiters.splice(0)) waiter.resume(Exit.fail(options.closed))
    })
  )

  return {
    take: (timeout, asking) =>
      Effect.callback((resume) => {
        if (isClosed) return resume(Exit.fail(options.closed))
        const waiter: Waiter<A, E> = { ...asking, resume, deadline: monotonicMs(clock) + Duration.toMillis(timeout) }
        waiters.push(waiter)
        bell.openUnsafe()
        return Effect.sync(() => {
          waiters = waiters.filter((other) => other !== waiter)
        })
      }),
    wake: () => {
      woken = true
      bell.openUnsafe()
    },
    wakeAt: (timeMs) => {
      const index = insertionIndex(due, timeMs)
      if (due[index - 1] === timeMs) return
      due.splice(index, 0, timeMs)
      if (index === 0) bell.openUnsafe()
    }
  }
})

/** How a fetch waits. */
export interface Polling {
  readonly longPolling: Settings
}

/** `LongPolling`, with times in milliseconds. */
export interface Settings {
  readonly isEnabled: boolean
  readonly fallbackPollMs: number
  readonly maxWaitMs: number
  readonly timerGraceMs: number
  readonly aggressiveDurationMs: number
  readonly aggressiveExitThreshold: number
  readonly notifyDeliveryTimeoutMs: number
  readonly aggressivePollMs: number
}

/**
 * The pumps of a queue, one per filter, made when the first caller asks. A pump fetches as its first caller said; so
 * callers whose statements differ need filters that differ.
 */
export const byFilter = Effect.fnUntraced(function*<A, E>(
  options: Omit<Options<A, E>, "fetch" | "pollInterval"> & Polling & {
    readonly onMade: (pump: FetchPump<A, E>) => void
  }
) {
  const { aggressivePollMs, isEnabled } = options.longPolling
  const scope = yield* Effect.scope
  const pumps = new Map<string, FetchPump<A, E>>()
  const pumpOf = (filter: object, fetch: Options<A, E>["fetch"]) =>
    Effect.suspend(() => {
      const key = JSON.stringify(filter)
      const existing = pumps.get(key)
      if (existing !== undefined) return Effect.succeed(existing)
      return Effect.map(
        Scope.provide(make<A, E>({ ...options, fetch, pollInterval: Duration.millis(aggressivePollMs) }), scope),
        (pump) => {
          pumps.set(key, pump)
          options.onMade(pump)
          return pump
        }
      )
    })
  return (
    filter: object,
    fetch: Options<A, E>["fetch"],
    pollTimeout: Duration.Duration,
    asking?: Asking
  ): Effect.Effect<ReadonlyArray<A>, E> =>
    Effect.flatMap(
      pumpOf(filter, fetch),
      (pump) => pump.take(isEnabled ? pollTimeout : Duration.zero, asking)
    )
})

// internal

const wholeNumber = (count: number): number => Number.isNaN(count) ? 0 : Math.floor(count)

/** Where `time` goes in an ascending array, behind its equals. */
const insertionIndex = (times: ReadonlyArray<number>, time: number): number => {
  let low = 0
  let high = times.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (times[middle]! <= time) low = middle + 1
    else high = middle
  }
  return low
}
