/**
 * Limits: who waits for a slot, who gets one. As `dx_admit_activities` and `dx_admit_at_once` do it.
 */
import type { LimitKind } from "../../model/Limit.ts"
import type { BoundRow, EncodedChanges, LimitRow } from "../../model/shared/limits.ts"
import type { EncodedActivity } from "../ProviderDriver.ts"
import * as tables from "./tables.ts"

/** What a claim needs and may take. */
export interface Wanted {
  readonly most: number
  readonly isServed: (activity: tables.Activity) => boolean
}

/** Whether it waits for a slot. */
export const isParked = ({ visibleAtMs }: tables.Queued): boolean => visibleAtMs === Infinity

/** Says of activities that one statement stores whether they have a slot at once. */
export const atOnce = (store: tables.Tables): (activity: EncodedActivity) => boolean => {
  const waiting = new Set([...store.activities.values()].filter(isParked).map(({ limitName }) => limitName))
  return (activity) => {
    const limit = limitOf(store, activity)
    if (limit === undefined) return true
    const { eachKey, total } = limit
    if (waiting.has(activity.name) || hasRate(total) || hasRate(eachKey)) return false
    const key = keyOf(activity)
    const own = limit.own.get(key)
    const [inUse, ofKey] = [slots(store, activity.name), slots(store, activity.name, key)]
    return !hasRate(own ?? null) && hasRoom(total, inUse.length) && hasRoom(own ?? eachKey, ofKey.length)
  }
}

/** The limit of an activity that is about to be stored. */
export const limitOf = ({ limits }: tables.Tables, { name, servedBy }: EncodedActivity): tables.Limit | undefined =>
  servedBy === undefined ? limits.activity.get(name) : undefined

/** Deletes an activity that its worker does not end. */
export const drop = (store: tables.Tables, id: number): void => {
  const activity = store.activities.get(id)
  store.activities.delete(id)
  if (activity?.limitName !== undefined && !isParked(activity)) tables.announce(store)
}

/** What an activity waits for; null if it has a slot, or no limit. */
export const waitOf = (
  { activities }: tables.Tables,
  activity: tables.Activity
): { readonly key: string; readonly ahead: number } | null => {
  if (!isParked(activity)) return null
  const key = keyOf(activity)
  const waiting = [...activities.values()].filter((one) =>
    isParked(one) && one.name === activity.name && keyOf(one) === key
  )
  return { key, ahead: waiting.indexOf(activity) }
}

/** Gives slots to activities that wait for one. Returns when the first token is back that one waits for. */
export const admit = (store: tables.Tables, wanted: Wanted, now: number): number | undefined => {
  const parked = [...store.activities].filter(([, activity]) => isParked(activity) && wanted.isServed(activity))
  const next: Array<number> = []
  for (const name of [...new Set(parked.map(([, { limitName }]) => limitName!))].sort()) {
    const limit = store.limits.activity.get(name)
    const ofName = parked.filter(([, { limitName }]) => limitName === name).sort(([a], [b]) => a - b)
      .map(([, activity]) => activity)
    if (limit === undefined) {
      for (const activity of ofName) release(activity, now)
    } else {
      const nextMs = admitOf(store, name, limit, ofName, wanted, now)
      if (nextMs !== undefined) next.push(nextMs)
    }
  }
  return next.length === 0 ? undefined : Math.min(...next)
}

export const set = (
  store: tables.Tables,
  kind: LimitKind,
  name: string,
  { eachKey, keys = {}, total }: EncodedChanges,
  now: number
): void => {
  const limit = tables.entry(store.limits[kind], name, (): tables.Limit => ({
    total: null,
    eachKey: null,
    own: new Map(),
    sinceMs: now,
    freeMs: 0,
    nextMs: undefined,
    keyFreeMs: new Map(),
    lastKey: ""
  }))
  limit.sinceMs = now
  if (total !== undefined) limit.total = total
  if (eachKey !== undefined) limit.eachKey = eachKey
  for (const [key, bound] of Object.entries(keys)) {
    if (bound !== null) limit.own.set(key, bound)
    else if (limit.own.delete(key)) limit.keyFreeMs.delete(key)
  }
  if (kind !== "activity") return
  for (const activity of store.activities.values()) {
    if (activity.name !== name || activity.servedBy !== undefined) continue
    activity.limitName = name
    if (activity.lock === null) activity.visibleAtMs = Infinity
  }
}

export const remove = (store: tables.Tables, kind: LimitKind, name: string, now: number): boolean => {
  for (const activity of kind === "activity" ? store.activities.values() : []) {
    if (activity.limitName === name && isParked(activity)) release(activity, now)
  }
  return store.limits[kind].delete(name)
}

export const read = (
  store: tables.Tables,
  kind: LimitKind,
  name: string,
  key: string | null,
  mostKeys: number
): LimitRow | undefined => {
  const limit = store.limits[kind].get(name)
  if (limit === undefined) return undefined
  const queued = kind !== "activity" ? [] : [...store.activities.values()].filter(({ limitName }) => limitName === name)
  const uses = [...new Set([...queued.map(keyOf), ...limit.own.keys()])].map((of) => ({
    key: of,
    own: limit.own.get(of) ?? null,
    ...useOf(queued.filter((activity) => keyOf(activity) === of))
  })).sort((a, b) => b.waiting - a.waiting || b.inUse - a.inUse || (a.key < b.key ? -1 : 1))
  return {
    kind,
    name,
    sinceMs: limit.sinceMs,
    total: orNone(limit.total),
    eachKey: orNone(limit.eachKey),
    ...useOf(queued),
    keyCount: uses.filter((use) => use.key !== "").length,
    keys: uses.filter((use, place) => key === null ? use.own !== null || place < mostKeys : use.key === key)
  }
}

// internal

const admitOf = (
  store: tables.Tables,
  name: string,
  limit: tables.Limit,
  parked: ReadonlyArray<tables.Activity>,
  wanted: Wanted,
  now: number
): number | undefined => {
  let nextMs: number | undefined
  const awaits = (tokenMs: number) => {
    nextMs = Math.min(nextMs ?? Infinity, Math.ceil(tokenMs))
  }
  const mayClaim = (activity: tables.Activity) =>
    activity.visibleAtMs <= now && tables.isFree(activity, now) && wanted.isServed(activity)
  const notBegun = (activities: ReadonlyArray<tables.Activity>) =>
    activities.filter((one) => one.attemptCount === 0 && one.visibleAtMs <= now && tables.isFree(one, now)).length
  let room = wanted.most - slots(store, name).filter(mayClaim).length
  let freeMs = tokensBack(limit.total, limit.freeMs, notBegun(slots(store, name)), now)
  const keys = [...new Set(parked.map(keyOf))].sort()
  const behind = keys.findIndex((key) => key > limit.lastKey)
  let round = behind === -1 ? [] : keys.slice(behind)
  let hasAdmitted = true
  let hasVisited = false
  while (room > 0 && slots(store, name).length < (limit.total?.concurrency ?? Infinity)) {
    const key = round.shift()
    if (key === undefined) {
      if (!hasAdmitted || keys.length === 0) break
      hasAdmitted = false
      round = [...keys]
      continue
    }
    const activity = parked.find((one) => isParked(one) && keyOf(one) === key)
    if (activity === undefined) continue
    hasVisited = true
    if (tokenAt(limit.total, freeMs) > now) {
      awaits(tokenAt(limit.total, freeMs))
      break
    }
    // Its turn: now, or if its own bound holds it back, in the next round.
    limit.lastKey = key
    const bound = limit.own.get(key) ?? limit.eachKey
    const ofKey = slots(store, name, key)
    if (ofKey.length >= (bound?.concurrency ?? Infinity)) continue
    const keyFreeMs = tokensBack(bound, limit.keyFreeMs.get(key) ?? 0, notBegun(ofKey), now)
    if (tokenAt(bound, keyFreeMs) > now) {
      awaits(tokenAt(bound, keyFreeMs))
      continue
    }
    activity.visibleAtMs = Math.min(activity.createdAtMs, now)
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

export const keyOf = ({ limitKey = "" }: EncodedActivity): string => limitKey

/** Activities that have a slot. */
const slots = ({ activities }: tables.Tables, name: string, key?: string): ReadonlyArray<tables.Activity> =>
  [...activities.values()].filter((activity) =>
    activity.limitName === name && !isParked(activity) && (key === undefined || keyOf(activity) === key)
  )

const release = (activity: tables.Activity, now: number) => {
  activity.visibleAtMs = Math.min(activity.createdAtMs, now)
  delete activity.limitName
}

const useOf = (queued: ReadonlyArray<tables.Activity>) => {
  const parked = queued.filter(isParked)
  return {
    inUse: queued.length - parked.length,
    waiting: parked.length,
    oldestMs: parked.length === 0 ? null : Math.min(...parked.map(({ createdAtMs }) => createdAtMs))
  }
}

const hasRate = (bound: BoundRow | null): bound is BoundRow & { readonly rate: number } =>
  (bound?.rate ?? null) !== null

const orNone = (bound: BoundRow | null) => hasRate(bound) || (bound?.concurrency ?? null) !== null ? bound : null

/** PostgreSQL keeps so many free for what other transactions have not committed. */
const hasRoom = (bound: BoundRow | null, inUse: number) => inUse + 1000 < (bound?.concurrency ?? Infinity)

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
