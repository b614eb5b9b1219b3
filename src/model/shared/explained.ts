import * as ErrorDetails from "../ErrorDetails.ts"

/**
 * The text of a failure for people. That of `ErrorDetails.display`, which Duroxide stores and shows, calls every death
 * one of the orchestration, also that of an activity.
 */
export const explain = (details: ErrorDetails.ErrorDetails): string =>
  isDeath(details) ? details.message : ErrorDetails.display(details)

/** How an activity or a child has failed, in the list of the events. */
export const explainEnd = (details: ErrorDetails.ErrorDetails): string =>
  isDeath(details) ? `died: ${details.message}` : ErrorDetails.display(details)

/** Whether it is a defect, which no type names. */
export const isDeath = (
  details: ErrorDetails.ErrorDetails
): details is Extract<typeof details, { _tag: "Application" }> =>
  details._tag === "Application" && details.kind === "Panicked"
