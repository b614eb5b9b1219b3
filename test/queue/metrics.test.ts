import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as TestClock from "effect/testing/TestClock"
import * as PgQueue from "../../src/prisma/PgQueue.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as Consumer from "../../src/queue/Consumer.ts"
import * as MemoryQueue from "../../src/queue/MemoryQueue.ts"
import * as Message from "../../src/queue/Message.ts"
import { Queue } from "../../src/queue/Queue.ts"
import * as queueGauges from "../../src/queue/shared/gauges.ts"
import { counts, isolated, seriesOf, values } from "../utils/metrics.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

const queues = { orders: { maxAttempts: 2 } }

const layers = {
  MemoryQueue: MemoryQueue.layer({ queues }),
  PgQueue: Layer.unwrap(
    Effect.map(
      PgServer.database,
      ({ url }) => PgQueue.layer({ queues }).pipe(Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" })))
    )
  )
}

const counting = (layer: (typeof layers)[keyof typeof layers]) =>
  Effect.gen(function*() {
    const queue = yield* Queue
    const receive = queue.receive("orders", { maxMessages: 10, visibilityTimeout: "1 minute", wait: 0 })
    for (const n of [1, 2, 3]) yield* queue.publish("orders", { kind: "numbered", n })
    const [first, second, third] = yield* receive
    yield* queue.ack("orders", first!.receipt)
    yield* queue.deadLetter("orders", second!, "of no use")
    yield* queue.extendVisibility("orders", third!.receipt, 0)
    const [again] = yield* receive
    yield* queue.extendVisibility("orders", again!.receipt, 0)
    assert.lengthOf(yield* receive, 0)
    assert.deepStrictEqual(yield* counts(Metrics.queueMessagesReceived), { orders: 4 })
    assert.deepStrictEqual(yield* counts(Metrics.queueMessagesRedelivered), { orders: 1 })
    assert.deepStrictEqual(yield* counts(Metrics.queueMessagesAcked), { orders: 1 })
    assert.deepStrictEqual(yield* counts(Metrics.queueMessagesDead), { orders: 2 })
  }).pipe(Effect.provide(layer), isolated, silently)

describe("metrics of queues:", () => {
  it.live("PgQueue counts what it delivers, acknowledges and moves to the dead letters", () => counting(layers.PgQueue))

  it.live("MemoryQueue counts the same", () => counting(layers.MemoryQueue))

  it.live("reading the gauges of a queue samples it: what waits, since when, and what is dead", () =>
    Effect.gen(function*() {
      const queue = yield* Queue
      for (const n of [1, 2, 3]) yield* queue.publish("orders", { kind: "numbered", n })
      yield* queue.publish("orders", { kind: "numbered", n: 4 }, { delay: "1 hour" })
      const [first] = yield* queue.receive("orders", { maxMessages: 2, visibilityTimeout: "1 minute", wait: 0 })
      yield* queue.deadLetter("orders", first!, "of no use")
      assert.deepStrictEqual(yield* values(Metrics.queueMessages), {}) // no one has asked before
      yield* waitUntil(Effect.map(counts(Metrics.queueSamples), ({ orders }) => orders === 1))
      assert.deepStrictEqual(yield* values(Metrics.queueMessages), {
        "orders visible": 1,
        "orders delayed": 1,
        "orders in_flight": 1,
        "orders dead": 1
      })
      assert.isAbove((yield* values(Metrics.queueOldestAge)).orders!, 0)
    }).pipe(Effect.provide(layers.PgQueue), isolated, silently))

  it.live("a queue that cannot be read has no gauges, and the others keep theirs", () =>
    Effect.gen(function*() {
      const empty = { visible: 0, delayed: 0, inFlight: 0, dead: 0, oldestVisibleMs: null }
      const depth = (queue: string) => queue === "closed" ? Effect.fail("no") : Effect.succeed(empty)
      yield* queueGauges.make(["closed", "open"], depth)
      yield* waitUntil(Effect.map(counts(Metrics.queueSamples), ({ open }) => open === 1))
      assert.deepStrictEqual(yield* counts(Metrics.queueSamples), { closed: 0, open: 1 })
      assert.deepStrictEqual(yield* values(Metrics.queueOldestAge), { open: 0 })
    }).pipe(Effect.scoped, isolated, silently))

  it.effect("Consumer measures handlers by kind and outcome", () =>
    Effect.gen(function*() {
      const queue = yield* Queue
      const Numbered = Message.make("numbered", {})
      const handler = Consumer.on(Numbered, (_, { deliveryCount }) =>
        Effect.delay(
          deliveryCount === 1 ? Effect.succeed(new Consumer.Later({ delay: 0 })) : Effect.void,
          "2 seconds"
        ))
      const Failing = Message.make("failing", {})
      yield* Layer.build(
        Consumer.layer({ queue: "orders", handlers: [handler, Consumer.on(Failing, () => Effect.fail("no"))] })
      )
      yield* queue.publish("orders", { kind: "numbered" })
      yield* queue.publish("orders", { kind: "failing" })
      for (let i = 0; i < 8; i++) yield* TestClock.adjust("1 second")
      const series = yield* seriesOf(Metrics.queueHandlerDuration)
      assert.sameDeepMembers(
        series.map(({ labels, state }) => [labels.queue, labels.kind, labels.outcome, state.count, state.sum]),
        [
          ["orders", "numbered", "later", 1, 2],
          ["orders", "numbered", "acked", 1, 2],
          ["orders", "failing", "failed", 2, 0]
        ]
      )
    }).pipe(Effect.scoped, Effect.provide(layers.MemoryQueue), isolated, silently))
})
