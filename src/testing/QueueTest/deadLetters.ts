import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Queue } from "../../queue/Queue.ts"
import * as Test from "./harness.ts"

const fragile = { queue: "fragile" }

/** Delivers the message of `fragile` three times, as often as it may be. */
const exhausted = Effect.gen(function*() {
  const queue = yield* Queue
  yield* Test.publish(1, "fragile")
  for (const deliveryCount of [1, 2, 3]) {
    const received = yield* Test.receiveOne(fragile)
    assert.strictEqual(received.deliveryCount, deliveryCount)
    yield* queue.extendVisibility("fragile", received.receipt, 0)
  }
  assert.lengthOf(yield* Test.receiveNow(fragile), 0)
})

const deadIn = (name: string) => Effect.flatMap(Queue, (queue) => Effect.map(queue.depth(name), ({ dead }) => dead))

export const deadLetters: Test.Topic = {
  name: "dead letters",
  tests: {
    "a message that is never acknowledged ends in the dead letters": Effect.gen(function*() {
      yield* exhausted
      assert.strictEqual(yield* deadIn("fragile"), 1)
    }),

    "a poison message does not hold up the others": Effect.gen(function*() {
      const queue = yield* Queue
      yield* Test.publish(1, "fragile")
      for (let i = 0; i < 3; i++) {
        yield* queue.extendVisibility("fragile", (yield* Test.receiveOne(fragile)).receipt, 0)
      }
      yield* Test.publish(2, "fragile")
      assert.deepStrictEqual((yield* Test.receiveOne(fragile)).payload, Test.message(2))
    }),

    "a refused message goes to the dead letters at once": Effect.gen(function*() {
      const queue = yield* Queue
      yield* Test.publish(1)
      const received = yield* Test.receiveOne()
      yield* queue.deadLetter("work", received, "of no use")
      assert.lengthOf(yield* Test.receiveNow(), 0)
      assert.strictEqual(yield* deadIn("work"), 1)
      assert.strictEqual(yield* deadIn("other"), 0)
    }),

    "a redrive brings dead messages back, with their payloads": Effect.gen(function*() {
      const queue = yield* Queue
      yield* exhausted
      assert.strictEqual(yield* queue.redrive("fragile", { limit: 10 }), 1)
      assert.strictEqual(yield* deadIn("fragile"), 0)
      const received = yield* Test.receiveOne(fragile)
      assert.deepStrictEqual(received.payload, Test.message(1))
      yield* queue.ack("fragile", received.receipt)
    }),

    "a redrive moves at most limit messages": Effect.gen(function*() {
      const queue = yield* Queue
      for (const n of [1, 2, 3]) {
        yield* Test.publish(n)
        yield* queue.deadLetter("work", yield* Test.receiveOne(), "of no use")
      }
      assert.strictEqual(yield* queue.redrive("work", { limit: 2 }), 2)
      assert.strictEqual(yield* deadIn("work"), 1)
      assert.lengthOf(yield* Test.receiveNow(), 2)
      assert.strictEqual(yield* queue.redrive("work", { limit: 10 }), 1)
      assert.strictEqual(yield* queue.redrive("work", { limit: 10 }), 0)
    })
  }
}
