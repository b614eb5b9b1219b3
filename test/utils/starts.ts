/**
 * A start of the orchestration "O", as a message and as a provider takes it.
 */
import * as Option from "effect/Option"
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
