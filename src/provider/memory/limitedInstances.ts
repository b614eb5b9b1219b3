/**
 * Limits of orchestrations: which instances wait for a slot, which have one. As `dx_park_instances`,
 * `dx_admit_instances` and `dx_meet_parked` do it.
 */
import type { FetchOrchestrationItems, StartedInstance } from "../ProviderDriver.ts"
import * as bounds from "./limitBounds.ts"
import * as tables from "./tables.ts"
import * as texts from "./texts.ts"

/** Says of instances that one statement starts whether they have a slot at once, or no limit. */
export const atOnce = (store: tables.Tables, now: number): (start: StartedInstance) => boolean => {
  const parked = [...store.instances.values()].filter(isParked)
  const isAwaited = (name: string) => {
    const ofName = parked.filter(({ limitName }) => limitName === name)
    return ofName.length >= 100 || ofName.some(({ place }) => place!.dueAtMs <= now)
  }
  return (start) => {
    const { limitKey = "", orchestrationName: name } = start
    const limit = limitOf(store, start)
    return limit === undefined ||
      !isAwaited(name) && bounds.hasSlotAtOnce(limit, limitKey, (key) => count(store, name, key))
  }
}

/** What the row of an instance that is started says of its limit. What Duroxide runs has none. */
export const rowOf = (
  store: tables.Tables,
  start: StartedInstance,
  hasSlot: boolean,
  dueAtMs: number
): Pick<tables.Instance, "limitName" | "limitKey" | "place"> => ({
  ...(start.limitKey !== undefined && { limitKey: start.limitKey }),
  ...(limitOf(store, start) !== undefined && {
    limitName: start.orchestrationName,
    ...(!hasSlot && { place: { dueAtMs, number: ++store.lastRowId, isParked: true } })
  })
})

/** Whether it waits for a slot. */
export const isParked = ({ place }: tables.Instance): boolean => place?.isParked === true

/**
 * Decides on visible messages of an instance that waits for a slot: they wait with it, but a cancellation lets it go.
 * Returns whether it goes.
 */
export const meet = (store: tables.Tables, instanceId: string): boolean => {
  const ofInstance = [...store.messages.values()].filter((message) => message.instanceId === instanceId)
  if (ofInstance.some(({ workItem }) => texts.isCancellation(workItem))) {
    unpark(store, instanceId, false)
    return true
  }
  for (const message of ofInstance) message.waits = true
  return false
}

/**
 * Gives slots to instances that wait for one, as far as a claim has use for them. Returns when the first token is back
 * that one waits for.
 */
export const admit = (
  store: tables.Tables,
  { limit: most }: FetchOrchestrationItems,
  isServed: (instanceId: string) => boolean,
  now: number
): number | undefined => {
  const next: Array<number> = []
  const served = [...store.instances].filter(([id, { limitName }]) => limitName !== undefined && isServed(id))
  const parked = served.filter(([, instance]) => isParked(instance))
  for (const name of [...new Set(parked.map(([, { limitName }]) => limitName!))].sort()) {
    const limit = store.limits.orchestration.get(name)
    // Not what is paused, perhaps for long.
    const ofName = parked.filter(([id, { limitName }]) =>
      limitName === name && (store.locks.get(id)?.untilMs ?? 0) <= now
    )
      .sort(([, one], [, other]) =>
        one.place!.dueAtMs - other.place!.dueAtMs || one.place!.number - other.place!.number
      )
    if (limit === undefined) {
      for (const [id] of ofName) unpark(store, id, false)
      continue
    }
    const notBegun = served.filter(([id, instance]) =>
      instance.limitName === name && instance.place?.isParked === false && (store.locks.get(id)?.untilMs ?? 0) <= now
    )
    const nextMs = bounds.admitOf({
      name,
      limit,
      waiting: ofName.map(([id, instance]) => ({
        key: keyOf(instance),
        isDue: instance.place!.dueAtMs <= now ||
          ![...store.messages.values()].some((one) => one.instanceId === id && tables.dueAtMs(one) > now),
        isWaiting: () => isParked(instance),
        admit: () => unpark(store, id, true)
      })),
      inUse: (key) => count(store, name, key),
      notBegun: () => 0,
      room: most - notBegun.length
    }, now)
    if (nextMs !== undefined) next.push(nextMs)
  }
  return next.length === 0 ? undefined : Math.min(...next)
}

/** Puts the instances of a name under its limit: what runs has a slot, what has not begun waits for one. */
export const limit = (store: tables.Tables, name: string): void => {
  for (const [id, instance] of store.instances) {
    const isOurs = (tables.currentOf(store, id)?.pinned?.major ?? 1) > 0
    if (instance.name !== name || tables.statusOf(store, id) !== "Running" || !isOurs) continue
    instance.limitName = name
    const start = [...store.messages].find(([, one]) => one.instanceId === id && texts.isStart(one.workItem))
    if (start === undefined || start[1].lock !== null || store.history.has(id)) continue
    instance.place ??= {
      dueAtMs: Math.max(start[1].visibleAtMs, start[1].createdAtMs),
      number: Math.abs(start[0]),
      isParked: true
    }
    instance.place.isParked = true
    for (const message of store.messages.values()) {
      if (message.instanceId === id && message.lock === null) message.waits = true
    }
  }
}

export const releaseAll = (store: tables.Tables, name: string): void => {
  for (const [id, instance] of store.instances) {
    if (instance.limitName === name && isParked(instance)) unpark(store, id, false)
  }
}

/** An instance that an operator lets run again, or makes: it waits for no slot, and counts. */
export const counted = (store: tables.Tables, name: string): { readonly limitName?: string } =>
  store.limits.orchestration.has(name) ? { limitName: name } : {}

export const uses = (store: tables.Tables, name: string, now: number): ReadonlyArray<bounds.Use> =>
  [...store.instances].flatMap(([id, instance]): ReadonlyArray<bounds.Use> =>
    instance.limitName !== name || tables.statusOf(store, id) !== "Running"
      ? []
      : !isParked(instance)
      ? [{ key: keyOf(instance), waitsSinceMs: null }]
      : instance.place!.dueAtMs <= now
      ? [{ key: keyOf(instance), waitsSinceMs: instance.place!.dueAtMs }]
      : []
  )

/** What an instance waits for; null if it has a slot, or no limit. */
export const waitOf = (store: tables.Tables, instanceId: string) => {
  const instance = store.instances.get(instanceId)
  if (instance === undefined || !isParked(instance)) return null
  const { dueAtMs, number } = instance.place!
  const ahead =
    [...store.instances.values()].filter((one) =>
      isParked(one) && one.limitName === instance.limitName && keyOf(one) === keyOf(instance) &&
      (one.place!.dueAtMs < dueAtMs || one.place!.dueAtMs === dueAtMs && one.place!.number < number)
    ).length
  return { key: keyOf(instance), ahead }
}

// internal

/** Lets an instance begin: with a slot, or without a limit. */
const unpark = (store: tables.Tables, instanceId: string, hasSlot: boolean): void => {
  const instance = store.instances.get(instanceId)!
  if (hasSlot) instance.place!.isParked = false
  else {
    delete instance.limitName
    delete instance.place
  }
  for (const message of store.messages.values()) if (message.instanceId === instanceId) delete message.waits
}

const limitOf = ({ limits }: tables.Tables, { orchestrationName, pinnedVersion }: StartedInstance) =>
  pinnedVersion.major > 0 ? limits.orchestration.get(orchestrationName) : undefined

const keyOf = ({ limitKey = "" }: tables.Instance): string => limitKey

/** How many have a slot. */
const count = (store: tables.Tables, name: string, key?: string): number =>
  [...store.instances].filter(([id, instance]) =>
    instance.limitName === name && !isParked(instance) && (key === undefined || keyOf(instance) === key) &&
    tables.statusOf(store, id) === "Running"
  ).length
