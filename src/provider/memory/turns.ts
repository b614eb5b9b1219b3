/**
 * Stores turns: in steps over a whole set, as one statement does it, so that no turn sees another one half stored.
 */
import type {
  ActivityKey,
  EncodedMessage,
  HandedOver,
  HandOver,
  OrchestrationAck,
  ProviderDriver,
  Settled,
  StartedInstance,
  UnclaimedTurn
} from "../ProviderDriver.ts"
import * as activities from "./activities.ts"
import { lockOf } from "./claims.ts"
import * as limitedInstances from "./limitedInstances.ts"
import * as limits from "./limits.ts"
import { batchOf, hasDue, insert, queuedStarts, startInstance, waitForSlot } from "./messages.ts"
import * as streams from "./streams.ts"
import * as tables from "./tables.ts"
import * as texts from "./texts.ts"

export const make = (store: tables.Tables) =>
  ({
    ackOrchestrationItems: (acks) =>
      tables.statement((now) => {
        const storing = begin(store, now)
        const answers = acks.map((turn) => ack(store, turn, storing, now))
        storing.finish()
        return answers
      })
  }) satisfies Partial<ProviderDriver["Service"]>

/** The turns that one statement stores. */
export interface Storing {
  /** Stores what a turn says of its own instance, and its activities. */
  readonly store: (
    instanceId: string,
    turn: UnclaimedTurn,
    handOver?: HandOver | null
  ) => ReadonlyArray<HandedOver>
  /** Instances whose batches this statement settles. */
  readonly settled: Set<string>
  /** Stores what the turns do to others: cancellations, then messages. */
  readonly finish: () => void
}

/**
 * Before anything else that the statement does: it looks at who waits already. `cancelled` are the activities that a
 * turn of the set cancels, stored or not: none of them is handed over.
 */
export const begin = (store: tables.Tables, now: number, cancelled: ReadonlyArray<ActivityKey> = []): Storing => {
  const done: Array<StoredTurn> = []
  const settled = new Set<string>()
  const queued = queuedStarts(store)
  const waiting = activities.waiting(store, now)
  const hasSlot = limits.atOnce(store)
  const mayBegin = limitedInstances.atOnce(store, now)
  return {
    store: (instanceId, turn, handOver = null) => {
      storeTurn(store, turn, instanceId, now)
      done.push({ turn, instanceId })
      const ids = turn.workerItems.map((item) => activities.insert(store, item, now, hasSlot))
      return handOver === null ||
          waiting.filter((activity) => activities.isServed(activity, handOver)).length > handOver.spare
        ? []
        : activities.handOver(store, ids, handOver, cancelled, now)
    },
    settled,
    finish: () => finishAll(store, done, settled, queued, mayBegin, now)
  }
}

// internal

interface StoredTurn {
  readonly turn: UnclaimedTurn
  readonly instanceId: string
}

const finishAll = (
  store: tables.Tables,
  done: ReadonlyArray<StoredTurn>,
  settled: ReadonlySet<string>,
  queued: ReadonlySet<string>,
  mayBegin: (start: StartedInstance) => boolean,
  now: number
): void => {
  for (const { turn } of done) turn.cancelledActivities.forEach((key) => cancelActivity(store, key))
  const hasEnded = done.some(({ turn: { status } }) => status === "Completed" || status === "Failed")
  if (hasEnded && store.limits.orchestration.size > 0) tables.announce(store)
  for (const { instanceId, turn } of done) {
    // The timers of an ended execution would wait for their time, wake the instance, and be dropped then.
    if (turn.status !== null && turn.status !== "Running") dropMessages(store, instanceId, now, texts.isTimer)
  }
  for (const { turn } of done) {
    for (const { instanceId, start } of turn.orchestratorItems) {
      if (start !== undefined) startInstance(store, instanceId, start, now, { queued, hasSlot: mayBegin(start) })
    }
  }
  for (const { instanceId, turn } of done) requeue(store, instanceId, turn, now)
  const waiting = new Set(
    done.flatMap(({ turn }) => turn.orchestratorItems.map(({ instanceId }) => instanceId))
      .filter((instanceId) => settled.has(instanceId) || hasDue(store, instanceId, now))
  )
  for (const { turn } of done) {
    for (const item of turn.orchestratorItems) {
      const { instanceId } = item
      const isKnown = store.instances.has(instanceId)
      sendMessage(store, item, now, waiting.has(instanceId) || !isKnown && hasDue(store, instanceId, now))
      if (item.start !== undefined) waitForSlot(store, instanceId)
    }
  }
  for (const { instanceId, turn: { cancelledTimers = [] } } of done) {
    dropMessages(store, instanceId, now, (workItem) => cancelledTimers.includes(workItem))
  }
}

const ack = (store: tables.Tables, turn: OrchestrationAck, storing: Storing, now: number): Settled => {
  const found = lockOf(store, turn.lockToken, now)
  if (found === undefined) return "LockLost"
  const { instanceId, lock } = found
  const { executionId } = turn
  if (executionId !== null) {
    if (tables.hasTaken(store, instanceId, executionId, turn.history)) return "DuplicateEvent"
    storing.store(instanceId, { ...turn, executionId })
  }
  const batch = batchOf(store, instanceId, lock.token)
  for (const [id, message] of batch) {
    if (turn.left?.includes(id) !== true) store.messages.delete(id)
    else {
      message.lock = null
      message.attemptCount = 0
    }
  }
  store.locks.delete(instanceId)
  if (batch.length > 0) storing.settled.add(instanceId)
  return "Done"
}

const storeTurn = (
  store: tables.Tables,
  turn: UnclaimedTurn,
  instanceId: string,
  now: number
) => {
  const { executionId } = turn
  if (turn.orchestrationName !== null && turn.orchestrationVersion !== null) {
    const { orchestrationName } = turn
    const instance = tables.entry(store.instances, instanceId, () => tables.newInstance(orchestrationName, now))
    instance.name = turn.orchestrationName
    instance.version = turn.orchestrationVersion
    instance.parentInstanceId ??= turn.parentInstanceId
  }
  const isNew = tables.executionOf(store, instanceId, executionId) === undefined
  const execution = tables.createExecution(store, instanceId, executionId, now)
  const instance = store.instances.get(instanceId)
  if (instance !== undefined) {
    instance.executionId = Math.max(instance.executionId, executionId)
    instance.updatedAtMs = now
    delete instance.place
    if (isNew || turn.orchestrationName !== null || turn.pinnedVersion !== null) {
      instance.asksFor = instance.version
      instance.takesNewer = false
    }
    if (turn.status === "ContinuedAsNew") {
      instance.takesNewer = (turn.nextVersion ?? null) === null
      instance.asksFor = turn.nextVersion ?? instance.version
    }
    if (turn.customStatus !== null) {
      instance.customStatus = turn.customStatus.value
      instance.customStatusVersion++
    }
  }
  tables.addEvents(store, instanceId, executionId, turn.history)
  if (turn.status !== null) {
    execution.status = turn.status
    execution.output = turn.output
    execution.completedAtMs = turn.status === "Running" ? null : now
  }
  execution.pinned = turn.pinnedVersion ?? execution.pinned
  changeKeyValues(store, turn, instanceId, now)
  if (instance !== undefined) {
    tables.changeAttributes(store, instanceId, turn.attributes)
    streams.storeChunks(store, instanceId, turn, now)
  }
}

const cancelActivity = (store: tables.Tables, key: ActivityKey) => {
  for (const [id, activity] of store.activities) {
    if (activities.isOf(activity, key)) store.activities.delete(id)
  }
}

/** Smaller ids than all others of the instance: first in their batch, and in the first batch. */
const requeue = (store: tables.Tables, instanceId: string, turn: UnclaimedTurn, now: number) => {
  if (turn.status !== "ContinuedAsNew" || turn.requeued === undefined) return
  const events = store.history.get(instanceId)?.get(turn.executionId)
  for (const eventId of [...new Set(turn.requeued)].sort((a, b) => b - a)) {
    const eventData = events?.get(eventId)
    const workItem = eventData === undefined ? undefined : texts.recordedMessage(instanceId, eventData)
    if (workItem === undefined) continue
    const message = { instanceId, workItem, createdAtMs: now, visibleAtMs: now, lock: null, attemptCount: 0 }
    store.messages.set(-(++store.lastRowId), message)
  }
}

const sendMessage = (store: tables.Tables, item: EncodedMessage, now: number, othersWait: boolean) => {
  const message = insert(store, item, now, othersWait)
  // In an ack a time in the past is kept as it is.
  if (item.visibleAtMs !== null && item.delayMs === null) message.visibleAtMs = item.visibleAtMs
}

/** Drops messages that are not due yet. */
const dropMessages = (
  { messages }: tables.Tables,
  instanceId: string,
  now: number,
  isMeant: (workItem: string) => boolean
) => {
  for (const [id, message] of messages) {
    if (message.instanceId === instanceId && !tables.isDue(message, now) && isMeant(message.workItem)) {
      messages.delete(id)
    }
  }
}

const changeKeyValues = (
  { changed, stored }: tables.Tables,
  turn: UnclaimedTurn,
  instanceId: string,
  now: number
) => {
  const { executionId } = turn
  const changes = tables.entry(changed, instanceId, () => new Map<string, tables.ChangedValue>())
  const values = tables.entry(stored, instanceId, () => new Map<string, tables.StoredValue>())
  for (const change of turn.keyValues) {
    if (change.action === "set") {
      changes.set(change.key, { value: change.value, lastUpdatedAtMs: change.lastUpdatedAtMs })
    } else {
      const keys = change.action === "clear_key" ? [change.key] : [...changes.keys(), ...values.keys()]
      for (const key of keys) changes.set(key, { value: null, lastUpdatedAtMs: now })
    }
  }
  if (turn.status === null || turn.status === "Running") return
  for (const [key, { lastUpdatedAtMs, value }] of changes) {
    if (value === null) values.delete(key)
    else values.set(key, { value, lastUpdatedAtMs, executionId })
  }
  changes.clear()
}
