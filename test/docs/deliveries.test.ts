import { assert, it } from "@effect/vitest"
import { PrismaPg } from "@prisma/adapter-pg"
import { Outbox } from "duroxide-prisma/outbox"
import { Migrator, PgQueue, PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import { Delivery } from "duroxide-prisma/recipes/deliveries"
import { TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { PrismaClient } from "../../src/prisma/generated/client.js"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const secret = Redacted.make(`whsec_${Buffer.alloc(24, 1).toString("base64")}`)

const endpoints = new Map<string, Delivery.Endpoint>()

const deliveriesOn = (url: string) => {
  const DeliveriesLive = TaskWorker.layer({ tasks: [Delivery.Webhook] }).pipe(
    Layer.provide(Delivery.layer({
      endpoints: (name) => Effect.succeed(Option.fromUndefinedOr(endpoints.get(name))),
      allow: ({ hostname, protocol }) => protocol === "https:" && hostname.endsWith(".example.com")
    })),
    Layer.provide(Outbox.publisher()),
    Layer.provide(PgQueue.layer({ queues: { deliveries: {} } })),
    Layer.provide(PrismaProvider.layerDatabase({ url }))
  )
  return DeliveriesLive
}

const receive = Effect.fn(function*(request: Request) {
  const body = yield* Effect.promise(() => request.text())
  const { id } = yield* Delivery.verify(request.headers, body, secret)
  return { id, event: JSON.parse(body) }
})

it("docs/recipes.md, Webhooks to others: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/deliveries.test.ts"))
  const examples = Docs.blocks(Docs.section("docs/recipes.md", "Webhooks to others"), "ts")
  assert.lengthOf(examples, 3)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  assert.isTrue(Layer.isLayer(deliveriesOn("postgresql://localhost/app")))
})

it.live("docs/recipes.md, Webhooks to others: a delivery is stored with the rows of the application", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.emptyDatabase
    yield* Effect.addFinalizer(() => sql("DROP SCHEMA IF EXISTS duroxide CASCADE"))
    yield* Effect.provide(Migrator.migrate({ url, schema: "duroxide" }), Logger.layer([]))
    yield* sql("CREATE TABLE orders (id text PRIMARY KEY, paid boolean DEFAULT false)")
    yield* sql("INSERT INTO orders (id) VALUES ('7')")
    const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url.replace(/\?.*$/, "") }) })
    yield* Effect.addFinalizer(() => Effect.promise(() => prisma.$disconnect()))
    const orderId = "7"
    yield* Effect.promise(async () => {
      await prisma.$transaction(async (tx) => {
        await tx.$executeRaw`UPDATE orders SET paid = true WHERE id = ${orderId}`
        const deliveries = Delivery.within(Transaction.make(tx, { schema: "duroxide" }))
        const event = { endpoint: "accounting", event: "order.paid", data: { order: orderId } }
        await Effect.runPromise(deliveries.create(event, { key: `order.paid/${orderId}` }))
      })
    })
    assert.deepStrictEqual(yield* sql("SELECT paid, name, key FROM orders, duroxide.queue_tasks"), [
      { paid: true, name: "webhook", key: "order.paid/7" }
    ])
  }).pipe(Effect.scoped))

it.effect("docs/recipes.md, Webhooks to others: a receiver checks the signature", () =>
  Effect.gen(function*() {
    const body = JSON.stringify({ type: "order.paid" })
    const headers = yield* Delivery.sign({ id: "msg_1", body, secret })
    const request = (text: string) => new Request("https://example.com", { method: "POST", headers, body: text })
    assert.deepStrictEqual(yield* receive(request(body)), { id: "msg_1", event: { type: "order.paid" } })
    assert.strictEqual((yield* Effect.flip(receive(request(`${body} `))))._tag, "WebhookRefused")
  }))
