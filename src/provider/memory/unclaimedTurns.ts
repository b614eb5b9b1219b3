/**
 * Turns that are stored without a claim: with the results that lead to them, or with the start of their instance.
 */
import { clockTolerance } from "../ProviderDriver.ts"
import type {
  HandedOver,
  OptimisticAnswer,
  OptimisticTurn,
  OrchestrationStart,
  ProviderDriver,
  StartAnswer,
  UnclaimedTurn
} from "../ProviderDriver.ts"
import * as activities from "./activities.ts"
import * as deletions from "./deletions.ts"
import * as limitedInstances from "./limitedInstances.ts"
import { enqueue, insert, insertStart, queuedStarts, startInstance } from "./messages.ts"
import * as tables from "./tables.ts"
import * as turns from "./turns.ts"

export const make = (store: tables.Tables) =>
  ({
    advanceOrchestrations: (optimistic) => tables.statement((now) => advanceAll(store, optimistic, now)),

    startOrchestrations: (starts) => tables.statement((now) => startAll(store, starts, now))
  }) satisfies Partial<ProviderDriver["Service"]>

// internal

const advanceAll = (
  store: tables.Tables,
  optimistic: ReadonlyArray<OptimisticTurn>,
  now: number
): ReadonlyArray<OptimisticAnswer> => {
  const storing = turns.begin(store, now, optimistic.flatMap(({ turn }) => turn.cancelledActivities))
  const advanced = new Set<string>()
  const stored = optimistic.map((one) => {
    const { handOver, instanceId, results, turn } = one
    if (advanced.has(instanceId) || !isWhereBelieved(store, one, now)) return null
    advanced.add(instanceId)
    for (const { lockToken } of results) activities.end(store, lockToken, now)
    return storing.store(instanceId, turn, handOver)
  })
  storing.finish()
  return optimistic.map(({ instanceId, results, turn }, position): OptimisticAnswer => {
    const handedOver = stored[position]!
    return handedOver !== null
      ? { _tag: "Advanced", nowMs: now, handedOver }
      : {
        _tag: "Queued",
        results: results.map(({ lockToken, workItem }) => {
          if (!activities.end(store, lockToken, now)) return "LockLost"
          insert(store, { instanceId, workItem, visibleAtMs: null, delayMs: null }, now)
          return "Done"
        }),
        ...(isMistimed(turn, now) && { nowMs: now })
      }
  })
}

const isWhereBelieved = (
  store: tables.Tables,
  { instanceId, lastEvent, lastEventId, results, turn }: OptimisticTurn,
  now: number
): boolean => {
  const { executionId, history } = turn
  return !isMistimed(turn, now) && !store.locks.has(instanceId) &&
    ![...store.messages.values()].some((message) => message.instanceId === instanceId && tables.isDue(message, now)) &&
    store.instances.get(instanceId)?.executionId === executionId &&
    tables.executionOf(store, instanceId, executionId)?.status === "Running" &&
    tables.lastEventId(store, instanceId, executionId) === lastEventId &&
    store.history.get(instanceId)?.get(executionId)?.get(lastEventId) === lastEvent &&
    !tables.hasTaken(store, instanceId, executionId, history) &&
    new Set(results.map(({ lockToken }) => lockToken)).size === results.length &&
    results.every(({ lockToken }) => activities.isHeld(store, lockToken, now, instanceId))
}

/** Whether the caller takes another time for the store's clock. */
const isMistimed = ({ clockMs }: UnclaimedTurn, now: number): boolean =>
  clockMs !== undefined && Math.abs(clockMs() - now) > clockTolerance

const startAll = (
  store: tables.Tables,
  starts: ReadonlyArray<OrchestrationStart>,
  now: number
): ReadonlyArray<StartAnswer> => {
  for (const { instanceId, replaces } of starts) {
    if (replaces !== undefined) deletions.removeEnded(store, instanceId, replaces)
  }
  const storing = turns.begin(store, now, starts.flatMap(({ firstTurn }) => firstTurn?.turn.cancelledActivities ?? []))
  const queued = queuedStarts(store)
  const mayBegin = limitedInstances.atOnce(store, now)
  const answers = starts.map((start): Exclude<StartAnswer, { _tag: "Begun" }> | ReadonlyArray<HandedOver> => {
    const { attributes = [], firstTurn, instanceId, orchestrationName, orchestrationVersion, pinnedVersion } = start
    const created = {
      orchestrationName,
      orchestrationVersion,
      pinnedVersion,
      parentInstanceId: null,
      attributes,
      ...(start.limitKey !== undefined && { limitKey: start.limitKey })
    }
    const dueAtMs = Math.max(now, start.startAtMs ?? 0, now + (start.delayMs ?? 0))
    const hasSlot = dueAtMs <= now && mayBegin(created)
    if (!startInstance(store, instanceId, created, now, { queued, hasSlot, dueAtMs })) return "AlreadyExists"
    const isOff = firstTurn !== undefined && isMistimed(firstTurn.turn, now)
    const isWaiting = limitedInstances.isParked(store.instances.get(instanceId)!)
    if (firstTurn !== undefined && !isOff && !isWaiting && isUntouched(store, start)) {
      return storing.store(instanceId, firstTurn.turn, firstTurn.handOver)
    }
    insertStart(store, start, now)
    return isOff ? { _tag: "Started", nowMs: now } : "Started"
  })
  storing.finish()
  return answers.map((answer, i) => {
    if (typeof answer !== "string" && !("nowMs" in answer)) {
      return { _tag: "Begun", nowMs: now, handedOver: answer }
    }
    const { instanceId, message } = starts[i]!
    return message === undefined ? answer : send(store, instanceId, message, answer, now)
  })
}

/** Sends the message of a start to its instance, or to the one that runs under its id. */
const send = (
  store: tables.Tables,
  instanceId: string,
  { bounds, workItem }: NonNullable<OrchestrationStart["message"]>,
  answer: Exclude<StartAnswer, { _tag: "Begun" }>,
  now: number
): StartAnswer => {
  const isNew = answer !== "AlreadyExists"
  if (!isNew && deletions.hasEnded(store, instanceId)) return "Ended"
  const bounded = bounds !== undefined && !isNew && { bounds }
  return enqueue(store, { instanceId, workItem, visibleAtMs: null, delayMs: null, ...bounded }, now) === "Full"
    ? "Full"
    : answer
}

/** Whether the first turn can be stored: nothing waits for the instance, and nothing was written of it. */
const isUntouched = (store: tables.Tables, { delayMs, firstTurn, instanceId }: OrchestrationStart): boolean =>
  firstTurn!.turn.executionId === 1 && !(delayMs !== null && delayMs > 0) && !store.locks.has(instanceId) &&
  !store.history.has(instanceId) &&
  ![...store.messages.values()].some((message) => message.instanceId === instanceId) &&
  !tables.hasTaken(store, instanceId, firstTurn!.turn.executionId, firstTurn!.turn.history)
