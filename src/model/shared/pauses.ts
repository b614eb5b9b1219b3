/**
 * Pauses as the table `paused` has them, and as people read them.
 */
import { PauseTarget } from "../Pause.ts"
import type { Pause } from "../Pause.ts"

/** The key of the table. */
export interface PausedKey {
  readonly target: string
  readonly name: string
  readonly version: string
}

export interface PausedRow extends PausedKey {
  readonly reason: string | null
  readonly sinceMs: number
}

export const keyOf: (target: PauseTarget) => PausedKey = PauseTarget.$match({
  Instance: ({ instanceId }) => ({ target: "instance", name: instanceId, version: "" }),
  Orchestration: ({ name, version = "" }) => ({ target: "orchestration", name, version }),
  Activity: ({ name }) => ({ target: "activity", name, version: "" }),
  Tag: ({ tag }) => ({ target: "tag", name: tag, version: "" }),
  Everything: () => ({ target: "everything", name: "", version: "" })
})

/** Undefined for a target of a later release. */
export const pauseOf = ({ name, reason, sinceMs, target, version }: PausedRow): Pause | undefined => {
  const of = targetOf(target, name, version)
  return of && { target: of, reason, sinceMs }
}

/** Such as `orchestration Order@1.0.0`. */
export const shownTarget: (target: PauseTarget) => string = PauseTarget.$match({
  Instance: ({ instanceId }) => `instance ${instanceId}`,
  Orchestration: ({ name, version }) => `orchestration ${version === undefined ? name : `${name}@${version}`}`,
  Activity: ({ name }) => `activity ${name}`,
  Tag: ({ tag }) => `tag ${tag}`,
  Everything: () => "everything"
})

// internal

const targetOf = (target: string, name: string, version: string): PauseTarget | undefined => {
  switch (target) {
    case "instance":
      return PauseTarget.Instance({ instanceId: name })
    case "orchestration":
      return version === "" ? PauseTarget.Orchestration({ name }) : PauseTarget.Orchestration({ name, version })
    case "activity":
      return PauseTarget.Activity({ name })
    case "tag":
      return PauseTarget.Tag({ tag: name })
    case "everything":
      return PauseTarget.Everything()
    default:
      return undefined
  }
}
