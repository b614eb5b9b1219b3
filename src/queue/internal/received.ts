/**
 * Messages as a receiver gets them; `Queue` exports these.
 */

/**
 * The payload of a message: a small JSON object. `kind` says what the other fields are.
 *
 * @category models
 * @since 0.2.0
 */
export interface Payload {
  readonly kind: string
  readonly [field: string]: unknown
}

/**
 * A message that was delivered to this receiver until its visibility timeout ends.
 *
 * @category models
 * @since 0.2.0
 */
export interface Received {
  /** The published payload, of any kind, not checked against a Schema. */
  readonly payload: Payload
  /** Settles this delivery. Opaque text: a message id and the token of a lease, or the receipt handle of SQS. */
  readonly receipt: string
  /** Deliveries so far, this one included; from 1. */
  readonly deliveryCount: number
}
