/**
 * What can go wrong with a queue.
 *
 * One outer error, `QueueError`, says which operation on which queue failed; the tagged `reason` inside says why and
 * whether the same call may succeed later (`isRetryable`). No reason contains a payload, a receipt or a secret.
 *
 * @since 0.2.0
 */
import * as Schema from "effect/Schema"
import { InvalidInput } from "../provider/ProviderError.ts"

export {
  /**
   * An argument or a setting is out of its range. Nothing was done.
   *
   * @category reasons
   * @since 0.2.0
   */
  InvalidInput
} from "../provider/ProviderError.ts"

const id = <const Name extends string>(name: Name) => `duroxide-prisma/QueueError/${name}` as const

/**
 * No queue of this name was declared, or the server does not have it.
 *
 * @category reasons
 * @since 0.2.0
 */
export class QueueNotFound extends Schema.TaggedError<QueueNotFound>(id("QueueNotFound"))("QueueNotFound", {
  queue: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `there is no queue "${this.queue}"; declare it in the options of PgQueue.layer or SqsQueue.layer; on SQS, create it as well`
  }
}

/**
 * The visibility timeout of the delivery has ended, or the message was settled: another receiver may have it.
 *
 * @category reasons
 * @since 0.2.0
 */
export class ReceiptExpired extends Schema.TaggedError<ReceiptExpired>(id("ReceiptExpired"))("ReceiptExpired", {}) {
  readonly isRetryable = false
  override get message() {
    return "the receipt has expired or was used: the message may have been delivered again"
  }
}

/**
 * The text is not a receipt of this queue.
 *
 * @category reasons
 * @since 0.2.0
 */
export class ReceiptInvalid extends Schema.TaggedError<ReceiptInvalid>(id("ReceiptInvalid"))("ReceiptInvalid", {}) {
  readonly isRetryable = false
  override get message() {
    return "the receipt is not one of this queue"
  }
}

/**
 * The payload is not of its Schema, has no `kind`, or contains what JSON or the store cannot hold. Nothing was sent.
 *
 * @category reasons
 * @since 0.2.0
 */
export class PayloadInvalid extends Schema.TaggedError<PayloadInvalid>(id("PayloadInvalid"))("PayloadInvalid", {
  kind: Schema.NullOr(Schema.String),
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `invalid payload${this.kind === null ? "" : ` of kind "${this.kind}"`}: ${this.problem}`
  }
}

/**
 * The payload has more bytes than the queue takes. Nothing was sent. Store it, and send a message that refers to it.
 *
 * @category reasons
 * @since 0.2.0
 */
export class PayloadTooLarge extends Schema.TaggedError<PayloadTooLarge>(id("PayloadTooLarge"))("PayloadTooLarge", {
  /** Size of the payload as JSON in UTF-8. */
  bytes: Schema.Number,
  maxBytes: Schema.Number
}) {
  readonly isRetryable = false
  override get message() {
    return `the payload has ${this.bytes} bytes of JSON, more than ${this.maxBytes}; store it and send a reference`
  }
}

/**
 * The queue does not hold messages back for that long. `Outbox` does: it keeps them in PostgreSQL until they are nearly
 * due.
 *
 * @category reasons
 * @since 0.2.0
 */
export class DelayTooLong extends Schema.TaggedError<DelayTooLong>(id("DelayTooLong"))("DelayTooLong", {
  delayMs: Schema.Number,
  maxMs: Schema.Number
}) {
  readonly isRetryable = false
  override get message() {
    return `a delay of ${this.delayMs} ms is longer than ${this.maxMs} ms; the outbox takes up to 3,650 days on every queue`
  }
}

/**
 * The server refused the credentials, or they do not allow the call.
 *
 * @category reasons
 * @since 0.2.0
 */
export class AccessDenied extends Schema.TaggedError<AccessDenied>(id("AccessDenied"))("AccessDenied", {
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `access denied: ${this.problem}`
  }
}

/**
 * The server did not answer, is overloaded, or the connection was lost. The outcome of a publish is unknown.
 *
 * @category reasons
 * @since 0.2.0
 */
export class Unavailable extends Schema.TaggedError<Unavailable>(id("Unavailable"))("Unavailable", {
  problem: Schema.String
}) {
  readonly isRetryable = true
  override get message() {
    return `unavailable: ${this.problem}`
  }
}

/**
 * The layer of the queue is closed, or closes.
 *
 * @category reasons
 * @since 0.2.0
 */
export class Closed extends Schema.TaggedError<Closed>(id("Closed"))("Closed", {}) {
  readonly isRetryable = false
  override get message() {
    return "the queue is closed"
  }
}

/**
 * Anything else: a bug here, or an answer of the server that this version does not know.
 *
 * @category reasons
 * @since 0.2.0
 */
export class Unexpected extends Schema.TaggedError<Unexpected>(id("Unexpected"))("Unexpected", {
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return this.problem
  }
}

/**
 * All reasons.
 *
 * @category models
 * @since 0.2.0
 */
export type Reason =
  | QueueNotFound
  | ReceiptExpired
  | ReceiptInvalid
  | PayloadInvalid
  | PayloadTooLarge
  | DelayTooLong
  | InvalidInput
  | AccessDenied
  | Unavailable
  | Closed
  | Unexpected

/**
 * An operation on a queue failed.
 *
 * @category errors
 * @since 0.2.0
 */
export class QueueError extends Schema.TaggedError<QueueError>("duroxide-prisma/QueueError")("QueueError", {
  /** Such as `publish`. */
  operation: Schema.String,
  queue: Schema.String,
  reason: Schema.Union([
    QueueNotFound,
    ReceiptExpired,
    ReceiptInvalid,
    PayloadInvalid,
    PayloadTooLarge,
    DelayTooLong,
    InvalidInput,
    AccessDenied,
    Unavailable,
    Closed,
    Unexpected
  ])
}) {
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
  override get message() {
    return `${this.operation} "${this.queue}": ${this.reason.message}`
  }
}
