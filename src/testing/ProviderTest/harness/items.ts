/**
 * Messages, activities and events with the fields a test does not care about.
 */
import type * as Event from "../../../model/Event.ts"
import type { CoreVersion } from "../../../model/Instance.ts"
import type * as WorkItem from "../../../model/WorkItem.ts"

/** Fields to set otherwise. */
export type Fields<A> = Partial<Omit<A, "_tag">>

export const startItem = (
  instance: string,
  fields: Fields<WorkItem.Of<"StartOrchestration">> = {}
): WorkItem.Of<"StartOrchestration"> => ({
  _tag: "StartOrchestration",
  instance,
  orchestration: "TestOrch",
  input: "{}",
  version: "1.0.0",
  parentInstance: null,
  parentId: null,
  executionId: 1,
  ...fields
})

/** A start message of a child of `parent`. */
export const childStartItem = (
  instance: string,
  parent: string,
  fields: Fields<WorkItem.Of<"StartOrchestration">> = {}
): WorkItem.Of<"StartOrchestration"> => startItem(instance, { parentInstance: parent, parentId: 1, ...fields })

export const continueAsNewItem = (
  instance: string,
  fields: Fields<WorkItem.Of<"ContinueAsNew">> = {}
): WorkItem.Of<"ContinueAsNew"> => ({
  _tag: "ContinueAsNew",
  instance,
  orchestration: "TestOrch",
  input: "{}",
  version: "1.0.0",
  ...fields
})

export const activityItem = (
  instance: string,
  id: number,
  fields: Fields<WorkItem.Of<"ActivityExecute">> = {}
): WorkItem.Of<"ActivityExecute"> => ({
  _tag: "ActivityExecute",
  instance,
  executionId: 1,
  id,
  name: "TestActivity",
  input: "{}",
  ...fields
})

export const activityCompleted = (
  instance: string,
  id: number,
  result = `result-${id}`
): WorkItem.Of<"ActivityCompleted"> => ({ _tag: "ActivityCompleted", instance, executionId: 1, id, result })

/** Due at once unless a time is given. */
export const timerFired = (instance: string, id: number, fireAtMs = 0): WorkItem.Of<"TimerFired"> => ({
  _tag: "TimerFired",
  instance,
  executionId: 1,
  id,
  fireAtMs
})

export const externalRaised = (instance: string, name = "poke", data = ""): WorkItem.Of<"ExternalRaised"> => ({
  _tag: "ExternalRaised",
  instance,
  name,
  data
})

export const queueMessage = (instance: string, name: string, data: string): WorkItem.Of<"QueueMessage"> => ({
  _tag: "QueueMessage",
  instance,
  name,
  data
})

export const cancelItem = (instance: string, reason = "test"): WorkItem.Of<"CancelInstance"> => ({
  _tag: "CancelInstance",
  instance,
  reason
})

type Envelope = "sourceEventId" | "instanceId" | "executionId" | "timestampMs" | "duroxideVersion"
type Input<A extends Event.Event> = A extends unknown ? Omit<A, Envelope> & Partial<Pick<A, Envelope>> : never

/** An event without its envelope, which the ack fills in; a test may give parts of it. */
export type EventInput = Input<Event.Event>

/** `OrchestrationStarted`, event 1. */
export const started = (fields: Fields<Event.Of<"OrchestrationStarted">> = {}): EventInput => ({
  _tag: "OrchestrationStarted",
  eventId: 1,
  name: "TestOrch",
  version: "1.0.0",
  input: "{}",
  parentInstance: null,
  parentId: null,
  ...fields
})

export const completed = (eventId: number, output = "done"): EventInput => ({
  _tag: "OrchestrationCompleted",
  eventId,
  output
})

export const activityScheduled = (eventId: number, name = "TestActivity"): EventInput => ({
  _tag: "ActivityScheduled",
  eventId,
  name,
  input: "{}"
})

export const valueSet = (eventId: number, key: string, value: string, lastUpdatedAtMs = 0): EventInput => ({
  _tag: "KeyValueSet",
  eventId,
  key,
  value,
  lastUpdatedAtMs
})

export const valueCleared = (eventId: number, key: string): EventInput => ({ _tag: "KeyValueCleared", eventId, key })

export const valuesCleared = (eventId: number): EventInput => ({ _tag: "KeyValuesCleared", eventId })

export const customStatus = (eventId: number, status: string | null): EventInput => ({
  _tag: "CustomStatusUpdated",
  eventId,
  status
})

/** `1.2.3` as a version. */
export const version = (text: string): CoreVersion => {
  const [major = 0, minor = 0, patch = 0] = text.split(".").map(Number)
  return { major, minor, patch }
}

/** Fills in what a test left out of an event. */
export const stamp = (instanceId: string, executionId: number, event: EventInput): Event.Event => ({
  sourceEventId: null,
  instanceId,
  executionId,
  timestampMs: 1_700_000_000_000,
  duroxideVersion: "1000.0.0",
  ...event
})
