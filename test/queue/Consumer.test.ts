import { assert, describe, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as Consumer from "../../src/queue/Consumer.ts"
import * as MemoryQueue from "../../src/queue/MemoryQueue.ts"
import * as Message from "../../src/queue/Message.ts"
import { Queue } from "../../src/queue/Queue.ts"
import type { Received } from "../../src/queue/Queue.ts"
import { QueueError, QueueNotFound, Unavailable } from "../../src/queue/QueueError.ts"
import { logging } from "../utils/listening.ts"

const Numbered = Message.make("numbered", { n: Schema.Number })
const Ping = Message.make("ping", {})

const queues = MemoryQueue.layer({ queues: { work: { maxAttempts: 5 } } })

const withQueues = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  effect.pipe(Effect.scoped, Effect.provide(Layer.merge(queues, Logger.layer([]))))

const publish = (n: number) =>
  Effect.gen(function*() {
    const queue = yield* Queue
    yield* queue.publish("work", yield* Numbered.encode({ n }))
  })

type Handle = Parameters<typeof Consumer.on<"numbered", typeof Numbered.fields>>[1]

/** Consumes `work` until the scope is closed. */
const consume = (
  handle: Handle,
  options: Partial<Consumer.Options<never>> = {}
) => Layer.build(Consumer.layer({ queue: "work", handlers: [Consumer.on(Numbered, handle)], ...options }))

/** Lets all fibers do what they can now. */
const settle = TestClock.adjust(0)

const depth = Effect.flatMap(
  Queue,
  (queue) =>
    Effect.map(queue.depth("work"), ({ dead, delayed, inFlight, visible }) => ({ visible, delayed, inFlight, dead }))
)

const empty = { visible: 0, delayed: 0, inFlight: 0, dead: 0 }

describe("Consumer:", () => {
  it.effect("runs the handler of the kind with the decoded value, and acknowledges", () =>
    Effect.gen(function*() {
      const handled: Array<unknown> = []
      yield* consume((value, delivery) => Effect.sync(() => void handled.push([value, delivery])), {
        handlers: [
          Consumer.on(Ping, () => Effect.sync(() => void handled.push("ping"))),
          Consumer.on(Numbered, (value, delivery) => Effect.sync(() => void handled.push([value, delivery])))
        ]
      })
      yield* publish(1)
      yield* (yield* Queue).publish("work", { kind: "ping" })
      yield* settle
      assert.deepStrictEqual(handled, [[{ n: 1 }, { queue: "work", deliveryCount: 1 }], "ping"])
      assert.deepStrictEqual(yield* depth, empty)
    }).pipe(withQueues))

  it.effect("a failing handler gives the message back with a delay that grows, then it is dead", () =>
    Effect.gen(function*() {
      const times: Array<number> = []
      const begin = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
      yield* consume(() =>
        Effect.clockWith((clock) => clock.currentTimeMillis).pipe(
          Effect.tap((now) => Effect.sync(() => times.push((now - begin) / 1000))),
          Effect.andThen(Effect.fail("no"))
        )
      )
      yield* publish(1)
      for (let i = 0; i < 60; i++) yield* TestClock.adjust("1 second")
      // After 1, 2, 4 and 8 seconds.
      assert.deepStrictEqual(times, [0, 1, 3, 7, 15])
      assert.deepStrictEqual(yield* depth, { ...empty, dead: 1 })
    }).pipe(withQueues))

  it.effect("a queue that is not declared: the layer fails, before anything is received", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(consume(() => Effect.void, { queue: "wrok" }))
      assert.deepStrictEqual(
        error,
        new QueueError({ operation: "consume", queue: "wrok", reason: new QueueNotFound({ queue: "wrok" }) })
      )
    }).pipe(withQueues))

  it.effect("logs what it consumes at its start, and its end", () =>
    Effect.gen(function*() {
      const log = logging()
      const scope = yield* Scope.make()
      yield* log.into(Scope.provide(
        consume(() => Effect.void, {
          handlers: [Consumer.on(Ping, () => Effect.void), Consumer.on(Numbered, () => Effect.void)],
          concurrency: 3
        }),
        scope
      ))
      yield* settle
      yield* log.into(Scope.close(scope, Exit.void))
      assert.deepStrictEqual(
        log.lines.map(({ annotations, text }) => [text, annotations]),
        [
          ["Consumer: started", { package: "duroxide-prisma", queue: "work", kinds: "ping, numbered", concurrency: 3 }],
          ["Consumer: stopped", { package: "duroxide-prisma", queue: "work" }]
        ]
      )
    }).pipe(withQueues))

  it.effect("a message that was delivered too often: one line says so, without its payload", () =>
    Effect.gen(function*() {
      const log = logging()
      yield* log.into(consume(() => Effect.fail("no")))
      yield* publish(42)
      for (let i = 0; i < 60; i++) yield* TestClock.adjust("1 second")
      const dead = log.lines.filter(({ text }) => text.includes("after too many deliveries"))
      assert.lengthOf(dead, 1)
      assert.deepStrictEqual(
        dead.map(({ annotations, level }) => [level, annotations]),
        [["Error", { package: "duroxide-prisma", queue: "work", messages: 1 }]]
      )
    }).pipe(withQueues))

  it.effect("a handler that dies gives the message back", () =>
    Effect.gen(function*() {
      let runs = 0
      yield* consume(() => Effect.suspend(() => ++runs === 1 ? Effect.die("defect") : Effect.void))
      yield* publish(1)
      yield* settle
      assert.deepStrictEqual(yield* depth, { ...empty, inFlight: 1 })
      yield* TestClock.adjust("1 second")
      assert.strictEqual(runs, 2)
      assert.deepStrictEqual(yield* depth, empty)
    }).pipe(withQueues))

  it.effect("Later: the message comes again after the delay", () =>
    Effect.gen(function*() {
      const deliveries: Array<number> = []
      yield* consume((_, { deliveryCount }) =>
        Effect.sync(() => {
          deliveries.push(deliveryCount)
          return deliveryCount === 1 ? new Consumer.Later({ delay: "10 seconds" }) : undefined
        })
      )
      yield* publish(1)
      yield* TestClock.adjust("9 seconds")
      assert.deepStrictEqual(deliveries, [1])
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(deliveries, [1, 2])
      assert.deepStrictEqual(yield* depth, empty)
    }).pipe(withQueues))

  it.effect("an unknown kind and a payload that does not decode go to the dead letters at once", () =>
    Effect.gen(function*() {
      const log = logging()
      const queue = yield* Queue
      const handled: Array<number> = []
      yield* log.into(consume(({ n }) => Effect.sync(() => void handled.push(n))))
      yield* queue.publish("work", { kind: "unheard-of", secret: "hunter2" })
      yield* queue.publish("work", { kind: "numbered", n: "hunter2" })
      yield* publish(3)
      yield* TestClock.adjust("10 minutes")
      assert.deepStrictEqual(handled, [3])
      assert.deepStrictEqual(yield* depth, { ...empty, dead: 2 })
      const reasons = log.lines.filter(({ text }) => text === "Consumer: message moved to the dead letters")
        .map(({ annotations }) => annotations.reason)
      assert.lengthOf(reasons, 2)
      assert.include(String(reasons[0]), "no handler for messages of kind \"unheard-of\"")
      assert.include(String(reasons[1]), "[\"n\"]")
      assert.notInclude(JSON.stringify(log.lines), "hunter2")
    }).pipe(withQueues))

  it.effect("a long handler keeps its message hidden, and it is acknowledged at the end", () =>
    Effect.gen(function*() {
      let runs = 0
      yield* consume(() => Effect.andThen(Effect.sync(() => runs++), Effect.sleep("10 minutes")), {
        visibilityTimeout: "30 seconds"
      })
      yield* publish(1)
      for (let i = 0; i < 59; i++) yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(yield* depth, { ...empty, inFlight: 1 })
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual(runs, 1)
      assert.deepStrictEqual(yield* depth, empty)
    }).pipe(withQueues))

  it.effect("messages that began at different times: each is kept hidden while its own handler runs", () =>
    Effect.gen(function*() {
      const queue = yield* Queue
      const extended: Array<number> = []
      const numbers = new Map<string, number>()
      const counting = Queue.of({
        ...queue,
        receive: (name, options) =>
          Effect.tap(
            queue.receive(name, options),
            (messages) =>
              Effect.forEach(messages, ({ payload, receipt }) =>
                Effect.map(Effect.orDie(Numbered.decode(payload)), ({ n }) =>
                  void numbers.set(receipt, n)))
          ),
        extendVisibility: (name, receipt, timeout) =>
          Effect.andThen(
            Effect.sync(() => extended.push(numbers.get(receipt)!)),
            queue.extendVisibility(name, receipt, timeout)
          )
      })
      const runs: Array<number> = []
      yield* consume(({ n }) => Effect.andThen(Effect.sync(() => runs.push(n)), Effect.sleep(n * 1000)), {
        visibilityTimeout: "30 seconds"
      }).pipe(Effect.provideService(Queue, counting))
      // Of 10, 20 and 50 seconds: the first ends before it is extended, and while the timer runs for it.
      for (const n of [10, 20, 50]) {
        yield* publish(n)
        yield* TestClock.adjust("4 seconds")
      }
      for (let i = 0; i < 60; i++) yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(runs, [10, 20, 50])
      assert.deepStrictEqual(extended, [20, 50, 50, 50])
      assert.deepStrictEqual(yield* depth, empty)
    }).pipe(withQueues))

  it.effect("an extension is under way when the handler ends: it is interrupted, and the message acknowledged", () =>
    Effect.gen(function*() {
      const queue = yield* Queue
      const begun = yield* Deferred.make<void>()
      const interrupted = yield* Deferred.make<void>()
      yield* consume(() => Deferred.await(begun)).pipe(
        Effect.provideService(
          Queue,
          Queue.of({
            ...queue,
            extendVisibility: () =>
              Effect.andThen(Deferred.succeed(begun, undefined), Effect.never).pipe(
                Effect.onInterrupt(() => Deferred.succeed(interrupted, undefined))
              )
          })
        )
      )
      yield* publish(1)
      yield* settle
      yield* TestClock.adjust("15 seconds")
      yield* Deferred.await(interrupted)
      yield* settle
      assert.deepStrictEqual(yield* depth, empty)
    }).pipe(withQueues))

  it.effect("runs no more handlers at once than concurrency, and receives no more than it can run", () =>
    Effect.gen(function*() {
      let running = 0
      let most = 0
      yield* consume(() =>
        Effect.sync(() => most = Math.max(most, ++running)).pipe(
          Effect.andThen(Effect.sleep("1 second")),
          Effect.andThen(Effect.sync(() => void running--))
        ), { concurrency: 3, maxMessages: 10 })
      for (let n = 0; n < 10; n++) yield* publish(n)
      yield* settle
      assert.deepStrictEqual(yield* depth, { ...empty, visible: 7, inFlight: 3 })
      for (let i = 0; i < 4; i++) yield* TestClock.adjust("1 second")
      assert.strictEqual(most, 3)
      assert.deepStrictEqual(yield* depth, empty)
    }).pipe(withQueues))

  it.effect("closed: receives no more, lets handlers end, and gives back what takes too long", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const ended: Array<number> = []
      yield* Scope.provide(
        consume(({ n }) => Effect.andThen(Effect.sleep(n * 1000), Effect.sync(() => void ended.push(n))), {
          gracePeriod: "5 seconds",
          visibilityTimeout: "10 minutes"
        }),
        scope
      )
      yield* publish(2)
      yield* publish(60)
      yield* settle
      const closing = yield* Effect.forkChild(Scope.close(scope, Exit.void), { startImmediately: true })
      yield* publish(3)
      yield* TestClock.adjust("4 seconds")
      assert.deepStrictEqual(ended, [2])
      assert.isUndefined(closing.pollUnsafe())
      yield* TestClock.adjust("1 second")
      assert.isDefined(closing.pollUnsafe())
      // The one that came later, and the one that took too long, for another process.
      assert.deepStrictEqual(yield* depth, { ...empty, visible: 2 })
    }).pipe(withQueues))

  for (const reason of [new Unavailable({ problem: "down" }), new QueueNotFound({ queue: "work" })]) {
    it.effect(`an outage of the queue, ${reason._tag}: tries again, warns once, and continues`, () =>
      Effect.gen(function*() {
        const log = logging()
        const queue = yield* Queue
        let isDown = true
        const down = Effect.fail(new QueueError({ operation: "receive", queue: "work", reason }))
        const handled = yield* Deferred.make<number>()
        yield* log.into(consume(({ n }) => Effect.asVoid(Deferred.succeed(handled, n)))).pipe(
          Effect.provideService(
            Queue,
            Queue.of({ ...queue, receive: (...args) => Effect.suspend(() => isDown ? down : queue.receive(...args)) })
          )
        )
        yield* publish(1)
        yield* TestClock.adjust("2 minutes")
        assert.deepStrictEqual(
          log.lines.filter(({ level }) => !["Debug", "Info"].includes(level)).map(({ level, text }) =>
            `${level} ${text}`
          ),
          ["Warn Consumer: cannot receive; it tries again"]
        )
        isDown = false
        yield* TestClock.adjust("30 seconds")
        assert.strictEqual(yield* Deferred.await(handled), 1)
        assert.isTrue(log.lines.some(({ text }) => text === "Consumer: receives again"))
      }).pipe(withQueues))
  }

  it.effect("a defect in handling one message: an error in the log, others are handled, and it comes again", () =>
    Effect.gen(function*() {
      const log = logging()
      const handled: Array<number> = []
      let defects = 0
      const numbered = Consumer.on(Numbered, ({ n }) => Effect.sync(() => void handled.push(n)))
      const prepare: typeof numbered.prepare = (payload, delivery) => {
        if (payload.n === 1 && delivery.deliveryCount === 1) {
          defects++
          throw new TypeError("hunter2")
        }
        return numbered.prepare(payload, delivery)
      }
      yield* log.into(consume(() => Effect.void, { handlers: [{ ...numbered, prepare }] }))
      yield* publish(1)
      yield* publish(2)
      yield* settle
      yield* publish(3)
      yield* settle
      assert.deepStrictEqual([defects, handled], [1, [2, 3]])
      yield* TestClock.adjust("30 seconds")
      assert.deepStrictEqual(handled, [2, 3, 1])
      assert.deepStrictEqual(
        log.lines.slice(1).map(({ annotations, level, text }) => [level, text, annotations.error_type]),
        [["Error", "Consumer: a message could not be handled or settled, so it comes again", "TypeError"]]
      )
      assert.notInclude(JSON.stringify(log.lines), "hunter2")
      assert.deepStrictEqual(yield* depth, empty)
    }).pipe(withQueues))

  it.effect("a defect of the queue while it receives: an error in the log, and receiving starts again", () =>
    Effect.gen(function*() {
      const log = logging()
      const queue = yield* Queue
      let defects = 0
      const handled: Array<number> = []
      yield* log.into(consume(({ n }) => Effect.sync(() => void handled.push(n)))).pipe(
        Effect.provideService(
          Queue,
          Queue.of({
            ...queue,
            receive: (...args) => defects < 2 ? Effect.die(new TypeError(`${++defects}`)) : queue.receive(...args)
          })
        )
      )
      yield* publish(1)
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(handled, [1])
      assert.deepStrictEqual(
        log.lines.slice(1).map(({ level, text }) => [level, text]),
        ["1", "2"].map(() => ["Error", "Consumer: receiving stopped by a defect; it starts again"])
      )
    }).pipe(withQueues))

  it.effect("a message whose lease was lost: its handler runs on, the ack is refused, one warning", () =>
    Effect.gen(function*() {
      const log = logging()
      const queue = yield* Queue
      const expired = new QueueError({
        operation: "extendVisibility",
        queue: "work",
        reason: (yield* Effect.flip(queue.ack("work", (yield* lost).receipt))).reason
      })
      const ended: Array<number> = []
      const handle: Handle = (_, { deliveryCount }) =>
        Effect.delay(Effect.sync(() => void ended.push(deliveryCount)), deliveryCount === 1 ? "1 minute" : 0)
      yield* log.into(consume(handle)).pipe(
        Effect.provideService(Queue, Queue.of({ ...queue, extendVisibility: () => Effect.fail(expired) }))
      )
      yield* publish(1)
      for (let i = 0; i < 6; i++) yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(ended, [2, 1])
      assert.deepStrictEqual(
        log.lines.filter(({ level }) => level === "Warn").map(({ text }) => text),
        [
          "Consumer: the message could not be kept hidden, so it comes again",
          "Consumer: the message was handled, but not acknowledged, so it comes again"
        ]
      )
    }).pipe(withQueues))

  it.effect("options out of their range fail the layer", () =>
    Effect.gen(function*() {
      const none = () => Effect.void
      const refused: ReadonlyArray<readonly [string, Partial<Consumer.Options<never>>]> = [
        ["handlers", { handlers: [] }],
        ["handlers", { handlers: [Consumer.on(Ping, none), Consumer.on(Ping, none)] }],
        ["concurrency", { concurrency: 0 }],
        ["maxMessages", { maxMessages: 1001 }],
        ["visibilityTimeout", { visibilityTimeout: 0 }],
        ["visibilityTimeout", { visibilityTimeout: "13 hours" }],
        ["gracePeriod", { gracePeriod: -1 }]
      ]
      for (const [field, options] of refused) {
        const { reason } = yield* Effect.flip(consume(none, options))
        assert.strictEqual(reason._tag, "InvalidInput", field)
        if (reason._tag === "InvalidInput") assert.strictEqual(reason.field, field)
      }
    }).pipe(withQueues))
})

/** A delivery whose message is gone. */
const lost = Effect.gen(function*() {
  const queue = yield* Queue
  yield* queue.publish("work", { kind: "ping" })
  const [received] = yield* queue.receive("work", { maxMessages: 1, visibilityTimeout: "1 minute", wait: 0 })
  yield* queue.ack("work", received!.receipt)
  return received as Received
})
