/**
 * Receives the messages of a queue and runs a handler for each, by its kind.
 *
 * Delivery is at-least-once: a handler may run twice for one message, also at the same time in two processes. It should
 * claim what the message names, or be idempotent.
 *
 * @since 0.2.0
 */
import * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import type { PayloadFields } from "../model/internal/payload.ts"
import type { Message, Value } from "./Message.ts"
import type { Queue } from "./Queue.ts"
import type { QueueError } from "./QueueError.ts"

/**
 * The answer of a handler that cannot finish now: the message comes again after `delay`, which counts as a delivery.
 *
 * @category models
 * @since 0.2.0
 */
export class Later {
  readonly delay: Duration.Duration
  constructor(options: { readonly delay: Duration.Input }) {
    this.delay = Duration.fromInputUnsafe(options.delay)
  }
}

/**
 * What a handler may know about the delivery of its message.
 *
 * @category models
 * @since 0.2.0
 */
export interface Delivery {
  readonly queue: string
  /** Deliveries so far, this one included; from 1. */
  readonly deliveryCount: number
}

/**
 * A kind of messages with its handler; made by `on`.
 *
 * @category models
 * @since 0.2.0
 */
export interface Handler<out R = never> {
  readonly kind: string
  readonly run: (
    payload: Parameters<Message<string, PayloadFields>["decode"]>[0],
    delivery: Delivery
  ) => Effect.Effect<void | Later, unknown, R>
}

/**
 * How a queue is consumed. `queue` and `handlers` are required.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options<R> {
  readonly queue: string
  /** One for each kind. A message of another kind goes to the dead letters. */
  readonly handlers: ReadonlyArray<Handler<R>>
  /** Handlers that run at the same time, at least 1. Defaults to 10. */
  readonly concurrency?: number | undefined
  /**
   * How long a message is hidden from others, extended at half while its handler runs. After a crash it is delivered again
   * when this time is over. Defaults to 30 seconds.
   */
  readonly visibilityTimeout?: Duration.Input | undefined
  /** Most messages of one receive, up to 1,000, and never more than can be handled. Defaults to 10. */
  readonly maxMessages?: number | undefined
  /** How long handlers that run when the scope is closed may go on; then they are interrupted. Defaults to 10 seconds. */
  readonly gracePeriod?: Duration.Input | undefined
}

/**
 * Handles messages of a kind: `void` acknowledges the message, `Later` gives it back. A handler that fails gives it back
 * too, with a delay that grows with each delivery from 1 second to 5 minutes, until the queue moves it to its dead letters.
 *
 * @category constructors
 * @since 0.2.0
 */
export declare const on: <Kind extends string, Fields extends PayloadFields, R = never>(
  message: Message<Kind, Fields>,
  handler: (value: Value<Fields>, delivery: Delivery) => Effect.Effect<void | Later, unknown, R>
) => Handler<Exclude<R, Scope.Scope>>

/**
 * Consumes a queue until the layer is released. Fails with `QueueError` if an option is out of its range.
 *
 * @category layers
 * @since 0.2.0
 */
export declare const layer: <R = never>(options: Options<R>) => Layer.Layer<never, QueueError, Queue | R>
