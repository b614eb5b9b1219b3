/**
 * Failures of the database as failures of a queue.
 */
import { ProviderError } from "../../../provider/ProviderError.ts"
import { AccessDenied, PayloadInvalid, QueueError, Unavailable, Unexpected } from "../../../queue/QueueError.ts"
import type { Reason } from "../../../queue/QueueError.ts"

export const queueError = (operation: string, queue: string) => ({ reason }: ProviderError) =>
  new QueueError({ operation, queue, reason: reasonOf(operation, reason) })

// internal

const reasonOf = (operation: string, reason: ProviderError["reason"]): Reason => {
  const problem = reason.message
  if (reason.isRetryable) return new Unavailable({ problem })
  switch (reason._tag) {
    case "Closed":
      return new Unavailable({ problem: "the queue is closed" })
    case "AuthenticationFailed":
    case "PermissionDenied":
      return new AccessDenied({ problem })
    case "DataRefused":
      return operation === "publish" ? new PayloadInvalid({ kind: null, problem }) : new Unexpected({ problem })
    default:
      return new Unexpected({ problem })
  }
}
