import { assert, describe, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import { Database } from "../../src/prisma/Database.ts"
import * as PgQueue from "../../src/prisma/PgQueue.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as Consumer from "../../src/queue/Consumer.ts"
import * as Message from "../../src/queue/Message.ts"
import { Queue } from "../../src/queue/Queue.ts"
import type { QueueError } from "../../src/queue/QueueError.ts"
import { Topic, Topics } from "../../src/waking/Topics.ts"
import { start } from "../utils/childProcess.ts"
import { proxyFor } from "../utils/cuttingProxy.ts"
import * as PgServer from "../utils/PgServer.ts"
import { session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

/** A process with queues. */
const open = Effect.fnUntraced(function*(
  { url }: Pick<PgServer.TestDatabase, "url">,
  options: Partial<PgQueue.Options> & Pick<PrismaProvider.DatabaseOptions, "longPolling" | "directUrl"> = {}
) {
  const { directUrl, longPolling, ...others } = options
  const context = yield* Layer.build(
    PgQueue.layer({ queues: { work: {}, other: {} }, ...others }).pipe(
      Layer.provideMerge(PrismaProvider.layerDatabase({ url, directUrl, longPolling, migrate: "none" }))
    )
  )
  const { statementCounts } = Context.get(context, Database)
  return {
    queue: Context.get(context, Queue),
    topics: Context.get(context, Topics),
    statements: Effect.map(statementCounts, (counts) => Object.values(counts).reduce((sum, count) => sum + count, 0))
  }
})

type Process = Effect.Success<ReturnType<typeof open>>

const message = (n: number) => ({ kind: "numbered", n })

/**
 * Shorter than the pause before a fallback look, a minute: what a wait receives is found by a notification or a timer.
 */
const longWait = { maxMessages: 1, visibilityTimeout: "1 minute", wait: "20 seconds" } as const
const now = { ...longWait, wait: 0 } as const

/** Waits in the background for one message. */
const waiting = ({ queue }: Process) => Effect.forkChild(queue.receive("work", longWait), { startImmediately: true })

/** Waits until the process is notified of what others do, and has looked at its queue since. */
const ready = ({ topics, statements }: Process) =>
  Effect.gen(function*() {
    yield* waitUntil(Effect.sync(topics.isConnected))
    yield* quiet(statements)
  })

/** Waits until no statement was sent for a while. */
const quiet = (statements: Effect.Effect<number>) =>
  Effect.gen(function*() {
    let [before, after] = [-1, yield* statements]
    while (before !== after) {
      before = after
      yield* Effect.sleep("200 millis")
      after = yield* statements
    }
  })

const listeners = ({ sql }: PgServer.TestDatabase) =>
  sql<{ readonly pid: number }>(
    `SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'duroxide-prisma queues%'`
  )

const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.timed(effect), ([duration, value]) => [Duration.toMillis(duration), value] as const)

describe("PgQueue:", () => {
  it.live("a waiting receive of another process wakes by a notification, without a fallback look", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const [here, there] = [yield* open(test), yield* open(test)]
      const receive = yield* waiting(there)
      yield* ready(there)
      yield* here.queue.publish("work", message(1))
      const received = yield* Fiber.join(receive)
      assert.deepStrictEqual(received.map(({ payload }) => payload), [message(1)])
    }).pipe(Effect.scoped, silently))

  it.live("a delayed message of another process arrives at its time", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const [here, there] = [yield* open(test), yield* open(test)]
      const receive = yield* waiting(there)
      yield* ready(there)
      const before = yield* there.statements
      const [ms, received] = yield* timed(
        Effect.andThen(here.queue.publish("work", message(1), { delay: "1 second" }), Fiber.join(receive))
      )
      assert.lengthOf(received, 1)
      assert.isAbove(ms, 990)
      // By a timer, not by polling.
      assert.isAtMost((yield* there.statements) - before, 3)
    }).pipe(Effect.scoped, silently))

  it.live("a message of a process that ended without a word arrives when its lease ends", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const [here, there] = [yield* open(test), yield* open(test)]
      yield* here.queue.publish("work", message(1))
      yield* here.queue.receive("work", { ...now, visibilityTimeout: "1 second" })
      const [received] = yield* there.queue.receive("work", longWait)
      assert.strictEqual(received?.deliveryCount, 2)
    }).pipe(Effect.scoped, silently))

  it.live("a process is killed with a message in its hands: another one gets it after the visibility timeout", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const { queue } = yield* open(test)
      const receiver = yield* start("receiver", test.url)
      yield* queue.publish("work", message(1))
      yield* receiver.printed("received")
      yield* receiver.kill
      assert.strictEqual((yield* queue.depth("work")).inFlight, 1)
      const [received] = yield* queue.receive("work", longWait)
      assert.strictEqual(received?.deliveryCount, 2)
      yield* queue.ack("work", received!.receipt)
    }).pipe(Effect.scoped, silently))

  it.live("lost notifications: a fallback look finds the message", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const process = yield* open(test, { fallbackPollInterval: "300 millis" })
      const receive = yield* waiting(process)
      yield* ready(process).pipe(Effect.timeoutOption("1 second"))
      yield* test.sql(`SELECT set_config('duroxide.quiet', 'on', false)`)
      yield* test.sql(
        `SELECT dx_publish_messages('[{"queue":"work","payload":{"kind":"numbered"},"delay_ms":0,"max_attempts":20}]')`
      )
      assert.lengthOf(yield* Fiber.join(receive), 1)
    }).pipe(Effect.scoped, silently))

  it.live("plain SQL wakes a waiting receive", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const process = yield* open(test)
      const receive = yield* waiting(process)
      yield* ready(process)
      yield* test.sql(
        `SELECT dx_publish_messages('[{"queue":"work","payload":{"kind":"numbered"},"delay_ms":0,"max_attempts":20}]')`
      )
      assert.lengthOf(yield* Fiber.join(receive), 1)
    }).pipe(Effect.scoped, silently))

  it.live("without a connection that listens it polls", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const [here, there] = [
        yield* open(test),
        yield* open(test, { longPolling: { enabled: false }, pollInterval: "100 millis" })
      ]
      const receive = yield* waiting(there)
      yield* here.queue.publish("work", message(1))
      assert.lengthOf(yield* Fiber.join(receive), 1)
      assert.lengthOf(yield* listeners(test), 0)
    }).pipe(Effect.scoped, silently))

  it.live("one connection listens for all queues of a process, and none before the first receive", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const process = yield* open(test)
      yield* process.queue.publish("work", message(1))
      assert.lengthOf(yield* listeners(test), 0)
      yield* process.queue.receive("work", now)
      yield* process.queue.receive("other", now)
      yield* Effect.scoped(process.topics.subscribe(Topic.outbox, { received: () => {} }))
      yield* waitUntil(Effect.sync(process.topics.isConnected))
      assert.lengthOf(yield* listeners(test), 1)
    }).pipe(Effect.scoped, silently))

  it.live("the connection is lost: it polls, connects again, and finds what came meanwhile", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const [here, there] = [yield* open(test), yield* open(test, { pollInterval: "1 minute" })]
      const receive = yield* waiting(there)
      yield* ready(there)
      const [{ pid }] = (yield* listeners(test)) as [{ readonly pid: number }]
      yield* test.sql(`SELECT pg_terminate_backend(${pid})`)
      yield* here.queue.publish("work", message(1))
      assert.lengthOf(yield* Fiber.join(receive), 1)
    }).pipe(Effect.scoped, silently))

  it.live("idle: waiting receives send no statement", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const process = yield* open(test)
      yield* process.queue.publish("work", message(1), { delay: "1 hour" })
      const receives = yield* Effect.forEach(Array.from({ length: 10 }), () => waiting(process))
      yield* ready(process)
      // A look may still be under way.
      yield* waitUntil(Effect.gen(function*() {
        const before = yield* process.statements
        yield* Effect.sleep("3 seconds")
        return (yield* process.statements) === before
      }))
      for (const receive of receives) assert.isUndefined(receive.pollUnsafe())
      yield* Fiber.interruptAll(receives)
    }).pipe(Effect.scoped, silently))

  it.live("receives at the same time share a statement", () =>
    Effect.gen(function*() {
      const process = yield* open(yield* PgServer.database)
      yield* Effect.forEach(Array.from({ length: 50 }), (_, n) => process.queue.publish("work", message(n)), {
        concurrency: "unbounded",
        discard: true
      })
      const before = yield* process.statements
      const received = yield* Effect.forEach(
        Array.from({ length: 10 }),
        () => process.queue.receive("work", { ...now, maxMessages: 5 }),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(received.map(({ length }) => length), Array.from({ length: 10 }, () => 5))
      const between = yield* process.statements
      yield* Effect.forEach(received.flat(), ({ receipt }) => process.queue.ack("work", receipt), {
        concurrency: "unbounded",
        discard: true
      })
      // One look, and what connecting takes.
      assert.isAtMost(between - before, 3)
      assert.isAtMost((yield* process.statements) - between, 3)
    }).pipe(Effect.scoped, silently))

  it.live("a receive that is interrupted gives back what was leased for it, without a counted delivery", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const process = yield* open(test)
      yield* process.queue.publish("work", message(1))
      const holder = yield* session(test)
      yield* holder("LOCK TABLE queue_messages IN ACCESS EXCLUSIVE MODE")
      const receive = yield* Effect.forkChild(process.queue.receive("work", longWait), { startImmediately: true })
      yield* waitUntil(Effect.map(
        test.sql(`SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`),
        (rows) => rows.length > 0
      ))
      const interrupted = yield* Effect.forkChild(Fiber.interrupt(receive), { startImmediately: true })
      yield* holder("ROLLBACK")
      yield* Fiber.join(interrupted)
      const [received] = yield* process.queue.receive("work", longWait)
      assert.strictEqual(received?.deliveryCount, 1)
    }).pipe(Effect.scoped, silently))

  it.live("a lease that has ended settles nothing, also when no other receiver has the message", () =>
    Effect.gen(function*() {
      const process = yield* open(yield* PgServer.database)
      yield* process.queue.publish("work", message(1))
      const [received] = yield* process.queue.receive("work", { ...now, visibilityTimeout: "50 millis" })
      yield* Effect.sleep("100 millis")
      const { receipt } = received!
      for (
        const call of [
          process.queue.ack("work", receipt),
          process.queue.extendVisibility("work", receipt, "1 minute"),
          process.queue.deadLetter("work", received!, "late")
        ]
      ) {
        assert.strictEqual((yield* Effect.flip(call)).reason._tag, "ReceiptExpired")
      }
      assert.strictEqual((yield* process.queue.depth("work")).visible, 1)
    }).pipe(Effect.scoped, silently))

  it.live("dead letters keep the payload, the reason, the attempts and the time of death", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const { queue } = yield* open(test, { queues: { work: { maxAttempts: 1 } } })
      for (const n of [1, 2]) yield* queue.publish("work", message(n))
      const [first, second] = yield* queue.receive("work", { ...now, maxMessages: 2 })
      yield* queue.deadLetter("work", first!, "of no use\0")
      yield* queue.extendVisibility("work", second!.receipt, 0)
      assert.lengthOf(yield* queue.receive("work", now), 0)
      assert.deepStrictEqual(
        yield* test.sql(
          `SELECT payload, attempts, max_attempts, last_error, died_at >= created_at AS dated FROM queue_dead ORDER BY id`
        ),
        [
          { payload: message(1), attempts: 1, max_attempts: 1, last_error: "of no use\ufffd", dated: true },
          {
            payload: message(2),
            attempts: 1,
            max_attempts: 1,
            last_error: "delivered 1 times without an ack",
            dated: true
          }
        ]
      )
    }).pipe(Effect.scoped, silently))

  it.live("payloads that are not objects with a kind, inserted by plain SQL: dead letters, and the consumer continues", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const { queue } = yield* open(test)
      const foreign = ["null", "1", "\"text\"", "[]", "{}", "{\"kind\":null}", "{\"kind\":1}"]
      yield* test.sql(
        `INSERT INTO queue_messages (queue, payload, created_at, visible_at)
         SELECT 'work', payload::jsonb, now(), now() FROM unnest($1::text[]) AS payload`,
        [foreign]
      )
      yield* queue.publish("work", message(1))
      const handled = yield* Deferred.make<number>()
      yield* Layer.build(Consumer.layer({
        queue: "work",
        concurrency: 2,
        handlers: [
          Consumer.on(
            Message.make("numbered", { n: Schema.Number }),
            ({ n }) => Effect.asVoid(Deferred.succeed(handled, n))
          )
        ]
      })).pipe(Effect.provideService(Queue, queue))
      assert.strictEqual(yield* Deferred.await(handled), 1)
      assert.deepStrictEqual(
        yield* test.sql(`SELECT payload::text, attempts, last_error FROM queue_dead ORDER BY id`),
        foreign.map((payload) => ({
          payload: payload.replace(":", ": "),
          attempts: 1,
          last_error: "the payload is not an object whose kind is a text"
        }))
      )
    }).pipe(Effect.scoped, silently))

  it.live("the database is unreachable: Unavailable, from every operation", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const proxy = yield* Scope.make()
      const { through } = yield* Scope.provide(proxyFor(test.url), proxy)
      const { queue } = yield* open({ url: through(test.url) })
      yield* queue.publish("work", message(1))
      const [received] = yield* queue.receive("work", now)
      yield* Scope.close(proxy, Exit.void)
      const calls: Readonly<Record<string, Effect.Effect<unknown, QueueError>>> = {
        publish: queue.publish("work", message(2)),
        receive: queue.receive("work", now),
        ack: queue.ack("work", received!.receipt),
        extendVisibility: queue.extendVisibility("work", received!.receipt, 1000),
        deadLetter: queue.deadLetter("work", received!, "x"),
        redrive: queue.redrive("work", { limit: 1 }),
        depth: queue.depth("work")
      }
      for (const [operation, call] of Object.entries(calls)) {
        const error = yield* Effect.flip(call)
        assert.strictEqual(error.reason._tag, "Unavailable", `${operation}: ${error.message}`)
        assert.isTrue(error.isRetryable)
      }
    }).pipe(Effect.scoped, silently))

  it.live("a closed queue: Closed, which is not retryable", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const queue = yield* Effect.scoped(Effect.map(open(test), ({ queue }) => queue))
      for (const call of [queue.publish("work", message(1)), Effect.asVoid(queue.receive("work", longWait))]) {
        const { isRetryable, reason } = yield* Effect.flip(call)
        assert.deepStrictEqual([reason._tag, isRetryable], ["Closed", false])
      }
    }).pipe(silently))

  it.live("options out of their range fail the layer", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const refused: ReadonlyArray<readonly [field: string, options: Partial<PgQueue.Options>]> = [
        ["queues", { queues: { "no spaces": {} } }],
        ["queues", { queues: { "": {} } }],
        ["queues", { queues: { "orders.fifo": {} } }],
        ["queues", { queues: { ["x".repeat(76)]: {} } }],
        ["maxAttempts", { queues: { work: { maxAttempts: 0 } } }],
        ["maxAttempts", { queues: { work: { maxAttempts: 1.5 } } }],
        ["pollInterval", { pollInterval: 0 }],
        ["fallbackPollInterval", { fallbackPollInterval: -1 }]
      ]
      for (const [field, options] of refused) {
        const error = yield* Effect.flip(open(test, options))
        assert.strictEqual(error._tag, "QueueError", field)
        if (error._tag !== "QueueError") continue
        assert.strictEqual(error.reason._tag, "InvalidInput")
        if (error.reason._tag === "InvalidInput") assert.strictEqual(error.reason.field, field)
      }
    }).pipe(Effect.scoped, silently))
})
