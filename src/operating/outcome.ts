/**
 * How far an instance is, in one word.
 */
import { explainEnd, isDeath } from "../model/shared/explained.ts"
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

/** What a program died of, marked as such: a typed error has no other mark than to be JSON. */
export const deathOf = (state: InstanceInfo): string | undefined => {
  const end = End.endOf(state)
  return end?._tag === "Failed" && isDeath(end.details) ? explainEnd(end.details) : undefined
}

/** Whether turns of it may follow. */
export const isUnderWay = (status: Status): boolean => status === "Running" || status === "ContinuedAsNew"
