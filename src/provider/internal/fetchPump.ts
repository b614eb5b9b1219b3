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
import * as Option from "effect/Option"
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
  /**
   * Waits up to `timeout` for an item; `none` when there was no work in that time, after a last look. `onLook` is called
   * whenever the store has answered a look on behalf of this caller.
   */
  readonly take: (timeout: Duration.Duration, onLook?: () => void) => Effect.Effect<Option.Option<A>, E>
  /** Work may be there: look at once if a caller waits, else when one does. */
  readonly wake: () => void
  /** Work may be there from then on, milliseconds since the Unix epoch. */
  readonly wakeAt: (timeMs: number) => void
}

interface Waiter<A, E> {
  readonly resume: (exit: Exit.Exit<Option.Option<A>, E>) => void
  readonly onLook: (() => void) | undefined
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

  const look = Effect.gen(function*() {
    woken = false
    lastLook = monotonicMs(clock)
    due.splice(0, insertionIndex(due, clock.currentTimeMillisUnsafe()))
    // Callers that come during the look, answered ones that ask again for example, are for the next one.
    const asked = new Set(waiters)
    const limit = Math.min(waiters.length, options.maxBatch)
    const exit = yield* Effect.exit(Effect.suspend(() => options.fetch(limit)))
    if (Exit.isFailure(exit)) {
      // Fails all callers; each retries on its own schedule.
      woken = true
      for (const waiter of waiters.splice(0)) waiter.resume(Exit.failCause(exit.cause))
      return
    }
    for (const waiter of asked) waiter.onLook?.()
    const { items, more } = exit.value
    if (more || items.length >= limit) woken = true
    for (const item of items) {
      const waiter = waiters.shift()
      if (waiter === undefined) yield* options.abandon(item)
      else waiter.resume(Exit.succeed(Option.some(item)))
    }
    // While there is more to look at, no caller gets `none`, even after its deadline.
    const isLate = (waiter: Waiter<A, E>) => !more && asked.has(waiter) && waiter.deadline <= lastLook
    const late = waiters.filter(isLate)
    waiters = waiters.filter((waiter) => !isLate(waiter))
    for (const waiter of late) waiter.resume(Exit.succeed(Option.none()))
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
    take: (timeout, onLook) =>
      Effect.callback((resume) => {
        if (isClosed) return resume(Exit.fail(options.closed))
        const waiter: Waiter<A, E> = { resume, onLook, deadline: monotonicMs(clock) + Duration.toMillis(timeout) }
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
  /** Whether it waits for work, up to its poll timeout, or looks once. */
  readonly polling: "long" | "short"
  /** Longest pause between two statements while a caller waits. */
  readonly pollInterval: Duration.Duration
}

/**
 * The pumps of a queue, one per filter, made when the first caller asks. A pump fetches as its first caller said; so
 * callers whose statements differ need filters that differ.
 */
export const byFilter = Effect.fnUntraced(function*<A, E>(
  options: Omit<Options<A, E>, "fetch"> & Polling & { readonly onMade: (pump: FetchPump<A, E>) => void }
) {
  const scope = yield* Effect.scope
  const pumps = new Map<string, FetchPump<A, E>>()
  const pumpOf = (filter: object, fetch: Options<A, E>["fetch"]) =>
    Effect.suspend(() => {
      const key = JSON.stringify(filter)
      const existing = pumps.get(key)
      if (existing !== undefined) return Effect.succeed(existing)
      return Effect.map(Scope.provide(make<A, E>({ ...options, fetch }), scope), (pump) => {
        pumps.set(key, pump)
        options.onMade(pump)
        return pump
      })
    })
  return (
    filter: object,
    fetch: Options<A, E>["fetch"],
    pollTimeout: Duration.Duration,
    onLook?: () => void
  ): Effect.Effect<Option.Option<A>, E> =>
    Effect.flatMap(
      pumpOf(filter, fetch),
      (pump) => pump.take(options.polling === "long" ? pollTimeout : Duration.zero, onLook)
    )
})

// internal

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
