/**
 * Definitions in words, and those that keep an instance waiting because no process serves them.
 */
import type { InstanceState } from "../../model/Instance.ts"
import type { QueuedWork, UnservedWork } from "../Admin.ts"
import type { ProcessInfo, QueuePlace } from "../AdminDriver.ts"
import type { Wait } from "../Explanation.ts"
import { serversOfActivity, serversOfOrchestration } from "./served.ts"

export type Definition = Pick<UnservedWork, "kind" | "name" | "version" | "tag">

/** Booking 2.0.0, Booking, activity Render, activity Render with tag gpu. */
export const definitionOf = ({ kind, name, tag, version }: Definition): string =>
  kind === "activity"
    ? `activity ${name}${tag === null ? "" : ` with tag ${tag}`}`
    : `${name}${version === null ? "" : ` ${version}`}`

/** What the instance could continue with now, if a living process served it. */
export const unservedOf = (
  { orchestrationName, orchestrationVersion }: Pick<InstanceState, "orchestrationName" | "orchestrationVersion">,
  { messages }: QueuedWork,
  waits: ReadonlyArray<Wait>,
  processes: ReadonlyArray<ProcessInfo>
): ReadonlyArray<Definition> => {
  const start = messages.find(({ item }) => item?._tag === "StartOrchestration")?.item
  const version = orchestrationVersion ?? (start?._tag === "StartOrchestration" ? start.version : null)
  const hasTurn = messages.some(isWaiting)
  const activities = waits.flatMap(({ kind, name, place, tag }): ReadonlyArray<Definition> =>
    kind === "activity" && name !== null && place !== null && isWaiting(place) &&
      serversOfActivity(processes, name, tag) === 0
      ? [{ kind, name, version: null, tag }]
      : []
  )
  return [
    ...(hasTurn && serversOfOrchestration(processes, orchestrationName, version) === 0
      ? [{ kind: "orchestration" as const, name: orchestrationName, version, tag: null }]
      : []),
    ...new Map(activities.map((one) => [definitionOf(one), one])).values()
  ]
}

// internal

const isWaiting = ({ isDue, lockedUntilMs }: QueuePlace): boolean => isDue && lockedUntilMs === null
