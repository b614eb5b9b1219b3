import { assert, it } from "@effect/vitest"
import { PrismaPg } from "@prisma/adapter-pg"
import { Client, Orchestration } from "duroxide-prisma"
import { Migrator, Transaction } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { PrismaClient } from "../../src/prisma/generated/client.js"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const Fulfil = Orchestration.make("Fulfil", { payload: Schema.String, success: Schema.String })

const open = Effect.gen(function*() {
  const { sql, url } = yield* PgServer.emptyDatabase
  yield* Effect.addFinalizer(() => sql("DROP SCHEMA IF EXISTS duroxide CASCADE"))
  yield* Effect.provide(Migrator.migrate({ url, schema: "duroxide" }), Logger.layer([]))
  yield* sql("CREATE TABLE orders (id text PRIMARY KEY, total_cents int)")
  const stored = sql(
    `SELECT (SELECT array_agg(id ORDER BY id) FROM orders) AS orders,
            (SELECT array_agg(instance_id ORDER BY instance_id) FROM duroxide.instances) AS instances`
  )
  return { url: url.replace(/\?.*$/, ""), stored }
})

it("docs/outbox.md, Orchestrations in your transaction: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/transactions.test.ts"))
  const examples = Docs.blocks(Docs.section("docs/outbox.md", "Orchestrations in your transaction"), "ts")
  assert.lengthOf(examples, 2)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
})

it.live("with Prisma: the order and its orchestration are stored together or not at all", () =>
  Effect.gen(function*() {
    const { stored, url } = yield* open
    const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) })
    yield* Effect.addFinalizer(() => Effect.promise(() => prisma.$disconnect()))
    const place = async (orderId: string) => {
      await prisma.$transaction(async (tx) => {
        await tx.$executeRaw`INSERT INTO orders (id, total_cents) VALUES (${orderId}, 4200)`
        const client = Client.within(Transaction.make(tx, { schema: "duroxide" }))
        await Effect.runPromise(client.start(Fulfil, { instanceId: `order-${orderId}`, payload: orderId }))
      })
    }
    yield* Effect.promise(() => place("1"))
    yield* stored.pipe(
      Effect.tap(([row]) => Effect.sync(() => assert.deepStrictEqual(row, { orders: ["1"], instances: ["order-1"] })))
    )
    // The second order is refused after its row was written: its instance id is far too long.
    const exit = yield* Effect.exit(Effect.tryPromise(() => place("x".repeat(2000))))
    assert.isTrue(Exit.isFailure(exit))
    assert.deepStrictEqual(yield* stored, [{ orders: ["1"], instances: ["order-1"] }])
  }).pipe(Effect.scoped))

it.live("with pg: the order and its orchestration are stored together or not at all", () =>
  Effect.gen(function*() {
    const { stored, url } = yield* open
    const connection = yield* PgServer.connect(url)
    const query = (text: string, values: Array<unknown>) => Effect.tryPromise(() => connection.query(text, values))
    const place = (orderId: string) => {
      const placeOrder = Effect.gen(function*() {
        yield* query("INSERT INTO orders (id, total_cents) VALUES ($1, 4200)", [orderId])
        const client = Client.within(Transaction.make(connection, { schema: "duroxide" }))
        yield* client.start(Fulfil, { instanceId: `order-${orderId}`, payload: orderId })
      })

      const transaction = Effect.acquireUseRelease(
        query("BEGIN", []),
        () => placeOrder,
        (_, exit) => Effect.ignore(query(Exit.isSuccess(exit) ? "COMMIT" : "ROLLBACK", []))
      )
      return transaction
    }
    yield* place("1")
    assert.deepStrictEqual(yield* stored, [{ orders: ["1"], instances: ["order-1"] }])
    assert.isTrue(Exit.isFailure(yield* Effect.exit(place("x".repeat(2000)))))
    assert.deepStrictEqual(yield* stored, [{ orders: ["1"], instances: ["order-1"] }])
  }).pipe(Effect.scoped))
