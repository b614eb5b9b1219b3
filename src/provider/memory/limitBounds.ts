/**
 * Bounds of limits, whatever they are of: whose turn it is, when a token is free, whether there is room.
 */
import type { BoundRow } from "../../model/shared/limits.ts"
import type * as tables from "./tables.ts"

/** What one limit has, as a claim sees it. */
export interface Line {
  readonly name: string
  readonly limit: tables.Limit
  /** Those that wait and that the claim takes, the oldest of each key first. */
  readonly waiting: ReadonlyArray<Waiting>
  /** How many have a slot, of all keys or of one. */
  readonly inUse: (key?: string) => number
  /** How many of these have not begun, and hold their tokens. */
  readonly notBegun: (key?: string) => number
  /** How many more the claim has use for. */
  readonly room: number
}

export interface Waiting {
  readonly key: string
  /** False if it is to begin later. */
  readonly isDue: boolean
  readonly isWaiting: () => boolean
  readonly admit: () => void
}

/** One that has a slot, or that waits since then. */
export interface Use {
  readonly key: string
  readonly waitsSinceMs: number | null
}

/** Gives slots of one limit. Returns when the first token is back that one waits for. */
export const admitOf = ({ inUse, limit, notBegun, waiting, ...line }: Line, now: number): number | undefined => {
  let nextMs: number | undefined
  const awaits = (tokenMs: number) => {
    nextMs = Math.min(nextMs ?? Infinity, Math.ceil(tokenMs))
  }
  let { room } = line
  let freeMs = tokensBack(limit.total, limit.freeMs, notBegun(), now)
  const keys = [...new Set(waiting.map(({ key }) => key))].sort()
  const behind = keys.findIndex((key) => key > limit.lastKey)
  let round = behind === -1 ? [] : keys.slice(behind)
  let hasAdmitted = true
  let hasVisited = false
  while (room > 0 && inUse() < (limit.total?.concurrency ?? Infinity)) {
    const key = round.shift()
    if (key === undefined) {
      if (!hasAdmitted || keys.length === 0) break
      hasAdmitted = false
      round = [...keys]
      continue
    }
    const next = waiting.find((one) => one.isWaiting() && one.key === key)
    if (next === undefined) continue
    hasVisited = true
    if (!next.isDue) continue
    if (tokenAt(limit.total, freeMs) > now) {
      awaits(tokenAt(limit.total, freeMs))
      break
    }
    // Its turn: now, or if its own bound holds it back, in the next round.
    limit.lastKey = key
    const bound = limit.own.get(key) ?? limit.eachKey
    if (inUse(key) >= (bound?.concurrency ?? Infinity)) continue
    const keyFreeMs = tokensBack(bound, limit.keyFreeMs.get(key) ?? 0, notBegun(key), now)
    if (tokenAt(bound, keyFreeMs) > now) {
      awaits(tokenAt(bound, keyFreeMs))
      continue
    }
    next.admit()
    hasAdmitted = true
    room--
    if (hasRate(limit.total)) freeMs += intervalOf(limit.total)
    if (hasRate(bound)) limit.keyFreeMs.set(key, keyFreeMs + intervalOf(bound))
  }
  if (hasVisited) {
    limit.freeMs = freeMs
    limit.nextMs = nextMs
    if (hasRate(limit.eachKey)) {
      for (const [key, freeMs] of limit.keyFreeMs) {
        if (freeMs <= now && !limit.own.has(key)) limit.keyFreeMs.delete(key)
      }
    }
  }
  return nextMs
}

/** Whether one more of a key has a slot at once, where none of the limit waits. */
export const hasSlotAtOnce = (
  { eachKey, own, total }: tables.Limit,
  key: string,
  inUse: (key?: string) => number
): boolean => {
  const bound = own.get(key) ?? eachKey
  return !hasRate(total) && !hasRate(eachKey) && !hasRate(bound) &&
    inUse() < (total?.concurrency ?? Infinity) && inUse(key) < (bound?.concurrency ?? Infinity)
}

export const hasRate = (bound: BoundRow | null): bound is BoundRow & { readonly rate: number } =>
  (bound?.rate ?? null) !== null

// internal

const intervalOf = ({ rate, rateMs }: BoundRow) => rateMs! / rate!

/** When all used tokens are back. Activities that have a slot and have not begun hold theirs. */
const tokensBack = (bound: BoundRow | null, storedMs: number, notBegun: number, now: number) =>
  hasRate(bound)
    ? Math.max(
      Math.min(storedMs, now + (bound.burst! + 1) * intervalOf(bound)),
      now + Math.min(notBegun, bound.burst!) * intervalOf(bound)
    )
    : 0

/** When the next token is free. */
const tokenAt = (bound: BoundRow | null, freeMs: number) =>
  hasRate(bound) ? freeMs - (bound.burst! - 1) * intervalOf(bound) : 0
