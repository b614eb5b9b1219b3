/**
 * What a runtime remembers of work that failed: when to try again, and turns that are not stored.
 */
import type * as Clock from "effect/Clock"
import type * as Duration from "effect/Duration"
import { monotonicMs } from "../model/shared/monotonic.ts"
import { delayAfter } from "../provider/shared/unstored.ts"

/**
 * Delays left out for an instance whose turn another transaction holds. Such a turn keeps a slot for half a second, and
 * its instance is the first to be claimed after its delay: shorter ones would leave no slot for other instances.
 */
export const skippedWhenHeld = 3

/** Growing delays, counted separately for each key. */
export class Backoff {
  // In order of the last failure.
  private readonly failures = new Map<string, number>()

  /** Counts a failure, and returns how long to wait after it. `skips` leaves out that many of the shortest delays. */
  next(key: string, skips = 0): { readonly delay: Duration.Duration; readonly isFirst: boolean } {
    const failures = this.failures.get(key) ?? 0
    this.failures.delete(key)
    this.failures.set(key, failures + 1)
    if (this.failures.size > maxRemembered) this.failures.delete(this.failures.keys().next().value!)
    return { delay: delayAfter(failures + skips), isFirst: failures === 0 }
  }

  forget(key: string): void {
    this.failures.delete(key)
  }
}

/** A wrong deploy meets many instances at once, so what is the same for all of them is logged once an hour. */
export class NewsOfTheHour {
  private readonly clock: Clock.Clock
  private readonly reportedMs = new Map<string, number>()

  constructor(clock: Clock.Clock) {
    this.clock = clock
  }

  /** True at most once an hour for each key. */
  isNews(key: string): boolean {
    const nowMs = monotonicMs(this.clock)
    if (nowMs - (this.reportedMs.get(key) ?? Number.NEGATIVE_INFINITY) < hourMs) return false
    this.reportedMs.set(key, nowMs)
    return true
  }
}

/** Instances whose last turn the store has not taken: the next one sends it again. */
export class UnstoredTurns {
  private readonly instanceIds = new Set<string>()

  has(instanceId: string): boolean {
    return this.instanceIds.has(instanceId)
  }

  add(instanceId: string): void {
    // Another process may run the instance meanwhile; then it would stay here.
    if (this.instanceIds.size >= maxRemembered) this.instanceIds.clear()
    this.instanceIds.add(instanceId)
  }

  delete(instanceId: string): void {
    this.instanceIds.delete(instanceId)
  }
}

// internal

const maxRemembered = 10_000

const hourMs = 3_600_000
