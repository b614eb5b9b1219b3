import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { Queue } from "../../queue/Queue.ts"
import type { Received } from "../../queue/Queue.ts"
import * as Test from "./harness.ts"

export const delivery: Test.Topic = {
  name: "delivery",
  tests: {
    "a message arrives as it was published": Effect.gen(function*() {
      const queue = yield* Queue
      const payload = { kind: "order", text: "Grüße, 世界 🎉 \"\\\n\t", n: -1.5, deep: [{ a: null }, [], {}, true] }
      yield* queue.publish("work", payload)
      const received = yield* Test.receiveOne()
      assert.deepStrictEqual(received.payload, payload)
      assert.strictEqual(received.deliveryCount, 1)
      assert.isNotEmpty(received.receipt)
    }),

    "it lists its queues, so that publishers know what to send": Effect.gen(function*() {
      assert.includeMembers([...(yield* Queue).queues], Object.keys(Test.queues))
    }),

    "queues are separate": Effect.gen(function*() {
      yield* Test.publish(1, "other")
      assert.lengthOf(yield* Test.receiveNow(), 0)
      assert.deepStrictEqual((yield* Test.receiveOne({ queue: "other" })).payload, Test.message(1))
    }),

    "two messages with one payload are two messages": Effect.gen(function*() {
      yield* Test.publish(1)
      yield* Test.publish(1)
      assert.deepStrictEqual(Test.numbers(yield* Test.receiveNow()), [1, 1])
    }),

    "a receive gives at most maxMessages": Effect.gen(function*() {
      for (const n of [1, 2, 3, 4, 5]) yield* Test.publish(n)
      assert.lengthOf(yield* Test.receiveNow({ maxMessages: 3 }), 3)
      assert.lengthOf(yield* Test.receiveNow({ maxMessages: 3 }), 2)
    }),

    "a receive that waits gets a message that is published meanwhile": Effect.gen(function*() {
      const waiting = yield* Test.waitFor(Duration.seconds(20))
      yield* Test.publish(1)
      assert.deepStrictEqual(Test.numbers(yield* Test.passUntilDone(waiting, Duration.millis(10))), [1])
    }),

    "a receive that waits ends without messages": Effect.gen(function*() {
      const { timeout } = yield* Test.Settings
      const waiting = yield* Test.waitFor(timeout)
      assert.deepStrictEqual(yield* Test.passUntilDone(waiting, Duration.divideUnsafe(timeout, 2)), [])
    }),

    "a delayed message is not delivered before its time": Effect.gen(function*() {
      const queue = yield* Queue
      const [, delay] = yield* Test.inTime(Effect.fnUntraced(function*(delay) {
        yield* queue.publish("work", Test.message(1), { delay })
        assert.lengthOf(yield* Test.receiveNow(), 0)
      }))
      yield* Test.pass(delay)
      assert.deepStrictEqual(Test.numbers(yield* Test.receiveNow()), [1])
    }),

    "a receive that waits gets a delayed message": Effect.gen(function*() {
      const queue = yield* Queue
      const { timeout } = yield* Test.Settings
      const waiting = yield* Test.waitFor(Duration.seconds(20))
      yield* queue.publish("work", Test.message(1), { delay: timeout })
      assert.deepStrictEqual(Test.numbers(yield* Test.passUntilDone(waiting, Duration.divideUnsafe(timeout, 4))), [1])
    }),

    "receivers at the same time get different messages": Effect.gen(function*() {
      const count = 100
      yield* Effect.forEach(range(count), (n) => Test.publish(n), { concurrency: 20, discard: true })
      const received: Array<unknown> = []
      const receiver = Effect.gen(function*() {
        while (received.length < count) {
          received.push(...Test.numbers(yield* Test.receiveNow()))
          yield* Effect.yieldNow
        }
      })
      yield* Effect.forEach(range(10), () => receiver, { concurrency: "unbounded", discard: true })
      assert.deepStrictEqual(sorted(received), range(count))
      assert.lengthOf(yield* Test.receiveNow(), 0)
    }),

    "no message of many is lost, though some deliveries are given back": Effect.gen(function*() {
      const queue = yield* Queue
      const { messages } = yield* Test.Settings
      const missing = new Set(range(messages))
      let deliveries = 0
      let lates = 0
      const publishers = Effect.forEach(range(messages), (n) => Test.publish(n), { concurrency: 200, discard: true })
      const settle = ({ payload, receipt }: Received) =>
        Effect.suspend(() => {
          deliveries++
          if (deliveries % 100 === 0) {
            lates++
            return queue.extendVisibility("work", receipt, 0)
          }
          return Effect.map(queue.ack("work", receipt), () => void missing.delete(Number(payload.n)))
        })
      const receiver = Effect.gen(function*() {
        while (missing.size > 0) {
          const received = yield* Test.receiveNow()
          yield* Effect.forEach(received, settle, { concurrency: "unbounded", discard: true })
          yield* Effect.yieldNow
        }
      })
      const receivers = Effect.forEach(range(20), () => receiver, { concurrency: "unbounded", discard: true })
      yield* Effect.all([publishers, receivers], { concurrency: "unbounded" })
      assert.strictEqual(deliveries, messages + lates)
      assert.lengthOf(yield* Test.receiveNow(), 0)
    })
  }
}

// internal

const range = (count: number): ReadonlyArray<number> => Array.from({ length: count }, (_, i) => i)

const sorted = (values: ReadonlyArray<unknown>) => values.map(Number).sort((one, other) => one - other)
