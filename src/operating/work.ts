/**
 * Work that waits in the queues: of which definition, and why.
 */
import type { Pause, PauseTarget } from "../model/Pause.ts"
import { count, counted } from "../model/shared/quantities.ts"
import type * as Health from "../observability/Health.ts"
import * as Late from "../observability/shared/late.ts"
import type { QueueLoads } from "../provider/Admin.ts"
import { definitionOf } from "../provider/shared/unserved.ts"
import type { Definition } from "../provider/shared/unserved.ts"

export interface Work extends Definition {
  readonly waiting: number
  readonly oldestAgeMs: number | null
  /** Null where only processes of Duroxide in Rust can. */
  readonly servedBy: number | null
}

/** Without messages for ids that have no instance: they wait for its start. */
export const ofLoads = ({ activities, orchestrations }: QueueLoads): ReadonlyArray<Work> => [
  ...orchestrations.flatMap(({ oldestAgeMs, orchestration, servedBy, version, waiting }): ReadonlyArray<Work> =>
    orchestration === null
      ? []
      : [{ kind: "orchestration", name: orchestration, version, tag: null, waiting, oldestAgeMs, servedBy }]
  ),
  ...activities.map(({ activity, oldestAgeMs, servedBy, tag, waiting }): Work => ({
    kind: "activity",
    name: activity,
    version: null,
    tag,
    waiting,
    oldestAgeMs,
    servedBy
  }))
]

/** The pause that keeps it from being claimed, besides those of single instances. */
export const pauseOf = (
  { kind, name, tag, version }: Definition,
  pauses: ReadonlyArray<Pause>
): Pause | undefined =>
  pauses.find(({ target }) => {
    switch (target._tag) {
      case "Everything":
        return true
      case "Orchestration":
        return kind === "orchestration" && target.name === name &&
          (target.version === undefined || target.version === version)
      case "Activity":
        return kind === "activity" && target.name === name
      case "Tag":
        return kind === "activity" && target.tag === tag
      case "Instance":
        return false
    }
  })

/** Work that waits and that no living process serves. */
export const isUnserved = ({ servedBy, waiting }: Work): boolean => servedBy === 0 && waiting > 0

/** The problems of a check of health: where work is late, whose it is, and why it waits. */
export const explainProblems = (
  { backlog, problems, queues }: Pick<Health.Report, "backlog" | "problems" | "queues">,
  config: Parameters<typeof Late.ofBacklog>[1],
  all: ReadonlyArray<Work>,
  pauses: ReadonlyArray<Pause>
): ReadonlyArray<string> => {
  const late = [
    ...(backlog === null ? [] : Late.ofBacklog(backlog, config)),
    ...(queues === null ? [] : Late.ofQueues(queues, Late.defaults))
  ]
  return problems.map((problem) => {
    const one = late.find((one) => Late.problem(one) === problem)
    return one === undefined ? problem : explainLate(one, all, pauses)
  })
}

// internal

/** The fact, whose work it is, why it waits as far as that is known, and the command to run next. */
const explainLate = (late: Late.Late, all: ReadonlyArray<Work>, pauses: ReadonlyArray<Pause>): string => {
  if (late.kind === "outbox") return `${Late.fact(late)}: see queues`
  if (late.kind === "task") return `${Late.fact(late)}: see tasks --status pending`
  const found = all
    .filter(({ kind, oldestAgeMs, servedBy, tag }) =>
      kind === (late.kind === "message" ? "orchestration" : "activity") && tag === late.tag && servedBy !== null &&
      oldestAgeMs !== null && oldestAgeMs > late.limitMs
    )
    .sort((a, b) => b.oldestAgeMs! - a.oldestAgeMs!)
  // It was claimed between the two reads.
  if (found.length === 0) return `${Late.fact(late)}: see queues`
  const shown = found.slice(0, mostShown).map((one) => `${definitionOf(one)} (${whyOf(one, pauses)})`)
  const others = found.length - shown.length
  return `${Late.fact(late)}: ${[...shown, ...(others === 0 ? [] : [`${count(others)} more`])].join(", ")}`
}

/** Definitions that one problem names. */
const mostShown = 3

const whyOf = (work: Work, pauses: ReadonlyArray<Pause>): string => {
  const pause = pauseOf(work, pauses)
  const reasons = [
    ...(pause === undefined ? [] : [`paused: resume ${flagOf(pause.target)}`]),
    ...(work.servedBy === 0 ? ["no living process serves it: see processes"] : [])
  ]
  return reasons.length > 0
    ? reasons.join("; ")
    : `${counted(work.servedBy!, "process serves", "processes serve")} it: see queues`
}

const flagOf = (target: PauseTarget): string => {
  switch (target._tag) {
    case "Everything":
      return "--all"
    case "Orchestration":
      return `--name ${target.name}${target.version === undefined ? "" : `@${target.version}`}`
    case "Activity":
      return `--activity ${target.name}`
    case "Tag":
      return `--tag ${target.tag}`
    case "Instance":
      return target.instanceId
  }
}
