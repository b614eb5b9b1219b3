/**
 * What the tests of the suite share.
 */
import { assert } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { Queue } from "../../queue/Queue.ts"
import type { Payload, Received } from "../../queue/Queue.ts"
import type { QueueError } from "../../queue/QueueError.ts"

/** How the suite was called. */
export class Settings extends Context.Service<Settings, {
  /** Lets time pass. */
  readonly pause: (duration: Duration.Duration) => Effect.Effect<void>
  /** A visibility timeout that tests wait for. */
  readonly timeout: Duration.Duration
  /** Number of messages of the test for losses. */
  readonly messages: number
}>()("duroxide-prisma/testing/QueueTest/Settings") {}

export type Services = Queue | Settings

export interface Topic {
  readonly name: string
  readonly tests: Readonly<Record<string, Effect.Effect<void, unknown, Services>>>
}

/** The queues that every layer must declare. */
export const queues = {
  work: {},
  other: {},
  /** Three deliveries. */
  fragile: { maxAttempts: 3 }
} as const

export const message = (n: number): Payload => ({ kind: "numbered", n })

export const publish = (n: number, queue = "work") =>
  Effect.flatMap(Queue, (queues) => queues.publish(queue, message(n)))

/** Hides what it receives for longer than the test runs. */
export const hidden = Duration.minutes(5)

interface Receiving {
  readonly queue?: string
  readonly maxMessages?: number
  readonly visibilityTimeout?: Duration.Duration
}

/** What is visible now; none if nothing is. */
export const receiveNow = ({ maxMessages = 10, queue = "work", visibilityTimeout = hidden }: Receiving = {}) =>
  Effect.flatMap(
    Queue,
    (queues) => queues.receive(queue, { maxMessages, visibilityTimeout, wait: 0 })
  )

/** One message that is visible now. */
export const receiveOne = Effect.fnUntraced(function*(options: Receiving = {}) {
  const [one, ...others] = yield* receiveNow({ maxMessages: 1, ...options })
  assert.isDefined(one, "a message is delivered")
  assert.lengthOf(others, 0)
  return one
})

/** A receive that waits in the background. */
export const waitFor = Effect.fnUntraced(function*(wait: Duration.Duration, maxMessages = 1) {
  const queue = yield* Queue
  return yield* Effect.forkChild(
    queue.receive("work", { maxMessages, visibilityTimeout: hidden, wait }),
    { startImmediately: true }
  )
})

/** Lets time pass until the fiber has ended. */
export const passUntilDone = <A, E>(fiber: Fiber.Fiber<A, E>, step: Duration.Duration) =>
  Effect.gen(function*() {
    const { pause } = yield* Settings
    for (let i = 0; i < 100 && fiber.pollUnsafe() === undefined; i++) yield* pause(step)
    return yield* Fiber.join(fiber)
  })

/** Lets that time end. */
export const pass = (time: Duration.Duration) =>
  Effect.flatMap(Settings, ({ pause }) => pause(Duration.sum(time, margin)))

/**
 * Runs a trial that ends within the time it is given. What took longer proves nothing, whatever came out: another trial
 * follows with twice the time, once the messages of this one have come back. Returns the time as well.
 */
export const inTime = <A, E, R>(trial: (time: Duration.Duration) => Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    let { timeout: time } = yield* Settings
    while (true) {
      const [elapsed, exit] = yield* Effect.timed(Effect.exit(trial(time)))
      if (Duration.isLessThan(elapsed, time)) return [yield* exit, time] as const
      yield* pass(time)
      yield* receiveNow()
      time = Duration.times(time, 2)
    }
  })

/** Clocks of stores have whole milliseconds, and servers take a moment. */
export const margin = Duration.millis(100)

export const numbers = (received: ReadonlyArray<Received>): ReadonlyArray<unknown> =>
  received.map(({ payload }) => payload.n)

/** The reason of the failure; a success fails the test. */
export const reasonOf = <A, R>(effect: Effect.Effect<A, QueueError, R>) =>
  Effect.map(Effect.flip(effect), ({ reason }) => reason)

/** The tag of `reasonOf`. */
export const tagOf = <A, R>(effect: Effect.Effect<A, QueueError, R>) => Effect.map(reasonOf(effect), ({ _tag }) => _tag)
