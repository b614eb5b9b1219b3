/**
 * Which processes serve a definition, as their claims do (`ServedOrchestration`).
 */
import type { TagFilter } from "../../model/Instance.ts"
import { anyVersion, isOlder } from "../../model/shared/versions.ts"
import type { ProcessInfo } from "../AdminDriver.ts"

/** Living processes that run this version, or `>=` that version, or for null any. */
export const serversOfOrchestration = (
  processes: ReadonlyArray<ProcessInfo>,
  name: string,
  version: string | null
): number =>
  processes.filter(({ isAlive, orchestrations }) =>
    isAlive && orchestrations.some((one) => {
      const at = one.lastIndexOf("@")
      if (one.slice(0, at) !== name) return false
      const served = one.slice(at + 1)
      return version === null || anyVersion.includes(version) || served === version ||
        (version.startsWith(">=") && !isOlder(served, version.slice(2)))
    })
  ).length

/** Living processes that run this activity and take it with this tag. */
export const serversOfActivity = (processes: ReadonlyArray<ProcessInfo>, name: string, tag: string | null): number =>
  processes.filter(({ activities, isAlive, tags }) => isAlive && activities.includes(name) && takes(tags, tag)).length

// internal

const takes = (filter: TagFilter, tag: string | null): boolean => {
  switch (filter._tag) {
    case "Any":
      return true
    case "None":
      return false
    case "DefaultOnly":
      return tag === null
    case "DefaultAnd":
      return tag === null || filter.tags.includes(tag)
    case "Tags":
      return tag !== null && filter.tags.includes(tag)
  }
}
