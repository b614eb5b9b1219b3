/**
 * One pump per queue: it alone looks for messages, on behalf of all callers of this process that wait for some.
 *
 * It looks when a hint came, when a message becomes visible, and once a minute for hints that were lost; without a
 * connection that listens, at short intervals. While no caller waits it sends nothing, and keeps the wake-ups for the next
 * one. Intervals are measured by the monotonic clock.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { InBackground } from "../../../model/shared/inBackground.ts"
import { monotonicMs } from "../../../model/shared/monotonic.ts"
import { forkLoop, UnderWay } from "../../../model/shared/underWay.ts"
import type { Subscriber } from "../../../waking/topics.ts"

export interface Options<A, E> {
  /** Leases up to `limit` messages with one statement. */
  readonly fetch: (limit: number, visibilityMs: number) => Effect.Effect<Found<A>, E>
  /** Ends leases of messages that no caller saw. */
  readonly giveBack: (messages: ReadonlyArray<A>) => Effect.Effect<void>
  readonly isConnected: () => boolean
  /** The time of the store, milliseconds since the Unix epoch. */
  readonly storeNowMs: () => number
  /** Between looks while not connected, milliseconds. */
  readonly pollMs: number
  /** Between looks while connected, milliseconds. */
  readonly fallbackMs: number
  /** The failure of callers that wait when the scope is closed, or come later. */
  readonly closed: E
}

export interface Found<A> {
  readonly messages: ReadonlyArray<A>
  /** There may be more now. */
  readonly isMore: boolean
  /** When the next message becomes visible, in the time of the store; null without one. */
  readonly nextMs: number | null
}

export interface Asking {
  readonly maxMessages: number
  readonly visibilityMs: number
  /** 0: look once. */
  readonly waitMs: number
}

export interface ReceivePump<A, E> {
  readonly receive: (asking: Asking) => Effect.Effect<ReadonlyArray<A>, E>
  /** Wakes the pump. */
  readonly subscriber: Subscriber
}

interface Waiter<A, E> extends Asking {
  readonly resume: (exit: Exit.Exit<ReadonlyArray<A>, E>) => void
  /** Monotonic milliseconds. */
  readonly deadline: number
}

export const make = Effect.fnUntraced(function*<A, E>(
  options: Options<A, E>
): Effect.fn.Return<ReceivePump<A, E>, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const nowMs = () => monotonicMs(clock)
  const bell = Latch.makeUnsafe()
  let waiters: ReadonlyArray<Waiter<A, E>> = []
  const underWay = new UnderWay<Waiter<A, E>>()
  let isClosed = false
  let isWoken = true
  /** Monotonic milliseconds, as all below. */
  let lastLook = Number.NEGATIVE_INFINITY
  let due = Number.POSITIVE_INFINITY

  const wake = () => {
    isWoken = true
    bell.openUnsafe()
  }

  const leave = (waiter: Waiter<A, E>, exit: Exit.Exit<ReadonlyArray<A>, E>) => {
    waiters = waiters.filter((other) => other !== waiter)
    waiter.resume(exit)
  }

  const nextLook = () =>
    isWoken || waiters.some(({ waitMs }) => waitMs === 0)
      ? Number.NEGATIVE_INFINITY
      : Math.min(due, lastLook + (options.isConnected() ? options.fallbackMs : options.pollMs))

  const look = Effect.suspend(() => {
    const { visibilityMs } = waiters[0]!
    // Those with another visibility timeout need a statement of their own.
    const asked = waiters.filter((waiter) => waiter.visibilityMs === visibilityMs)
    return underWay.run(asked, lookFor(asked, waiters, visibilityMs))
  })

  const lookFor = Effect.fnUntraced(function*(
    asked: ReadonlyArray<Waiter<A, E>>,
    present: ReadonlyArray<Waiter<A, E>>,
    visibilityMs: number
  ) {
    const limit = Math.min(asked.reduce((sum, { maxMessages }) => sum + maxMessages, 0), largestClaim)
    isWoken = false
    due = Number.POSITIVE_INFINITY
    lastLook = nowMs()
    const exit = yield* Effect.exit(options.fetch(limit, visibilityMs))
    if (Exit.isFailure(exit)) {
      isWoken = true
      for (const waiter of asked) if (waiters.includes(waiter)) leave(waiter, Exit.failCause(exit.cause))
      return
    }
    const { isMore, messages, nextMs } = exit.value
    if (isMore) isWoken = true
    else if (nextMs !== null) {
      const untilMs = nextMs - options.storeNowMs()
      // A visible message that was not claimed is held by another transaction, which may fail.
      due = Math.min(due, nowMs() + (untilMs > 0 ? untilMs : retryMs))
    }
    let given = 0
    for (const waiter of asked) {
      if (given === messages.length) break
      if (!waiters.includes(waiter)) continue
      leave(waiter, Exit.succeed(messages.slice(given, given + waiter.maxMessages)))
      given = Math.min(given + waiter.maxMessages, messages.length)
    }
    if (given < messages.length) yield* options.giveBack(messages.slice(given))
    if (isMore) return
    for (const waiter of present) if (waiter.waitMs === 0 && waiters.includes(waiter)) leave(waiter, Exit.succeed([]))
  })

  const round = Effect.suspend(() => {
    const now = nowMs()
    for (const waiter of waiters) {
      // One that does not wait leaves after a look.
      if (waiter.waitMs > 0 && waiter.deadline <= now) leave(waiter, Exit.succeed([]))
    }
    bell.closeUnsafe()
    if (waiters.length === 0) return bell.await
    const next = nextLook()
    // What breaks one look must not end the next.
    if (next <= now) return Effect.ignoreCause(look)
    const pause = Math.min(next, ...waiters.map(({ deadline }) => deadline)) - now
    return Effect.raceFirst(bell.await, Effect.sleep(Math.max(Math.ceil(pause), 1)))
  })

  // Calls of one tick share a look.
  yield* Effect.forever(Effect.andThen(Effect.yieldNow, round)).pipe(
    Effect.provideService(InBackground, true),
    forkLoop
  )

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      isClosed = true
      for (const waiter of waiters) leave(waiter, Exit.fail(options.closed))
    })
  )

  return {
    subscriber: {
      received: (atMs) => {
        const untilMs = atMs - options.storeNowMs()
        if (untilMs <= 0) return wake()
        due = Math.min(due, nowMs() + untilMs)
        bell.openUnsafe()
      },
      connected: wake,
      disconnected: () => bell.openUnsafe()
    },
    receive: (asking) =>
      Effect.callback((resume) => {
        if (isClosed) return resume(Exit.fail(options.closed))
        const waiter: Waiter<A, E> = { ...asking, resume, deadline: nowMs() + asking.waitMs }
        waiters = [...waiters, waiter]
        bell.openUnsafe()
        return Effect.suspend(() => {
          waiters = waiters.filter((other) => other !== waiter)
          return underWay.awaitFor(waiter)
        })
      })
  }
})

// internal

/** Messages of one statement. */
const largestClaim = 1000

const retryMs = 1000
