/**
 * Builds a typed item from what a driver claimed: decodes rows, finds name and version, and recognises orphans.
 *
 * Rules are stated here once, for every driver.
 */
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Event from "../../model/Event.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { HistoryEnd, OrchestrationItem } from "../Provider.ts"
import type { ClaimedInstance } from "../ProviderDriver.ts"

/** A typed item whose history is not decoded yet. */
export interface Undecoded extends Omit<OrchestrationItem, "history" | "isKnownHistory" | "historyError"> {
  /** Row texts: the whole history, or its last event. */
  readonly rows: ReadonlyArray<string>
  readonly isWholeHistory: boolean
}

interface Unreadable {
  readonly id: number
  readonly problem: string
}

export type Assembled =
  | {
    readonly _tag: "Item"
    readonly item: Undecoded
    /** Deliveries so far, this one included: the highest of the messages that can be read. */
    readonly attemptCount: number
    /** Rows this version cannot read; they are hidden for a while and never deleted. */
    readonly unreadable: ReadonlyArray<Unreadable>
  }
  /** No row and no message says which orchestration the messages are for. */
  | { readonly _tag: "Orphan"; readonly unreadable: ReadonlyArray<Unreadable> }
  /** Not one message of the batch can be read. */
  | { readonly _tag: "Unreadable"; readonly unreadable: ReadonlyArray<Unreadable> }

export const assemble = (claimed: ClaimedInstance): Assembled => {
  const messages: Array<WorkItem.WorkItem> = []
  const messageIds: Array<number> = []
  const enqueuedAtMs: Array<number> = []
  const unreadable: Array<Unreadable> = []
  let attemptCount = 0
  for (const message of claimed.messages) {
    const item = WorkItem.decode(message.workItem)
    if (Result.isFailure(item)) {
      unreadable.push({ id: message.id, problem: item.failure.problem })
      continue
    }
    messages.push(item.success)
    messageIds.push(message.id)
    enqueuedAtMs.push(message.enqueuedAtMs)
    attemptCount = Math.max(attemptCount, message.attemptCount)
  }
  if (messages.length === 0) return { _tag: "Unreadable", unreadable }

  const identity = identify(claimed, messages)
  if (identity === undefined) return { _tag: "Orphan", unreadable }
  return {
    _tag: "Item",
    attemptCount,
    unreadable,
    item: {
      instanceId: claimed.instanceId,
      ...identity,
      nowMs: claimed.nowMs,
      rows: claimed.history,
      isWholeHistory: claimed.isWholeHistory,
      messages,
      messageIds,
      enqueuedAtMs,
      keyValues: new Map(claimed.keyValues.map(({ key, lastUpdatedAtMs, value }) => [key, { value, lastUpdatedAtMs }]))
    }
  }
}

/** The end of the history that came with an item; undefined for an empty history. */
export const historyEnd = ({ executionId, instanceId, rows }: Undecoded): HistoryEnd | undefined => {
  const lastEvent = rows.at(-1)
  return lastEvent === undefined ? undefined : { instanceId, executionId, lastEvent }
}

/** The item with its history decoded from `rows`, all of them; null leaves out what the caller knows. */
export const complete = (undecoded: Undecoded, rows: ReadonlyArray<string> | null): OrchestrationItem => {
  const { isWholeHistory: _1, rows: _2, ...item } = undecoded
  const history = rows === null ? Result.succeed([]) : Result.all(rows.map(Event.decode))
  return {
    ...item,
    isKnownHistory: rows === null,
    history: Result.getOrElse(history, () => beginning(rows!)),
    historyError: Result.isFailure(history) ? Option.some(history.failure.problem) : Option.none()
  }
}

// internal

/** The event that started an execution: it names the parent, which must be notified of the end. */
const beginning = (rows: ReadonlyArray<string>): ReadonlyArray<Event.Event> =>
  rows.slice(0, 1).flatMap((row) =>
    Result.match(Event.decode(row), {
      onSuccess: (event) => event._tag === "OrchestrationStarted" ? [event] : [],
      onFailure: () => []
    })
  )

type Identity = Pick<OrchestrationItem, "orchestrationName" | "orchestrationVersion" | "executionId">

// The first that applies: the instance row, the started event, a start message, a continue-as-new message.
const identify = (
  { executionId, history, instance }: ClaimedInstance,
  messages: ReadonlyArray<WorkItem.WorkItem>
): Identity | undefined => {
  if (instance !== null) {
    return {
      orchestrationName: instance.orchestrationName,
      orchestrationVersion: instance.orchestrationVersion ?? "unknown",
      executionId
    }
  }
  // Unreadable rows tell nothing.
  const events: ReadonlyArray<Event.Event> = Result.getOrElse(Result.all(history.map(Event.decode)), () => [])
  const started = events.find((event) => event._tag === "OrchestrationStarted")
  if (started !== undefined) {
    return { orchestrationName: started.name, orchestrationVersion: started.version, executionId }
  }
  const start = messages.find((message) => message._tag === "StartOrchestration") ??
    messages.find((message) => message._tag === "ContinueAsNew")
  if (start === undefined) return undefined
  return {
    orchestrationName: start.orchestration,
    orchestrationVersion: start.version ?? "unknown",
    executionId: start._tag === "StartOrchestration" ? Math.max(1, start.executionId) : 1
  }
}
