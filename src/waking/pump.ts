/**
 * One pump per queue and filter: it alone asks the store for work or messages, on behalf of all callers that wait for
 * it.
 *
 * The pump sends one statement for all waiting callers, when it was woken, or when its queue says that time has come,
 * and nothing while no caller waits. A wake-up without a caller is kept for the next one; a caller that arrives without
 * a pending wake-up waits. Only a caller with zero timeout looks at once. Intervals are measured by the monotonic
 * clock.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import * as Scope from "effect/Scope"
import type * as closedTogether from "../model/shared/closedTogether.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import { forkLoop, UnderWay } from "../model/shared/underWay.ts"
import type { LookReason, Settings, State } from "./pollMode.ts"
import type { Member, WorkQueue } from "./workQueue.ts"

export interface Options<A, E> {
  /**
   * Claims up to `limit` items with one statement, `isThorough` as in the requests of drivers. `more` asks for another
   * round at once.
   */
  readonly fetch: (
    limit: number,
    isThorough: boolean,
    lockTimeoutMs: number
  ) => Effect.Effect<{ readonly items: ReadonlyArray<A>; readonly more: boolean }, E>
  /** Abandons a claimed item whose caller no longer waits. */
  readonly abandon: (item: A) => Effect.Effect<void>
  /** Most items to claim with one statement. */
  readonly maxBatch: number
  /** Length of the locks that `fetch` takes, milliseconds, for callers that name none. */
  readonly lockTimeoutMs: number
  /** Says when to look. */
  readonly queue:
    & Pick<
      WorkQueue,
      "add" | "untilPoll" | "untilDue" | "wakeForDue" | "looking" | "looked"
    >
    & { readonly state: () => Pick<State, "mode"> }
  /** Called after a look that took all it could, for no further caller: others may take the rest. */
  readonly leftSome: () => void
  /** The failure of callers that wait when the scope is closed, or come later. */
  readonly closed: E
}

export interface FetchPump<A, E> {
  /** Waits up to `timeout` for items; none when there was no work in that time. Without time to wait, looks once. */
  readonly take: (timeout: Duration.Duration, asking?: Asking) => Effect.Effect<ReadonlyArray<A>, E>
}

/** What a caller asks for. */
export interface Asking {
  /** Most items for this caller; asked before each look. Below 1, the call ends without a look. Defaults to 1. */
  readonly most?: (() => number) | undefined
  /** Length of the locks for this caller, milliseconds. Callers that name different lengths share no statement. */
  readonly lockTimeoutMs?: number | undefined
  /** Called whenever the store has answered a look on behalf of this caller. */
  readonly onLook?: (() => void) | undefined
}

interface Waiter<A, E> extends Asking {
  readonly lockTimeoutMs: number
  readonly resume: (exit: Exit.Exit<ReadonlyArray<A>, E>) => void
  /** Monotonic milliseconds. */
  readonly deadline: number
  /** Leaves after the next look. */
  readonly isInHurry: boolean
}

export const make = Effect.fnUntraced(function*<A, E>(
  options: Options<A, E>
): Effect.fn.Return<FetchPump<A, E>, never, Scope.Scope> {
  const { queue } = options
  const clock = yield* Clock.Clock
  const bell = Latch.makeUnsafe()
  let waiters: Array<Waiter<A, E>> = []
  let woken: LookReason | undefined = "Filter"
  /** Locks have run out, and each thorough look since then was full. */
  let isThoroughDue = false
  /** When the first hint arrived that no look has followed. */
  let wokenHintMs: number | undefined
  let isClosed = false
  const underWay = new UnderWay<Waiter<A, E>>()
  /** Monotonic milliseconds. */
  let lastLook = Number.NEGATIVE_INFINITY

  const self: Member = {
    wake: (reason, hintMs) => {
      wokenHintMs ??= hintMs
      if (reason === "LocksExpired") isThoroughDue = true
      woken = reason === "LocksExpired" ? reason : woken ?? reason
      bell.openUnsafe()
    },
    ring: () => bell.openUnsafe(),
    hasCallers: () => waiters.length > 0,
    lastLookMs: () => lastLook,
    lockTimeoutMs: options.lockTimeoutMs
  }

  /** Why to look now, or the milliseconds until something may be a reason, or a caller gives up. */
  const nextLook = (): LookReason | number => {
    queue.wakeForDue()
    if (woken !== undefined) return woken
    if (waiters.some(({ isInHurry }) => isInHurry)) return "Asked"
    const untilPoll = queue.untilPoll(self)
    if (untilPoll <= 0) return queue.state().mode === "LongPoll" ? "FallbackTimeout" : "Poll"
    const untilDeadline = Math.min(...waiters.map(({ deadline }) => deadline)) - monotonicMs(clock)
    return Math.min(untilPoll, queue.untilDue(), untilDeadline)
  }

  const leave = (waiter: Waiter<A, E>, items: ReadonlyArray<A>) => {
    waiters.splice(waiters.indexOf(waiter), 1)
    waiter.resume(Exit.succeed(items))
  }

  /** What each caller of the next statement wants now. Those that want nothing any more leave. */
  const wishes = () => {
    const first = waiters.find(({ isInHurry }) => isInHurry) ?? waiters[0]
    const asked = waiters.filter(({ lockTimeoutMs }) => lockTimeoutMs === first?.lockTimeoutMs)
    const wanted = new Map(asked.map((waiter) => [waiter, wholeNumber(waiter.most?.() ?? 1)]))
    for (const [waiter, most] of wanted) {
      if (most >= 1) continue
      wanted.delete(waiter)
      leave(waiter, [])
    }
    return wanted
  }

  const look = (reason: LookReason) =>
    Effect.suspend(() => {
      // Callers that come during the look, such as answered ones that ask again, are for the next one.
      const asked = wishes()
      // A wake-up that came before is kept for the next caller.
      return asked.size === 0 ? Effect.void : underWay.run(asked.keys(), lookFor(asked, reason))
    })

  const lookFor = Effect.fnUntraced(function*(asked: ReadonlyMap<Waiter<A, E>, number>, reason: LookReason) {
    const hintMs = wokenHintMs
    const isThorough = reason === "LocksExpired"
    woken = wokenHintMs = undefined
    // Until locks run out during this look.
    if (isThorough) isThoroughDue = false
    lastLook = monotonicMs(clock)
    queue.looking()
    const limit = Math.min([...asked.values()].reduce((sum, most) => sum + most), options.maxBatch)
    const { lockTimeoutMs } = [...asked.keys()][0]!
    const exit = yield* Effect.exit(Effect.suspend(() => options.fetch(limit, isThorough, lockTimeoutMs)))
    if (Exit.isFailure(exit)) {
      // Fails all callers; each retries on its own schedule.
      woken ??= reason
      isThoroughDue ||= isThorough
      wokenHintMs = hintMs ?? wokenHintMs
      queue.looked(self, reason, "Failed")
      for (const waiter of waiters.splice(0)) waiter.resume(Exit.failCause(exit.cause))
      return
    }
    for (const waiter of asked.keys()) waiter.onLook?.()
    const { items, more } = exit.value
    const isFull = more || items.length >= limit
    isThoroughDue ||= isThorough && isFull
    if (isFull) woken ??= "More"
    // Not before the rest is taken: while looks are full, each would read all dead rows.
    else if (isThoroughDue) woken = "LocksExpired"
    const hasFound = items.length > 0
    queue.looked(self, reason, isFull || hasFound ? "Found" : "Empty", hasFound ? hintMs : undefined)
    let given = 0
    while (given < items.length) {
      // One that came during the look stands in for one that went.
      const waiter = waiters.find((one) => one.lockTimeoutMs === lockTimeoutMs)
      if (waiter === undefined) break
      const share = items.slice(given, given + (asked.get(waiter) ?? 1))
      given += share.length
      leave(waiter, share)
    }
    if (isFull && waiters.length === 0) options.leftSome()
    yield* Effect.forEach(items.slice(given), options.abandon, { concurrency: "unbounded", discard: true })
    // While there is more to look at, no caller leaves empty-handed, even after its deadline.
    if (more) return
    for (const waiter of asked.keys()) {
      if (waiters.includes(waiter) && (waiter.isInHurry || waiter.deadline <= lastLook)) leave(waiter, [])
    }
  })

  const dismissOverdue = () => {
    const nowMs = monotonicMs(clock)
    for (const waiter of waiters.filter(({ deadline }) => deadline <= nowMs)) leave(waiter, [])
  }

  yield* forkLoop(Effect.gen(function*() {
    while (true) {
      if (waiters.length === 0) yield* bell.await
      // All that ask in this tick share the statement.
      yield* Effect.yieldNow
      bell.closeUnsafe()
      if (waiters.length === 0) continue
      const next = nextLook()
      // A look that fails, or an item that cannot be given back, must not stop the next look.
      if (typeof next === "string") yield* Effect.ignoreCause(look(next))
      else if (next > 0) yield* Effect.raceFirst(bell.await, Effect.sleep(next))
      else dismissOverdue()
    }
  }))

  queue.add(self)

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
        const waitMs = Duration.toMillis(timeout)
        const waiter: Waiter<A, E> = {
          ...asking,
          lockTimeoutMs: asking?.lockTimeoutMs ?? options.lockTimeoutMs,
          resume,
          deadline: monotonicMs(clock) + waitMs,
          isInHurry: waitMs <= 0
        }
        waiters.push(waiter)
        bell.openUnsafe()
        return Effect.suspend(() => {
          waiters = waiters.filter((other) => other !== waiter)
          return underWay.awaitFor(waiter)
        })
      })
  }
})

/** How a fetch waits, and where its pump is opened. */
export interface Polling {
  readonly longPolling: Settings
  /** The pumps of all queues are closed together. */
  readonly openPump: closedTogether.Open
}

/**
 * The pumps of a queue, one per filter, made when the first caller asks. A pump fetches as its first caller said; so
 * callers whose statements differ need filters that differ.
 */
export const byFilter = <A, E>(options: Omit<Options<A, E>, "fetch" | "lockTimeoutMs"> & Polling) => {
  const { longPolling: { isEnabled, maxWaitMs }, openPump } = options
  const pumps = new Map<string, FetchPump<A, E>>()
  const pumpOf = (filter: Filter, fetch: Options<A, E>["fetch"]) =>
    Effect.suspend(() => {
      const key = JSON.stringify(filter)
      const existing = pumps.get(key)
      if (existing !== undefined) return Effect.succeed(existing)
      const { lockTimeoutMs } = filter
      return Effect.map(openPump(make<A, E>({ ...options, fetch, lockTimeoutMs })), (pump) => {
        pumps.set(key, pump)
        return pump
      })
    })
  return (
    filter: Filter,
    fetch: Options<A, E>["fetch"],
    pollTimeout: Duration.Duration,
    asking?: Asking
  ): Effect.Effect<ReadonlyArray<A>, E> =>
    Effect.flatMap(
      pumpOf(filter, fetch),
      (pump) => pump.take(isEnabled ? Duration.min(pollTimeout, Duration.millis(maxWaitMs)) : Duration.zero, asking)
    )
}

// internal

type Filter = Readonly<Record<string, unknown>> & { readonly lockTimeoutMs: number }

const wholeNumber = (count: number): number => Number.isNaN(count) ? 0 : Math.floor(count)
