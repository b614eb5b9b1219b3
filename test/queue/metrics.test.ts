import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as TestClock from "effect/testing/TestClock"
import * as Consumer from "../../src/queue/Consumer.ts"
import * as MemoryQueue from "../../src/queue/MemoryQueue.ts"
import * as Message from "../../src/queue/Message.ts"
import * as PgQueue from "../../src/queue/PgQueue.ts"
import { Queue } from "../../src/queue/Queue.ts"
import * as QueueDatabase from "../../src/queue/QueueDatabase.ts"
import { counts, isolated, seriesOf } from "../utils/metrics.ts"
import * as PgServer from "../utils/PgServer.ts"

const silently = Effect.provide(Logger.layer([]))

const queues = { orders: { maxAttempts: 2 } }

const layers = {
  MemoryQueue: MemoryQueue.layer({ queues }),
  PgQueue: Layer.unwrap(
    Effect.map(
      PgServer.database,
      ({ url }) => PgQueue.layer({ queues }).pipe(Layer.provide(QueueDatabase.layer({ url, migrate: "none" })))
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
