/**
 * An instance as the command line shows it.
 */
import type { InstanceState } from "../../model/Instance.ts"
import { explain } from "../../model/shared/explained.ts"
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
  if (end === undefined) return { status: state.status, output: null, error: null }
  if (end._tag === "Completed") return { status: "Completed", output: end.output, error: null }
  const { details } = end
  return details._tag === "Application" && typeof details.kind === "object"
    ? { status: "Cancelled", output: null, error: details.kind.Cancelled.reason }
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
  createdAt: isoTime(state.createdAtMs),
  updatedAt: isoTime(state.updatedAtMs)
})

export const isoTime = (ms: number): string => new Date(ms).toISOString()

/** Marks the name of a status. */
export const marked = (status: Status, text: string, style: Style): string =>
  status === "Failed"
    ? style.red(text)
    : status === "Completed"
    ? style.green(text)
    : status === "Cancelled"
    ? style.yellow(text)
    : text

/** The status of an instance, and whether it is blocked. */
export const shownStatus = ({ block }: Pick<InstanceState, "block">, status: Status): string =>
  block === null ? status : `${status}, blocked`

/** Marks a status, and that of a blocked instance as a failed one. */
export const markedState = (
  { block, status }: { readonly block: InstanceState["block"]; readonly status: Status },
  text: string,
  style: Style
): string => block === null ? marked(status, text, style) : style.red(text)
