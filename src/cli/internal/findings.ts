/**
 * What a preflight finds, in constant memory: findings that are alike are one group.
 */
import type { Refusal } from "../../replay/trial.ts"

/** One finding of one or more instances. */
export interface Group {
  readonly orchestration: string
  readonly version: string
  /** What would happen to them. */
  readonly outcome: Refusal["outcome"]
  readonly reason: Refusal["reason"]
  /** What does not fit in the first instance. */
  readonly problem: string
  /** Lines of the first instance. */
  readonly diff: ReadonlyArray<string>
  /** What the program of the first one died of; null for other reasons, and without payloads. */
  readonly defect: string | null
  readonly instances: number
  /** How many of them are blocked already, by the code that runs now. */
  readonly alreadyBlocked: number
  /** The first of them. */
  readonly examples: ReadonlyArray<Place>
}

export interface Place {
  readonly instanceId: string
  readonly executionId: number
  /** The event at which the replay stops; null where the history cannot be read. */
  readonly eventId: number | null
}

export interface Finding extends Pick<Group, "orchestration" | "version" | "outcome" | "reason" | "problem"> {
  readonly place: Place
  readonly isBlocked: boolean
}

export interface Findings {
  /** `details` is called for the first of a group only. */
  readonly add: (finding: Finding, details: () => Pick<Group, "diff" | "defect">) => void
  /** Instances by what would happen to them. */
  readonly counts: () => { readonly [O in Refusal["outcome"]]: number }
  /** Sorted by the number of instances, the most first. */
  readonly groups: () => ReadonlyArray<Group>
  /** Instances with findings beyond the groups that are kept. */
  readonly others: () => number
}

export const make = (): Findings => {
  const groups = new Map<string, Group>()
  const counts = { block: 0, fail: 0 }
  let others = 0
  return {
    add: ({ isBlocked, orchestration, outcome, place, problem, reason, version }, details) => {
      counts[outcome]++
      const key = JSON.stringify([orchestration, version, outcome, reason, problem.replace(/\bevent \d+/g, "event")])
      const group = groups.get(key)
      if (group === undefined && groups.size === mostGroups) {
        others++
        return
      }
      const { alreadyBlocked, examples, instances, ...first } = group ?? {
        orchestration,
        version,
        outcome,
        reason,
        problem,
        ...details(),
        instances: 0,
        alreadyBlocked: 0,
        examples: []
      }
      groups.set(key, {
        ...first,
        instances: instances + 1,
        alreadyBlocked: alreadyBlocked + (isBlocked ? 1 : 0),
        examples: examples.length < mostExamples ? [...examples, place] : examples
      })
    },
    counts: () => ({ ...counts }),
    groups: () => [...groups.values()].sort((a, b) => b.instances - a.instances),
    others: () => others
  }
}

// internal

const mostGroups = 100

const mostExamples = 3
