/**
 * The queue of messages to instances: what is sent, when it is visible, what a start makes of it.
 */
import type { EncodedMessage, OrchestrationStart, ProviderDriver, StartedInstance } from "../../ProviderDriver.ts"
import * as tables from "./tables.ts"
import * as texts from "./texts.ts"

export const make = (store: tables.Tables) =>
  ({
    enqueueForOrchestrator: (items) =>
      tables.statement((now) =>
        items.forEach((item) => {
          const before = earliest(store, item.instanceId)
          const message = insert(store, item, now)
          if (!texts.begins(item.workItem)) waitForStart(store, message)
          else if (message.visibleAtMs <= now) message.visibleAtMs = Math.min(message.visibleAtMs, before)
        })
      ),

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

/** Visible at the later of its time and the end of its delay. */
export const insert = (store: tables.Tables, item: EncodedMessage, now: number): tables.Message => {
  const { instanceId, workItem } = item
  const visibleAtMs = Math.max(item.visibleAtMs ?? 0, now + (item.delayMs ?? 0))
  const message = { instanceId, workItem, createdAtMs: now, visibleAtMs, lock: null, attemptCount: 0 }
  store.messages.set(++store.lastRowId, message)
  return message
}

/** A time before that of all messages of the instance: what begins an execution is in its first batch. */
export const earliest = (store: tables.Tables, instanceId: string): number =>
  Math.min(
    ...[...store.messages.values()].filter((message) => message.instanceId === instanceId && message.lock === null)
      .map(({ visibleAtMs }) => visibleAtMs - 1)
  )

/** The messages of a batch, by row id. */
export const batchOf = ({ messages }: tables.Tables, instanceId: string, token: string) =>
  [...messages].filter(([, message]) => message.instanceId === instanceId && message.lock?.token === token)

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
  queued: ReadonlySet<string> = queuedStarts(store)
): boolean => {
  if (store.instances.has(instanceId) || store.executions.has(instanceId) || queued.has(instanceId)) return false
  store.instances.set(instanceId, {
    ...tables.newInstance(start.orchestrationName, now),
    asksFor: start.orchestrationVersion,
    parentInstanceId: start.parentInstanceId
  })
  tables.createExecution(store, instanceId, 1, now).pinned = start.pinnedVersion
  return true
}

/** The message of a start, in front of those that came before. */
export const insertStart = (
  store: tables.Tables,
  { delayMs, instanceId, workItem }: OrchestrationStart,
  now: number
): void => {
  const before = earliest(store, instanceId)
  const earlier = [...store.messages.values()].filter((message) =>
    message.instanceId === instanceId && message.lock === null
  )
  const first = insert(store, { instanceId, workItem, visibleAtMs: null, delayMs }, now)
  if (first.visibleAtMs <= now) first.visibleAtMs = Math.min(now, before)
  const delay = first.visibleAtMs + 1 - now
  for (const message of earlier) {
    if (delay > 1 && message.visibleAtMs <= message.createdAtMs) tables.delay(message, delay, now)
    else message.visibleAtMs = Math.max(message.visibleAtMs, first.visibleAtMs + 1)
  }
}

/** What the instance, or else the message, asks for; undefined when neither says which orchestration it is. */
export const askedBy = ({ instances }: tables.Tables, { instanceId, workItem }: tables.Message) =>
  instances.get(instanceId) ?? texts.asked(workItem)

// internal

/** A message for an instance that has not begun waits for a start that is not due yet. */
const waitForStart = ({ history, instances, messages }: tables.Tables, message: tables.Message) => {
  if (!instances.has(message.instanceId) || history.has(message.instanceId)) return
  // One that is not to wait may be of the future: the clock was set back.
  const starts = [...messages.values()].filter(({ createdAtMs, instanceId, visibleAtMs, workItem }) =>
    instanceId === message.instanceId && visibleAtMs > createdAtMs && texts.isStart(workItem)
  )
  const last = Math.max(...starts.map(({ visibleAtMs }) => visibleAtMs))
  if (last > message.visibleAtMs) message.visibleAtMs = last + 1
}
