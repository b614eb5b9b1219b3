/**
 * The slots of activities: which claimed activity runs now, which waits for a slot, and how many more may be claimed.
 *
 * A slot is a running handler, nothing else: it is free as soon as its handler has ended, while the outcome is stored.
 * Only outcomes of many megabytes keep the slots closed: no handler begins until the store has taken most of them. So
 * that a slot need not wait for the next claim, some activities are claimed ahead. They wait here, in the order of
 * their claims, but not for long: another process may have a free slot. Therefore activities are claimed ahead only
 * while handlers are short, and one that waits too long is given back.
 */
import type { Settings } from "./settings.ts"

export class ActivitySlots<Delivery> {
  private readonly concurrency: number
  private readonly mostAhead: number
  private readonly nowMs: () => number
  /** With the time of their begin; in its order. */
  private readonly running = new Map<Delivery, number>()
  /** With the time of their claim; in its order. */
  private readonly waiting = new Map<Delivery, number>()
  /** With the bytes of their outcomes, and since when they wait for the store; in that order. */
  private readonly unsettled = new Map<Delivery, { readonly bytes: number; readonly sinceMs: number }>()
  private unsettledBytes = 0
  /** Bytes of outcomes, on average. */
  private meanBytes = 0
  private reserved = 0
  /** How long handlers run, on average; undefined before the first has ended. */
  private meanMs: number | undefined
  private notAheadBeforeMs = Number.NEGATIVE_INFINITY

  /** `nowMs` is a monotonic clock. `mostAhead` limits those that are claimed ahead. */
  constructor(
    { workerConcurrency }: Pick<Settings, "workerConcurrency">,
    options: { readonly nowMs: () => number; readonly mostAhead: number }
  ) {
    this.concurrency = workerConcurrency
    this.nowMs = options.nowMs
    this.mostAhead = options.mostAhead
  }

  /** How many more activities may be claimed now. */
  room(): number {
    if (this.isFull || this.isStuck()) return 0
    const taken = this.running.size + this.waiting.size + this.reserved
    return Math.max(0, this.atOnce() + this.ahead() - taken)
  }

  /** Keeps room for up to that many activities that will be handed over, as for a claim; returns for how many. */
  reserve(most: number): number {
    const granted = Math.min(most, this.room())
    this.reserved += granted
    return granted
  }

  /** Gives back reserved room: what is not needed, or whose activity now comes. */
  release(count: number): void {
    this.reserved -= count
  }

  /** Whether slots are kept free for activities that may come yet. */
  get isReserved(): boolean {
    return this.reserved > 0
  }

  /** Lets an activity wait for a slot, behind the others. */
  add(delivery: Delivery): void {
    this.waiting.set(delivery, this.nowMs())
  }

  /** Gives a free slot to the activity that has waited longest. */
  next(): Delivery | undefined {
    if (this.isFull || this.running.size >= this.atOnce()) return undefined
    const [delivery] = this.waiting.keys()
    if (delivery === undefined) return undefined
    this.waiting.delete(delivery)
    this.running.set(delivery, this.nowMs())
    return delivery
  }

  /** Whether `next` has an activity. */
  get mayBegin(): boolean {
    return this.waiting.size > 0 && this.running.size < this.atOnce() && !this.isFull
  }

  /** Handlers that may run at once: fewer, though 16, where their outcomes would take much memory together. */
  private atOnce(): number {
    if (this.concurrency <= fewest || this.meanBytes * this.concurrency <= mostRunningBytes) return this.concurrency
    return Math.max(fewest, Math.floor(mostRunningBytes / this.meanBytes))
  }

  /** What cannot be stored must not pile up: many outcomes wait, and the first one for long, as in an outage. */
  private isStuck(): boolean {
    if (this.unsettled.size < Math.max(32, 8 * this.concurrency)) return false
    const [first] = this.unsettled.values()
    return this.nowMs() - first!.sinceMs > longMs || this.unsettled.size >= this.mostAhead
  }

  /** Outcomes that are not stored take much memory. */
  private get isFull(): boolean {
    return this.unsettledBytes >= mostUnsettledBytes
  }

  /** Frees the slot of an activity whose handler does not begin: it does not count for how long handlers run. */
  notBegun(delivery: Delivery): void {
    this.running.delete(delivery)
  }

  /** Counts the time of a handler from now: it had to wait for its lock. */
  begunLate(delivery: Delivery): void {
    this.running.delete(delivery)
    this.running.set(delivery, this.nowMs())
  }

  /** A handler has ended. */
  private free(delivery: Delivery): void {
    const begunMs = this.running.get(delivery)
    if (begunMs === undefined) return
    this.running.delete(delivery)
    const tookMs = this.nowMs() - begunMs
    this.meanMs = this.meanMs === undefined ? tookMs : average(this.meanMs, tookMs)
  }

  /** A handler has ended, or will not begin: its slot is free, but its outcome of `bytes` is not stored yet. */
  settling(delivery: Delivery, bytes: number): void {
    this.free(delivery)
    this.unsettled.set(delivery, { bytes, sinceMs: this.nowMs() })
    this.unsettledBytes += bytes
    this.meanBytes = average(this.meanBytes, bytes)
  }

  /** The claim of an activity has ended. */
  forget(delivery: Delivery): void {
    this.waiting.delete(delivery)
    this.unsettledBytes -= this.unsettled.get(delivery)?.bytes ?? 0
    this.unsettled.delete(delivery)
    this.free(delivery)
  }

  /** All that wait. They wait no longer. */
  takeWaiting(): ReadonlyArray<Delivery> {
    const all = [...this.waiting.keys()]
    this.waiting.clear()
    return all
  }

  /** Those that have waited too long. They wait no longer, and nothing is claimed ahead for a while. */
  takeOverdue(): ReadonlyArray<Delivery> {
    const now = this.nowMs()
    const overdue: Array<Delivery> = []
    for (const [delivery, sinceMs] of this.waiting) {
      if (now - sinceMs < longestWaitMs) break
      overdue.push(delivery)
    }
    for (const delivery of overdue) this.waiting.delete(delivery)
    if (overdue.length > 0) this.notAheadBeforeMs = now + pauseMs
    return overdue
  }

  /** Milliseconds until the first one has waited too long; undefined when none waits. */
  untilOverdueMs(): number | undefined {
    const [sinceMs] = this.waiting.values()
    return sinceMs === undefined ? undefined : Math.max(0, sinceMs + longestWaitMs - this.nowMs())
  }

  /** Those that have a slot. */
  get begun(): Iterable<Delivery> {
    return this.running.keys()
  }

  /** How many have a slot. */
  get inUse(): number {
    return this.running.size
  }

  /** Activities that have begun, and whose claim is not settled. */
  get underWay(): number {
    return this.running.size + this.unsettled.size
  }

  /**
   * How many may be claimed ahead: as many as the slots whose handlers may end soon run in the time that a claim takes
   * on a busy machine, at least one each. So handlers of no time need few slots, and for slow ones nothing is claimed
   * ahead.
   */
  private ahead(): number {
    const now = this.nowMs()
    if (this.meanMs === undefined || this.meanMs > shortMs || now < this.notAheadBeforeMs) return 0
    let soon = this.concurrency
    for (const begunMs of this.running.values()) {
      if (now - begunMs <= shortMs) break
      soon--
    }
    const perSlot = Math.max(1, aheadMs / Math.max(this.meanMs, leastMs))
    return Math.min(Math.ceil(soon * perSlot), this.mostAhead)
  }
}

// internal

/** Activities are claimed ahead while handlers take no longer than this. */
const shortMs = 50

/** What is claimed ahead begins within about this time. */
const aheadMs = 25

/** No handler is quicker, for the sake of division. */
const leastMs = 0.01

/** An activity that was claimed ahead is given back after this time: a process that is idle may run it. */
const longestWaitMs = 100

/** How long nothing is claimed ahead after one was given back. */
const pauseMs = 1_000

/** With a last value, which weighs a fifth: the first handlers of a process are slow. */
const average = (mean: number, last: number) => mean + (last - mean) / 5

/** The store usually answers sooner. */
const longMs = 1_000

/** Handlers that run at once whatever their outcomes take. */
const fewest = 16

/** Bytes of the outcomes of all handlers that run. Each takes several times as much until it is stored. */
const mostRunningBytes = 64 * 1024 * 1024

/** Bytes of outcomes that may wait for the store before no more is claimed, and no handler begins. */
const mostUnsettledBytes = 16 * 1024 * 1024
