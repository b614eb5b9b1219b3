/**
 * Errors as answers.
 */
import type { InstanceAlreadyExists } from "../../Client.ts"
import type { PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import type { Refusal } from "../../operating/Refusal.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { QueueError } from "../../queue/QueueError.ts"
import type { ScheduleNotFound } from "../../schedules/Schedules.ts"
import { Forbidden, Refused, Unavailable } from "../Api.ts"

export type Failure = Refused | Unavailable | Forbidden

/** Texts of reasons have no secrets and no payloads. */
export const of = (
  error:
    | ProviderError
    | QueueError
    | InstanceAlreadyExists
    | PayloadMismatch
    | PayloadTooLarge
    | ScheduleNotFound
    | Refusal
    | Failure
): Failure => {
  switch (error._tag) {
    case "Refused":
    case "Unavailable":
    case "Forbidden":
      return error
    case "Refusal":
      return new Refused({ code: error.code, message: error.message })
    case "InstanceAlreadyExists":
      return new Refused({
        code: error._tag,
        message: `instance ${error.instanceId} exists already: choose another id`
      })
    case "PayloadMismatch":
    case "PayloadTooLarge":
    case "ScheduleNotFound":
      return new Refused({ code: error._tag, message: error.message })
    case "ProviderError":
    case "QueueError":
      return ofReason(error.reason)
  }
}

// internal

const ofReason = (reason: (ProviderError | QueueError)["reason"]): Failure =>
  reason._tag === "PermissionDenied" || reason._tag === "AccessDenied"
    ? new Forbidden({
      message:
        `the database login of the dashboard may not do this (${reason.message}). Give it the role client or worker`
    })
    : reason.isRetryable || reason._tag === "Closed"
    ? new Unavailable({ message: reason.message })
    : new Refused({ code: reason._tag, message: reason.message })
