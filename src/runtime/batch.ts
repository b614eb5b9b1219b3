/**
 * Reads the messages of a claimed instance: which execution they start or continue, or that they are dropped.
 */
import * as ErrorDetails from "../model/ErrorDetails.ts"
import type * as Event from "../model/Event.ts"
import { isEnd } from "../model/shared/recordedEnds.ts"
import { anyVersion } from "../model/shared/versions.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { OrchestrationItem } from "../provider/Provider.ts"
import type { StartedFields } from "../replay/turn.ts"
import type { Wanted } from "./registry.ts"

export interface Run {
  readonly _tag: "Run"
  readonly executionId: number
  readonly history: ReadonlyArray<Event.Event>
  readonly started: StartedFields
  /** The version that the execution is pinned to, or that its start asks for. */
  readonly version: Wanted
  /** Messages in order of arrival, without those that start an execution. */
  readonly messages: ReadonlyArray<WorkItem.WorkItem>
  /** Notices to parents whose child could not start, because its id is taken by this instance. */
  readonly rejections: ReadonlyArray<WorkItem.WorkItem>
}

export type Batch =
  | Run
  /** The instance has ended. */
  | { readonly _tag: "Drop"; readonly rejections: ReadonlyArray<WorkItem.WorkItem> }
  /** The message that starts the execution is not in the batch. */
  | { readonly _tag: "Early" }

/** `running` is the first event of an execution that has not ended, where the item leaves out its history. */
export const read = (item: OrchestrationItem, running?: Event.Of<"OrchestrationStarted">): Batch => {
  const { history } = item
  const messages = inOrderOfArrival(item).filter(({ _tag }) =>
    _tag !== "StartOrchestration" && _tag !== "ContinueAsNew"
  )
  const continued = item.messages.find((message) => message._tag === "ContinueAsNew")
  const recorded = running ?? history[0]

  if (recorded?._tag === "OrchestrationStarted") {
    const ended = history.findLast(isEnd)
    const state = ended === undefined ? "running" : "terminal"
    const rejections = item.messages.flatMap((message) => rejectStart(recorded, message, state))
    if (ended === undefined) {
      const { executionId } = item
      return run({ executionId, history, started: recorded, messages, rejections })
    }
    if (ended._tag !== "OrchestrationContinuedAsNew") return { _tag: "Drop", rejections }
    if (continued === undefined) return { _tag: "Early" }
    // A process that does not serve the newest version yet must not take the instance back to an older one.
    const atLeast = recorded.version
    const started = fromContinue(continued)
    return run({ executionId: item.executionId + 1, history: [], started, messages, rejections }, { atLeast })
  }

  const start = item.messages.find((message) => message._tag === "StartOrchestration")
  const started = start === undefined ? continued && fromContinue(continued) : fromStart(start)
  if (started === undefined) return { _tag: "Early" }
  // Other parents may have started the same instance at the same time.
  const rejections = item.messages.flatMap((message) => rejectStart(started, message, "running"))
  return run({ executionId: item.executionId, history, started, messages, rejections })
}

/** Takes the place of a missing start, when an execution fails without one. */
export const unknownStart = (item: OrchestrationItem): StartedFields => ({
  _tag: "OrchestrationStarted",
  name: item.orchestrationName,
  version: item.orchestrationVersion,
  input: "null",
  parentInstance: null,
  parentId: null
})

// internal

/**
 * Orders a batch: a timer is in the queue from the moment it is set, but it arrives when it is due. So after an outage,
 * a signal that came in time does not lose against a timeout that passed later. Timers only move back; all other
 * messages keep their places.
 */
const inOrderOfArrival = ({ enqueuedAtMs, messages }: OrchestrationItem): ReadonlyArray<WorkItem.WorkItem> => {
  const ordered: Array<WorkItem.WorkItem> = []
  // Not due yet, earliest first.
  let timers: Array<WorkItem.Of<"TimerFired">> = []
  for (const [index, message] of messages.entries()) {
    if (message._tag === "TimerFired") {
      const later = timers.findLastIndex(({ fireAtMs }) => fireAtMs <= message.fireAtMs) + 1
      timers.splice(later, 0, message)
      continue
    }
    const due = timers.findIndex(({ fireAtMs }) => fireAtMs > enqueuedAtMs[index]!)
    const count = due < 0 ? timers.length : due
    if (count > 0) {
      ordered.push(...timers.slice(0, count))
      timers = timers.slice(count)
    }
    ordered.push(message)
  }
  return [...ordered, ...timers]
}

const run = (
  fields: Omit<Run, "_tag" | "version">,
  otherwise: Wanted = null
): Batch => {
  const { version } = fields.started
  return { _tag: "Run", ...fields, version: anyVersion.includes(version) ? otherwise : version }
}

const fromStart = (start: WorkItem.Of<"StartOrchestration">): StartedFields => ({
  _tag: "OrchestrationStarted",
  name: start.orchestration,
  version: start.version ?? "unknown",
  input: start.input,
  parentInstance: start.parentInstance,
  parentId: start.parentId,
  ...(start.parentExecutionId !== undefined && { parentExecutionId: start.parentExecutionId }),
  ...(start.traceparent !== undefined && { traceparent: start.traceparent }),
  ...(start.attributes !== undefined && { attributes: start.attributes })
})

const fromContinue = (message: WorkItem.Of<"ContinueAsNew">): StartedFields => ({
  _tag: "OrchestrationStarted",
  name: message.orchestration,
  version: message.version ?? "unknown",
  input: message.input,
  parentInstance: message.parentInstance ?? null,
  parentId: message.parentId ?? null,
  ...(message.parentExecutionId !== undefined && { parentExecutionId: message.parentExecutionId }),
  ...(message.carryForwardEvents !== undefined && message.carryForwardEvents.length > 0 &&
    { carryForwardEvents: message.carryForwardEvents }),
  ...(message.initialCustomStatus !== undefined && { initialCustomStatus: message.initialCustomStatus }),
  ...(message.traceparent !== undefined && { traceparent: message.traceparent }),
  ...(message.attributes !== undefined && { attributes: message.attributes })
})

/**
 * Notifies a parent that its child cannot start; it would wait forever. A start that is delivered twice is accepted.
 */
const rejectStart = (
  recorded: StartedFields,
  message: WorkItem.WorkItem,
  state: "running" | "terminal"
): ReadonlyArray<WorkItem.WorkItem> => {
  if (message._tag !== "StartOrchestration" || message.parentInstance === null || message.parentId === null) return []
  const isOurs = message.parentInstance === recorded.parentInstance && message.parentId === recorded.parentId &&
    message.parentExecutionId === recorded.parentExecutionId
  if (isOurs) return []
  const problem = `sub-orchestration instance id '${message.instance}' already exists and is ${state}`
  return [{
    _tag: "SubOrchFailed",
    parentInstance: message.parentInstance,
    parentExecutionId: message.parentExecutionId ?? 1,
    parentId: message.parentId,
    // Not `OrchestrationFailed`: where the child's errors are strings, its parent would take the text for one of them.
    details: ErrorDetails.application("Panicked", problem)
  }]
}
