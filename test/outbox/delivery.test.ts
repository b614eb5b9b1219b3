import { assert, describe, it } from "@effect/vitest"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, Transaction } from "duroxide-prisma/prisma"
import { Consumer, MemoryQueue, Message, Queue } from "duroxide-prisma/queue"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as CountingQueue from "../queue/utils/countingQueue.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Boxes from "./utils/outbox.ts"

const Placed = Message.make("order_placed", { order_id: Schema.String })

const queues = { orders: {} }

const servers = {
  MemoryQueue: () => MemoryQueue.layer({ queues }),
  PgQueue: () => PgQueue.layer({ queues })
} as const

describe("a message of the outbox reaches its consumer, and only the publisher publishes:", () => {
  for (const name of ["MemoryQueue", "PgQueue"] as const) {
    it.live(name, () =>
      Effect.gen(function*() {
        const { schema, untilAllSent, url } = yield* Boxes.open
        const database = yield* Layer.build(Boxes.process(url))
        const server = yield* Layer.build(servers[name]()).pipe(Effect.provide(database))
        const queue = CountingQueue.make(Context.get(server, Queue.Queue))
        const received: Array<string> = []
        yield* Layer.build(Layer.merge(
          Outbox.publisher().pipe(Layer.provide(queue.publisher)),
          Consumer.layer({
            queue: "orders",
            handlers: [Consumer.on(Placed, ({ order_id }) => Effect.sync(() => void received.push(order_id)))]
          }).pipe(Layer.provide(queue.others))
        )).pipe(Effect.provide(database))

        const client = yield* PgServer.connect(url.replace(/\?.*$/, ""))
        yield* Effect.promise(() => client.query("BEGIN"))
        const outbox = Outbox.within(Transaction.make(client, { schema }))
        yield* outbox.add("orders", Placed, { order_id: "o-1" })
        yield* outbox.add("orders", Placed, { order_id: "o-2" }, { delay: "300 millis" })
        yield* Effect.promise(() => client.query("COMMIT"))

        yield* waitUntil(Effect.sync(() => received.length === 2))
        assert.deepStrictEqual(received, ["o-1", "o-2"])
        yield* untilAllSent
        assert.strictEqual(queue.published.length, 2)
        queue.assertOnlyPublisher()
      }).pipe(Effect.scoped))
  }
})
