/**
 * The queue of activities, and the sessions that bind some of them to a worker.
 */
import type { BlockReport } from "../../model/Block.ts"
import type { TagFilter } from "../../model/Instance.ts"
import { makeAdmission } from "../ProviderDriver.ts"
import type {
  ActivityKey,
  ClaimedWorkItem,
  EncodedActivity,
  FetchWorkItems,
  HandedOver,
  HandOver,
  ProviderDriver
} from "../ProviderDriver.ts"
import * as limits from "./limits.ts"
import * as messages from "./messages.ts"
import * as tables from "./tables.ts"

export const make = (store: tables.Tables) =>
  ({
    enqueueForWorker: (items) =>
      tables.statement((now) => items.forEach((item) => insert(store, item, now, () => false))),

    fetchWorkItems: (options) => tables.statement((now) => fetch(store, options, now)),

    ackWorkItems: (items) =>
      tables.statement((now) =>
        items.map(({ completion, lockToken }) => {
          if (!end(store, lockToken, now)) return "LockLost"
          if (completion !== null) messages.insert(store, { ...completion, visibleAtMs: null, delayMs: null }, now)
          return "Done"
        })
      ),

    abandonWorkItems: (items) =>
      tables.statement((now) => {
        /** The first of several activities of an instance. */
        const blocks = new Map<string, BlockReport>()
        const settled = items.map(({ block, delayMs, ignoreAttempt, lockToken }) => {
          const found = lockedBy(store, lockToken, "any time")
          if (found === undefined) return "LockLost"
          const { instanceId } = found.activity
          tables.abandon(found.activity, ignoreAttempt)
          if (delayMs !== null && delayMs > 0) tables.delay(found.activity, delayMs, now)
          if (block !== undefined && instanceId !== null && !blocks.has(instanceId)) blocks.set(instanceId, block)
          return "Done"
        })
        for (const [instanceId, block] of blocks) tables.block(store, instanceId, block, now)
        return settled
      }),

    renewWorkItemLocks: (items) =>
      tables.statement((now) =>
        items.map(({ lockToken, sufficientMs = Infinity, ...item }) => {
          const found = lockedBy(store, lockToken, "any time")
          const isSufficient = found?.activity.sessionId === null && found.activity.lock!.untilMs - now >= sufficientMs
          return { ...item, found, isSufficient }
        }).map(({ extendForMs, found, isSufficient }) => {
          if (found === undefined) return "LockLost"
          if (isSufficient) return "Done"
          found.activity.lock!.untilMs = now + extendForMs
          stampSession(store, found.activity, now)
          return "Done"
        })
      ),

    renewSessionLocks: ({ extendForMs, idleTimeoutMs, workerIds }) =>
      tables.statement((now) => {
        const live = [...store.sessions.values()].filter((session) =>
          workerIds.includes(session.workerId) && session.untilMs > now &&
          session.lastActivityAtMs > now - idleTimeoutMs
        )
        for (const session of live) session.untilMs = now + extendForMs
        return live.length
      }),

    cleanupOrphanedSessions: tables.statement((now) => {
      const needed = new Set([...store.activities.values()].map(({ sessionId }) => sessionId))
      const orphans = [...store.sessions].filter(([id, session]) => session.untilMs < now && !needed.has(id))
      for (const [id] of orphans) store.sessions.delete(id)
      return orphans.length
    })
  }) satisfies Partial<ProviderDriver["Service"]>

/** Its row id. One with a limit waits for a slot, unless `hasSlot`. */
export const insert = (
  store: tables.Tables,
  activity: EncodedActivity,
  now: number,
  hasSlot: (activity: EncodedActivity) => boolean
): number => {
  const id = ++store.lastRowId
  const isLimited = limits.limitOf(store, activity) !== undefined
  store.activities.set(id, {
    ...activity,
    ...(isLimited && { limitName: activity.name }),
    visibleAtMs: isLimited && !hasSlot(activity) ? Infinity : now,
    createdAtMs: now,
    lock: null,
    attemptCount: 0
  })
  return id
}

/** Whether its lock is live, and the activity is one of the instance, if one is given. */
export const isHeld = (store: tables.Tables, lockToken: string, now: number, instanceId?: string): boolean => {
  const activity = lockedBy(store, lockToken, now)?.activity
  return activity !== undefined && (instanceId === undefined || activity.instanceId === instanceId)
}

/** The activity of a lock that no other worker has taken over, live or expired. */
export const notTakenOver = (store: tables.Tables, lockToken: string): tables.Activity | undefined =>
  lockedBy(store, lockToken, "any time")?.activity

/** Deletes a claimed activity; false without a live lock. */
export const end = (store: tables.Tables, lockToken: string, now: number): boolean => {
  const found = lockedBy(store, lockToken, now)
  if (found === undefined) return false
  store.activities.delete(found.id)
  stampSession(store, found.activity, now)
  return true
}

/** Activities that a claim without sessions may take now. */
export const waiting = ({ activities }: tables.Tables, now: number): ReadonlyArray<tables.Activity> =>
  [...activities.values()].filter((activity) =>
    activity.sessionId === null && tables.isDue(activity, now) && tables.isFree(activity, now)
  )

export const isServed = (activity: EncodedActivity, { activities, tags }: HandOver): boolean =>
  activities.includes(activity.name) && accepts(tags, activity.tag)

/** Whether it is the activity of a schedule event. */
export const isOf = (activity: EncodedActivity, key: ActivityKey): boolean =>
  activity.instanceId === key.instanceId && activity.executionId === key.executionId &&
  activity.activityId === key.activityId

/** Claims new activities, given by their row ids. */
export const handOver = (
  store: tables.Tables,
  ids: ReadonlyArray<number>,
  request: HandOver,
  cancelled: ReadonlyArray<ActivityKey>,
  now: number
): ReadonlyArray<HandedOver> =>
  ids.map((id, index) => ({ id, index, activity: store.activities.get(id)! }))
    .filter(({ activity }) =>
      activity.sessionId === null && activity.servedBy === undefined && !limits.isParked(activity) &&
      isServed(activity, request) && !cancelled.some((key) => isOf(activity, key))
    )
    .slice(0, request.limit)
    .map(({ activity, id, index }) => ({
      index,
      lockToken: lock(store, id, activity, request.lockTimeoutMs, now),
      ...(activity.limitName !== undefined && { isLimited: true })
    }))

// internal

const fetch = (store: tables.Tables, options: FetchWorkItems, now: number): ReadonlyArray<ClaimedWorkItem> => {
  const { activities: names, limit, lockTimeoutMs, session, suspects, tags, takesOver = true } = options
  const nextMs = limits.admit(store, {
    most: limit,
    isServed: (activity) =>
      accepts(tags, activity.tag) && (names === undefined || names.includes(activity.name)) &&
      mayTakeSession(store, activity, session === null ? null : { ...session, maxNew: Infinity }, now, new Set())
  }, now)
  if (nextMs !== undefined) options.onNext?.(nextMs)
  if ([...store.activities.values()].some(limits.isParked)) options.onAwaited?.()
  const claimed: Array<ClaimedWorkItem> = []
  const bound = new Set<string>()
  const admission = makeAdmission(suspects)
  const inOrder = [...store.activities].sort(([a, one], [b, other]) => one.visibleAtMs - other.visibleAtMs || a - b)
  for (const [id, activity] of inOrder) {
    if (claimed.length === limit) break
    if (!tables.isDue(activity, now) || !tables.isFree(activity, now) || !accepts(tags, activity.tag)) continue
    if (!takesOver && activity.lock !== null) continue
    if (names !== undefined && !names.includes(activity.name)) continue
    if (!mayTakeSession(store, activity, session, now, bound) || !admission(activity.attemptCount)) continue
    takeSession(store, activity, session, now, bound)
    const lockToken = lock(store, id, activity, lockTimeoutMs, now)
    claimed.push({
      workItem: activity.workItem,
      lockToken,
      attemptCount: activity.attemptCount,
      ...(activity.limitName !== undefined && { isLimited: true })
    })
  }
  return claimed
}

/** Locks an activity, and returns the token of the lock. */
const lock = (
  store: tables.Tables,
  id: number,
  activity: tables.Activity,
  lockTimeoutMs: number,
  now: number
): string => {
  const token = `${id}.${++store.lastToken}`
  activity.lock = { token, untilMs: now + lockTimeoutMs }
  activity.attemptCount++
  return token
}

/** The row of a token as it was handed out, `<row id>.<secret>`. */
const lockedBy = ({ activities }: tables.Tables, lockToken: string, now: number | "any time") => {
  const id = Number(lockToken.slice(0, lockToken.indexOf(".")))
  const activity = activities.get(id)
  const isOurs = activity?.lock?.token === lockToken && (now === "any time" || activity.lock.untilMs > now)
  return isOurs ? { id, activity } : undefined
}

const accepts = (filter: TagFilter, tag: string | null): boolean => {
  switch (filter._tag) {
    case "DefaultOnly":
      return tag === null
    case "Tags":
      return tag !== null && filter.tags.includes(tag)
    case "DefaultAnd":
      return tag === null || filter.tags.includes(tag)
    case "Any":
      return true
    case "None":
      return false
  }
}

/** Whether the worker may take the activity. */
const mayTakeSession = (
  { sessions }: tables.Tables,
  activity: tables.Activity,
  request: FetchWorkItems["session"],
  now: number,
  bound: Set<string>
) => {
  if (activity.sessionId === null) return true
  if (request === null) return false
  const session = sessions.get(activity.sessionId)
  if (session !== undefined && session.untilMs > now) return session.workerId === request.workerId
  return bound.has(activity.sessionId) || bound.size < (request.maxNew ?? Infinity)
}

/** Its session is the worker's from now on. */
const takeSession = (
  { sessions }: tables.Tables,
  { sessionId }: tables.Activity,
  request: FetchWorkItems["session"],
  now: number,
  bound: Set<string>
) => {
  if (sessionId === null || request === null) return
  const session = sessions.get(sessionId)
  if (session === undefined || session.untilMs <= now) bound.add(sessionId)
  sessions.set(sessionId, {
    workerId: request.workerId,
    untilMs: now + request.lockTimeoutMs,
    lastActivityAtMs: now
  })
}

const stampSession = ({ sessions }: tables.Tables, activity: tables.Activity, now: number) => {
  const session = activity.sessionId === null ? undefined : sessions.get(activity.sessionId)
  if (session !== undefined && session.untilMs > now) session.lastActivityAtMs = now
}
