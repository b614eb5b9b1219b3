/**
 * The locks that this process holds, as the store answers: when they run out, and what others are to know of it.
 *
 * A lock that is neither renewed nor released runs out, and its work may be claimed again. The store does not announce
 * that. So a holder announces the time at which its locks end, at most once a second while it takes and renews locks;
 * when it dies, the others look at the last time it has announced. And it looks itself when a lock that it has not
 * released has run out. What a statement takes and releases is in `operations.ts`.
 *
 * A process may also die after a statement has stored work and before it announces that work. So it says when to look
 * before that, too, and sends the statement only when that hint has left. While the statement runs, it repeats the hint
 * every second. The others look then, unless it says meanwhile that it holds nothing. A process that serves nothing,
 * such as a script, says that together with what it has stored, as it may end then.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { Alarms } from "../../waking/alarms.ts"
import type { Hints } from "../../waking/hints.ts"
import { Hint } from "../../waking/Notifier.ts"
import type { Queue } from "../../waking/Notifier.ts"

/** The locks held in one queue. */
export interface HeldLocks {
  /**
   * A statement that is about to be sent may take some, for that long. Said before, because what is handed over may end
   * the process as soon as its answer arrives.
   */
  readonly expect: (forMs: number) => void
  /** Runs a call that stores work, and announces it before it ends. */
  readonly storing: <A, E, R>(call: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** What a call has stored is announced when the result is called. Should the process die before, the others look. */
  readonly announcing: () => () => void
  /**
   * Waits, at most five seconds, until the hint has left that says when the others look, should this process die.
   * Undefined: the hint has left, or the notifier has not answered for five seconds.
   */
  readonly known: () => Effect.Effect<void> | undefined
  /** Taken or renewed now, for that long. */
  readonly hold: (lockToken: string, forMs: number) => void
  /** Released, or taken over by another process. */
  readonly release: (lockToken: string) => void
  /** The process is closed. What it still holds runs out. */
  readonly close: () => void
}

export interface Options {
  readonly queue: Queue
  readonly clock: Clock.Clock
  readonly alarms: Alarms
  readonly announce: Hints["announce"]
  /** The store's clock, as far as it is known. */
  readonly storeNowMs: () => number
  /** Whether this process looks for work. */
  readonly serves: () => boolean
  /** A lock has run out. */
  readonly ranOut: () => void
}

export const make = ({ alarms, announce, clock, queue, ranOut, serves, storeNowMs }: Options): HeldLocks => {
  /** Ends of the held locks, monotonic milliseconds. */
  const held = new Map<string, number>()
  /** Calls that store work, and are under way or not announced. */
  let calls = 0
  /** End of the locks that a statement is about to take, monotonic milliseconds. */
  let expectedMs = 0
  let announcedMs = Number.NEGATIVE_INFINITY
  let isAnnounced = false
  let takenBackMs = Number.NEGATIVE_INFINITY
  let takenBack = 0
  /** When the others look by the last hint that has left, monotonic milliseconds. */
  let knownMs = Number.NEGATIVE_INFINITY
  /** The last hint, if it has not left yet. */
  let leaving: Latch.Latch | undefined
  /** Since when a hint has waited to leave, monotonic milliseconds. */
  let silentSinceMs = Number.POSITIVE_INFINITY
  const keys = { check: `${queue} check`, say: `${queue} say`, none: `${queue} none` }

  const holdsNone = () => held.size === 0 && calls === 0

  const say = () => {
    if (holdsNone()) return
    announceAll()
    if (calls > 0) saySoon()
  }

  const announceAll = () => {
    const nowMs = monotonicMs(clock)
    announcedMs = nowMs
    isAnnounced = true
    let lastMs = calls > 0 ? Math.max(expectedMs, nowMs + storedMs) : expectedMs
    for (const untilMs of held.values()) lastMs = Math.max(lastMs, untilMs)
    const mine = leaving = Latch.makeUnsafe()
    const since = takenBack
    silentSinceMs = Math.min(silentSinceMs, nowMs)
    announce(Hint.Locks({ queue, untilMs: Math.ceil(storeNowMs() + lastMs - nowMs) }), () => {
      mine.openUnsafe()
      if (since === takenBack) knownMs = Math.max(knownMs, lastMs)
      // Another one may have followed.
      if (mine === leaving) leaving = undefined
      silentSinceMs = leaving === undefined ? Number.POSITIVE_INFINITY : monotonicMs(clock)
    })
  }

  const isDue = () => !isAnnounced || monotonicMs(clock) - announcedMs >= betweenHintsMs

  const saySoon = () => {
    if (!alarms.isSet(keys.say)) alarms.set(keys.say, announcedMs + betweenHintsMs, say)
  }

  const sayNone = () => {
    if (!holdsNone() || !isAnnounced) return
    isAnnounced = false
    takenBackMs = monotonicMs(clock)
    takenBack++
    knownMs = Number.NEGATIVE_INFINITY
    leaving = undefined
    announce(Hint.Locks({ queue, untilMs: null }))
  }

  const sayNoneSoon = () => {
    if (isAnnounced) alarms.set(keys.none, monotonicMs(clock) + betweenHintsMs, sayNone)
  }

  const check = () => {
    const nowMs = monotonicMs(clock)
    const before = held.size
    let nextMs = Infinity
    for (const [lockToken, untilMs] of held) {
      if (untilMs + afterMs <= nowMs) held.delete(lockToken)
      else nextMs = Math.min(nextMs, untilMs)
    }
    if (nextMs !== Infinity) alarms.set(keys.check, Math.max(nextMs + afterMs, nowMs + betweenChecksMs), check)
    if (held.size === before) return
    ranOut()
    if (holdsNone()) sayNoneSoon()
  }

  const announcing = () => {
    calls++
    if (isDue()) announceAll()
    saySoon()
    return stored
  }

  const stored = () => {
    calls--
    if (!holdsNone()) return
    // At once only when that costs no announcement for each of many calls.
    if (serves() || monotonicMs(clock) - takenBackMs < betweenHintsMs) sayNoneSoon()
    else sayNone()
  }

  return {
    expect: (forMs) => {
      expectedMs = Math.max(expectedMs, monotonicMs(clock) + forMs)
      if (isDue()) announceAll()
      sayNoneSoon()
    },
    storing: (call) => Effect.suspend(() => Effect.ensuring(call, Effect.sync(announcing()))),
    announcing,
    known: () => {
      const nowMs = monotonicMs(clock)
      // This process may have been suspended since it announced.
      if (leaving === undefined && knownMs < nowMs && !holdsNone()) announceAll()
      if (leaving === undefined || knownMs - nowMs >= statementMs) return undefined
      const waitMs = silentSinceMs + longestWaitMs - nowMs
      return waitMs > 0 ? Effect.asVoid(Effect.timeoutOption(leaving.await, waitMs)) : undefined
    },
    hold: (lockToken, forMs) => {
      const nowMs = monotonicMs(clock)
      held.set(lockToken, nowMs + forMs)
      if (!alarms.isSet(keys.check)) alarms.set(keys.check, nowMs + forMs + afterMs, check)
      if (isDue()) announceAll()
      else saySoon()
    },
    release: (lockToken) => {
      if (held.delete(lockToken) && holdsNone()) sayNoneSoon()
    },
    close: sayNone
  }
}

// internal

const betweenHintsMs = 1_000

/** The others look that long after a call that stores work was last announced, if its process has died. */
const storedMs = 2_000

/** A statement that takes no longer is stored before the others look. */
const statementMs = 500

/** For a notifier that does not answer. On a busy machine, one that does may take a second. */
const longestWaitMs = 5_000

/** Locks that run out one after another are noticed together. */
const betweenChecksMs = 1_000

/**
 * The lock ran out in the store before its answer arrived here, so this covers the difference of the clocks' speeds.
 */
const afterMs = 20
