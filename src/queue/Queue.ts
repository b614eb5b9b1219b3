/**
 * Message queues: at-least-once delivery without order, in PostgreSQL or in SQS, by the same rules.
 *
 * A message is a wake-up, not a permission: its receiver claims the work it names by a lease in PostgreSQL. So a
 * message does no harm when it comes twice, late or in another order, and a lost one only causes a delay.
 *
 * Applications do not publish. They write to the `Outbox` in the transaction that makes the message necessary, and a
 * publisher sends it later.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type { Payload, Received } from "./internal/received.ts"
import type { QueueError } from "./QueueError.ts"
import type { Stored } from "./shared/stored.ts"

export type { Payload, Received } from "./internal/received.ts"

/**
 * Messages of a queue at one moment. SQS gives approximate numbers.
 *
 * @category models
 * @since 0.2.0
 */
export interface Depth {
  /** Could be delivered now. */
  readonly visible: number
  /** Not visible before a later time. */
  readonly delayed: number
  /** Delivered, and neither settled nor visible again. */
  readonly inFlight: number
  /** In the dead letters. */
  readonly dead: number
  /** How long the oldest visible message has been visible, milliseconds; null without one, or if unknown. */
  readonly oldestVisibleMs: number | null
}

/**
 * A message queue server. The names of its queues are options of its layer; every call with another name fails with
 * `QueueNotFound`.
 *
 * Calls that are made at the same time share statements or requests, and succeed or fail one by one.
 *
 * @category services
 * @since 0.2.0
 */
export class Queue extends Context.Service<Queue, {
  /** For logs and metrics: `memory`, `postgresql`, `sqs`. */
  readonly name: string
  /** Names of its queues. A publisher of the outbox sends only to these. */
  readonly queues: ReadonlyArray<string>
  /** Longest delay of a publish, milliseconds. */
  readonly maxDelayMs: number
  /** Most bytes of a payload as JSON in UTF-8. */
  readonly maxPayloadBytes: number
  /**
   * Sends a message that becomes visible after `delay`, by default at once. If it fails with `Unavailable`, the message
   * may have been sent.
   */
  readonly publish: (
    queue: string,
    payload: Payload,
    options?: { readonly delay?: Duration.Input | undefined }
  ) => Effect.Effect<void, QueueError>
  /**
   * Receives up to `maxMessages` messages and hides them from others for `visibilityTimeout`. Waits up to `wait` for
   * the first one, then returns an empty array. A message that was delivered too often goes to the dead letters
   * instead.
   */
  readonly receive: (queue: string, options: {
    /** 1 to 1,000; SQS gives 10 at most. */
    readonly maxMessages: number
    /** More than 0, at most 12 hours. */
    readonly visibilityTimeout: Duration.Input
    /** At most 20 seconds. */
    readonly wait: Duration.Input
  }) => Effect.Effect<ReadonlyArray<Received>, QueueError>
  /** Deletes a delivered message. Fails with `ReceiptExpired` if it may have been delivered again. */
  readonly ack: (queue: string, receipt: string) => Effect.Effect<void, QueueError>
  /**
   * Hides a delivered message for `timeout` from now on, at most 12 hours; with 0 it can be delivered again at once,
   * and the receipt has expired.
   */
  readonly extendVisibility: (
    queue: string,
    receipt: string,
    timeout: Duration.Input
  ) => Effect.Effect<void, QueueError>
  /** Moves a delivered message to the dead letters. `reason` must not contain payloads or secrets. */
  readonly deadLetter: (queue: string, received: Received, reason: string) => Effect.Effect<void, QueueError>
  /** Moves up to `limit` dead messages back to the queue, the oldest first except in SQS; answers with their number. */
  readonly redrive: (queue: string, options: { readonly limit: number }) => Effect.Effect<number, QueueError>
  readonly depth: (queue: string) => Effect.Effect<Depth, QueueError>
  /**
   * How to reach the tables of a queue in a database.
   *
   * @internal
   */
  readonly stored?: Stored | undefined
}>()("duroxide-prisma/Queue") {}
