/**
 * The metrics of a queue, the same for every server.
 */
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import { ours } from "../../model/shared/logging.ts"
import type { Queue } from "../Queue.ts"

/** Counts what a queue delivers and settles. */
export const counted = (queue: Queue["Service"]): Queue["Service"] => ({
  ...queue,
  receive: (name, options) =>
    Effect.tap(
      queue.receive(name, options),
      (messages) =>
        countReceived(name, messages.length, messages.filter(({ deliveryCount }) => deliveryCount > 1).length)
    ),
  ack: (name, receipt) => Effect.tap(queue.ack(name, receipt), () => countAcks(name, 1)),
  deadLetter: (name, message, reason) => Effect.tap(queue.deadLetter(name, message, reason), () => died(name, 1))
})

export const countReceived = (queue: string, count: number, again: number): Effect.Effect<void> =>
  count === 0 ? Effect.void : Effect.andThen(
    Metric.update(received(queue), count),
    again === 0 ? Effect.void : Metric.update(redelivered(queue), again)
  )

export const countAcks = (queue: string, count: number): Effect.Effect<void> => Metric.update(acked(queue), count)

/** Messages that went to the dead letters. */
export const died = (queue: string, count: number): Effect.Effect<void> => Metric.update(dead(queue), count)

/** Messages that went to the dead letters because they were delivered too often. */
export const exhausted = (queue: string, messages: number): Effect.Effect<void> =>
  Effect.andThen(
    died(queue, messages),
    Effect.logError("Queue: messages moved to the dead letters after too many deliveries").pipe(
      ours({ queue, messages })
    )
  )

// internal

const received = seriesOf(Metrics.queueMessagesReceived)
const redelivered = seriesOf(Metrics.queueMessagesRedelivered)
const acked = seriesOf(Metrics.queueMessagesAcked)
const dead = seriesOf(Metrics.queueMessagesDead)
