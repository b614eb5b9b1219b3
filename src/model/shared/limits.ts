/**
 * Limits as stores keep them, as programs give them, and as people read them.
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import type { Bound, Limit, LimitChanges, LimitedKey, LimitKind, StoredBound } from "../Limit.ts"
import { problemOfName } from "./identifiers.ts"

/** The columns of a bound. */
export interface BoundRow {
  readonly concurrency: number | null
  readonly rate: number | null
  readonly rateMs: number | null
  readonly burst: number | null
}

/** Changes as a driver stores them. */
export interface EncodedChanges {
  readonly total?: BoundRow | null
  readonly eachKey?: BoundRow | null
  readonly keys?: { readonly [key: string]: BoundRow | null }
}

export interface LimitRow {
  readonly kind: LimitKind
  readonly name: string
  readonly sinceMs: number
  readonly total: BoundRow | null
  readonly eachKey: BoundRow | null
  readonly inUse: number
  readonly waiting: number
  readonly oldestMs: number | null
  readonly keyCount: number
  readonly keys: ReadonlyArray<Omit<LimitedKey, "own"> & { readonly own: BoundRow | null }>
}

/** In the order in which limits are read. */
export const kinds: ReadonlyArray<LimitKind> = ["activity", "orchestration", "task"]

export const maxKeyBytes = 256

/** Why the text cannot be the key of a limit; undefined if it can. */
export const problemOfLimitKey = (text: string): string | undefined => problemOfName(text, maxKeyBytes)

/** The first thing that is wrong with changes, and where. */
export const problemOfChanges = (changes: LimitChanges): readonly [field: string, problem: string] | undefined => {
  const { eachKey, keys = {}, total } = changes
  for (const [key] of Object.entries(keys)) {
    const problem = key === "" ? undefined : problemOfLimitKey(key)
    if (problem !== undefined) return ["keys", `key ${JSON.stringify(key.slice(0, 64))}: ${problem}`]
  }
  const bounds = [
    ["total", total] as const,
    ["eachKey", eachKey] as const,
    ...Object.entries(keys).map(([key, bound]) => [`keys.${key}`, bound] as const)
  ]
  for (const [field, bound] of bounds) {
    const problem = bound === undefined || bound === null ? undefined : problemOfBound(bound)
    if (problem !== undefined) return [field, problem]
  }
  return undefined
}

/** Changes without a problem as they are stored. */
export const encode = ({ eachKey, keys, total }: LimitChanges): EncodedChanges => ({
  ...(total !== undefined && { total: rowOf(total) }),
  ...(eachKey !== undefined && { eachKey: rowOf(eachKey) }),
  ...(keys !== undefined && {
    keys: Object.fromEntries(Object.entries(keys).map(([key, bound]) => [key, rowOf(bound)]))
  })
})

export const decode = (row: LimitRow): Limit => ({
  kind: row.kind,
  name: row.name,
  total: storedBound(row.total),
  eachKey: storedBound(row.eachKey),
  sinceMs: row.sinceMs,
  inUse: row.inUse,
  waiting: row.waiting,
  oldestMs: row.oldestMs,
  keyCount: row.keyCount,
  keys: row.keys.map((key) => ({ ...key, own: storedBound(key.own) }))
})

/** Such as `3 at once, 10 per second`. */
export const shownBound = (bound: StoredBound | null): string =>
  bound === null || (bound.concurrency === null && bound.rate === null) ? "no bound" : [
    ...(bound.concurrency === null ? [] : [`${bound.concurrency} at once`]),
    ...(bound.rate === null ? [] : [shownRate(bound.rate)])
  ].join(", ")

// internal

const shownRate = ({ burst, count, perMs }: NonNullable<StoredBound["rate"]>) =>
  `${count} per ${Duration.format(Duration.millis(perMs))}${burst === 1 ? "" : `, ${burst} in a burst`}`

const most = 1_000_000

const longestMs = Duration.toMillis("365 days")

const isCount = (value: number) => Number.isInteger(value) && value >= 1 && value <= most

const problemOfBound = ({ concurrency, rate }: Bound): string | undefined => {
  const counts = [["concurrency", concurrency], ["rate.count", rate?.count], ["rate.burst", rate?.burst]] as const
  for (const [name, value] of counts) {
    if (value !== undefined && !isCount(value)) {
      return `${name} is ${value}, but must be a whole number from 1 to ${most}`
    }
  }
  if (rate === undefined) return undefined
  if (rate.count === undefined) return "rate has no count"
  const perMs = Option.getOrUndefined(Option.map(Duration.fromInput(rate.per), Duration.toMillis))
  return perMs !== undefined && Number.isInteger(perMs) && perMs >= 1 && perMs <= longestMs
    ? undefined
    : `rate.per is ${JSON.stringify(rate.per)}, but must be whole milliseconds from 1 to 365 days`
}

const rowOf = (bound: Bound | null): BoundRow | null =>
  bound === null ? null : {
    concurrency: bound.concurrency ?? null,
    rate: bound.rate?.count ?? null,
    rateMs: bound.rate === undefined ? null : Duration.toMillis(Duration.fromInputUnsafe(bound.rate.per)),
    burst: bound.rate === undefined ? null : bound.rate.burst ?? 1
  }

const storedBound = (row: BoundRow | null): StoredBound | null =>
  row === null ? null : {
    concurrency: row.concurrency,
    rate: row.rate === null ? null : { count: row.rate, perMs: row.rateMs!, burst: row.burst! }
  }
