/**
 * Gauges of the messages in each queue, sampled when they are read.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import * as sampledGauges from "../../model/shared/sampledGauges.ts"
import type { Depth } from "../Queue.ts"

/** Until the scope is closed. A queue that cannot be read has no gauges, and does not hide those of others. */
export const make = <E>(
  queues: ReadonlyArray<string>,
  read: (queue: string) => Effect.Effect<Depth, E>
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.forEach(queues, (queue) =>
    sampledGauges.make({
      samples: samples(queue),
      read: read(queue),
      gauges: ({ dead, delayed, inFlight, oldestVisibleMs, visible }) => [
        [messages(queue, "visible"), visible],
        [messages(queue, "delayed"), delayed],
        [messages(queue, "in_flight"), inFlight],
        [messages(queue, "dead"), dead],
        // SQS does not say how old the oldest one is.
        ...(oldestVisibleMs === null && visible > 0 ? [] : [[oldestAge(queue), (oldestVisibleMs ?? 0) / 1000] as const])
      ]
    }), { discard: true })

// internal

const samples = seriesOf(Metrics.queueSamples)
const messages = seriesOf(Metrics.queueMessages)
const oldestAge = seriesOf(Metrics.queueOldestAge)
