/**
 * The queue of messages to instances: what is sent, when it is visible, what a start makes of it.
 */
import type { EncodedMessage, OrchestrationStart, ProviderDriver, StartedInstance } from "../ProviderDriver.ts"
import * as limitedInstances from "./limitedInstances.ts"
import * as tables from "./tables.ts"
import * as texts from "./texts.ts"

export const make = (store: tables.Tables) =>
  ({
    enqueueForOrchestrator: (items) => tables.statement((now) => items.map((item) => enqueue(store, item, now))),

    sweepMessages: ({ maxAgeMs }) =>
      tables.statement((now) => {
        let deleted = 0
        const begun = queuedStarts(store)
        for (const [id, message] of store.messages) {
          const { instanceId, visibleAtMs } = message
          if (visibleAtMs > now - maxAgeMs || store.history.has(instanceId) || begun.has(instanceId)) continue
          if (askedBy(store, message) !== undefined) continue
          store.messages.delete(id)
          deleted++
        }
        return { deleted, next: null }
      })
  }) satisfies Partial<ProviderDriver["Service"]>

/** Inserts a message, unless its instance is full. */
export const enqueue = (store: tables.Tables, item: EncodedMessage, now: number): "Sent" | "Full" => {
  if (isFull(store, item)) return "Full"
  const message = insert(store, item, now, hasDue(store, item.instanceId, now))
  if (!texts.begins(item.workItem)) waitForStart(store, message)
  return "Sent"
}

/**
 * Inserts a message that is visible at the later of its time and the end of its delay. One that begins an execution
 * gets a smaller id than all that wait for the instance, so that it is in the first batch.
 */
export const insert = (
  store: tables.Tables,
  item: EncodedMessage,
  now: number,
  othersWait = false
): tables.Message => {
  const { instanceId, workItem } = item
  const visibleAtMs = Math.max(item.visibleAtMs ?? 0, now + (item.delayMs ?? 0))
  const message = { instanceId, workItem, createdAtMs: now, visibleAtMs, lock: null, attemptCount: 0 }
  const isFirst = othersWait && visibleAtMs <= now && texts.begins(workItem)
  store.messages.set(++store.lastRowId * (isFirst ? -1 : 1), message)
  return message
}

/** Whether messages of the instance are due. */
export const hasDue = ({ messages }: tables.Tables, instanceId: string, now: number): boolean =>
  [...messages.values()].some((message) => message.instanceId === instanceId && tables.isDue(message, now))

/** The messages of a batch, by row id. */
export const batchOf = ({ messages }: tables.Tables, instanceId: string, token: string) =>
  [...messages].filter(([, message]) => message.instanceId === instanceId && message.lock?.token === token)

/** Whether the start of the instance is to wait: messages in front of it arrive with it. */
export const startsLater = ({ messages }: tables.Tables, instanceId: string, now: number): boolean =>
  [...messages.values()].some((message) =>
    message.instanceId === instanceId && texts.isStart(message.workItem) && !tables.isDue(message, now)
  )

/** Ids whose start has not been claimed, or not been answered by a turn. */
export const queuedStarts = ({ messages }: tables.Tables): ReadonlySet<string> =>
  new Set(
    [...messages.values()].filter(({ workItem }) => texts.isStart(workItem)).map(({ instanceId }) => instanceId)
  )

/** Creates the instance where the id is free; false where it is taken. */
export const startInstance = (
  store: tables.Tables,
  instanceId: string,
  start: StartedInstance,
  now: number,
  { dueAtMs = now, hasSlot, queued = queuedStarts(store) }: {
    readonly queued?: ReadonlySet<string>
    /** Whether it need not wait for a slot of its limit. */
    readonly hasSlot: boolean
    readonly dueAtMs?: number
  }
): boolean => {
  if (store.instances.has(instanceId) || store.executions.has(instanceId) || queued.has(instanceId)) return false
  store.instances.set(instanceId, {
    ...tables.newInstance(start.orchestrationName, now),
    asksFor: start.orchestrationVersion,
    parentInstanceId: start.parentInstanceId,
    ...limitedInstances.rowOf(store, start, hasSlot, dueAtMs)
  })
  tables.createExecution(store, instanceId, 1, now).pinned = start.pinnedVersion
  tables.changeAttributes(store, instanceId, start.attributes)
  return true
}

/** The message of a start, in front of those that came before. */
export const insertStart = (
  store: tables.Tables,
  { delayMs, instanceId, startAtMs, workItem }: OrchestrationStart,
  now: number
): void => {
  const earlier = [...store.messages.values()].filter((message) =>
    message.instanceId === instanceId && message.lock === null
  )
  const first = insert(
    store,
    { instanceId, workItem, visibleAtMs: startAtMs ?? null, delayMs },
    now,
    hasDue(store, instanceId, now)
  )
  waitForSlot(store, instanceId)
  if (first.visibleAtMs <= now) return
  for (const message of earlier) {
    if (first.visibleAtMs > tables.dueAtMs(message)) arriveWith(first, message)
  }
}

/** What came before or with a start that waits for a slot of its limit waits with it. */
export const waitForSlot = ({ instances, messages }: tables.Tables, instanceId: string): void => {
  const instance = instances.get(instanceId)
  if (instance === undefined || !limitedInstances.isParked(instance)) return
  for (const message of messages.values()) {
    if (message.instanceId === instanceId && message.lock === null) message.waits = true
  }
}

/** What the instance, or else the message, asks for; undefined when neither says which orchestration it is. */
export const askedBy = ({ instances }: tables.Tables, { instanceId, workItem }: tables.Message) =>
  instances.get(instanceId) ?? texts.asked(workItem)

// internal

const isFull = (store: tables.Tables, { bounds, instanceId }: EncodedMessage): boolean => {
  if (bounds === undefined) return false
  const executionId = store.instances.get(instanceId)?.executionId ?? 1
  if (tables.lastEventId(store, instanceId, executionId) >= bounds.mostEvents) return true
  if (store.messages.size < bounds.mostWaiting) return false
  const waiting = [...store.messages.values()].filter((message) => message.instanceId === instanceId).length
  return waiting >= bounds.mostWaiting
}

/**
 * A message for an instance that has not begun waits for a start that is not due yet; but the start comes with what
 * ends the instance.
 */
const waitForStart = ({ history, instances, messages }: tables.Tables, message: tables.Message) => {
  if (!instances.has(message.instanceId) || history.has(message.instanceId)) return
  const starts = [...messages.values()].filter((one) =>
    one.instanceId === message.instanceId && tables.dueAtMs(one) > message.visibleAtMs && texts.isStart(one.workItem)
  ).sort((one, other) => other.visibleAtMs - one.visibleAtMs)
  if (starts[0] === undefined) return
  if (!texts.ends(message.workItem)) return arriveWith(starts[0], message)
  for (const start of starts) start.createdAtMs = start.visibleAtMs = message.visibleAtMs
}

/** A message in front of a start that is to wait: it does not wait once the start is there. */
const arriveWith = (start: tables.Message, message: tables.Message) => {
  message.createdAtMs = message.visibleAtMs = start.visibleAtMs + 1
}
