/**
 * A start of the orchestration "O", as a message and as a provider takes it; and an event that its turn may store.
 */
import * as Option from "effect/Option"
import type * as Event from "../../src/model/Event.ts"
import type { CoreVersion } from "../../src/model/Instance.ts"
import type * as WorkItem from "../../src/model/WorkItem.ts"

export const message = (
  instance: string,
  changes?: Partial<WorkItem.Of<"StartOrchestration">>
): WorkItem.Of<"StartOrchestration"> => ({
  _tag: "StartOrchestration",
  instance,
  orchestration: "O",
  input: "1",
  version: null,
  parentInstance: null,
  parentId: null,
  executionId: 1,
  ...changes
})

export const start = (instance: string, pinnedVersion: CoreVersion = { major: 1000, minor: 1, patch: 0 }) => ({
  start: message(instance),
  pinnedVersion,
  delay: Option.none()
})

export const scheduled = (instanceId: string, eventId: number): Event.Of<"ActivityScheduled"> => ({
  _tag: "ActivityScheduled",
  eventId,
  sourceEventId: null,
  instanceId,
  executionId: 1,
  timestampMs: 0,
  duroxideVersion: "1000.1.0",
  name: "A",
  input: "1"
})
