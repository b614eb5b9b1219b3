import { assert, it } from "@effect/vitest"
import { PrismaPg } from "@prisma/adapter-pg"
import { Outbox } from "duroxide-prisma/outbox"
import { Migrator, PgQueue, PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import { Message } from "duroxide-prisma/queue"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { PrismaClient } from "../../src/prisma/generated/client.js"
import * as Boxes from "../outbox/utils/outbox.ts"
import * as CountingQueue from "../queue/utils/countingQueue.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const OrderPlaced = Message.make("order_placed", { order_id: Schema.String })
const Reminder = Message.make("reminder", { order_id: Schema.String })

const PublisherLive = Outbox.publisher().pipe(
  Layer.provide(PgQueue.layer({ queues: { orders: {}, reminders: {} } })),
  Layer.provide(PrismaProvider.layerDatabase({ url: process.env.DATABASE_URL! }))
)

const remind = Effect.gen(function*() {
  const outbox = yield* Outbox.Outbox
  yield* outbox.add("reminders", Reminder, { order_id: "o-1" }, { delay: "3 days" })
})

it("docs/outbox.md, Outbox: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/outbox.test.ts"))
  const examples = Docs.blocks(Docs.section("docs/outbox.md", "Outbox"), "ts")
  assert.lengthOf(examples, 4)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  assert.isTrue(Layer.isLayer(PublisherLive))
})

it.live("docs/outbox.md, Outbox: its transaction and its statements", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.emptyDatabase
    yield* Effect.addFinalizer(() => sql("DROP SCHEMA IF EXISTS duroxide CASCADE"))
    yield* Effect.provide(Migrator.migrate({ url, schema: "duroxide" }), Logger.layer([]))
    yield* sql("CREATE TABLE orders (id text PRIMARY KEY)")
    const queues = Effect.map(
      sql<{ queue: string }>("SELECT queue FROM duroxide.queue_outbox ORDER BY id"),
      (rows) => rows.map(({ queue }) => queue)
    )
    const prisma = new PrismaClient({
      adapter: new PrismaPg({ connectionString: url.replace(/\?.*$/, "") }),
      // A busy machine is slow.
      transactionOptions: { maxWait: 60_000, timeout: 60_000 }
    })
    yield* Effect.addFinalizer(() => Effect.promise(() => prisma.$disconnect()))
    const place = async (orderId: string) => {
      await prisma.$transaction(async (tx) => {
        await tx.$executeRaw`INSERT INTO orders (id) VALUES (${orderId})`
        const outbox = Outbox.within(Transaction.make(tx, { schema: "duroxide" }))
        await Effect.runPromise(outbox.add("orders", OrderPlaced, { order_id: orderId }))
      })
    }
    yield* Effect.promise(() => place("1"))
    const page = Docs.unwrapped(Docs.section("docs/outbox.md", "Outbox"))
    const plain = /SELECT duroxide\.dx_add_to_outbox\(.*?\)(?=`)/.exec(page)
    yield* sql(plain![0])
    yield* Effect.provide(remind, Boxes.publishing(url, CountingQueue.make(), {}, { schema: "duroxide" }))
    assert.deepStrictEqual(yield* queues, ["orders", "orders", "reminders"])
    const failing = /SELECT id, queue, attempts.*?(?=`)/.exec(page)
    yield* sql("SET search_path = duroxide")
    assert.deepStrictEqual(yield* sql(failing![0]), [])
  }).pipe(Effect.scoped))
