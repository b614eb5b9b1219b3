import { assert, it } from "@effect/vitest"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Consumer, MemoryQueue, Message, Queue, QueueError } from "duroxide-prisma/queue"
import { QueueTest } from "duroxide-prisma/testing/queue"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const shipped: Array<string> = []
const ship = (orderId: string) => Effect.sync(() => void shipped.push(orderId))

const asked: Array<string> = []
const isSettled = (paymentId: string) => Effect.sync(() => asked.push(paymentId) === 2)

const OrderPlaced = Message.make("order_placed", { order_id: Schema.String })
const PaymentStarted = Message.make("payment_started", { payment_id: Schema.String })

const OrdersConsumer = Consumer.layer({
  queue: "orders",
  handlers: [
    Consumer.on(OrderPlaced, ({ order_id }) => ship(order_id)),
    Consumer.on(
      PaymentStarted,
      Effect.fn(function*({ payment_id }) {
        return (yield* isSettled(payment_id)) ? undefined : new Consumer.Later({ delay: "1 minute" })
      })
    )
  ]
})

const QueuesLive = PgQueue.layer({ queues: { orders: { maxAttempts: 10 } } }).pipe(
  Layer.provide(PrismaProvider.layerDatabase({ url: process.env.DATABASE_URL! }))
)

const OrdersLive = OrdersConsumer.pipe(Layer.provide(QueuesLive))

const url = process.env.DATABASE_URL!

const SharedLive = PgQueue.layer({ queues: { orders: {} } }).pipe(
  Layer.provideMerge(PrismaProvider.layer({ url }))
)

const receiveOne = Effect.gen(function*() {
  const queue = yield* Queue.Queue
  const messages = yield* queue.receive("orders", {
    maxMessages: 1,
    visibilityTimeout: "30 seconds",
    wait: "20 seconds"
  })
  for (const { payload, receipt } of messages) {
    yield* Effect.log(payload.kind)
    yield* queue.ack("orders", receipt)
  }
})

const TestQueues = MemoryQueue.layer({ queues: { orders: { maxAttempts: 3 } } })

QueueTest.suite("queues in memory", {
  layer: MemoryQueue.layer({ queues: QueueTest.queues }),
  time: "virtual"
})

const page = Docs.section("docs/outbox.md", "Queues")

/** The names in the first column of the table with this head. */
const names = (head: string): ReadonlyArray<string> => {
  const [, table] = page.split(new RegExp(`^\\| ${head} +\\|.*\\n\\|.*\\n`, "m"))
  return [...table!.split("\n\n")[0]!.matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name!)
}

it("docs/outbox.md, Queues: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/queues.test.ts"))
  const examples = Docs.blocks(page, "ts")
  assert.lengthOf(examples, 6)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  for (const layer of [OrdersLive, SharedLive]) assert.isTrue(Layer.isLayer(layer))
})

it("docs/outbox.md, Queues: its tables have every operation and every reason", () => {
  const service = Docs.read("src/queue/Queue.ts")
  const operations = [...service.matchAll(/^ {2}readonly (\w+): \(/gm)].map(([, name]) => name)
  assert.sameMembers([...names("Operation")], operations)
  assert.sameMembers([...names("Reason")], Object.keys(QueueError).filter((name) => name !== "QueueError"))
})

it.effect("docs/outbox.md, Queues: its consumer", () =>
  Effect.gen(function*() {
    const queue = yield* Queue.Queue
    yield* Layer.build(OrdersConsumer)
    yield* queue.publish("orders", { kind: "order_placed", order_id: "o-1" })
    yield* queue.publish("orders", { kind: "payment_started", payment_id: "p-1" })
    yield* TestClock.adjust("1 second")
    assert.deepStrictEqual(shipped, ["o-1"])
    assert.deepStrictEqual(asked, ["p-1"])
    yield* TestClock.adjust("1 minute")
    assert.deepStrictEqual(asked, ["p-1", "p-1"])
    assert.strictEqual((yield* queue.depth("orders")).inFlight, 0)
  }).pipe(Effect.scoped, Effect.provide(Layer.merge(TestQueues, Logger.layer([])))))

it.live("docs/outbox.md, Queues: its receive, its statements", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    const [statement] = /SELECT duroxide\.dx_publish_messages\(.*?\)(?=`)/.exec(Docs.unwrapped(page))!
    yield* test.sql(statement.replace("duroxide.", ""))
    const layer = PgQueue.layer({ queues: { orders: {} } }).pipe(
      Layer.provide(PrismaProvider.layerDatabase({ url: test.url, migrate: "none" })),
      Layer.provide(Logger.layer([]))
    )
    yield* Effect.provide(receiveOne, layer)
    assert.deepStrictEqual(yield* test.sql("SELECT FROM queue_messages"), [])
    yield* test.sql(
      "INSERT INTO queue_dead VALUES (1, 'orders', '{\"kind\":\"order_placed\"}', now(), now(), 1, 20, 'no')"
    )
    const [row] = yield* test.sql<{ readonly kind: string }>(Docs.blocks(page, "sql")[0]!.code)
    assert.strictEqual(row?.kind, "order_placed")
  }).pipe(Effect.scoped))
