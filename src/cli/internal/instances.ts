/**
 * An instance as the command line shows it.
 */
import * as ErrorDetails from "../../model/ErrorDetails.ts"
import type { InstanceState } from "../../model/Instance.ts"
import type { Pause, PauseTarget } from "../../model/Pause.ts"
import { explain } from "../../model/shared/explained.ts"
import { keyOf, shownTarget } from "../../model/shared/pauses.ts"
import { age } from "../../model/shared/quantities.ts"
import type { QueuePlace } from "../../provider/AdminDriver.ts"
import type { End } from "../../provider/calls/reads.ts"
import { endOf } from "../../provider/shared/endOf.ts"
import type { Style } from "./Output.ts"

/** `ContinuedAsNew` is the moment between two executions. */
export type Status = "Running" | "Completed" | "Failed" | "Cancelled" | "ContinuedAsNew"

export interface Outcome {
  readonly status: Status
  /** JSON text of the result, or null. */
  readonly output: string | null
  /** What a failed one says of itself, or the reason of a cancellation; null for all others. */
  readonly error: string | null
}

/** Unlike the tables, it distinguishes cancelled instances from failed ones. */
export const outcomeOf = (state: InstanceState): Outcome => {
  const end = endOf(state)
  return end === undefined ? { status: state.status, output: null, error: null } : outcomeOfEnd(end)
}

export const outcomeOfEnd = (end: End): Outcome => {
  if (end._tag === "Completed") return { status: "Completed", output: end.output, error: null }
  const { details } = end
  const reason = ErrorDetails.cancellationOf(details)
  return reason !== undefined
    ? { status: "Cancelled", output: null, error: reason }
    : { status: "Failed", output: null, error: explain(details) }
}

/** Names the fields as every command with `--json` does. */
export const toJson = (state: InstanceState) => ({
  instanceId: state.instanceId,
  orchestration: state.orchestrationName,
  version: state.orchestrationVersion,
  ...outcomeOf(state),
  executionId: state.executionId,
  parentInstanceId: state.parentInstanceId,
  customStatus: state.customStatus,
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

export const isoTime = (ms: number): string => new Date(ms).toISOString()

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
export const shownStatus = ({ block, pause }: Pick<InstanceState, "block" | "pause">, status: Status): string =>
  [status, ...(pause === null ? [] : ["paused"]), ...(block === null ? [] : ["blocked"])].join(", ")

/** Marks a status, and that of an instance that is paused or blocked as a failed one. */
export const markedState = (
  { block, pause, status }: Pick<InstanceState, "block" | "pause"> & { readonly status: Status },
  text: string,
  style: Style
): string => block === null && pause === null ? marked(status, text, style) : style.red(text)
