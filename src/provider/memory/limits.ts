/**
 * Limits: who waits for a slot, who gets one. As `dx_admit_activities` and `dx_admit_at_once` do it.
 */
import type { LimitKind } from "../../model/Limit.ts"
import type { BoundRow, EncodedChanges, LimitRow } from "../../model/shared/limits.ts"
import type { EncodedActivity } from "../ProviderDriver.ts"
import * as bounds from "./limitBounds.ts"
import * as limitedInstances from "./limitedInstances.ts"
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
    const { name } = activity
    const limit = limitOf(store, activity)
    return limit === undefined ||
      !waiting.has(name) && bounds.hasSlotAtOnce(limit, keyOf(activity), (key) => slots(store, name, key).length)
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
      const nextMs = bounds.admitOf(lineOf(store, name, limit, ofName, wanted, now), now)
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
  if (kind === "orchestration") limitedInstances.limit(store, name)
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
  if (kind === "orchestration") limitedInstances.releaseAll(store, name)
  return store.limits[kind].delete(name)
}

export const read = (
  store: tables.Tables,
  kind: LimitKind,
  name: string,
  key: string | null,
  mostKeys: number,
  now: number
): LimitRow | undefined => {
  const limit = store.limits[kind].get(name)
  if (limit === undefined) return undefined
  const used = kind === "activity"
    ? usesOfActivities(store, name)
    : kind === "orchestration"
    ? limitedInstances.uses(store, name, now)
    : []
  const uses = [...new Set([...used.map(({ key }) => key), ...limit.own.keys()])].map((of) => ({
    key: of,
    own: limit.own.get(of) ?? null,
    ...useOf(used.filter(({ key }) => key === of))
  })).sort((a, b) => b.waiting - a.waiting || b.inUse - a.inUse || (a.key < b.key ? -1 : 1))
  return {
    kind,
    name,
    sinceMs: limit.sinceMs,
    total: orNone(limit.total),
    eachKey: orNone(limit.eachKey),
    ...useOf(used),
    keyCount: uses.filter(({ inUse, waiting }) => inUse + waiting > 0).length,
    keys: uses.filter((use, place) => key === null ? use.own !== null || place < mostKeys : use.key === key)
  }
}

// internal

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

const usesOfActivities = ({ activities }: tables.Tables, name: string): ReadonlyArray<bounds.Use> =>
  [...activities.values()].filter(({ limitName }) => limitName === name).map((activity) => ({
    key: keyOf(activity),
    waitsSinceMs: isParked(activity) ? activity.createdAtMs : null
  }))

const useOf = (used: ReadonlyArray<bounds.Use>) => {
  const waiting = used.flatMap(({ waitsSinceMs }) => waitsSinceMs ?? [])
  return {
    inUse: used.length - waiting.length,
    waiting: waiting.length,
    oldestMs: waiting.length === 0 ? null : Math.min(...waiting)
  }
}

const lineOf = (
  store: tables.Tables,
  name: string,
  limit: tables.Limit,
  parked: ReadonlyArray<tables.Activity>,
  wanted: Wanted,
  now: number
): bounds.Line => {
  const mayClaim = (activity: tables.Activity) =>
    activity.visibleAtMs <= now && tables.isFree(activity, now) && wanted.isServed(activity)
  return {
    name,
    limit,
    waiting: parked.map((activity) => ({
      key: keyOf(activity),
      isDue: true,
      isWaiting: () => isParked(activity),
      admit: () => {
        activity.visibleAtMs = Math.min(activity.createdAtMs, now)
      }
    })),
    inUse: (key) => slots(store, name, key).length,
    notBegun: (key) =>
      slots(store, name, key).filter((one) =>
        one.attemptCount === 0 && one.visibleAtMs <= now && tables.isFree(one, now)
      ).length,
    room: wanted.most - slots(store, name).filter(mayClaim).length
  }
}

const orNone = (bound: BoundRow | null) => bounds.hasRate(bound) || (bound?.concurrency ?? null) !== null ? bound : null
