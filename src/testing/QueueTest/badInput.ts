import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { Queue } from "../../queue/Queue.ts"
import type { Payload, Received } from "../../queue/Queue.ts"
import type { QueueError } from "../../queue/QueueError.ts"
import * as Test from "./harness.ts"

const ok = { maxMessages: 1, visibilityTimeout: Test.hidden, wait: 0 }

const cyclic = (() => {
  const payload: Record<string, unknown> = { kind: "cyclic" }
  payload.self = payload
  return payload
})()

const refusedPayloads: Readonly<Record<string, unknown>> = {
  "undefined": undefined,
  "null": null,
  "a text": "kind",
  "an array": [{ kind: "numbered" }],
  "an object without a kind": { n: 1 },
  "an empty kind": { kind: "" },
  "a kind that is a number": { kind: 1 },
  "a NUL character": { kind: "numbered", text: "a\0b" },
  "a NUL character in a key": { kind: "numbered", deep: [{ "a\0b": 1 }] },
  "half of a surrogate pair": { kind: "numbered", text: "\ud800" },
  "a bigint": { kind: "numbered", n: 1n },
  "an object that contains itself": cyclic,
  "an object whose toJSON is a text": { kind: "numbered", toJSON: () => "text" }
}

const refusedReceives: ReadonlyArray<readonly [field: string, options: Partial<typeof ok>]> = [
  ["maxMessages", { maxMessages: 0 }],
  ["maxMessages", { maxMessages: 1.5 }],
  ["maxMessages", { maxMessages: 1001 }],
  ["maxMessages", { maxMessages: NaN }],
  ["visibilityTimeout", { visibilityTimeout: Duration.zero }],
  ["visibilityTimeout", { visibilityTimeout: Duration.hours(13) }],
  ["visibilityTimeout", { visibilityTimeout: Duration.infinity }],
  ["wait", { wait: -1 }],
  ["wait", { wait: NaN }],
  ["wait", { wait: 20_001 }]
]

const refusedReceipts = ["", "x", "1", "1.", ".", "1.2", "-1.x", "a\0b", "1".repeat(10_000)]

export const badInput: Test.Topic = {
  name: "bad input",
  tests: {
    "a queue that was not declared: QueueNotFound, from every operation": Effect.gen(function*() {
      const queue = yield* Queue
      for (const name of ["missing", "", "__proto__", "constructor", "a\0b"]) {
        const received: Received = { payload: Test.message(1), receipt: "1.x", deliveryCount: 1 }
        const calls: Readonly<Record<string, Effect.Effect<unknown, QueueError>>> = {
          publish: queue.publish(name, Test.message(1)),
          receive: queue.receive(name, ok),
          ack: queue.ack(name, "1.x"),
          extendVisibility: queue.extendVisibility(name, "1.x", 1000),
          deadLetter: queue.deadLetter(name, received, "refused"),
          redrive: queue.redrive(name, { limit: 1 }),
          depth: queue.depth(name)
        }
        for (const [operation, call] of Object.entries(calls)) {
          const error = yield* Effect.flip(call)
          assert.strictEqual(error.reason._tag, "QueueNotFound", operation)
          assert.strictEqual(error.operation, operation)
        }
      }
    }),

    "a payload that is not an object with a kind, or that JSON cannot hold: PayloadInvalid": Effect.gen(function*() {
      const queue = yield* Queue
      for (const [what, payload] of Object.entries(refusedPayloads)) {
        const tag = yield* Test.tagOf(queue.publish("work", payload as Payload))
        assert.strictEqual(tag, "PayloadInvalid", what)
      }
      assert.lengthOf(yield* Test.receiveNow(), 0)
    }),

    "an escaped backslash before u0000 is not a NUL character": Effect.gen(function*() {
      const queue = yield* Queue
      const payload = { kind: "numbered", text: "\\u0000 and \\ud800" }
      yield* queue.publish("work", payload)
      assert.deepStrictEqual((yield* Test.receiveOne()).payload, payload)
    }),

    "a payload of the largest size is delivered, one byte more: PayloadTooLarge": Effect.gen(function*() {
      const queue = yield* Queue
      const empty = JSON.stringify({ kind: "large", text: "" }).length
      const largest = { kind: "large", text: "ü".repeat(1) + "x".repeat(queue.maxPayloadBytes - empty - 2) }
      yield* queue.publish("work", largest)
      assert.deepStrictEqual((yield* Test.receiveOne()).payload, largest)
      const reason = yield* Test.reasonOf(queue.publish("work", { ...largest, text: `${largest.text}x` }))
      assert.strictEqual(reason._tag, "PayloadTooLarge")
      if (reason._tag === "PayloadTooLarge") assert.strictEqual(reason.bytes, reason.maxBytes + 1)
    }),

    "a delay that is too long: DelayTooLong; one that is not a duration: InvalidInput": Effect.gen(function*() {
      const queue = yield* Queue
      const publish = (delay: Duration.Input) => Test.tagOf(queue.publish("work", Test.message(1), { delay }))
      assert.strictEqual(yield* publish(queue.maxDelayMs + 1), "DelayTooLong")
      assert.strictEqual(yield* publish(Duration.infinity), "DelayTooLong")
      assert.strictEqual(yield* publish(-1), "InvalidInput")
      assert.strictEqual(yield* publish(NaN), "InvalidInput")
      assert.strictEqual((yield* queue.depth("work")).delayed, 0)
    }),

    "options of a receive that are out of their range: InvalidInput, with the field": Effect.gen(function*() {
      const queue = yield* Queue
      for (const [field, options] of refusedReceives) {
        const reason = yield* Test.reasonOf(queue.receive("work", { ...ok, ...options }))
        assert.strictEqual(reason._tag, "InvalidInput", `${field} ${String(Object.values(options)[0])}`)
        if (reason._tag === "InvalidInput") assert.strictEqual(reason.field, field)
      }
    }),

    "an extension longer than 12 hours, or below 0: InvalidInput; the delivery stays": Effect.gen(function*() {
      const queue = yield* Queue
      yield* Test.publish(1)
      const { receipt } = yield* Test.receiveOne()
      for (const timeout of [Duration.hours(13), Duration.infinity, -1, NaN]) {
        assert.strictEqual(yield* Test.tagOf(queue.extendVisibility("work", receipt, timeout)), "InvalidInput")
      }
      yield* queue.ack("work", receipt)
    }),

    "a limit of a redrive that is not a number from 1 to 1,000: InvalidInput": Effect.gen(function*() {
      const queue = yield* Queue
      for (const limit of [0, -1, 1.5, NaN, Infinity, 1001]) {
        assert.strictEqual(yield* Test.tagOf(queue.redrive("work", { limit })), "InvalidInput", String(limit))
      }
    }),

    "a text that is not a receipt: ReceiptInvalid": Effect.gen(function*() {
      const queue = yield* Queue
      for (const receipt of refusedReceipts) {
        const received: Received = { payload: Test.message(1), receipt, deliveryCount: 1 }
        for (
          const call of [
            queue.ack("work", receipt),
            queue.extendVisibility("work", receipt, 1000),
            queue.deadLetter("work", received, "refused")
          ]
        ) {
          assert.strictEqual(yield* Test.tagOf(call), "ReceiptInvalid", receipt.slice(0, 20))
        }
      }
    }),

    "a receipt of another queue: ReceiptInvalid; the delivery stays": Effect.gen(function*() {
      const queue = yield* Queue
      yield* Test.publish(1)
      const received = yield* Test.receiveOne()
      for (
        const call of [
          queue.ack("other", received.receipt),
          queue.extendVisibility("other", received.receipt, 0),
          queue.deadLetter("other", received, "refused")
        ]
      ) {
        assert.strictEqual(yield* Test.tagOf(call), "ReceiptInvalid")
      }
      yield* queue.ack("work", received.receipt)
    }),

    "an error does not show the payload or the receipt": Effect.gen(function*() {
      const queue = yield* Queue
      const secret = "hunter2"
      const errors = [
        yield* Effect.flip(queue.publish("work", { kind: "numbered", [secret]: `${secret}\0` })),
        yield* Effect.flip(queue.publish("work", { kind: "large", text: secret.repeat(queue.maxPayloadBytes) })),
        yield* Effect.flip(queue.ack("work", secret))
      ]
      for (const error of errors) assert.notInclude(`${error.message} ${JSON.stringify(error)}`, secret)
    })
  }
}
