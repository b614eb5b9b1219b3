/**
 * An instance as the command line shows it.
 */
import type { Pause, PauseTarget } from "../../model/Pause.ts"
import { keyOf, shownTarget } from "../../model/shared/pauses.ts"
import { age } from "../../model/shared/quantities.ts"
import { jsonOf } from "../../operating/attributes.ts"
import { outcomeOf } from "../../operating/outcome.ts"
import type { Status } from "../../operating/outcome.ts"
import { isoTime } from "../../operating/times.ts"
import type { InstanceInfo } from "../../provider/Admin.ts"
import type { QueuePlace } from "../../provider/AdminDriver.ts"
import type { Style } from "./Output.ts"

/** Names the fields as every command with `--json` does. */
export const toJson = (state: InstanceInfo) => ({
  instanceId: state.instanceId,
  orchestration: state.orchestrationName,
  version: state.orchestrationVersion,
  ...outcomeOf(state),
  executionId: state.executionId,
  parentInstanceId: state.parentInstanceId,
  customStatus: state.customStatus,
  attributes: Object.fromEntries(Object.entries(state.attributes).map(([name, value]) => [name, jsonOf(value)])),
  blocked: state.block === null ? null : {
    reason: state.block.reason,
    problem: state.block.problem,
    eventId: state.block.eventId,
    build: state.block.build,
    since: isoTime(state.block.sinceMs),
    triedAt: isoTime(state.block.triedAtMs),
    tries: state.block.tries
  },
  paused: state.pause === null ? null : pauseJson(state.pause),
  createdAt: isoTime(state.createdAtMs),
  updatedAt: isoTime(state.updatedAtMs)
})

/** A target of a pause; null where it has no name or version. */
export const targetJson = (target: PauseTarget) => {
  const { name, target: kind, version } = keyOf(target)
  return { target: kind, name: name === "" ? null : name, version: version === "" ? null : version }
}

export const pauseJson = ({ reason, sinceMs, target }: Pause) => ({
  ...targetJson(target),
  reason,
  since: isoTime(sinceMs)
})

/** Such as `everything, for 5 min: incident 7`. */
export const shownPause = ({ reason, sinceMs, target }: Pause, nowMs: number): string =>
  `${target._tag === "Instance" ? "by itself" : shownTarget(target)}, for ${age(nowMs - sinceMs)}${
    reason === null ? "" : `: ${reason}`
  }`

/** The place of a message or an activity in its queue; nulls without one. */
export const placeJson = (place: QueuePlace | null) =>
  place === null ? { visibleAt: null, heldUntil: null, deliveries: null } : {
    visibleAt: isoTime(place.visibleAtMs),
    heldUntil: place.lockedUntilMs === null ? null : isoTime(place.lockedUntilMs),
    deliveries: place.attemptCount
  }

/** Marks the name of a status. */
export const marked = (status: Status, text: string, style: Style): string =>
  status === "Failed"
    ? style.red(text)
    : status === "Completed"
    ? style.green(text)
    : status === "Cancelled"
    ? style.yellow(text)
    : text

/** The status of an instance, and whether it is paused or blocked. */
export const shownStatus = ({ block, pause }: Pick<InstanceInfo, "block" | "pause">, status: Status): string =>
  [status, ...(pause === null ? [] : ["paused"]), ...(block === null ? [] : ["blocked"])].join(", ")

/** Marks a status, and that of an instance that is paused or blocked as a failed one. */
export const markedState = (
  { block, pause, status }: Pick<InstanceInfo, "block" | "pause"> & { readonly status: Status },
  text: string,
  style: Style
): string => block === null && pause === null ? marked(status, text, style) : style.red(text)
