/**
 * What the driver recognises of the texts it stores, by the rule of `ProviderDriver`: the kind of a message is the
 * first thing in its text.
 */
import * as Result from "effect/Result"
import * as Event from "../../model/Event.ts"
import * as interruptSignal from "../../model/shared/interruptSignal.ts"
import * as WorkItem from "../../model/WorkItem.ts"

export const isTimer = (workItem: string): boolean => workItem.startsWith(`{"TimerFired"`)

export const isStart = (workItem: string): boolean => workItem.startsWith(`{"StartOrchestration"`)

/** Whether it ends its instance, or asks it to end. The quotes of a payload are escaped. */
export const isCancellation = (workItem: string): boolean =>
  workItem.startsWith(`{"CancelInstance"`) || /"name": ?"duroxide-prisma\/interrupt"/.test(workItem)

export const isContinueAsNew = (workItem: string): boolean => workItem.startsWith(`{"ContinueAsNew"`)

/** Whether it begins an execution. */
export const begins = (workItem: string): boolean => isStart(workItem) || isContinueAsNew(workItem)

/** Whether it terminates or interrupts its instance. */
export const ends = (workItem: string): boolean =>
  workItem.startsWith(`{"CancelInstance"`) ||
  workItem.startsWith(`{"QueueMessage"`) && workItem.includes(`"name":"${interruptSignal.name}"`)

/** The orchestration and the version that a message asks for which begins an execution. */
export const asked = (workItem: string) => {
  if (!begins(workItem)) return undefined
  const item = Result.getOrUndefined(WorkItem.decode(workItem))
  return item?._tag === "StartOrchestration" || item?._tag === "ContinueAsNew"
    ? { name: item.orchestration, asksFor: item.version, takesNewer: false }
    : undefined
}

/**
 * The parent of a start, as JSON; empty for a root. Read from the text, because an unreadable message must not fail
 * this. The quotes of a payload are escaped, so it cannot be mistaken for the parent.
 */
export const parentOf = (workItem: string): string =>
  /"parent_instance": ?("(?:[^"\\]|\\.)*")/.exec(workItem)?.[1] ?? ""

// Quotes inside a payload are escaped, so this is the event's own type. Compact or spaced JSON.
export const isCancelRequested = (eventData: string): boolean => /"type": ?"[A-Za-z]+CancelRequested"/.test(eventData)

export const isFailure = (eventData: string): boolean => /"type": ?"OrchestrationFailed"/.test(eventData)

/** The message to an instance that an event has recorded; undefined where it has recorded none. */
export const recordedMessage = (instance: string, eventData: string): string | undefined => {
  const event = Result.getOrUndefined(Event.decode(eventData))
  if (event?._tag !== "ExternalEventPersistent") return undefined
  return WorkItem.encode({ _tag: "QueueMessage", instance, name: event.name, data: event.data })
}
