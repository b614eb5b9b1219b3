/**
 * Claims of instances, and what ends them without a turn.
 */
import * as coreVersion from "../../model/shared/coreVersion.ts"
import { isOlder } from "../../model/shared/versions.ts"
import { makeAdmission } from "../ProviderDriver.ts"
import type { ClaimedInstance, FetchOrchestrationItems, ProviderDriver } from "../ProviderDriver.ts"
import * as limitedInstances from "./limitedInstances.ts"
import { isParked } from "./limits.ts"
import { askedBy, batchOf, startsLater } from "./messages.ts"
import * as tables from "./tables.ts"
import * as texts from "./texts.ts"

export const make = (store: tables.Tables) =>
  ({
    fetchOrchestrationItems: (options) => tables.statement((now) => fetch(store, options, now)),

    abandonOrchestrationItems: (items) =>
      tables.statement((now) =>
        items.map(({ beginsFirst, block, delayMs, ignoreAttempt, lockToken }) => {
          const found = lockOf(store, lockToken, "any time")
          if (found === undefined) return "LockLost"
          const hasBegun = beginsFirst === true && putBeginFirst(store, found, now)
          const isPaused = delayMs !== null && delayMs > 0 && !hasBegun
          for (const [, message] of batchOf(store, found.instanceId, lockToken)) tables.abandon(message, ignoreAttempt)
          if (block !== undefined) tables.block(store, found.instanceId, block, now)
          // A pause is a lock without a holder: what comes meanwhile waits behind the batch.
          if (isPaused) store.locks.set(found.instanceId, { token: "", untilMs: now + delayMs })
          else store.locks.delete(found.instanceId)
          return "Done"
        })
      ),

    wakeBlocked: ({ activities, orchestrations }) =>
      tables.statement((now) => {
        let count = 0
        for (const instanceId of store.blocks.keys()) {
          if (tables.blockOf(store, instanceId) === undefined) {
            store.blocks.delete(instanceId)
            continue
          }
          const { eventId, executionId } = store.blocks.get(instanceId)!
          for (const activity of store.activities.values()) {
            const isIt = activity.instanceId === instanceId && activity.executionId === executionId &&
              activity.activityId === eventId
            if (
              !isIt || activity.visibleAtMs <= now || isParked(activity) || !activities.includes(activity.name ?? "")
            ) continue
            activity.visibleAtMs = now
            count++
          }
          const lock = store.locks.get(instanceId)
          const isPaused = lock !== undefined && lock.token === "" && lock.untilMs > now &&
            lock.untilMs < tables.noEndMs
          if (!isPaused || !orchestrations.includes(store.instances.get(instanceId)!.name)) continue
          store.locks.delete(instanceId)
          count++
        }
        return count
      }),

    renewOrchestrationItemLocks: (items) =>
      tables.statement((now) =>
        items.map(({ extendForMs, lockToken }) => {
          const found = lockOf(store, lockToken, "any time")
          if (found === undefined) return "LockLost"
          found.lock.untilMs = now + extendForMs
          return "Done"
        })
      ),

    deferMessages: (items) =>
      tables.statement((now) =>
        items.map(({ delayMs, ids, lockToken }) => {
          const found = lockOf(store, lockToken, "any time")
          if (found === undefined) return "LockLost"
          for (const [id, message] of batchOf(store, found.instanceId, lockToken)) {
            if (!ids.includes(id)) continue
            tables.abandon(message, true)
            tables.delay(message, delayMs, now)
          }
          return "Done"
        })
      )
  }) satisfies Partial<ProviderDriver["Service"]>

/** The lock of a token as it was handed out, `<secret>.<instance>`; expired ones only where that does not matter. */
export const lockOf = ({ locks }: tables.Tables, lockToken: string, now: number | "any time") => {
  const instanceId = lockToken.slice(lockToken.indexOf(".") + 1)
  const lock = locks.get(instanceId)
  const isOurs = lock?.token === lockToken && (now === "any time" || lock.untilMs > now)
  return isOurs ? { instanceId, lock } : undefined
}

// internal

/** Puts what begins an execution, is due and not in the batch, in front of all messages; whether there is any. */
const putBeginFirst = (
  store: tables.Tables,
  { instanceId, lock: { token } }: Exclude<ReturnType<typeof lockOf>, undefined>,
  now: number
): boolean => {
  const { messages } = store
  const meant = [...messages].filter(([, message]) =>
    message.instanceId === instanceId && texts.begins(message.workItem) && tables.isDue(message, now) &&
    message.lock?.token !== token
  ).sort(([a], [b]) => b - a)
  for (const [id, message] of meant) {
    messages.delete(id)
    messages.set(-(++store.lastRowId), message)
    message.visibleAtMs = Math.min(message.visibleAtMs, message.createdAtMs)
  }
  return meant.length > 0
}

const defaultMaxBytes = 16 * 1024 * 1024

const fetch = (
  store: tables.Tables,
  options: FetchOrchestrationItems,
  now: number
): ReadonlyArray<ClaimedInstance> => {
  const isServedHere = (instanceId: string) => {
    const start = [...store.messages.values()].find((message) => message.instanceId === instanceId)
    return start !== undefined && isFor(store, start, options)
  }
  if ([...store.instances].some(([id, instance]) => limitedInstances.isParked(instance) && isServedHere(id))) {
    options.onAwaited?.()
  }
  const nextMs = limitedInstances.admit(store, options, isServedHere, now)
  if (nextMs !== undefined) options.onNext?.(nextMs)
  const claimed = claimVisible(store, options, now)
  return claimed.length === 0 && bringForward(store, options, now) ? claimVisible(store, options, now) : claimed
}

/** Gives messages that are not to wait the present time, if a clock that was set back has delayed them. */
const bringForward = (store: tables.Tables, options: FetchOrchestrationItems, now: number): boolean => {
  const delayed = [...store.messages.values()].filter((message) =>
    message.visibleAtMs > now && message.waits === undefined && tables.isDue(message, now) &&
    isFor(store, message, options) &&
    // Unless it arrives with a start that is to wait.
    (store.history.has(message.instanceId) || !startsLater(store, message.instanceId, now))
  )
  for (const message of delayed) message.visibleAtMs = now
  return delayed.length > 0
}

const claimVisible = (
  store: tables.Tables,
  options: FetchOrchestrationItems,
  now: number
): ReadonlyArray<ClaimedInstance> => {
  const { limit, maxBytes = defaultMaxBytes, suspects, takesOver = true } = options
  const visibleNow = () =>
    [...store.messages]
      .filter(([, message]) =>
        message.visibleAtMs <= now && message.waits === undefined && isFor(store, message, options)
      )
      .sort(([a, one], [b, other]) => one.visibleAtMs - other.visibleAtMs || a - b)
      .map(([, message]) => message)
  const claimed: Array<ClaimedInstance> = []
  const admission = makeAdmission(suspects)
  const seen = new Set<string>()
  let bytes = 0
  let visible = visibleNow()
  let ids = [...new Set(visible.map(({ instanceId }) => instanceId))]
  while (ids.length > 0) {
    const instanceId = ids.shift()!
    if (claimed.length === limit || bytes >= maxBytes) break
    const lock = store.locks.get(instanceId)
    if (lock !== undefined && (lock.untilMs > now || !takesOver && lock.token !== "")) continue
    const instance = store.instances.get(instanceId)
    if (instance !== undefined && limitedInstances.isParked(instance)) {
      if (!limitedInstances.meet(store, instanceId)) continue
      // It goes: it may be older than those that come now.
      visible = visibleNow()
      ids = [...new Set(visible.map(({ instanceId }) => instanceId))].filter((id) => !seen.has(id))
      continue
    }
    seen.add(instanceId)
    const first = visible.find((message) => message.instanceId === instanceId)!
    if (!admission(first.attemptCount)) continue
    const item = claim(store, instanceId, options, now, maxBytes - bytes)
    if (item === undefined) {
      // As in PostgreSQL, where the claim takes the lock over before it looks for free messages.
      store.locks.delete(instanceId)
      continue
    }
    claimed.push(item)
    bytes += tables.bytesOf(item.messages.map(({ workItem }) => workItem))
  }
  return claimed
}

const claim = (
  store: tables.Tables,
  instanceId: string,
  { historyLimit, lockTimeoutMs }: FetchOrchestrationItems,
  now: number,
  maxBytes: number
): ClaimedInstance | undefined => {
  const batch = upTo(
    maxBytes,
    // The instance is not locked, so a lock on one of its messages belongs to a holder that has lost the instance.
    [...store.messages].filter(([, message]) => message.instanceId === instanceId && tables.isDue(message, now))
  )
  if (batch.length === 0) return undefined
  const lock = { token: `${++store.lastToken}.${instanceId}`, untilMs: now + lockTimeoutMs }
  store.locks.set(instanceId, lock)
  for (const [, message] of batch) {
    message.lock = lock
    message.attemptCount++
  }
  const instance = store.instances.get(instanceId)
  const executionId = instance?.executionId ?? Math.max(1, tables.newestExecution(store, instanceId))
  const history = tables.historyOf(store, instanceId, executionId)
  const isWholeHistory = historyLimit === undefined || instance === undefined ||
    (tables.lastEventId(store, instanceId, executionId) <= historyLimit && tables.bytesOf(history) <= maxBytes)
  return {
    instanceId,
    lockToken: lock.token,
    nowMs: now,
    instance: instance === undefined
      ? null
      : { orchestrationName: instance.name, orchestrationVersion: instance.version },
    executionId,
    history: isWholeHistory ? history : history.slice(-1),
    isWholeHistory,
    messages: batch.map(([id, { attemptCount, createdAtMs, workItem }]) => ({
      id,
      workItem,
      enqueuedAtMs: createdAtMs,
      attemptCount
    })),
    keyValues: [...store.stored.get(instanceId) ?? []].map(([key, { lastUpdatedAtMs, value }]) => ({
      key,
      value,
      lastUpdatedAtMs
    }))
  }
}

/** Whether the claim may take the message. */
const isFor = (
  store: tables.Tables,
  message: tables.Message,
  { orphans = false, serves, versions }: FetchOrchestrationItems
): boolean => {
  const { instanceId } = message
  const pinned = tables.currentOf(store, instanceId)?.pinned ?? null
  if (versions !== null && pinned !== null && !coreVersion.isWithin(pinned, versions)) return false
  return isServed(store, message, serves) ?? (serves === undefined && (orphans || store.history.has(instanceId)))
}

/** Whether a process that serves `served` may take the message; undefined when nothing says what it is for. */
const isServed = (
  store: tables.Tables,
  message: tables.Message,
  served: FetchOrchestrationItems["serves"]
): boolean | undefined => {
  const asked = askedBy(store, message)
  if (asked === undefined) return undefined
  return served === undefined || served.some(({ name, versions }) =>
    name === asked.name && (
      asked.asksFor === null || versions.includes(asked.asksFor) ||
      (asked.takesNewer && versions.some((version) => !isOlder(version, asked.asksFor!)))
    )
  )
}

/** The first ones to become visible, until they have so many bytes of text; at least one. In the order of ids. */
const upTo = (maxBytes: number, batch: ReadonlyArray<[number, tables.Message]>) => {
  let bytes = 0
  return tables.inPlace(batch)
    .filter(([, { workItem }]) => {
      const isWithin = bytes < maxBytes
      bytes += tables.bytesOf([workItem])
      return isWithin
    })
    .sort(([a], [b]) => a - b)
}
