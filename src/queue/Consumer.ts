/**
 * Receives the messages of a queue and runs a handler for each, by its kind.
 *
 * Delivery is at-least-once: a handler may run twice for one message, also at the same time in two processes. It should
 * claim what the message names, or be idempotent.
 *
 * @since 0.2.0
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import { wholeMs } from "../model/shared/durations.ts"
import { ours } from "../model/shared/logging.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import type { PayloadFields } from "../model/shared/payload.ts"
import { PayloadCodec } from "../provider/PayloadCodec.ts"
import * as sealed from "./internal/sealed.ts"
import type { Message, Value } from "./Message.ts"
import type { Queue } from "./Queue.ts"
import type { Payload, Received } from "./Queue.ts"
import { InvalidInput } from "./QueueError.ts"
import type { PayloadInvalid, QueueError } from "./QueueError.ts"
import * as check from "./shared/check.ts"
import * as consuming from "./shared/consuming.ts"

/**
 * The answer of a handler that cannot finish now: the message comes again after `delay`, which counts as a delivery.
 * A delay of more than 12 hours counts as 12 hours. Throws a `RangeError` if it is not a finite duration of 0 or more.
 *
 * @category models
 * @since 0.2.0
 */
export class Later {
  readonly delay: Duration.Duration
  constructor(options: { readonly delay: Duration.Input }) {
    const ms = wholeMs(options.delay)
    if (ms === undefined || ms === Infinity) {
      throw new RangeError("delay of Later is refused: it is not a finite duration of 0 or more")
    }
    this.delay = Duration.millis(ms)
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
 * A kind of message with its handler; made by `on`.
 *
 * @category models
 * @since 0.2.0
 */
export interface Handler<out R = never> {
  readonly kind: string
  /** The handler of one message. Fails with `PayloadInvalid` if the payload is not of the Schema. */
  readonly prepare: (
    payload: Payload,
    delivery: Delivery
  ) => Effect.Effect<Effect.Effect<void | Later, unknown, R>, PayloadInvalid>
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
  /** Handlers that run at the same time, 1 to 1,000. Defaults to 10. */
  readonly concurrency?: number | undefined
  /**
   * How long a message is hidden from others, extended at half while its handler runs. After a crash it is delivered
   * again when this time is over. Defaults to 30 seconds.
   */
  readonly visibilityTimeout?: Duration.Input | undefined
  /** Most messages of one receive, up to 1,000, and never more than can be handled. Defaults to 10. */
  readonly maxMessages?: number | undefined
  /** How long handlers may still run when the layer is released; then they are interrupted. Defaults to 10 seconds. */
  readonly gracePeriod?: Duration.Input | undefined
}

/**
 * Handles messages of a kind: `void` acknowledges the message, `Later` gives it back. A handler that fails gives it
 * back too, with a delay that grows with each delivery from 1 second to 5 minutes, until the queue moves it to its dead
 * letters.
 *
 * @category constructors
 * @since 0.2.0
 */
export const on = <Kind extends string, Fields extends PayloadFields, R = never>(
  message: Message<Kind, Fields>,
  handler: (value: Value<Fields>, delivery: Delivery) => Effect.Effect<void | Later, unknown, R>
): Handler<Exclude<R, Scope.Scope>> => ({
  kind: message.kind,
  prepare: (payload, delivery) =>
    Effect.map(message.decode(payload), (value) => Effect.scoped(Effect.suspend(() => handler(value, delivery))))
})

/**
 * Consumes a queue until the layer is released. Fails with `QueueError` if an option is out of its range, or the queue
 * is not one of those that `Queue` has (`QueueNotFound`).
 *
 * **Details**
 *
 * A message whose kind has no handler, or whose payload is not of its Schema, goes to the dead letters at once. While
 * the queue is unavailable the consumer tries again, after pauses of up to 30 seconds. When the layer is released, it
 * receives no more, waits for its handlers up to `gracePeriod`, interrupts the rest, and gives their messages back.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = <R = never>(options: Options<R>): Layer.Layer<never, QueueError, Queue | R> =>
  Layer.effectDiscard(consume(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

interface Settings<R> extends consuming.Settings {
  readonly handlers: ReadonlyMap<string, Handler<R>>
}

const readSettings = Effect.fnUntraced(function*<R>(
  options: Options<R>
): Effect.fn.Return<Settings<R>, QueueError> {
  const invalid = (problem: string) =>
    check.fail("consume", options.queue, new InvalidInput({ field: "handlers", problem }))
  const handlers = new Map<string, Handler<R>>()
  for (const handler of options.handlers) {
    if (handlers.has(handler.kind)) return yield* invalid(`the kind "${handler.kind}" has two`)
    handlers.set(handler.kind, handler)
  }
  if (handlers.size === 0) return yield* invalid("there must be at least one")
  return { ...(yield* consuming.readSettings(options)), handlers }
})

const consume = Effect.fnUntraced(function*<R>(
  options: Options<R>
): Effect.fn.Return<void, QueueError, Queue | R | Scope.Scope> {
  const settings = yield* readSettings(options)
  const receive = (queue: Queue["Service"]) => Effect.succeed(consuming.receiving(settings, queue))
  const opened = sealed.opening(Option.getOrUndefined(yield* Effect.serviceOption(PayloadCodec)))
  yield* consuming.consume<R, Received>(settings, [...settings.handlers.keys()], receive, (tools) => {
    const handle = handling(settings, tools, opened)
    const running = new Set<Fiber.Fiber<void>>()
    const start = (received: Received) => {
      const fiber = tools.fork(
        Effect.suspend(() => handle(received)).pipe(
          Effect.catchDefect(consuming.logDefect(settings.queue, consuming.notHandled))
        )
      )
      running.add(fiber)
      fiber.addObserver(() => {
        running.delete(fiber)
        tools.freed()
      })
    }
    return {
      begin: (messages) => {
        for (const message of messages) start(message)
      },
      busy: () => running.size,
      ended: Effect.suspend(() => Effect.forEach([...running], Fiber.await, { discard: true })),
      interrupt: Effect.suspend(() => Fiber.interruptAll(running))
    }
  })
})

/** Handles and settles one message. Never fails; when interrupted, it gives the message back. */
const handling = <R>(
  { handlers, queue: name }: Settings<R>,
  { keeper, settling }: consuming.Tools<R>,
  opened: sealed.Opening
) => {
  /** While it runs, the message stays hidden. */
  const hidden = <A, E>(receipt: string, run: Effect.Effect<A, E, R>) =>
    Effect.suspend(() => {
      const held = keeper.hold(receipt)
      return Effect.onExit(run, () => Effect.sync(() => keeper.release(held)))
    })

  const timed = (kind: string, run: Effect.Effect<void | Later, unknown, R>) =>
    Effect.withFiber<void | Later, unknown, R>((fiber) => {
      const clock = fiber.getRef(Clock.Clock)
      const startMs = monotonicMs(clock)
      return Effect.onExit(run, (exit) =>
        Effect.sync(() => {
          const outcome = Exit.isFailure(exit) ? "failed" : exit.value instanceof Later ? "later" : "acked"
          settling.timed(kind, outcome, monotonicMs(clock) - startMs, fiber.context)
        }))
    })

  /** `payload` is that of the message, opened. What goes to the dead letters stays as it was received. */
  const handle = (received: Received, payload: Received["payload"]) => {
    const { deliveryCount, receipt } = received
    const handler = handlers.get(payload.kind)
    if (handler === undefined) return settling.refuse(received, `no handler for messages of kind "${payload.kind}"`)
    return Effect.uninterruptibleMask((restore) =>
      Effect.matchEffect(handler.prepare(payload, { queue: name, deliveryCount }), {
        onFailure: (error) => settling.refuse(received, error.message),
        onSuccess: (run) =>
          restore(hidden(receipt, timed(payload.kind, run))).pipe(
            Effect.exit,
            Effect.flatMap((exit) => {
              if (Exit.isSuccess(exit)) {
                return exit.value instanceof Later
                  ? settling.giveBack(receipt, exit.value.delay)
                  : settling.ack(receipt)
              }
              return Cause.hasInterruptsOnly(exit.cause)
                ? settling.giveBack(receipt, Duration.zero)
                : settling.failed(received, exit.cause)
            })
          )
      })
    )
  }
  return (received: Received) => {
    const payload = opened(received.payload)
    if (payload === undefined) return handle(received, received.payload)
    return Effect.matchEffect(payload, {
      onSuccess: (payload) => handle(received, payload),
      // Another process may have its key, or the object store answer again.
      onFailure: ({ problem }) =>
        Effect.andThen(
          Effect.logError("Consumer: the payload of a message cannot be decoded; it comes again").pipe(
            ours({ queue: name, error: problem })
          ),
          settling.giveBack(received.receipt, Duration.minutes(1))
        )
    })
  }
}
