/**
 * When a queue is looked at: what its pumps share, whatever they filter.
 *
 * Hints of other processes wake the pumps at once, as long as that finds work. With many processes only a share of them
 * looks at once, the others some time later, so that one start does not wake a hundred processes at the same moment. A
 * process leaves out its look only when another one says that it has claimed all that was announced (`taken.ts`): else
 * the others may serve other work, or have no free slot.
 */
import type * as Clock from "effect/Clock"
import { monotonicMs } from "../model/shared/monotonic.ts"
import { growingMs } from "../model/shared/trouble.ts"
import type { Alarms } from "./alarms.ts"
import type { Queue, Received } from "./Notifier.ts"
import * as pollMode from "./pollMode.ts"
import type { LookReason, Outcome, Settings } from "./pollMode.ts"

export interface WorkQueue {
  // -- for pumps
  readonly add: (pump: Member) => void
  /** Milliseconds until this pump looks although nothing has woken it. */
  readonly untilPoll: (pump: Member) => number
  /** Milliseconds until work is due. */
  readonly untilDue: () => number
  /** Wakes the pumps for work that is due by now. */
  readonly wakeForDue: () => void
  readonly looking: () => void
  /** `hintMs`: when the first hint since the last look arrived, if this one found work; monotonic milliseconds. */
  readonly looked: (pump: Member, reason: LookReason, outcome: Outcome, hintMs?: number) => void

  // -- for others
  readonly wake: (reason: LookReason) => void
  /**
   * The look under way has left what a later one may find: for example, other transactions have locked some, and
   * nothing announces when they end.
   */
  readonly metLocked: () => void
  /** This process has stored work that is due then, milliseconds since the Unix epoch by the store's clock. */
  readonly wakeAt: (timeMs: number, isAnnounced: boolean) => void
  /** What the store has answered: when its next work is due, and its clock. */
  readonly nextDue: (timeMs: number | null, nowMs: number) => void
  /**
   * Whether the other processes should know of work that is due then: they know of none that is due earlier. When that
   * time has come, they ask the store for the next one.
   */
  readonly isNews: (timeMs: number) => boolean
  /** Takes a hint, and the time at which it arrived, monotonic milliseconds. */
  readonly received: (received: Received, arrivedMs: number) => void
  readonly changed: (event: Exclude<pollMode.Event, { readonly _tag: "Looked" }>) => void
  readonly hasPumps: () => boolean
  readonly hasCallers: () => boolean
  readonly state: () => pollMode.State
}

/** A pump, as its queue sees it. */
export interface Member {
  /** `hintMs`: when the hint arrived that wakes it, monotonic milliseconds. */
  readonly wake: (reason: LookReason, hintMs?: number) => void
  /** Makes it ask again how long to wait. */
  readonly ring: () => void
  readonly hasCallers: () => boolean
  /** Monotonic milliseconds. */
  readonly lastLookMs: () => number
  /** Length of the locks it takes. */
  readonly lockTimeoutMs: number
}

export interface Options {
  readonly name: Queue
  readonly clock: Clock.Clock
  readonly settings: Settings
  readonly alarms: Alarms
  /** The store's clock; undefined while it is not known. */
  readonly storeNowMs: () => number | undefined
  /** How many processes look for work in this queue. */
  readonly processes: () => number
  /** The first pump is there: from now on this process looks for work. */
  readonly onServe: () => void
  /** Work is due. What this process holds hides it from the look that follows. */
  readonly onDue: () => void
  /** Random number from 0 to 1, without 1. */
  readonly random: () => number
  /** Asks the store: work may become due at a time that is not known here. */
  readonly findNextDue: (isUrgent: boolean) => void
  /** Asks the store: processes that hold locks may have died while no hints arrived here. */
  readonly findLeftLocks: () => void
  /** The locks of another process have run out: it may have died, and have stored what it did not announce. */
  readonly othersRanOut: () => void
  /** After each look, with the mode it leads to. `sinceHintMs`: from the first hint since the last one. */
  readonly onLook: (reason: LookReason, now: pollMode.State, sinceHintMs: number | undefined) => void
  /** The mode has changed: the one before, and the one now. */
  readonly onMode: (before: pollMode.State, now: pollMode.State, since: SinceChange) => void
}

/** What has passed when the mode of a queue changes. */
export interface SinceChange {
  /** Whole milliseconds in the mode before. */
  readonly modeMs: number
  /** Looks in the mode before that have found nothing. */
  readonly emptyLooks: number
  /** Whole milliseconds since the last hint about this queue arrived; undefined before the first one. */
  readonly sinceHintMs: number | undefined
}

export const make = (options: Options): WorkQueue => {
  const { alarms, clock, findNextDue, name, processes, random, settings } = options
  const pumps: Array<Member> = []
  let state = pollMode.initial(monotonicMs(clock))
  let lastLookMs = Number.NEGATIVE_INFINITY
  /** Due times in order. */
  const due: Array<Due> = []
  /** The earliest of them that all processes know. */
  let knownToAllMs = Number.POSITIVE_INFINITY
  /** When the mode began, and the looks since then that have found nothing. */
  let modeSinceMs = monotonicMs(clock)
  let emptyLooks = 0
  let lastHintMs: number | undefined
  let lastHintLookMs = Number.NEGATIVE_INFINITY
  /** Looks in a row, for hints of others, that have found nothing. */
  let looksForNothing = 0
  /** Hints that a late look is planned for: the ids of those about one item, else `anyItem`. */
  const planned = new Set<string>()
  /** Whether the next look answers a hint. */
  let isHintOpen = false
  /** Whether the next look answers a due time, and the latest one that it answers. */
  let isDueOpen = false
  let openDueMs = 0
  /** A look for work that was due, which may have come too early: the time that was due, and when the look began. */
  let unsure: { readonly dueMs: number; readonly lookedMs: number } | undefined
  /** Whether the look under way was such a one, and such looks in a row. */
  let hasMetHeld = false
  let heldLooks = 0
  /** When a look last answered a hint, or was spared because another process has said that it took the work. */
  let lastAnsweredMs = Number.NEGATIVE_INFINITY

  const alarm = (what: string, afterMs: number, ring: () => void) =>
    alarms.set(`${name} ${what}`, monotonicMs(clock) + afterMs, ring)

  const wake = (reason: LookReason, hintMs?: number) => {
    for (const pump of pumps) pump.wake(reason, hintMs)
  }

  const change = (event: pollMode.Event) => {
    const before = state
    const nowMs = monotonicMs(clock)
    state = pollMode.next(before, event, nowMs, settings)
    if (state.mode === before.mode) return
    if (state.mode === "LongPoll") {
      lookAfterLocks()
      // Hints of what is due later may have been lost meanwhile.
      findNextDue(true)
    }
    for (const pump of pumps) pump.ring()
    options.onMode(before, state, {
      modeMs: Math.round(nowMs - modeSinceMs),
      emptyLooks,
      sinceHintMs: lastHintMs === undefined ? undefined : Math.round(nowMs - lastHintMs)
    })
    modeSinceMs = nowMs
    emptyLooks = 0
  }

  const lockTimeoutMs = () => Math.max(0, ...pumps.map((pump) => pump.lockTimeoutMs))

  /**
   * Locks of processes that died while no hints arrived here: most have run out by then, and the store knows of others.
   */
  const lookAfterLocks = () => {
    if (pumps.length === 0) return
    alarm("locks of before", lockTimeoutMs() + afterLocksMs, () => wake("LocksExpired"))
    options.findLeftLocks()
  }

  // -- due times ---------------------------------------------------------------------------------

  const storeNowMs = () => options.storeNowMs() ?? clock.currentTimeMillisUnsafe()

  /** Zero while the queue is polled: a look that comes too early is repeated soon. */
  const graceMs = () =>
    state.mode === "Aggressive"
      ? 0
      : options.storeNowMs() === undefined
      ? settings.timerGraceMs
      : Math.min(settings.timerGraceMs, knownClockGraceMs)

  const untilTime = (timeMs: number) => timeMs + graceMs() - storeNowMs()

  const addDue = (entry: Due, isKnownToAll: boolean) => {
    if (isKnownToAll) knownToAllMs = Math.min(knownToAllMs, entry.timeMs)
    const index = insertionIndex(due, entry.timeMs)
    const same = due[index - 1]
    if (same?.timeMs === entry.timeMs) {
      due[index - 1] = { ...same, isOwn: same.isOwn || entry.isOwn, hasMore: same.hasMore || entry.hasMore }
      return
    }
    due.splice(index, 0, entry)
    // When the last one has come, the store knows of later ones.
    if (due.length > maxDue) {
      due.pop()
      due[maxDue - 1] = { ...due[maxDue - 1]!, hasMore: true }
    }
    if (index === 0) { for (const pump of pumps) pump.ring() }
  }

  /** Wakes this process for work that others may take, too. */
  const wakeWithOthers = (reason: "NotifyReceived" | "TimerFired", id: string = anyItem, hintMs?: number) => {
    if (random() * processes() < lookersAtOnce) return wakeForHint(reason, hintMs)
    planned.add(id)
    if (alarms.isSet(`${name} late`)) return
    const mostMs = Math.min(lateMs, lateMsPerProcess * processes())
    alarm("late", heardMs + random() * (mostMs - heardMs), () => {
      planned.clear()
      wakeForHint(reason, hintMs)
    })
  }

  const cancelLate = () => {
    planned.clear()
    alarms.cancel(`${name} late`)
  }

  /** Wakes at once, or, after looks for nothing, some time after the last one. */
  const wakeForHint = (reason: "NotifyReceived" | "TimerFired", hintMs?: number) => {
    isHintOpen = true
    const pauseMs = looksForNothing === 0
      ? 0
      : Math.min(shortestHintPauseMs * 2 ** Math.min(looksForNothing, 10), settings.aggressivePollMs)
    const untilMs = lastHintLookMs + pauseMs - monotonicMs(clock)
    if (untilMs <= 0) wake(reason, hintMs)
    else if (!alarms.isSet(`${name} hint`)) alarm("hint", untilMs, () => wake(reason, hintMs))
  }

  /**
   * A process that took work then may have died before it said until when it holds it. And one that held an instance
   * when its timer fell due may have ended that turn since, without knowing of the timer.
   */
  const lookAfterOthers = () => {
    lastAnsweredMs = monotonicMs(clock)
    if (alarms.isSet(`${name} taken`)) return
    const look = () => {
      wake("LocksExpired")
      const againMs = lastAnsweredMs + lockTimeoutMs() + 1_000 - monotonicMs(clock)
      if (againMs > 0) alarm("taken", againMs, look)
    }
    alarm("taken", lockTimeoutMs() + 1_000, look)
  }

  return {
    add: (pump) => {
      pumps.push(pump)
      if (pumps.length === 1) options.onServe()
      if (state.mode === "Aggressive" && !state.isConnected) return
      lookAfterLocks()
      findNextDue(true)
    },

    untilPoll: (pump) => {
      const nowMs = monotonicMs(clock)
      if (state.mode === "LongPoll") return pump.lastLookMs() + settings.fallbackPollMs - nowMs
      // The pumps take turns.
      const turns = Math.max(1, pumps.filter((other) => other.hasCallers()).length)
      return Math.max(lastLookMs, pump.lastLookMs() + (turns - 1) * settings.aggressivePollMs) +
        settings.aggressivePollMs - nowMs
    },

    untilDue: () => due.length === 0 ? Infinity : untilTime(due[0]!.timeMs),

    wakeForDue: () => {
      const isDue = () => due.length > 0 && untilTime(due[0]!.timeMs) <= 0
      // Once for all of them.
      if (isDue()) options.onDue()
      while (isDue()) {
        const { hasMore, isOwn, timeMs } = due.shift()!
        if (timeMs >= knownToAllMs) knownToAllMs = Infinity
        isDueOpen = true
        openDueMs = timeMs
        if (isOwn) wake("TimerFired")
        else wakeWithOthers("TimerFired")
        if (hasMore) findNextDue(true)
      }
    },

    looking: () => {
      lastLookMs = monotonicMs(clock)
      if (isHintOpen) lastHintLookMs = lastLookMs
      // What else was planned for a hint has become this look, unless other pumps have to look, too.
      if (pumps.length > 1) return
      alarms.cancel(`${name} hint`)
      cancelLate()
    },

    looked: (pump, reason, outcome, hintMs) => {
      if (outcome === "Empty") emptyLooks++
      heldLooks = hasMetHeld && outcome === "Empty" ? heldLooks + 1 : 0
      hasMetHeld = false
      for (const other of pumps) if (other !== pump && !other.hasCallers()) other.wake("Filter")
      if ((isHintOpen || isDueOpen) && outcome !== "Failed") lookAfterOthers()
      if (isHintOpen && outcome !== "Failed") {
        isHintOpen = false
        looksForNothing = outcome === "Found" ? 0 : looksForNothing + 1
      }
      if (isDueOpen) {
        isDueOpen = false
        if (outcome === "Empty" || options.storeNowMs() === undefined) {
          unsure = { dueMs: openDueMs, lookedMs: lastLookMs }
          findNextDue(true)
        }
      }
      if (reason === "FallbackTimeout") findNextDue(false)
      change({ _tag: "Looked", reason, outcome })
      options.onLook(reason, state, hintMs === undefined ? undefined : monotonicMs(clock) - hintMs)
    },

    wake: (reason) => wake(reason),

    metLocked: () => {
      hasMetHeld = true
      alarm("held", growingMs(firstHeldPauseMs, longestHeldPauseMs, heldLooks), () => wake("More"))
    },

    wakeAt: (timeMs, isAnnounced) => addDue({ timeMs, isOwn: true, hasMore: false }, isAnnounced),

    nextDue: (timeMs, nowMs) => {
      if (timeMs !== null) addDue({ timeMs, isOwn: false, hasMore: true }, false)
      if (unsure === undefined) return
      // At the earliest, the store's clock showed this when the look began.
      const lookedMs = nowMs - (monotonicMs(clock) - unsure.lookedMs)
      if (lookedMs < unsure.dueMs) {
        options.onDue()
        wake("TimerFired")
      }
      unsure = undefined
    },

    isNews: (timeMs) => timeMs < knownToAllMs || knownToAllMs <= storeNowMs(),

    received: ({ hint, sender }, arrivedMs) => {
      lastHintMs = arrivedMs
      if (hint._tag === "Work") {
        if (hint.visibleAtMs <= storeNowMs()) return wakeWithOthers("NotifyReceived", hint.only?.id, arrivedMs)
        return addDue({ timeMs: hint.visibleAtMs, isOwn: false, hasMore: true }, true)
      }
      if (hint._tag === "Taken") {
        for (const id of hint.ids) planned.delete(id)
        if (planned.size > 0 || !alarms.isSet(`${name} late`)) return
        cancelLate()
        // In case the sender dies before it announces its lock.
        return alarms.isSet(`${name} locks of ${sender}`) ? undefined : lookAfterOthers()
      }
      if (hint._tag !== "Locks") return
      const key = `locks of ${sender}`
      const early = `first ${key}`
      alarms.cancel(`${name} ${early}`)
      if (hint.untilMs === null) return alarms.cancel(`${name} ${key}`)
      const spreadMs = processes() > lookersAtOnce ? random() * mostSpreadMs : 0
      const untilMs = Math.max(0, hint.untilMs - storeNowMs()) + settings.timerGraceMs + spreadMs
      // The lock of a session may last longer than others. What is usual in a queue that is not served is not known.
      const usualMs = lockTimeoutMs() + 1_000 + spreadMs
      if (pumps.length > 0 && untilMs > usualMs) alarm(early, usualMs, options.othersRanOut)
      // It may have died after that hint: with further locks, or with a statement under way, which commits later.
      const lookAgain = ([pauseMs, ...later]: ReadonlyArray<number>) => {
        options.othersRanOut()
        if (pauseMs !== undefined) alarm(key, pauseMs, () => lookAgain(later))
      }
      alarm(key, untilMs, () => lookAgain(looksAfterEnd))
    },

    changed: (event) => {
      change(event)
      if (event._tag !== "Connected") return
      wake("Connected")
      lookAfterLocks()
      findNextDue(true)
    },

    hasPumps: () => pumps.length > 0,
    hasCallers: () => pumps.some((pump) => pump.hasCallers()),
    state: () => state
  }
}

// internal

/**
 * Pauses between looks for a process that has died, milliseconds. They cover the time of a statement, 35 seconds, and
 * find what it stores within as long as it took.
 */
const looksAfterEnd = [1_000, 2_000, 4_000, 8_000, 16_000, 16_000]

interface Due {
  readonly timeMs: number
  /** This process has stored it. */
  readonly isOwn: boolean
  /** There may be work behind it that this process does not know of. */
  readonly hasMore: boolean
}

/** Where `time` goes, behind its equals. */
const insertionIndex = (due: ReadonlyArray<Due>, time: number): number => {
  let low = 0
  let high = due.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (due[middle]!.timeMs <= time) low = middle + 1
    else high = middle
  }
  return low
}

/** Pause before the look after such a one; it doubles with each of them. */
const firstHeldPauseMs = 1_000
const longestHeldPauseMs = 15_000

/** Processes that look at once for a hint, on average. */
export const lookersAtOnce = 4

/** Stands for hints of which no one can say that all they announce was taken. */
const anyItem = ""

/** Longest delay of the others: all of them together look 100 times a second. */
const lateMs = 1_000
const lateMsPerProcess = 10

/** For locks that were renewed while no hints arrived. */
const afterLocksMs = 500

/** Longest delay of a look for the work of a dead process, in a large fleet. */
const mostSpreadMs = 500

/** Until then most know that one of the first has taken what was announced. */
const heardMs = 20

/** After one look for nothing twice as long, and so on. */
const shortestHintPauseMs = 5

/** Times in the future that are remembered, the nearest ones. */
const maxDue = 10_000

/** An estimate of the store's clock is late at most, never early; this covers the difference of the clocks' speeds. */
const knownClockGraceMs = 5
