/**
 * Failures of SQS and of its SDK as failures of a queue.
 *
 * The names of errors are passed on, never their messages: these may contain account numbers, key ids and payloads.
 */
import * as Predicate from "effect/Predicate"
import {
  AccessDenied,
  InvalidInput,
  PayloadInvalid,
  QueueNotFound,
  ReceiptExpired,
  ReceiptInvalid,
  Unavailable,
  Unexpected
} from "../QueueError.ts"
import type { Reason } from "../QueueError.ts"

/** The reason for a value that the SDK has thrown. */
export const ofThrown = (queue: string, thrown: unknown): Reason => {
  const name = Predicate.isObject(thrown) && typeof thrown.name === "string" ? thrown.name : typeof thrown
  const code = Predicate.isObject(thrown) && typeof thrown.code === "string" ? thrown.code : undefined
  const known = ofCode(queue, name)
  if (known !== undefined) return known
  if (Predicate.isObject(thrown) && thrown.message === "Region is missing") {
    return new InvalidInput({ field: "client", problem: "there is no region; set it here, or AWS_REGION" })
  }
  const status = Predicate.isObject(thrown) && Predicate.isObject(thrown.$metadata)
    ? Number(thrown.$metadata.httpStatusCode)
    : Number.NaN
  const isOfServer = Predicate.isObject(thrown) && (thrown.$fault === "server" || thrown.$retryable !== undefined)
  if ((code !== undefined && !code.startsWith("ERR_")) || isOfServer || status >= 500 || status === 429) {
    return new Unavailable({ problem: code === undefined ? name : `${name} ${code}` })
  }
  return new Unexpected({ problem: `SQS refused the request: ${name}` })
}

/** Reason for one failed item of a batch. SQS answers `InvalidParameterValue` for a message that is visible again. */
export const ofEntry = (
  queue: string,
  code: string | undefined,
  isOfSender: boolean | undefined,
  isSettling: boolean
): Reason =>
  ofCode(queue, code ?? "") ??
    (isSettling && code?.startsWith("InvalidParameterValue") === true
      ? new ReceiptExpired({})
      : isOfSender === true
      ? new Unexpected({ problem: `SQS refused the item: ${code}` })
      : new Unavailable({ problem: code ?? "the item failed" }))

// internal

/** Both protocols of SQS are in use: the older one puts a prefix before some codes. */
const ofCode = (queue: string, code: string): Reason | undefined => {
  const name = code.replace(/^(com\.amazonaws\.sqs#|AWS\.SimpleQueueService\.)/, "")
  if (queueNotFound.has(name)) return new QueueNotFound({ queue })
  if (name === "MessageNotInflight") return new ReceiptExpired({})
  if (name === "ReceiptHandleIsInvalid") return new ReceiptInvalid({})
  if (name === "InvalidMessageContents") {
    return new PayloadInvalid({ kind: null, problem: "it has characters that SQS does not take" })
  }
  if (accessDenied.has(name)) return new AccessDenied({ problem: name })
  if (unavailable.has(name)) return new Unavailable({ problem: name })
  return undefined
}

const queueNotFound = new Set(["QueueDoesNotExist", "NonExistentQueue", "QueueDeletedRecently", "InvalidAddress"])

const accessDenied = new Set([
  "AccessDenied",
  "AccessDeniedException",
  "AuthFailure",
  "CredentialsProviderError",
  "ExpiredToken",
  "ExpiredTokenException",
  "IncompleteSignature",
  "InvalidAccessKeyId",
  "InvalidClientTokenId",
  "InvalidSecurity",
  "InvalidSignatureException",
  "KmsAccessDenied",
  "MissingAuthenticationToken",
  "NotAuthorized",
  "OptInRequired",
  "RequestExpired",
  "SignatureDoesNotMatch",
  "TokenProviderError",
  "UnrecognizedClientException"
])

const unavailable = new Set([
  "AbortError",
  "InternalError",
  "InternalFailure",
  "KmsThrottled",
  "OverLimit",
  "RequestThrottled",
  "RequestTimeout",
  "ServiceUnavailable",
  "SlowDown",
  "ThrottledException",
  "Throttling",
  "ThrottlingException",
  "TimeoutError",
  "TooManyRequestsException"
])
