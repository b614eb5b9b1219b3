/**
 * How an instance has ended, from its stored state.
 */
import * as Result from "effect/Result"
import * as ErrorDetails from "../../model/ErrorDetails.ts"
import * as Event from "../../model/Event.ts"
import type { InstanceState, InstanceStatus } from "../../model/Instance.ts"
import { explain } from "../../model/shared/explained.ts"
import type { InstanceInfo } from "../Admin.ts"
import type { End } from "../calls/reads.ts"

/** The end of the instance; undefined while it has none. */
export const endOf = (
  state: Pick<InstanceState, "output" | "failure"> & Pick<InstanceInfo, "status">
): End | undefined => {
  if (state.status === "Completed") return { _tag: "Completed", output: state.output ?? "null" }
  if (state.status !== "Failed" && state.status !== "Cancelled") return undefined
  const event = state.failure === null ? undefined : Result.getOrUndefined(Event.decode(state.failure))
  const details: ErrorDetails.ErrorDetails = event?._tag === "OrchestrationFailed"
    ? event.details
    // An unreadable failure must not be mistaken for a typed failure of the program.
    : { _tag: "Infrastructure", operation: "readInstance", message: state.output ?? "", retryable: false }
  return { _tag: "Failed", details }
}

/** How an instance has ended, for people. */
export interface Outcome {
  readonly status: Exclude<InstanceStatus, "Running">
  /** JSON text of the result, or null. */
  readonly output: string | null
  /** What a failed one says of itself, or the reason of a cancellation; null for all others. */
  readonly error: string | null
}

/** Unlike the tables, it distinguishes cancelled instances from failed ones. */
export const outcomeOf = (end: End): Outcome => {
  if (end._tag === "Completed") return { status: "Completed", output: end.output, error: null }
  const { details } = end
  const reason = ErrorDetails.cancellationOf(details)
  return reason !== undefined
    ? { status: "Cancelled", output: null, error: reason }
    : { status: "Failed", output: null, error: explain(details) }
}
