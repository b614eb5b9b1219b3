/**
 * Logs outages of the store: one warning at the beginning, further ones at growing intervals, one line at the end.
 *
 * An outage may concern all calls, as when the database is down, or some, as when its disk is full. It is over when
 * each operation that failed has succeeded again; one that is no longer called is forgotten.
 */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { ours } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { ProviderError } from "../ProviderError.ts"
import { isOfTheCall } from "../shared/isOfTheCall.ts"

export interface Outages {
  /** A statement has succeeded. Returns the line to log, if there is one. */
  readonly succeeded: (operation: string) => Effect.Effect<void> | undefined
  /** A statement has failed. Returns the line to log, if there is one. */
  readonly failed: (operation: string, error: ProviderError) => Effect.Effect<void> | undefined
}

interface Outage {
  readonly sinceMs: number
  failedCalls: number
  pauseMs: number
  nextReportMs: number
}

export const make = (clock: Clock.Clock): Outages => {
  const failing = new Map<string, { failures: number; readonly sinceMs: number; lastMs: number }>()
  let outage: Outage | undefined

  const failed = (operation: string, error: ProviderError) => {
    if (isOfTheCall(error)) return undefined
    const nowMs = monotonicMs(clock)
    const before = failing.get(operation)
    const failures = (before?.failures ?? 0) + 1
    const sinceMs = before?.sinceMs ?? nowMs
    failing.set(operation, { failures, sinceMs, lastMs: nowMs })
    if (outage === undefined) {
      // A conflict or two is normal, and so is an item that waits for a transaction of others.
      if (
        error.reason._tag === "Contention" && (failures < normalConflicts || nowMs - sinceMs < normalConflictMs)
      ) return undefined
      outage = { sinceMs: nowMs, failedCalls: failures, pauseMs: firstPauseMs, nextReportMs: nowMs + firstPauseMs }
      return report(
        Effect.logWarning("Provider: the store cannot be used; loops keep retrying, client calls fail"),
        {
          operation,
          error_type: error.reason._tag,
          error: error.message
        }
      )
    }
    outage.failedCalls++
    if (nowMs < outage.nextReportMs) return undefined
    outage.pauseMs = Math.min(2 * outage.pauseMs, longestPauseMs)
    outage.nextReportMs = nowMs + outage.pauseMs
    return report(Effect.logWarning("Provider: the store still cannot be used"), {
      operation,
      error_type: error.reason._tag,
      error: error.message,
      duration_ms: Math.round(nowMs - outage.sinceMs),
      failed_calls: outage.failedCalls
    })
  }

  const succeeded = (operation: string) => {
    if (failing.size === 0) return undefined
    const nowMs = monotonicMs(clock)
    failing.delete(operation)
    for (const [other, { lastMs }] of failing) if (nowMs - lastMs > forgottenAfterMs) failing.delete(other)
    if (failing.size > 0 || outage === undefined) return undefined
    const { failedCalls, sinceMs } = outage
    outage = undefined
    return report(Effect.logInfo("Provider: the store can be used again"), {
      duration_ms: Math.round(nowMs - sinceMs),
      failed_calls: failedCalls
    })
  }

  return { failed, succeeded }
}

// internal

const normalConflicts = 4

const normalConflictMs = 30_000

const firstPauseMs = 60_000

const longestPauseMs = 3_600_000

const forgottenAfterMs = 30_000

const report = (log: Effect.Effect<void>, annotations: Record<string, unknown>) => log.pipe(ours(annotations))
