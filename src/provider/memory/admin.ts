/**
 * The management driver over the tables of the memory driver.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { AdminDriver } from "../AdminDriver.ts"
import type { DeleteOutcome, HoldOutcome, Listing, Selection } from "../AdminDriver.ts"
import * as tables from "./tables.ts"
import * as texts from "./texts.ts"

export const make = (store: tables.Tables): AdminDriver["Service"] =>
  AdminDriver.of({ ...reads(store), ...deletions(store) })

const reads = (store: tables.Tables) => {
  const { activities, executions, history, instances, messages } = store
  return {
    listInstances: (listing) =>
      Effect.sync(() =>
        newestFirst(store).filter((id) => isListed(store, id, listing)).slice(0, listing.limit ?? undefined)
      ),

    readInstances: (instanceIds) =>
      Effect.sync(() => instanceIds.flatMap((instanceId) => tables.stateOf(store, instanceId) ?? [])),

    listExecutions: (instanceId) =>
      Effect.sync(() => [...executions.get(instanceId)?.keys() ?? []].sort((a, b) => a - b)),

    readExecution: ({ executionId, instanceId }) =>
      Effect.sync(() => {
        const execution = tables.executionOf(store, instanceId, executionId)
        if (execution === undefined) return null
        const { completedAtMs, output, startedAtMs, status } = execution
        const eventCount = history.get(instanceId)?.get(executionId)?.size ?? 0
        return { executionId, status, output, startedAtMs, completedAtMs, eventCount }
      }),

    systemMetrics: Effect.sync(() => {
      const count = (status: string) =>
        [...instances.keys()].filter((id) => currentOf(store, id)?.status === status).length
      const all = [...history.values()].flatMap((ofInstance) => [...ofInstance.values()])
      return {
        totalInstances: instances.size,
        totalExecutions: [...executions.values()].reduce((sum, ofInstance) => sum + ofInstance.size, 0),
        runningInstances: count("Running"),
        completedInstances: count("Completed"),
        failedInstances: count("Failed"),
        totalEvents: all.reduce((sum, events) => sum + events.size, 0)
      }
    }),

    queueDepths: Effect.map(Clock.currentTimeMillis, (now) => {
      const depth = (rows: Iterable<tables.Queued>) =>
        [...rows].filter((row) => row.visibleAtMs <= now && tables.isFree(row, now)).length
      return { orchestratorQueue: depth(messages.values()), workerQueue: depth(activities.values()) }
    }),

    listChildren: (instanceIds) => Effect.sync(() => childrenOf(store, instanceIds)),

    selectInstances: (selection) =>
      Effect.sync(() => [...instances.keys()].filter((id) => matches(store, id, selection)).slice(0, selection.limit))
  } satisfies Partial<AdminDriver["Service"]>
}

const deletions = (store: tables.Tables) => {
  const { executions, history, instances, locks } = store
  return {
    holdInstances: ({ holdForMs, instanceIds, mustHaveEnded }) =>
      Effect.map(Clock.currentTimeMillis, (now): HoldOutcome => {
        const running = mustHaveEnded.find((id) => !hasEnded(store, id))
        if (running !== undefined) return { _tag: "StillRunning", instanceId: running }
        for (const id of instanceIds) {
          // No claim hands out such a token.
          if (!hasEnded(store, id)) locks.set(id, { token: "held", untilMs: now + holdForMs })
        }
        return {
          _tag: "Held",
          childIds: [...new Set([...childrenOf(store, instanceIds), ...queuedChildrenOf(store, instanceIds)])]
        }
      }),

    deleteInstances: ({ instanceIds, mustHaveEnded }) =>
      Effect.sync((): DeleteOutcome => {
        const running = mustHaveEnded.find((id) => !hasEnded(store, id))
        if (running !== undefined) return { _tag: "StillRunning", instanceId: running }
        const left = [...childrenOf(store, instanceIds), ...queuedChildrenOf(store, instanceIds)]
          .find((id) => !instanceIds.includes(id))
        return left === undefined ? remove(store, instanceIds) : { _tag: "ChildLeftBehind", instanceId: left }
      }),

    pruneExecutions: ({ completedBeforeMs, instanceId, keepLast }) =>
      Effect.sync(() => {
        const ofInstance = executions.get(instanceId)
        const current = instances.get(instanceId)?.executionId
        const newest = [...ofInstance?.keys() ?? []].sort((a, b) => b - a).slice(0, keepLast ?? 0)
        let executionsDeleted = 0
        let eventsDeleted = 0
        for (const [executionId, { completedAtMs, status }] of ofInstance ?? []) {
          const ended = completedBeforeMs === null || (completedAtMs !== null && completedAtMs < completedBeforeMs)
          if (executionId === current || status === "Running" || newest.includes(executionId) || !ended) continue
          ofInstance!.delete(executionId)
          executionsDeleted++
          eventsDeleted += history.get(instanceId)?.get(executionId)?.size ?? 0
          history.get(instanceId)?.delete(executionId)
        }
        // An empty map would count as an execution.
        if (ofInstance?.size === 0) executions.delete(instanceId)
        return { executionsDeleted, eventsDeleted }
      })
  } satisfies Partial<AdminDriver["Service"]>
}

// internal

const currentOf = (store: tables.Tables, instanceId: string) =>
  tables.executionOf(store, instanceId, store.instances.get(instanceId)?.executionId ?? 0)

const hasEnded = (store: tables.Tables, instanceId: string): boolean => {
  const status = currentOf(store, instanceId)?.status ?? "Running"
  const isKnown = store.instances.has(instanceId)
  if (isKnown && status !== "ContinuedAsNew") return status !== "Running"
  const goesOn = isKnown ? texts.isContinueAsNew : texts.isStart
  return ![...store.messages.values()].some((message) => message.instanceId === instanceId && goesOn(message.workItem))
}

const newestFirst = ({ instances }: tables.Tables) =>
  [...instances].sort(([, a], [, b]) => b.createdAtMs - a.createdAtMs).map(([id]) => id)

const isListed = (store: tables.Tables, instanceId: string, listing: Listing) => {
  const { name, parentInstanceId } = store.instances.get(instanceId)!
  return (listing.status === null || currentOf(store, instanceId)?.status === listing.status) &&
    (listing.orchestrationName === null || name === listing.orchestrationName) &&
    (listing.parentInstanceId === null || parentInstanceId === listing.parentInstanceId) &&
    (listing.idPrefix === null || instanceId.startsWith(listing.idPrefix))
}

const childrenOf = ({ instances }: tables.Tables, instanceIds: ReadonlyArray<string>) => {
  const parents = new Set(instanceIds)
  return [...instances].filter(([, { parentInstanceId }]) => parentInstanceId !== null && parents.has(parentInstanceId))
    .map(([id]) => id)
}

/** Targets of queued starts, not begun, whose parent is one of these. */
const queuedChildrenOf = ({ instances, messages }: tables.Tables, instanceIds: ReadonlyArray<string>) => {
  const parents = new Set(instanceIds.map((instanceId) => JSON.stringify(instanceId)))
  return [...messages.values()].flatMap(({ instanceId, workItem }) => {
    const isChild = texts.isStart(workItem) && parents.has(texts.parentOf(workItem))
    return isChild && !instances.has(instanceId) ? [instanceId] : []
  })
}

const matches = (store: tables.Tables, instanceId: string, selection: Selection) => {
  const completedAtMs = currentOf(store, instanceId)?.completedAtMs ?? null
  return (selection.instanceIds?.includes(instanceId) ?? true) &&
    (selection.completedBeforeMs === null ||
      (completedAtMs !== null && completedAtMs < selection.completedBeforeMs)) &&
    (!selection.endedRootsOnly ||
      (store.instances.get(instanceId)?.parentInstanceId === null && hasEnded(store, instanceId)))
}

const remove = (
  { activities, changed, executions, history, instances, locks, messages, stored }: tables.Tables,
  instanceIds: ReadonlyArray<string>
): DeleteOutcome => {
  const deleted = { instancesDeleted: 0, executionsDeleted: 0, eventsDeleted: 0, queueMessagesDeleted: 0 }
  for (const instanceId of new Set(instanceIds)) {
    deleted.executionsDeleted += executions.get(instanceId)?.size ?? 0
    for (const events of history.get(instanceId)?.values() ?? []) deleted.eventsDeleted += events.size
    for (const queue of [messages, activities]) {
      for (const [id, row] of queue) {
        if (row.instanceId === instanceId && queue.delete(id)) deleted.queueMessagesDeleted++
      }
    }
    if (instances.delete(instanceId)) deleted.instancesDeleted++
    for (const table of [executions, history, locks, stored, changed]) table.delete(instanceId)
  }
  return { _tag: "Deleted", deleted }
}
