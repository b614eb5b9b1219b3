/**
 * How an instance has ended, from its stored state.
 */
import * as Result from "effect/Result"
import type * as ErrorDetails from "../../model/ErrorDetails.ts"
import * as Event from "../../model/Event.ts"
import type { InstanceState } from "../../model/Instance.ts"
import type { End } from "../calls/reads.ts"

/** The end of the instance; undefined while it has none. */
export const endOf = (state: Pick<InstanceState, "status" | "output" | "failure">): End | undefined => {
  if (state.status === "Completed") return { _tag: "Completed", output: state.output ?? "null" }
  if (state.status !== "Failed") return undefined
  const event = state.failure === null ? undefined : Result.getOrUndefined(Event.decode(state.failure))
  const details: ErrorDetails.ErrorDetails = event?._tag === "OrchestrationFailed"
    ? event.details
    // An unreadable failure must not be mistaken for a typed failure of the program.
    : { _tag: "Infrastructure", operation: "readInstance", message: state.output ?? "", retryable: false }
  return { _tag: "Failed", details }
}
