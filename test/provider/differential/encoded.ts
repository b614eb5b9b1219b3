/**
 * The texts of what a sequence stores: those of messages, activities and events.
 */
import * as Event from "../../../src/model/Event.ts"
import type * as operations from "./operations.ts"

export const started = (
  instance: string,
  orchestration: string,
  version: string | null,
  parent: string | null,
  step: number
) =>
  JSON.stringify({
    StartOrchestration: {
      instance,
      orchestration,
      input: content(step),
      version,
      parent_instance: parent,
      parent_id: parent === null ? null : 1,
      execution_id: 1
    }
  })

/** Every other text is so large that it travels beside the JSON of its statement. */
export const content = (step: number) => step % 2 === 0 ? `${step} ü😀` : `${step} ${"ü😀 \"\\".repeat(200)}`

export const completed = (step: number) => JSON.stringify({ ActivityCompleted: content(step) })

export const workItem = ({ instanceId, kind }: Pick<operations.Message, "instanceId" | "kind">, step: number) => {
  switch (kind) {
    case "start":
      return started(instanceId, "One", null, null, step)
    case "startOfChild":
      return started(instanceId, "Other", "1.0.0", "a", step)
    case "namedStart":
      return started(instanceId, "One", step % 2 === 0 ? null : "1.10.0", null, step)
    case "brokenStart":
      return `{"StartOrchestration":{"instance":${JSON.stringify(instanceId)},"parent_instance":"a","input":${step}`
    case "continueAsNew":
      return JSON.stringify({ ContinueAsNew: { instance: instanceId, input: content(step) } })
    case "cancel":
      return JSON.stringify({ CancelInstance: { instance: instanceId, reason: content(step) } })
  }
}

export const encoded = (message: operations.Message, now: number, step: number) => ({
  instanceId: message.instanceId,
  workItem: workItem(message, step),
  visibleAtMs: message.visibleInMs === null ? null : now + message.visibleInMs,
  delayMs: message.delayMs
})

export const work = (activity: operations.Activity, step: number) => ({
  ...activity,
  workItem: JSON.stringify({ ActivityExecute: { ...activity, input: content(step + activity.activityId) } })
})

export const encodedEvent = ({ eventId, type }: operations.HistoryEvent, unused: number) => ({
  eventId: eventId ?? unused,
  eventType: type,
  eventData: type === "ExternalEventPersistent"
    ? recordedMail(eventId ?? unused, unused)
    : JSON.stringify({ event_id: eventId ?? unused, type, detail: content(unused) })
})

export const recordedMail = (eventId: number, unused: number) =>
  Event.encode({
    _tag: "ExternalEventPersistent",
    eventId,
    sourceEventId: null,
    instanceId: "any",
    executionId: 1,
    timestampMs: 0,
    duroxideVersion: "1000.2.0",
    name: "Mail \"\\/",
    data: JSON.stringify(`${unused} ü😀\u2028\u007f\u001f\n\t\b\f\r`)
  })
