/**
 * What `Consumer` and `TaskWorker` share: a loop that receives messages while handlers are free, keeps messages under
 * way hidden from others, settles them, and stops gracefully.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Latch from "effect/Latch"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { errorTypeOf } from "../../model/shared/errorType.ts"
import { InBackground } from "../../model/shared/inBackground.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import { harmlessIn, ours, withHarmlessLoggers } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as trouble from "../../model/shared/trouble.ts"
import { Queue } from "../Queue.ts"
import type { Received } from "../Queue.ts"
import { QueueNotFound } from "../QueueError.ts"
import type { QueueError } from "../QueueError.ts"
import * as check from "./check.ts"

/** Options of a consumer; `Consumer` and `TaskWorker` describe them. */
export interface Options {
  readonly queue: string
  readonly concurrency?: number | undefined
  readonly visibilityTimeout?: Duration.Input | undefined
  readonly maxMessages?: number | undefined
  readonly gracePeriod?: Duration.Input | undefined
}

export interface Settings {
  readonly queue: string
  readonly concurrency: number
  readonly maxMessages: number
  readonly visibility: Duration.Duration
  readonly gracePeriod: Duration.Duration
}

/** Fails with `InvalidInput`. */
export const readSettings = Effect.fnUntraced(function*(
  { queue, ...options }: Options
): Effect.fn.Return<Settings, QueueError> {
  const visibilityMs = yield* check.visibility("consume", queue, options.visibilityTimeout ?? "30 seconds")
  const graceMs = yield* check.timeout("consume", queue, "gracePeriod", options.gracePeriod ?? "10 seconds")
  return {
    queue,
    concurrency: yield* check.count("consume", queue, "concurrency", options.concurrency ?? 10),
    maxMessages: yield* check.count("consume", queue, "maxMessages", options.maxMessages ?? 10),
    visibility: Duration.millis(visibilityMs),
    gracePeriod: Duration.millis(graceMs)
  }
})

/** What handles the received messages. */
export interface Work<M = Received> {
  /** Takes messages over. Does not wait. */
  readonly begin: (messages: ReadonlyArray<M>) => void
  /** Places that are taken. */
  readonly busy: () => number
  /** When all that was begun has ended. */
  readonly ended: Effect.Effect<void>
  /** Interrupts all handlers, and returns when their messages are given back. */
  readonly interrupt: Effect.Effect<void>
}

/** What work is done with. */
export interface Tools<R> {
  readonly queue: Queue["Service"]
  readonly context: Context.Context<R>
  /** A fiber of its own. */
  readonly fork: (effect: Effect.Effect<void, never, R>) => Fiber.Fiber<void>
  /** To be called when a place has become free. */
  readonly freed: () => void
  readonly keeper: Pick<Keeper, "hold" | "release">
  readonly settling: Settling
}

/** Receives messages from the queue of these settings. */
export type Receive<M> = (maxMessages: number) => Effect.Effect<ReadonlyArray<M>, QueueError>

/** Receives through `Queue`. */
export const receiving =
  ({ queue: name, visibility }: Settings, queue: Queue["Service"]): Receive<Received> => (maxMessages) =>
    queue.receive(name, { maxMessages, visibilityTimeout: visibility, wait: longestWait })

/** Consumes a queue until the scope is closed. `kinds` is for the log. Fails with `QueueNotFound`. */
export const consume = Effect.fnUntraced(function*<R, M>(
  settings: Settings,
  kinds: ReadonlyArray<string>,
  receiveBy: (queue: Queue["Service"]) => Effect.Effect<Receive<M>, never, Scope.Scope>,
  makeWork: (tools: Tools<R>) => Work<M>
): Effect.fn.Return<void, QueueError, Queue | R | Scope.Scope> {
  const { concurrency, gracePeriod, maxMessages, queue: name } = settings
  const queue = yield* Queue
  if (!queue.queues.includes(name)) return yield* check.fail("consume", name, new QueueNotFound({ queue: name }))
  const context = harmlessIn(yield* Effect.context<R>())
  const fork = Effect.runForkWith(context)
  const clock = Context.get(context as Context.Context<never>, Clock.Clock)
  const keeper = keeping(queue, settings, clock, fork)
  const receive = yield* receiveBy(queue)
  const free = Latch.makeUnsafe()
  const freed = () => {
    free.openUnsafe()
  }
  const work = makeWork({ queue, context, fork, freed, keeper, settling: settling(queue, name) })

  const log = (line: Effect.Effect<void>, annotations: Record<string, unknown> = {}) =>
    ours({ queue: name, ...annotations })(line)
  const outage = trouble.make(clock)
  const outageOver = Effect.suspend(() => {
    const ended = outage.ended()
    return ended === undefined
      ? Effect.void
      : log(Effect.logInfo("Consumer: receives again"), { attempts: ended.failures })
  })
  const pauseAfter = (error: QueueError) =>
    Effect.suspend(() => {
      const failures = outage.failed()
      const line = failures > 0
        ? Effect.logDebug("Consumer: cannot receive yet")
        : Effect.logWarning("Consumer: cannot receive; it tries again")
      return Effect.andThen(
        log(line, { error: error.message }),
        trouble.sleepUpTo(trouble.growingMs(firstPauseMs, longestPauseMs, failures))
      )
    })
  const receiveOnce = Effect.suspend(() => {
    free.closeUnsafe()
    const places = concurrency - work.busy()
    if (places <= 0) return free.await
    return Effect.uninterruptibleMask((restore) =>
      restore(receive(Math.min(maxMessages, places))).pipe(
        Effect.flatMap((messages) => {
          if (messages.length > 0) work.begin(messages)
          return outageOver
        }),
        Effect.catch((error) => restore(pauseAfter(error)))
      )
    )
  })

  yield* log(Effect.logInfo("Consumer: started"), { kinds: kinds.join(", "), concurrency })
  yield* Effect.addFinalizer(() => log(Effect.logInfo("Consumer: stopped")))
  // Closed in the reverse order: first no more is received, and messages are kept hidden to the end.
  yield* Effect.forkScoped(keeper.run)
  yield* Effect.addFinalizer(() =>
    Effect.timeoutOption(work.ended, gracePeriod).pipe(
      Effect.andThen(Effect.timeoutOption(work.interrupt, farewell)),
      Effect.flatMap((ended) =>
        Option.isSome(ended)
          ? Effect.void
          : log(Effect.logWarning("Consumer: interrupted work has not ended; what it holds comes again"))
      )
    )
  )
  // Handlers that end together free their places together.
  yield* Effect.forever(Effect.andThen(Effect.yieldNow, receiveOnce)).pipe(
    Effect.catchDefect((defect) =>
      Effect.andThen(
        logDefect(name, Effect.logError("Consumer: receiving stopped by a defect; it starts again"))(defect),
        Effect.sleep(restartPause)
      )
    ),
    Effect.forever,
    Effect.provideService(InBackground, true),
    withHarmlessLoggers,
    Effect.forkScoped
  )
})

/** Logs the type of a defect, never what it contains. */
export const logDefect = (queue: string, line: Effect.Effect<void>) => (defect: unknown) =>
  ours({ queue, error_type: errorTypeOf(defect) })(line)

export const notHandled = Effect.logError(
  "Consumer: a message could not be handled or settled, so it comes again"
)

// -- settling --------------------------------------------------------------------------------------

export interface Settling {
  readonly ack: (receipt: string) => Effect.Effect<void>
  readonly giveBack: (receipt: string, delay: Duration.Duration) => Effect.Effect<void>
  /** Moves it to the dead letters. */
  readonly refuse: (received: Received, reason: string) => Effect.Effect<void>
  /** Gives back a message whose handler has failed. */
  readonly failed: (received: Received, cause: Cause.Cause<unknown>) => Effect.Effect<void>
  /** Counts the time of a handler, in the metrics. */
  readonly timed: (
    kind: string,
    outcome: "acked" | "later" | "failed",
    ms: number,
    context: Context.Context<never>
  ) => void
}

/** Settles messages; none of it fails. After a lease that has ended, the message comes again. */
const settling = (queue: Queue["Service"], name: string): Settling => {
  const log = (line: Effect.Effect<void>, annotations: Record<string, unknown>) =>
    ours({ queue: name, ...annotations })(line)

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

  return {
    ack: (receipt) => settled("the message was handled, but not acknowledged", queue.ack(name, receipt)),
    giveBack,
    refuse: (received, reason) =>
      log(Effect.logWarning("Consumer: message moved to the dead letters"), { reason }).pipe(
        Effect.andThen(
          settled("the message could not be moved to the dead letters", queue.deadLetter(name, received, reason))
        )
      ),
    failed: ({ deliveryCount, payload: { kind }, receipt }, cause) =>
      Effect.andThen(
        log(Effect.logWarning("Consumer: the handler failed, so the message comes again"), {
          kind,
          deliveries: deliveryCount,
          error_type: errorTypeOf(Cause.squash(cause))
        }),
        giveBack(receipt, backoff(deliveryCount))
      ),
    timed: (kind, outcome, ms, context) => duration(name, kind, outcome).updateUnsafe(ms / 1000, context)
  }
}

// -- keeping hidden --------------------------------------------------------------------------------

/** A message that is under way. */
export interface Held {
  readonly receipt: string
  /** Monotonic milliseconds of its next extension. */
  dueMs: number
  extension: Fiber.Fiber<void> | undefined
  isReleased: boolean
}

interface Keeper {
  readonly run: Effect.Effect<never>
  /** The message stays hidden until it is released. */
  readonly hold: (receipt: string) => Held
  readonly release: (held: Held) => void
}

/** Extends the messages that are under way, at half of the visibility timeout: one timer for all. */
const keeping = (
  queue: Queue["Service"],
  { queue: name, visibility }: Settings,
  clock: Clock.Clock,
  fork: (effect: Effect.Effect<void>) => Fiber.Fiber<void>
): Keeper => {
  /** In the order of their next extensions, as all have the same pause. */
  const waiting = new Set<Held>()
  const begun = Latch.makeUnsafe()
  const halfMs = Duration.toMillis(visibility) / 2

  const wait = (held: Held) => {
    held.extension = undefined
    if (held.isReleased) return
    held.dueMs = monotonicMs(clock) + halfMs
    waiting.add(held)
    // The loop knows of an earlier one, unless it waits for the first.
    if (waiting.size === 1) begun.openUnsafe()
  }

  /** Not repeated when the lease is lost: then the handler runs on, and its message comes again. */
  const extend = (held: Held) =>
    Effect.retry(queue.extendVisibility(name, held.receipt, visibility), {
      schedule: Schedule.spaced(Duration.divideUnsafe(visibility, 10)),
      while: ({ isRetryable }) => isRetryable
    }).pipe(
      Effect.andThen(Effect.sync(() => wait(held))),
      Effect.catch((error) =>
        Effect.logWarning("Consumer: the message could not be kept hidden, so it comes again").pipe(
          ours({ queue: name, error: error.message })
        )
      ),
      Effect.catchDefect(
        logDefect(name, Effect.logError("Consumer: keeping a message hidden broke, so it comes again"))
      ),
      Effect.provideService(InBackground, true)
    )

  const round = Effect.suspend(() => {
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
    hold: (receipt) => {
      const held: Held = { receipt, dueMs: 0, extension: undefined, isReleased: false }
      wait(held)
      return held
    },
    release: (held) => {
      held.isReleased = true
      waiting.delete(held)
      held.extension?.interruptUnsafe()
    }
  }
}

// internal

/** After receives that failed. */
const firstPauseMs = 1000
const longestPauseMs = 30_000

/** The longest wait of every queue. */
export const longestWait = Duration.seconds(20)

/** One that dies at once each time must not fill the log. */
const restartPause = Duration.seconds(5)

const duration = seriesOf(Metrics.queueHandlerDuration)

/** For what was interrupted. A handler may not end then, and a database may not answer. */
const farewell = Duration.seconds(7)

const settlingPauses = Schedule.exponential("100 millis")

const longestDelay = Duration.hours(12)

/** Before the next delivery of a message whose handler has failed. */
const backoff = (deliveryCount: number) => Duration.millis(trouble.growingMs(1000, 300_000, deliveryCount - 1))
