import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { Queue } from "../../queue/Queue.ts"
import * as Test from "./harness.ts"

/** A delivery whose visibility timeout has ended, and the next one. */
const redelivered = Effect.gen(function*() {
  const [first, timeout] = yield* Test.inTime(Effect.fnUntraced(function*(visibilityTimeout) {
    yield* Test.publish(1)
    const first = yield* Test.receiveOne({ visibilityTimeout })
    assert.lengthOf(yield* Test.receiveNow(), 0)
    return first
  }))
  yield* Test.pass(timeout)
  return { first, second: yield* Test.receiveOne() }
})

export const settling: Test.Topic = {
  name: "settling",
  tests: {
    "an acknowledged message does not come again": Effect.gen(function*() {
      const queue = yield* Queue
      const [, timeout] = yield* Test.inTime(Effect.fnUntraced(function*(visibilityTimeout) {
        yield* Test.publish(1)
        const received = yield* Test.receiveOne({ visibilityTimeout })
        yield* queue.ack("work", received.receipt)
      }))
      yield* Test.pass(timeout)
      assert.lengthOf(yield* Test.receiveNow(), 0)
    }),

    "a message is hidden for the visibility timeout, then delivered again": Effect.gen(function*() {
      const { first, second } = yield* redelivered
      assert.deepStrictEqual(second.payload, first.payload)
      assert.deepStrictEqual([first.deliveryCount, second.deliveryCount], [1, 2])
      assert.notStrictEqual(second.receipt, first.receipt)
    }),

    "a receive that waits gets a message whose visibility timeout ends": Effect.gen(function*() {
      const { timeout } = yield* Test.Settings
      yield* Test.publish(1)
      yield* Test.receiveOne({ visibilityTimeout: timeout })
      const waiting = yield* Test.waitFor(Duration.seconds(20))
      const received = yield* Test.passUntilDone(waiting, Duration.divideUnsafe(timeout, 4))
      assert.deepStrictEqual(received.map(({ deliveryCount }) => deliveryCount), [2])
    }),

    "a late ack is refused, and the newer delivery can be acknowledged": Effect.gen(function*() {
      const queue = yield* Queue
      const { first, second } = yield* redelivered
      assert.strictEqual(yield* Test.tagOf(queue.ack("work", first.receipt)), "ReceiptExpired")
      yield* queue.ack("work", second.receipt)
    }),

    "a late extension is refused": Effect.gen(function*() {
      const queue = yield* Queue
      const { first } = yield* redelivered
      const extension = queue.extendVisibility("work", first.receipt, Test.hidden)
      assert.strictEqual(yield* Test.tagOf(extension), "ReceiptExpired")
    }),

    "a late move to the dead letters is refused": Effect.gen(function*() {
      const queue = yield* Queue
      const { first, second } = yield* redelivered
      assert.strictEqual(yield* Test.tagOf(queue.deadLetter("work", first, "late")), "ReceiptExpired")
      yield* queue.ack("work", second.receipt)
    }),

    "a second ack does not fail, or says that the receipt was used": Effect.gen(function*() {
      const queue = yield* Queue
      yield* Test.publish(1)
      const { receipt } = yield* Test.receiveOne()
      yield* queue.ack("work", receipt)
      const again = yield* Effect.result(queue.ack("work", receipt))
      if (again._tag === "Failure") assert.strictEqual(again.failure.reason._tag, "ReceiptExpired")
    }),

    "an extension hides the message for longer": Effect.gen(function*() {
      const queue = yield* Queue
      const [receipt, timeout] = yield* Test.inTime(Effect.fnUntraced(function*(visibilityTimeout) {
        yield* Test.publish(1)
        const { receipt } = yield* Test.receiveOne({ visibilityTimeout })
        yield* queue.extendVisibility("work", receipt, Test.hidden)
        return receipt
      }))
      yield* Test.pass(timeout)
      assert.lengthOf(yield* Test.receiveNow(), 0)
      yield* queue.ack("work", receipt)
    }),

    "an extension counts from now, so it can also shorten": Effect.gen(function*() {
      const queue = yield* Queue
      const { timeout } = yield* Test.Settings
      yield* Test.publish(1)
      const { receipt } = yield* Test.receiveOne()
      yield* queue.extendVisibility("work", receipt, timeout)
      yield* Test.pass(timeout)
      assert.strictEqual((yield* Test.receiveOne()).deliveryCount, 2)
    }),

    "an extension by 0 gives the message back at once": Effect.gen(function*() {
      const queue = yield* Queue
      yield* Test.publish(1)
      const first = yield* Test.receiveOne()
      yield* queue.extendVisibility("work", first.receipt, 0)
      const second = yield* Test.receiveOne()
      assert.strictEqual(second.deliveryCount, 2)
      assert.strictEqual(yield* Test.tagOf(queue.ack("work", first.receipt)), "ReceiptExpired")
      yield* queue.ack("work", second.receipt)
    }),

    "a receive that waits gets a message that is given back": Effect.gen(function*() {
      const queue = yield* Queue
      yield* Test.publish(1)
      const first = yield* Test.receiveOne()
      const waiting = yield* Test.waitFor(Duration.seconds(20))
      yield* queue.extendVisibility("work", first.receipt, 0)
      assert.lengthOf(yield* Test.passUntilDone(waiting, Duration.millis(10)), 1)
    }),

    "the depth counts messages by their state": Effect.gen(function*() {
      const queue = yield* Queue
      const { pause } = yield* Test.Settings
      assert.deepStrictEqual(
        yield* queue.depth("work"),
        { visible: 0, delayed: 0, inFlight: 0, dead: 0, oldestVisibleMs: null }
      )
      for (const n of [1, 2, 3]) yield* Test.publish(n)
      yield* queue.publish("work", Test.message(4), { delay: "1 minute" })
      yield* Test.receiveOne()
      yield* queue.deadLetter("work", yield* Test.receiveOne(), "refused")
      yield* pause(Test.margin)
      const { oldestVisibleMs, ...counts } = yield* queue.depth("work")
      assert.deepStrictEqual(counts, { visible: 1, delayed: 1, inFlight: 1, dead: 1 })
      if (oldestVisibleMs !== null) assert.isAtLeast(oldestVisibleMs, Duration.toMillis(Test.margin))
    })
  }
}
