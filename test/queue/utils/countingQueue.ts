/**
 * A queue server that counts who publishes: only the publisher of the outbox may.
 *
 * Give `publisher` to `Outbox.publisher` and `others` to everything else (consumers, workers, clients). Both lead to
 * one server. `assertOnlyPublisher` fails if anything was published through `others`.
 */
import { assert } from "@effect/vitest"
import { Queue } from "duroxide-prisma/queue"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { QueueError, QueueNotFound } from "../../../src/queue/QueueError.ts"

type Server = Queue.Queue["Service"]

export interface Publication {
  readonly queue: string
  readonly payload: Queue.Payload
}

export interface CountingQueue {
  /** For `Outbox.publisher`. */
  readonly publisher: Layer.Layer<Queue.Queue>
  /** For everything else. */
  readonly others: Layer.Layer<Queue.Queue>
  /** What the publisher has published, in order, also what the server refused. */
  readonly published: Array<Publication>
  /** What others have published, with the stack of the call. */
  readonly direct: Array<Publication & { readonly stack: string }>
  readonly assertOnlyPublisher: () => void
  /** Waits until this many were published. */
  readonly until: (count: number) => Effect.Effect<void>
}

/** In front of `server`; without one, messages are only counted. `before` runs before each publish, and may fail it. */
export const make = (
  server: Server = sink(),
  before: (publication: Publication) => Effect.Effect<void, QueueError> = () => Effect.void
): CountingQueue => {
  const published: Array<Publication> = []
  const direct: Array<Publication & { readonly stack: string }> = []
  const looks = new Set<() => void>()
  return {
    published,
    direct,
    publisher: Layer.succeed(Queue.Queue, {
      ...server,
      publish: (queue, payload, options) =>
        Effect.suspend(() => {
          published.push({ queue, payload })
          for (const look of looks) look()
          return Effect.andThen(before({ queue, payload }), server.publish(queue, payload, options))
        })
    }),
    others: Layer.succeed(Queue.Queue, {
      ...server,
      publish: (queue, payload, options) => {
        direct.push({ queue, payload, stack: new Error("published beside the outbox").stack ?? "" })
        return server.publish(queue, payload, options)
      }
    }),
    assertOnlyPublisher: () => assert.deepStrictEqual(direct, []),
    until: (count) =>
      Effect.callback<void>((resume) => {
        const look = () => {
          if (published.length < count) return
          looks.delete(look)
          resume(Effect.void)
        }
        looks.add(look)
        look()
        return Effect.sync(() => looks.delete(look))
      })
  }
}

/** Accepts messages of its queues, and delivers none. */
export const sink = (
  queues: ReadonlyArray<string> = ["jobs", "orders", "reminders", "missing", "small", "slow"]
): Server => ({
  name: "counting",
  queues,
  maxDelayMs: 900_000,
  maxPayloadBytes: 262_144,
  publish: (queue) => queues.includes(queue) ? Effect.void : notFound("publish")(queue),
  receive: notFound("receive"),
  ack: notFound("ack"),
  extendVisibility: notFound("extendVisibility"),
  deadLetter: notFound("deadLetter"),
  redrive: notFound("redrive"),
  depth: notFound("depth")
})

// internal

const notFound = (operation: string) => (queue: string) =>
  Effect.fail(new QueueError({ operation, queue, reason: new QueueNotFound({ queue }) }))
