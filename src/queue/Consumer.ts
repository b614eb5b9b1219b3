/**
 * Receives the messages of a queue and runs a handler for each, by its kind.
 *
 * Delivery is at-least-once: a handler may run twice for one message, also at the same time in two processes. It should
 * claim what the message names, or be idempotent.
 *
 * @since 0.2.0
 */
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { errorTypeOf } from "../model/internal/errorType.ts"
import { InBackground } from "../model/internal/inBackground.ts"
import { seriesOf } from "../model/internal/labelled.ts"
import { harmlessIn, withHarmlessLoggers } from "../model/internal/logging.ts"
import { monotonicMs } from "../model/internal/monotonic.ts"
import type { PayloadFields } from "../model/internal/payload.ts"
import * as Metrics from "../model/Metrics.ts"
import * as check from "./internal/check.ts"
import type { Message, Value } from "./Message.ts"
import { Queue } from "./Queue.ts"
import type { Payload, Received } from "./Queue.ts"
import { InvalidInput, QueueNotFound } from "./QueueError.ts"
import type { PayloadInvalid, QueueError } from "./QueueError.ts"

/**
 * The answer of a handler that cannot finish now: the message comes again after `delay`, which counts as a delivery.
 * Throws a `RangeError` if `delay` is not a finite duration of 0 or more.
 *
 * @category models
 * @since 0.2.0
 */
export class Later {
  readonly delay: Duration.Duration
  constructor(options: { readonly delay: Duration.Input }) {
    const ms = check.wholeMs(options.delay)
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
  /** Handlers that run at the same time, at least 1. Defaults to 10. */
  readonly concurrency?: number | undefined
  /**
   * How long a message is hidden from others, extended at half while its handler runs. After a crash it is delivered again
   * when this time is over. Defaults to 30 seconds.
   */
  readonly visibilityTimeout?: Duration.Input | undefined
  /** Most messages of one receive, up to 1,000, and never more than can be handled. Defaults to 10. */
  readonly maxMessages?: number | undefined
  /** How long handlers may still run when the layer is released; then they are interrupted. Defaults to 10 seconds. */
  readonly gracePeriod?: Duration.Input | undefined
}

/**
 * Handles messages of a kind: `void` acknowledges the message, `Later` gives it back. A handler that fails gives it back
 * too, with a delay that grows with each delivery from 1 second to 5 minutes, until the queue moves it to its dead letters.
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
 * Consumes a queue until the layer is released. Fails with `QueueError` if an option is out of its range, or the queue is not
 * one of those that `Queue` has (`QueueNotFound`).
 *
 * **Details**
 *
 * A message whose kind has no handler, or whose payload is not of its Schema, goes to the dead letters at once. While the
 * queue is unavailable the consumer tries again, after pauses of up to 30 seconds. When the layer is released, it receives
 * no more, waits for its handlers up to `gracePeriod`, interrupts the rest, and gives their messages back.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = <R = never>(options: Options<R>): Layer.Layer<never, QueueError, Queue | R> =>
  Layer.effectDiscard(consume(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** The longest wait of every queue. */
const wait = Duration.seconds(20)

interface Settings<R> {
  readonly queue: string
  readonly handlers: ReadonlyMap<string, Handler<R>>
  readonly concurrency: number
  readonly maxMessages: number
  readonly visibility: Duration.Duration
  readonly gracePeriod: Duration.Duration
}

const readSettings = Effect.fnUntraced(function*<R>(
  { queue, ...options }: Options<R>
): Effect.fn.Return<Settings<R>, QueueError> {
  const invalid = (field: string, problem: string) => check.fail("consume", queue, new InvalidInput({ field, problem }))
  const duration = (field: string, input: Duration.Input) =>
    Effect.map(check.timeout("consume", queue, field, input), Duration.millis)
  const handlers = new Map<string, Handler<R>>()
  for (const handler of options.handlers) {
    if (handlers.has(handler.kind)) return yield* invalid("handlers", `the kind "${handler.kind}" has two`)
    handlers.set(handler.kind, handler)
  }
  if (handlers.size === 0) return yield* invalid("handlers", "there must be at least one")
  const visibility = yield* duration("visibilityTimeout", options.visibilityTimeout ?? "30 seconds")
  if (Duration.toMillis(visibility) === 0) return yield* invalid("visibilityTimeout", "it must be more than 0")
  return {
    queue,
    handlers,
    concurrency: yield* check.count("consume", queue, "concurrency", options.concurrency ?? 10),
    maxMessages: yield* check.count("consume", queue, "maxMessages", options.maxMessages ?? 10),
    visibility,
    gracePeriod: yield* duration("gracePeriod", options.gracePeriod ?? "10 seconds")
  }
})

const consume = Effect.fnUntraced(function*<R>(
  options: Options<R>
): Effect.fn.Return<void, QueueError, Queue | R | Scope.Scope> {
  const settings = yield* readSettings(options)
  const { concurrency, gracePeriod, maxMessages, queue: name, visibility } = settings
  const queue = yield* Queue
  if (!queue.queues.includes(name)) return yield* check.fail("consume", name, new QueueNotFound({ queue: name }))
  const context = yield* Effect.context<R>()
  const fork = Effect.runForkWith(harmlessIn(context))
  const logDefect = defectLog(name)
  const keeper = keeping(queue, settings, fork)
  const handle = handling(queue, settings, keeper.hold)
  const running = new Set<Fiber.Fiber<void>>()
  const freed = Latch.makeUnsafe()

  const start = (received: Received) => {
    const fiber = fork(
      Effect.suspend(() => handle(received)).pipe(
        Effect.catchDefect(
          logDefect(Effect.logError("Consumer: a message could not be handled or settled, so it comes again"))
        )
      )
    )
    running.add(fiber)
    fiber.addObserver(() => {
      running.delete(fiber)
      freed.openUnsafe()
    })
  }

  const outage = makeOutage(name)
  const receiveOnce = Effect.suspend(() => {
    freed.closeUnsafe()
    const free = concurrency - running.size
    if (free === 0) return freed.await
    return Effect.uninterruptibleMask((restore) =>
      restore(queue.receive(name, {
        maxMessages: Math.min(maxMessages, free),
        visibilityTimeout: visibility,
        wait
      })).pipe(
        Effect.flatMap((messages) => {
          for (const message of messages) start(message)
          return outage.over
        }),
        Effect.catch((error) => restore(outage.pause(error)))
      )
    )
  })

  const log = (line: Effect.Effect<void>, annotations: Record<string, unknown> = {}) =>
    Effect.annotateLogs(line, { package: "duroxide-prisma", queue: name, ...annotations }).pipe(withHarmlessLoggers)
  yield* log(Effect.logInfo("Consumer: started"), {
    kinds: [...settings.handlers.keys()].join(", "),
    concurrency
  })
  yield* Effect.addFinalizer(() => log(Effect.logInfo("Consumer: stopped")))
  // Closed in the reverse order: first no more is received, and messages are kept hidden to the end.
  yield* Effect.forkScoped(keeper.run)
  yield* Effect.addFinalizer(() =>
    Effect.gen(function*() {
      yield* Effect.timeoutOption(Effect.forEach([...running], Fiber.await, { discard: true }), gracePeriod)
      yield* Fiber.interruptAll(running)
    })
  )
  // Handlers that end together free their places together.
  yield* Effect.forever(Effect.andThen(Effect.yieldNow, receiveOnce)).pipe(
    Effect.catchDefect((defect) =>
      Effect.andThen(
        logDefect(Effect.logError("Consumer: receiving stopped by a defect; it starts again"))(defect),
        Effect.sleep(restartPause)
      )
    ),
    Effect.forever,
    Effect.provideService(InBackground, true),
    withHarmlessLoggers,
    Effect.forkScoped
  )
})

/** One that dies at once each time must not fill the log. */
const restartPause = Duration.seconds(5)

/** Logs the type of a defect, never what it contains. */
const defectLog = (queue: string) => (line: Effect.Effect<void>) => (defect: unknown) =>
  Effect.annotateLogs(line, { package: "duroxide-prisma", queue, error_type: errorTypeOf(defect) })

/** A message whose handler runs. */
interface Held {
  readonly receipt: string
  /** Monotonic milliseconds of its next extension. */
  dueMs: number
  extension: Fiber.Fiber<void> | undefined
}

/** While the returned effect runs, the message stays hidden. */
type Hold = <A, E, R>(receipt: string, run: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** Extends the messages whose handlers run, at half of the visibility timeout: one timer for all. */
const keeping = <R>(
  queue: Queue["Service"],
  { queue: name, visibility }: Settings<R>,
  fork: (effect: Effect.Effect<void>) => Fiber.Fiber<void>
): { readonly run: Effect.Effect<void>; readonly hold: Hold } => {
  /** In the order of their next extensions, as all have the same pause. */
  const waiting = new Set<Held>()
  const begun = Latch.makeUnsafe()
  const halfMs = Duration.toMillis(visibility) / 2

  const wait = (held: Held, nowMs: number) => {
    held.dueMs = nowMs + halfMs
    held.extension = undefined
    waiting.add(held)
    begun.openUnsafe()
  }

  /** Not repeated when the lease is lost: then the handler runs on, and its message comes again. */
  const extend = (held: Held) =>
    Effect.retry(queue.extendVisibility(name, held.receipt, visibility), {
      schedule: Schedule.spaced(Duration.divideUnsafe(visibility, 10)),
      while: ({ isRetryable }) => isRetryable
    }).pipe(
      Effect.andThen(Effect.clockWith((clock) => Effect.sync(() => wait(held, monotonicMs(clock))))),
      Effect.catch((error) =>
        Effect.logWarning("Consumer: the message could not be kept hidden, so it comes again").pipe(
          Effect.annotateLogs({ package: "duroxide-prisma", queue: name, error: error.message })
        )
      ),
      Effect.catchDefect(
        defectLog(name)(Effect.logError("Consumer: the message could not be kept hidden, so it comes again"))
      ),
      Effect.provideService(InBackground, true)
    )

  const round = Effect.clockWith((clock) => {
    const nowMs = monotonicMs(clock)
    for (const held of waiting) {
      if (held.dueMs > nowMs) return Effect.sleep(Math.ceil(held.dueMs - nowMs))
      waiting.delete(held)
      // Not at once: a handler that it wakes must find it.
      held.extension = fork(Effect.andThen(Effect.yieldNow, extend(held)))
    }
    begun.closeUnsafe()
    return begun.await
  })

  return {
    run: Effect.forever(round).pipe(Effect.provideService(InBackground, true)),
    hold: (receipt, run) =>
      Effect.clockWith((clock) => {
        const held: Held = { receipt, dueMs: 0, extension: undefined }
        wait(held, monotonicMs(clock))
        const release = Effect.sync(() => void waiting.delete(held))
        return Effect.onExit(run, () =>
          // One that has just ended may have made it wait again.
          held.extension === undefined ? release : Effect.andThen(Fiber.interrupt(held.extension), release))
      })
  }
}

/** Handles and settles one message. Never fails; when interrupted, it gives the message back. */
const handling = <R>(queue: Queue["Service"], { handlers, queue: name }: Settings<R>, hold: Hold) => {
  const log = (line: Effect.Effect<void>, annotations: Record<string, unknown>) =>
    Effect.annotateLogs(line, { package: "duroxide-prisma", queue: name, ...annotations })

  /** After a lease that has ended, the message comes again. */
  const settled = (message: string, attempt: Effect.Effect<void, QueueError>) =>
    Effect.retry(attempt, { schedule: settlingPauses, times: 5, while: ({ isRetryable }) => isRetryable }).pipe(
      Effect.catch((error: QueueError) =>
        log(Effect.logWarning(`Consumer: ${message}, so it comes again`), { error: error.message })
      )
    )

  const giveBack = (receipt: string, delay: Duration.Duration) =>
    settled(
      "the message could not be given back",
      queue.extendVisibility(name, receipt, Duration.min(delay, longestDelay))
    )

  const refuse = (received: Received, reason: string) =>
    log(Effect.logWarning("Consumer: message moved to the dead letters"), { reason }).pipe(
      Effect.andThen(
        settled("the message could not be moved to the dead letters", queue.deadLetter(name, received, reason))
      )
    )

  const timed = (kind: string, run: Effect.Effect<void | Later, unknown, R>) =>
    Effect.clockWith((clock) => {
      const start = monotonicMs(clock)
      return Effect.onExit(run, (exit) =>
        Effect.suspend(() =>
          Metric.update(
            duration(name, kind, Exit.isFailure(exit) ? "failed" : exit.value instanceof Later ? "later" : "acked"),
            (monotonicMs(clock) - start) / 1000
          )
        ))
    })

  const conclude = (received: Received, exit: Exit.Exit<void | Later, unknown>) => {
    const { deliveryCount, payload: { kind }, receipt } = received
    if (Exit.isFailure(exit)) {
      return Effect.andThen(
        log(Effect.logWarning("Consumer: the handler failed, so the message comes again"), {
          kind,
          deliveries: deliveryCount,
          error_type: errorTypeOf(Cause.squash(exit.cause))
        }),
        giveBack(receipt, backoff(deliveryCount))
      )
    }
    return exit.value instanceof Later
      ? giveBack(receipt, exit.value.delay)
      : settled("the message was handled, but not acknowledged", queue.ack(name, receipt))
  }

  return (received: Received) => {
    const { deliveryCount, payload, receipt } = received
    const handler = handlers.get(payload.kind)
    if (handler === undefined) return refuse(received, `no handler for messages of kind "${payload.kind}"`)
    return Effect.uninterruptibleMask((restore) =>
      Effect.matchEffect(handler.prepare(payload, { queue: name, deliveryCount }), {
        onFailure: (error) => refuse(received, error.message),
        onSuccess: (run) =>
          restore(hold(receipt, timed(payload.kind, run))).pipe(
            Effect.exit,
            Effect.flatMap((exit) =>
              Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)
                ? giveBack(receipt, Duration.zero)
                : conclude(received, exit)
            )
          )
      })
    )
  }
}

const duration = seriesOf(Metrics.queueHandlerDuration)

const settlingPauses = Schedule.exponential("100 millis")

const longestDelay = Duration.hours(12)

/** Before the next delivery of a message whose handler has failed. */
const backoff = (deliveryCount: number) =>
  Duration.min(Duration.seconds(2 ** Math.min(deliveryCount - 1, 20)), Duration.minutes(5))

/** Receives that fail in a row: pauses that grow, and one warning. */
const makeOutage = (queue: string) => {
  let failures = 0
  const log = (line: Effect.Effect<void>, annotations: Record<string, unknown>) =>
    Effect.annotateLogs(line, { package: "duroxide-prisma", queue, ...annotations })
  return {
    over: Effect.suspend(() => {
      if (failures === 0) return Effect.void
      const attempts = failures
      failures = 0
      return log(Effect.logInfo("Consumer: receives again"), { attempts })
    }),
    pause: (error: QueueError) =>
      Effect.gen(function*() {
        failures++
        const line = failures > 1
          ? Effect.logDebug("Consumer: cannot receive yet")
          : error.isRetryable
          ? Effect.logWarning("Consumer: cannot receive; it tries again")
          : Effect.logError("Consumer: cannot receive; it tries again")
        yield* log(line, { error: error.message })
        const ms = Math.min(1000 * 2 ** (failures - 1), 30_000)
        yield* Effect.sleep((yield* Random.nextBetween(0.5, 1)) * (error.isRetryable ? ms : 30_000))
      })
  }
}
