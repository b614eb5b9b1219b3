/**
 * The deletion of instances, and what decides whether they may be deleted.
 */
import { PauseTarget } from "../../model/Pause.ts"
import { keyOf } from "../../model/shared/pauses.ts"
import type { DeleteOutcome } from "../AdminDriver.ts"
import * as tables from "./tables.ts"
import * as texts from "./texts.ts"

export const hasEnded = (store: tables.Tables, instanceId: string): boolean => {
  const status = tables.currentOf(store, instanceId)?.status ?? "Running"
  const isKnown = store.instances.has(instanceId)
  if (isKnown && status !== "ContinuedAsNew") return status !== "Running"
  const goesOn = isKnown ? texts.isContinueAsNew : texts.isStart
  return ![...store.messages.values()].some((message) => message.instanceId === instanceId && goesOn(message.workItem))
}

export const childrenOf = ({ instances }: tables.Tables, instanceIds: ReadonlyArray<string>) => {
  const parents = new Set(instanceIds)
  return [...instances].filter(([, { parentInstanceId }]) => parentInstanceId !== null && parents.has(parentInstanceId))
    .map(([id]) => id)
}

/** Targets of queued starts, not begun, whose parent is one of these. */
export const queuedChildrenOf = ({ instances, messages }: tables.Tables, instanceIds: ReadonlyArray<string>) => {
  const parents = new Set(instanceIds.map((instanceId) => JSON.stringify(instanceId)))
  return [...messages.values()].flatMap(({ instanceId, workItem }) => {
    const isChild = texts.isStart(workItem) && parents.has(texts.parentOf(workItem))
    return isChild && !instances.has(instanceId) ? [instanceId] : []
  })
}

export const remove = (store: tables.Tables, instanceIds: ReadonlyArray<string>): DeleteOutcome => {
  const {
    activities,
    attributes,
    blocks,
    changed,
    executions,
    history,
    instances,
    locks,
    messages,
    paused,
    stored,
    streams
  } = store
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
    for (const table of [executions, history, locks, blocks, stored, changed, attributes, streams]) {
      table.delete(instanceId)
    }
    paused.delete(tables.pausedKey(keyOf(PauseTarget.Instance({ instanceId }))))
  }
  // Slots of theirs may be free.
  if (store.limits.activity.size + store.limits.orchestration.size > 0) tables.announce(store)
  return { _tag: "Deleted", deleted }
}

/**
 * Deletes an instance that has ended so, with all its descendants. Does nothing if it has a parent, or a descendant has
 * not ended.
 */
export const removeEnded = (store: tables.Tables, instanceId: string, which: "Ended" | "Failed"): void => {
  if (store.instances.get(instanceId)?.parentInstanceId !== null) return
  const isFit = which === "Failed"
    ? tables.currentOf(store, instanceId)?.status === "Failed"
    : hasEnded(store, instanceId)
  if (!isFit) return
  const tree = [instanceId]
  for (const id of tree) {
    tree.push(
      ...[...childrenOf(store, [id]), ...queuedChildrenOf(store, [id])].filter((child) => !tree.includes(child))
    )
  }
  if (tree.every((id) => hasEnded(store, id))) remove(store, tree)
}
