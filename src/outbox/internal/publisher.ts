/**
 * The publisher of the outbox: claims messages that are due, sends them to their queues, marks them as sent. For queues
 * in tables of the same schema, one statement does all three.
 *
 * A message is claimed under a lease in one transaction, sent, and marked in another. When a publisher dies between
 * these steps, the next one sends the message after the lease has ended: at least once, perhaps twice. Claims see what
 * was committed, so no message is sent before the rows it belongs to are visible.
 *
 * **When it looks.** It looks when it is woken, when a message is due or the lease of another publisher ends, and once
 * a minute; once a second while hints of other processes do not arrive. While claims are full, four batches are under
 * way at once; otherwise the next look waits for the batch, so that messages gather.
 *
 * **Which messages.** It claims messages of the queues that its `Queue` has. So publishers with different queues, as
 * during a deployment that adds one, do not take each other's messages.
 *
 * **Failures.** A message that was not sent is tried again after a pause. While the queue is unavailable, the publisher
 * tries one message at a time. The others stay due and leave soon after it is back.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Latch from "effect/Latch"
import * as Random from "effect/Random"
import * as Result from "effect/Result"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import { randomUUID } from "node:crypto"
import { InBackground } from "../../model/shared/inBackground.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import { growingMs, sleepUpTo } from "../../model/shared/trouble.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { Queue } from "../../queue/Queue.ts"
import { QueueError, Unavailable, Unexpected } from "../../queue/QueueError.ts"
import * as check from "../../queue/shared/check.ts"
import type { Claim, ClaimedMessage, Deferral, OutboxDriver } from "../OutboxDriver.ts"
import * as outboxReports from "./reports.ts"
import { isRejected } from "./reports.ts"
import type { Failed } from "./reports.ts"

export interface Settings {
  /** Messages of one claim. */
  readonly batchSize: number
  readonly leaseMs: number
  /** How long sent messages stay. */
  readonly keepMs: number
}

/** Where wake-ups come from. */
export interface Wakeups {
  /** `wake` is called for every hint, and when hints of other processes begin or cease to arrive. */
  readonly subscribe: (wake: () => void) => Effect.Effect<void, never, Scope.Scope>
  readonly isConnected: () => boolean
}

export interface Options {
  readonly settings: Settings
  readonly driver: OutboxDriver["Service"]
  readonly queue: Queue["Service"]
  readonly wakeups: Wakeups
  /** Called when messages were marked as sent. */
  readonly marked: () => void
  /** Present if the queues are tables of the same schema. */
  readonly moves: Moves | undefined
}

export interface Moves {
  /** Limits of deliveries of the queues, in their order. */
  readonly maxAttempts: ReadonlyArray<number>
  /** Wakes the receives of these queues, after the commit. */
  readonly announce: (queues: ReadonlyArray<string>) => Effect.Effect<void>
}

/**
 * Publishes until the scope is closed. Batches under way then have `graceMs` to end; the rest is abandoned, within
 * eight seconds.
 */
export const make = Effect.fnUntraced(function*(options: Options): Effect.fn.Return<void, never, Scope.Scope> {
  const { driver, moves, queue, settings, wakeups } = options
  const clock = yield* Clock.Clock
  const reports = outboxReports.make(queue.name, clock)
  const pauses = makePauses(clock)
  const places = Semaphore.makeUnsafe(batchesAtOnce)
  const rounds = new Set<Fiber.Fiber<void>>()
  yield* Effect.addFinalizer(() =>
    Effect.andThen(
      Effect.timeoutOption(Effect.suspend(() => Fiber.awaitAll(rounds)), graceMs),
      // A statement ends with its answer, and a silent database gives none.
      Effect.timeoutOption(Effect.suspend(() => Fiber.interruptAll(rounds)), 3 * farewellMs)
    )
  )

  const woken = Latch.makeUnsafe()
  yield* wakeups.subscribe(() => void woken.openUnsafe())

  /** Claims a batch, sends it, and marks it. `claimed` learns of the first step. */
  const round = Effect.fnUntraced(function*(
    limit: number,
    claimed: Deferred.Deferred<Claim, ProviderError>
  ) {
    const token = randomUUID()
    const begunMs = monotonicMs(clock)
    const claim = yield* Effect.exit(driver.claim({
      limit,
      leaseMs: settings.leaseMs,
      token,
      queues: queue.queues,
      maxAttempts: moves?.maxAttempts,
      keeps: settings.keepMs > 0
    }))
    Deferred.doneUnsafe(claimed, claim)
    if (Exit.isFailure(claim)) return
    const { messages, moved } = claim.value
    if (moves !== undefined && moved.size > 0) {
      yield* moves.announce([...moved.keys()])
      pauses.settled(moved.size, [])
      yield* reports.settled(moved, [])
      options.marked()
    }
    if (messages.length > 0) yield* publish(messages, token, begunMs + settings.leaseMs)
  })

  const publish = (messages: ReadonlyArray<ClaimedMessage>, token: string, leasedUntilMs: number) =>
    Effect.suspend(() => {
      const outcomes = new Map<ClaimedMessage, Result.Result<void, QueueError>>()
      const withinMs = leasedUntilMs - monotonicMs(clock) - reservedMs(settings)
      return Effect.forEach(
        messages,
        (message) => Effect.map(send(queue, message), (result) => void outcomes.set(message, result)),
        { concurrency: "unbounded", discard: true }
      ).pipe(
        // One timer for all.
        Effect.timeoutOrElse({
          duration: Math.max(withinMs, 0),
          orElse: () =>
            Effect.sync(() => {
              for (const message of messages) if (!outcomes.has(message)) outcomes.set(message, late(message))
            })
        }),
        Effect.onExit((exit) => {
          const isInterrupted = Exit.isFailure(exit)
          return settle(messages, outcomes, token, isInterrupted ? farewellMs : leasedUntilMs - monotonicMs(clock))
        })
      )
    })

  const settle = Effect.fnUntraced(function*(
    messages: ReadonlyArray<ClaimedMessage>,
    outcomes: ReadonlyMap<ClaimedMessage, Result.Result<void, QueueError>>,
    token: string,
    withinMs: number
  ) {
    const sent: Array<ClaimedMessage> = []
    const failed: Array<Failed> = []
    const deferrals: Array<Deferral> = []
    for (const message of messages) {
      const outcome = outcomes.get(message)
      if (outcome === undefined) {
        deferrals.push({ id: message.id, pauseMs: 0, error: null })
      } else if (Result.isSuccess(outcome)) {
        sent.push(message)
      } else {
        failed.push({ message, error: outcome.failure })
        deferrals.push({
          id: message.id,
          pauseMs: deferralMs(outcome.failure, message.attempts, yield* Random.next),
          error: textOf(outcome.failure)
        })
      }
    }
    pauses.settled(sent.length, failed)
    yield* reports.settled(outboxReports.countBy(sent, ({ queue }) => queue), failed)
    /** What is not settled before the lease ends is sent again. */
    const until = (settled: Effect.Effect<void, ProviderError>) =>
      Effect.interruptible(settled).pipe(
        Effect.timeoutOption(Math.max(withinMs, farewellMs)),
        Effect.catch(reports.unsettled)
      )
    if (sent.length > 0) {
      yield* until(markAll(sent.map(({ id }) => id)))
      options.marked()
    }
    if (deferrals.length > 0) yield* until(Effect.retry(driver.defer(token, deferrals), settling))
  })

  const markAll = Effect.fnUntraced(function*(ids: ReadonlyArray<string>) {
    let locked = yield* Effect.retry(driver.markSent(ids), settling)
    while (locked.length > 0) {
      yield* Effect.sleep(settlePauseMs)
      locked = yield* Effect.retry(driver.markSent(locked), settling)
    }
  })

  const look = Effect.gen(function*() {
    yield* pauses.pause
    yield* places.take(1)
    woken.closeUnsafe()
    const claimed = Deferred.makeUnsafe<Claim, ProviderError>()
    const limit = pauses.isOut() ? 1 : settings.batchSize
    const fiber = yield* Effect.forkDetach(Effect.ensuring(round(limit, claimed), places.release(1)))
    rounds.add(fiber)
    fiber.addObserver(() => rounds.delete(fiber))
    const exit = yield* Effect.exit(Deferred.await(claimed))
    if (Exit.isFailure(exit)) {
      const failures = yield* reports.storeFailed(exit.cause)
      return yield* sleepUpTo(growingMs(firstStorePauseMs, longestStorePauseMs, failures))
    }
    yield* reports.storeAnswered
    const { isFull, nextMs, unclaimedQueues } = exit.value
    yield* reports.unclaimed(unclaimedQueues)
    if (isFull) return
    // Messages gather meanwhile. A queue that is slow to answer does not delay those of others.
    yield* Effect.raceFirst(Fiber.await(fiber), Effect.sleep(gatherMs))
    const longestMs = wakeups.isConnected() ? fallbackMs : pollMs
    yield* Effect.raceFirst(woken.await, Effect.sleep(Math.min(nextMs ?? longestMs, longestMs)))
  })

  yield* Effect.forever(look).pipe(Effect.provideService(InBackground, true), Effect.forkScoped)
})

/**
 * The pause after a failed try: 1 second, doubled with each try up to 5 minutes. A message that the queue rejects
 * pauses 5 minutes at once. `random`, between 0 and 1, spreads messages that failed together.
 */
export const deferralMs = (error: QueueError, attempts: number, random: number): number =>
  isRejected(error)
    ? longestPauseMs
    : Math.round(growingMs(firstPauseMs, longestPauseMs, attempts - 1) * (1 - random / 4))

// internal

const batchesAtOnce = 4

/** A batch that did not fill waits for its end, up to this time. */
const gatherMs = 100

/** Time of a lease that is left for marking what was sent. */
const reservedMs = ({ leaseMs }: Settings) => leaseMs / 3

/** After a failed try of a message. */
const firstPauseMs = 1000
const longestPauseMs = 300_000

/** After a batch that failed as a whole because the queue was unavailable. */
const firstOutagePauseMs = 500
const longestOutagePauseMs = 5000

/** After a failed claim. */
const firstStorePauseMs = 200
const longestStorePauseMs = 30_000

/** The longest time between two looks. */
const fallbackMs = 60_000
const pollMs = 1000

/** For batches under way when the scope is closed; then for giving back what was not sent. */
const graceMs = 5000
const farewellMs = 1000

const settlePauseMs = 300

const settling = {
  schedule: Schedule.spaced(settlePauseMs),
  while: ({ isRetryable }: ProviderError) => isRetryable
}

/** Sends one message; never fails. */
const send = (queue: Queue["Service"], message: ClaimedMessage): Effect.Effect<Result.Result<void, QueueError>> =>
  queue.publish(message.queue, message.payload).pipe(
    // A defect may quote the payload.
    Effect.catchDefect(() =>
      Effect.fail(unsent(message, new Unexpected({ problem: "the queue failed in an unexpected way" })))
    ),
    Effect.result
  )

const late = (message: ClaimedMessage) =>
  Result.fail(unsent(message, new Unavailable({ problem: "the queue did not answer in time" })))

const unsent = ({ queue }: ClaimedMessage, reason: QueueError["reason"]) =>
  new QueueError({ operation: "publish", queue, reason })

/** What the column `last_error` says. */
const textOf = ({ reason }: QueueError): string => check.reason(`${reason._tag}: ${reason.message}`)

/** Reasons that say nothing about a message. */
const outages: ReadonlySet<QueueError["reason"]["_tag"]> = new Set(["Unavailable", "Closed"])

const makePauses = (clock: Clock.Clock) => {
  let failures = 0
  let untilMs = 0
  return {
    settled: (sent: number, failed: ReadonlyArray<Failed>) => {
      if (sent > 0 || failed.some(({ error }) => !outages.has(error.reason._tag))) failures = 0
      else if (failed.length > 0) {
        untilMs = monotonicMs(clock) + growingMs(firstOutagePauseMs, longestOutagePauseMs, failures++)
      }
    },
    /** One message at a time tries whether the queue is back. */
    isOut: () => failures > 0,
    pause: Effect.suspend(() => {
      const ms = failures > 0 ? untilMs - monotonicMs(clock) : 0
      return ms > 0 ? Effect.sleep(ms) : Effect.void
    })
  }
}
