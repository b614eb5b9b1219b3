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
  processes.filter((process) =>
    versionsIn(process, name).some((served) =>
      version === null || anyVersion.includes(version) || served === version ||
      (version.startsWith(">=") && !isOlder(served, version.slice(2)))
    )
  ).length

/** The versions of an orchestration that living processes run. */
export const servedVersions = (processes: ReadonlyArray<ProcessInfo>, name: string): ReadonlySet<string> =>
  new Set(processes.flatMap((process) => versionsIn(process, name)))

/** Living processes that run this activity and take it with this tag. */
export const serversOfActivity = (processes: ReadonlyArray<ProcessInfo>, name: string, tag: string | null): number =>
  processes.filter(({ activities, isAlive, tags }) => isAlive && activities.includes(name) && takes(tags, tag)).length

// internal

/** None of a dead process. */
const versionsIn = ({ isAlive, orchestrations }: ProcessInfo, name: string): ReadonlyArray<string> =>
  !isAlive ? [] : orchestrations.flatMap((one) => {
    const at = one.lastIndexOf("@")
    return one.slice(0, at) === name ? [one.slice(at + 1)] : []
  })

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
