/**
 * How far an instance is, in one word.
 */
import type { InstanceInfo } from "../provider/Admin.ts"
import * as End from "../provider/shared/endOf.ts"

/** `ContinuedAsNew` is the moment between two executions. */
export type Status = "Running" | "Completed" | "Failed" | "Cancelled" | "ContinuedAsNew"

/** The status of an instance, and its outcome once it has ended. */
export const outcomeOf = (
  state: InstanceInfo
): Pick<End.Outcome, "output" | "error"> & { readonly status: Status } => {
  const end = End.endOf(state)
  return end === undefined ? { status: state.status, output: null, error: null } : End.outcomeOf(end)
}

/** Whether turns of it may follow. */
export const isUnderWay = (status: Status): boolean => status === "Running" || status === "ContinuedAsNew"
