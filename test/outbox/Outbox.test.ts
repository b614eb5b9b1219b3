import { assert, describe, it } from "@effect/vitest"
import { PrismaPg } from "@prisma/adapter-pg"
import { Outbox } from "duroxide-prisma/outbox"
import { Database, Transaction } from "duroxide-prisma/prisma"
import { Message } from "duroxide-prisma/queue"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { Prisma, PrismaClient } from "../../src/prisma/generated/client.js"
import * as CountingQueue from "../queue/utils/countingQueue.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Boxes from "./utils/outbox.ts"

/** What a test does inside the application's transaction. */
interface Inside {
  readonly connection: Transaction.TransactionConnection
  readonly run: (sql: string) => Promise<unknown>
}

type Transact = <A>(url: string, body: (inside: Inside) => Promise<A>) => Effect.Effect<Exit.Exit<A, unknown>>

const plain = (url: string) => url.replace(/\?.*$/, "")

const prismaClient = (url: string): Effect.Effect<PrismaClient, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => new PrismaClient({ adapter: new PrismaPg({ connectionString: url }), errorFormat: "minimal" })),
    (prisma) => Effect.promise(() => prisma.$disconnect())
  )

const inPrisma: Transact = (url, body) =>
  Effect.gen(function*() {
    const prisma = yield* prismaClient(plain(url))
    return yield* Effect.exit(Effect.tryPromise(() =>
      prisma.$transaction(
        (tx) => body({ connection: tx, run: (sql) => tx.$executeRaw(Prisma.raw(sql)) }),
        { timeout: 120_000 }
      )
    ))
  }).pipe(Effect.scoped)

const inPg: Transact = (url, body) =>
  Effect.gen(function*() {
    const client = yield* PgServer.connect(plain(url))
    return yield* Effect.exit(Effect.tryPromise(async () => {
      await client.query("BEGIN")
      try {
        const result = await body({ connection: client, run: (sql) => client.query(sql) })
        await client.query("COMMIT")
        return result
      } catch (thrown) {
        await client.query("ROLLBACK")
        throw thrown
      }
    }))
  }).pipe(Effect.scoped)

const openWithOrders = Effect.tap(Boxes.open, ({ sql }) => sql("CREATE TABLE orders (id text PRIMARY KEY)"))

const Placed = Message.make("order_placed", { order_id: Schema.String })

const placed = { kind: "order_placed", order_id: "o-1" }

for (const [name, transact] of [["prisma.$transaction", inPrisma], ["pg client", inPg]] as const) {
  describe(`Outbox.within (${name}):`, () => {
    it.live("the message and the application's row are written by one transaction", () =>
      Effect.gen(function*() {
        const { rows, schema, sql, url } = yield* openWithOrders
        const exit = yield* transact(url, async ({ connection, run }) => {
          await run(`INSERT INTO "${schema}".orders VALUES ('o-1')`)
          await Effect.runPromise(Outbox.within(Transaction.make(connection, { schema })).add("orders", placed))
          assert.deepStrictEqual(await Effect.runPromise(rows), [], "no other session sees it yet")
        })
        assert.deepStrictEqual(exit, Exit.void)
        const written = yield* sql(
          `SELECT b.queue, b.payload, b.attempts, b.sent_at, b.xmin::text = o.xmin::text AS is_one_transaction
           FROM queue_outbox AS b, orders AS o`
        )
        assert.deepStrictEqual(written, [
          { queue: "orders", payload: placed, attempts: 0, sent_at: null, is_one_transaction: true }
        ])
      }).pipe(Effect.scoped))

    it.live("a rollback leaves no message, and nothing is published", () =>
      Effect.gen(function*() {
        const { rows, schema, sql, url } = yield* openWithOrders
        const queue = CountingQueue.make()
        yield* Layer.build(Boxes.publishing(url, queue))
        const exit = yield* transact(url, async ({ connection, run }) => {
          await run(`INSERT INTO "${schema}".orders VALUES ('o-1')`)
          await Effect.runPromise(Outbox.within(Transaction.make(connection, { schema })).add("orders", placed))
          throw new Error("changed our minds")
        })
        assert.isTrue(Exit.isFailure(exit))
        // A message that is written later is published: what was rolled back would have been published before it.
        yield* sql(`SELECT dx_add_to_outbox('[{"queue":"orders","payload":{"kind":"later"}}]')`)
        yield* queue.until(1)
        assert.deepStrictEqual(queue.published, [{ queue: "orders", payload: { kind: "later" } }])
        assert.deepStrictEqual((yield* rows).map(({ payload }) => payload.kind), ["later"])
      }).pipe(Effect.scoped))

    it.live("bad input leaves the transaction usable; a failed statement aborts it", () =>
      Effect.gen(function*() {
        const { rows, schema, url } = yield* openWithOrders
        const reasons: Array<unknown> = []
        yield* transact(url, async ({ connection }) => {
          const outbox = Outbox.within(Transaction.make(connection, { schema }))
          const refused = await Effect.runPromise(Effect.flip(outbox.add("orders", { kind: "" })))
          reasons.push(refused.reason._tag)
          await Effect.runPromise(outbox.add("orders", placed))
        })
        assert.deepStrictEqual(reasons, ["PayloadInvalid"])
        assert.strictEqual((yield* rows).length, 1)
        yield* transact(url, async ({ connection, run }) => {
          await run("SELECT 1 / 0").catch(() => {})
          const aborted = await Effect.runPromise(
            Effect.flip(Outbox.within(Transaction.make(connection, { schema })).add("orders", placed))
          )
          reasons.push(aborted.reason._tag)
        })
        assert.deepStrictEqual(reasons, ["PayloadInvalid", "TransactionAborted"])
      }).pipe(Effect.scoped))

    it.live("the commit notifies once for all messages, and not with duroxide.notify = off", () =>
      Effect.gen(function*() {
        const { schema, sql, url } = yield* openWithOrders
        const listener = yield* PgServer.connect(plain(url))
        const heard: Array<string | undefined> = []
        listener.on("notification", ({ payload }) => void heard.push(payload))
        const [channel] = yield* sql<{ name: string }>("SELECT dx_channel('queues') AS name")
        yield* Effect.promise(() => listener.query(`LISTEN "${channel!.name}"`))
        const addTwice = (before?: string) =>
          transact(url, async ({ connection, run }) => {
            if (before !== undefined) await run(before)
            const { add } = Outbox.within(Transaction.make(connection, { schema }))
            await Effect.runPromise(add("orders", placed))
            await Effect.runPromise(add("others", placed, { delay: "1 hour" }))
          })
        yield* addTwice("SET LOCAL duroxide.notify = off")
        yield* addTwice()
        yield* Effect.promise(() => listener.query("SELECT 1")) // notifications of earlier commits arrive before the answer
        assert.deepStrictEqual(heard, ["o"])
      }).pipe(Effect.scoped))
  })
}

describe("Outbox.within:", () => {
  it.live("a schema that cannot have its name fails with ConfigurationInvalid", () =>
    Effect.gen(function*() {
      const connection = { query: () => Promise.reject(new Error("not reached")) }
      const error = yield* Effect.flip(
        Outbox.within(Transaction.make(connection, { schema: "" })).add("orders", placed)
      )
      assert.strictEqual(error.reason._tag, "ConfigurationInvalid")
    }))
})

describe("Outbox.add:", () => {
  it.live("calls that are made at once share statements, and are stored in their order", () =>
    Effect.gen(function*() {
      const { rows, url } = yield* Boxes.open
      const services = yield* Layer.build(Boxes.process(url))
      const { add } = Context.get(services, Outbox.Outbox)
      yield* Effect.forEach(Array.from({ length: 300 }, (_, n) => n), (n) => add("jobs", { kind: "job", n }), {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual((yield* rows).map(({ payload }) => payload.n), Array.from({ length: 300 }, (_, n) => n))
      const { addToOutbox = 0 } = yield* Context.get(services, Database.Database).statementCounts
      assert.isAtMost(addToOutbox, 10)
    }).pipe(Effect.scoped))

  it.live("every bad input has one typed error, and nothing is stored", () =>
    Effect.gen(function*() {
      const { rows, url } = yield* Boxes.open
      const { add } = Context.get(yield* Layer.build(Boxes.process(url)), Outbox.Outbox)
      const tagOf = (...args: ReadonlyArray<unknown>) =>
        Effect.map(Effect.flip(add(...args as Parameters<typeof add>)), ({ message, reason }) => {
          assert.notInclude(message, "s3cret")
          return reason._tag
        })
      const circle: { kind: string; self?: unknown } = { kind: "circle" }
      circle.self = circle
      assert.deepStrictEqual(
        yield* Effect.all({
          emptyName: tagOf("", placed),
          nameWithSpace: tagOf("a b", placed),
          noName: tagOf(undefined, placed),
          wrongValue: tagOf("orders", Placed, { order_id: { secret: "s3cret" } }),
          noValue: tagOf("orders", Placed),
          noDelayOfKind: tagOf("orders", Placed, { order_id: "o-1" }, { delay: "soon" }),
          text: tagOf("orders", "s3cret"),
          list: tagOf("orders", ["s3cret"]),
          noKind: tagOf("orders", { value: "s3cret" }),
          circle: tagOf("orders", circle),
          bigint: tagOf("orders", { kind: "k", value: 1n }),
          nul: tagOf("orders", { kind: "k", value: "s3cret\0" }),
          surrogate: tagOf("orders", { kind: "k", value: "s3cret\ud800" }),
          tooLarge: tagOf("orders", { kind: "k", value: "s3cret".repeat(50_000) }),
          negativeDelay: tagOf("orders", placed, { delay: -1 }),
          noDelay: tagOf("orders", placed, { delay: "soon" }),
          centuries: tagOf("orders", placed, { delay: "40000 days" })
        }),
        {
          emptyName: "InvalidInput",
          nameWithSpace: "InvalidInput",
          noName: "InvalidInput",
          wrongValue: "PayloadInvalid",
          noValue: "PayloadInvalid",
          noDelayOfKind: "InvalidInput",
          text: "PayloadInvalid",
          list: "PayloadInvalid",
          noKind: "PayloadInvalid",
          circle: "PayloadInvalid",
          bigint: "PayloadInvalid",
          nul: "PayloadInvalid",
          surrogate: "PayloadInvalid",
          tooLarge: "PayloadTooLarge",
          negativeDelay: "InvalidInput",
          noDelay: "InvalidInput",
          centuries: "DelayTooLong"
        }
      )
      assert.deepStrictEqual(yield* rows, [])
    }).pipe(Effect.scoped))

  it.live("the longest delay is stored", () =>
    Effect.gen(function*() {
      const { rows, url } = yield* Boxes.open
      const { add } = Context.get(yield* Layer.build(Boxes.process(url)), Outbox.Outbox)
      yield* add("orders", placed, { delay: "3650 days" })
      const [row] = yield* rows
      assert.approximately(row!.due_in_ms / 86_400_000, 3650, 0.01)
    }).pipe(Effect.scoped))
})
