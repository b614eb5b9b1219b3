/**
 * One pump per queue and filter: it alone asks the store for work, on behalf of everybody who waits for it.
 *
 * The pump sends one statement for all waiting callers, when it was woken or when the poll interval has passed, and
 * nothing while nobody waits. Wake-ups are hints: with every one of them lost, polling still finds the work.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"

export interface Options<A, E> {
  /** Claims up to `limit` items with one statement. `more` asks for another round at once. */
  readonly fetch: (limit: number) => Effect.Effect<{ readonly items: ReadonlyArray<A>; readonly more: boolean }, E>
  /** Returns a claimed item that nobody waits for any longer. */
  readonly giveBack: (item: A) => Effect.Effect<void>
  /** Most items to claim with one statement. */
  readonly maxBatch: number
  /** Longest pause between two statements while somebody waits. */
  readonly pollInterval: Duration.Duration
}

export interface FetchPump<A, E> {
  /** Waits up to `timeout` for an item; `none` when there was no work in that time, after a last look. */
  readonly take: (timeout: Duration.Duration) => Effect.Effect<Option.Option<A>, E>
  /** Work may be there: look at once if somebody waits, else when somebody does. */
  readonly wake: () => void
  /** Work may be there from then on, milliseconds since the Unix epoch. */
  readonly wakeAt: (timeMs: number) => void
}

interface Waiter<A, E> {
  readonly resume: (exit: Exit.Exit<Option.Option<A>, E>) => void
  /** Milliseconds since the Unix epoch; from then on the next look is the last one. */
  readonly deadline: number
}

export const make = Effect.fnUntraced(function*<A, E>(
  options: Options<A, E>
): Effect.fn.Return<FetchPump<A, E>, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const signal = Latch.makeUnsafe()
  const pollMs = Duration.toMillis(options.pollInterval)
  let waiters: Array<Waiter<A, E>> = []
  let woken = true
  let lastLook = Number.NEGATIVE_INFINITY
  // When work becomes visible that this process knows of, ascending.
  const due: Array<number> = []

  /** When to look again, milliseconds since the Unix epoch. */
  const nextLook = () =>
    woken
      ? clock.currentTimeMillisUnsafe()
      : Math.min(lastLook + pollMs, due[0] ?? Infinity, ...waiters.map((waiter) => waiter.deadline))

  const look = Effect.gen(function*() {
    woken = false
    lastLook = clock.currentTimeMillisUnsafe()
    due.splice(0, insertionIndex(due, lastLook))
    // Whoever comes during the look, an answered caller that asks again for example, is for the next one.
    const asked = new Set(waiters)
    const limit = Math.min(waiters.length, options.maxBatch)
    const exit = yield* Effect.exit(options.fetch(limit))
    if (Exit.isFailure(exit)) {
      // Everybody hears of it and decides for himself when to come back.
      woken = true
      for (const waiter of waiters.splice(0)) waiter.resume(Exit.failCause(exit.cause))
      return
    }
    const { items, more } = exit.value
    if (more || items.length >= limit) woken = true
    for (const item of items) {
      const waiter = waiters.shift()
      if (waiter === undefined) yield* options.giveBack(item)
      else waiter.resume(Exit.succeed(Option.some(item)))
    }
    // With more to look at, nobody was told yet that there is nothing.
    const isLate = (waiter: Waiter<A, E>) => !more && asked.has(waiter) && waiter.deadline <= lastLook
    const late = waiters.filter(isLate)
    waiters = waiters.filter((waiter) => !isLate(waiter))
    for (const waiter of late) waiter.resume(Exit.succeed(Option.none()))
  })

  yield* Effect.gen(function*() {
    while (true) {
      if (waiters.length === 0) yield* signal.await
      // Everybody who asks in this tick shares the statement.
      yield* Effect.yieldNow
      signal.closeUnsafe()
      const pause = waiters.length === 0 ? 0 : nextLook() - clock.currentTimeMillisUnsafe()
      if (pause > 0) yield* Effect.raceFirst(signal.await, Effect.sleep(pause))
      else if (waiters.length > 0) yield* Effect.uninterruptible(look)
    }
  }).pipe(Effect.forkScoped)

  return {
    take: (timeout) =>
      Effect.callback((resume) => {
        const waiter: Waiter<A, E> = {
          resume,
          deadline: clock.currentTimeMillisUnsafe() + Duration.toMillis(timeout)
        }
        waiters.push(waiter)
        signal.openUnsafe()
        return Effect.sync(() => {
          waiters = waiters.filter((other) => other !== waiter)
        })
      }),
    wake: () => {
      woken = true
      signal.openUnsafe()
    },
    wakeAt: (timeMs) => {
      const index = insertionIndex(due, timeMs)
      if (due[index - 1] === timeMs) return
      due.splice(index, 0, timeMs)
      if (index === 0) signal.openUnsafe()
    }
  }
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
