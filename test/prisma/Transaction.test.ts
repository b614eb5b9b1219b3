import { assert, describe, it } from "@effect/vitest"
import { PrismaPg } from "@prisma/adapter-pg"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Migrator, Transaction } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { Prisma, PrismaClient } from "../../src/prisma/generated/client.js"
import { ProviderError } from "../../src/provider/ProviderError.ts"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

const Ship = Activity.make("Ship", { payload: Schema.String, success: Schema.String })

const Fulfil = Orchestration.make("Fulfil", { payload: Schema.String, success: Schema.String })

const Approved = Signal.make("Approved", { payload: Schema.Boolean })

const RuntimeLive = Runtime.layer({ orchestrations: [Fulfil], activities: [Ship] }).pipe(
  Layer.provide([
    Ship.toLayer((orderId) => Effect.succeed(`${orderId} shipped`)),
    Fulfil.toLayer((orderId) => Ship.execute(orderId))
  ])
)

/** The application's own tables, and the state of both. */
const open = Effect.gen(function*() {
  const test = yield* PgServer.database
  yield* test.sql("CREATE TABLE orders (id text PRIMARY KEY)")
  const stored = Effect.gen(function*() {
    const orders = yield* test.sql<{ id: string }>("SELECT id FROM orders ORDER BY id")
    const [ours] = yield* test.sql<{ instances: number; executions: number; messages: number }>(
      `SELECT (SELECT count(*) FROM instances)::int AS instances, (SELECT count(*) FROM executions)::int AS executions,
              (SELECT count(*) FROM orchestrator_queue)::int AS messages`
    )
    return { orders: orders.map(({ id }) => id), ...ours! }
  })
  return { ...test, stored }
})

const nothing = { orders: [], instances: 0, executions: 0, messages: 0 }

/** The calls of a test inside the application's transaction. */
interface Inside {
  readonly connection: Transaction.TransactionConnection
  readonly run: (sql: string) => Promise<unknown>
}

type Transact = <A>(url: string, body: (inside: Inside) => Promise<A>) => Effect.Effect<Exit.Exit<A, unknown>>

/** An application's own Prisma client. */
const prismaClient = (url: string): Effect.Effect<PrismaClient, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => new PrismaClient({ adapter: new PrismaPg({ connectionString: url }), errorFormat: "minimal" })),
    (prisma) => Effect.promise(() => prisma.$disconnect())
  )

const plain = (url: string) => url.replace(/\?.*$/, "")

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
    const transaction = async () => {
      await client.query("BEGIN")
      try {
        const result = await body({ connection: client, run: (sql) => client.query(sql) })
        // COMMIT of an aborted transaction succeeds, and rolls back.
        const { command } = await client.query("COMMIT")
        if (command !== "COMMIT") throw new Error("rolled back")
        return result
      } catch (thrown) {
        await client.query("ROLLBACK")
        throw thrown
      }
    }
    return yield* Effect.exit(Effect.tryPromise(transaction))
  }).pipe(Effect.scoped)

const insertOrder = ({ run }: Inside, schema: string, id = "o-1") =>
  run(`INSERT INTO "${schema}".orders VALUES ('${id}')`)

for (const [name, transact] of [["prisma.$transaction", inPrisma], ["pg client", inPg]] as const) {
  describe(`in a transaction (${name}):`, () => {
    it.live("start, raise and cancel commit together with the application's own rows", () =>
      Effect.gen(function*() {
        const { schema, stored, url } = yield* open
        const exit = yield* transact(url, async (inside) => {
          await insertOrder(inside, schema)
          const client = Client.within(Transaction.make(inside.connection, { schema }))
          await Effect.runPromise(client.start(Fulfil, { instanceId: "order-1", payload: "o-1" }))
          await Effect.runPromise(client.send(Approved, "order-1", true))
          await Effect.runPromise(client.terminate("order-1", "changed our minds"))
          // No other session sees it yet.
          assert.deepStrictEqual(await Effect.runPromise(stored), nothing)
        })
        assert.deepStrictEqual(exit, Exit.void)
        assert.deepStrictEqual(yield* stored, { orders: ["o-1"], instances: 1, executions: 1, messages: 3 })
      }).pipe(Effect.scoped))

    it.live("a started instance runs as if a client had started it", () =>
      Effect.gen(function*() {
        const { schema, sql, url } = yield* open
        const services = yield* Layer.build(RuntimeLive.pipe(Layer.provideMerge(App.store(url))))
        // Large enough to travel beside the JSON of its statement.
        const orderId = "o-1 \"ü😀\" \\".repeat(200)
        yield* transact(url, (inside) =>
          Effect.runPromise(
            Client.within(Transaction.make(inside.connection, { schema })).start(Fulfil, {
              instanceId: "order-1",
              payload: orderId,
              attributes: { customer: "c1" }
            })
          ))
        assert.deepStrictEqual(yield* sql("SELECT name, text_value FROM attributes"), [
          { name: "customer", text_value: "c1" }
        ])
        const client = yield* Effect.provide(Client.Client, services)
        assert.strictEqual(yield* client.wait(Fulfil, "order-1"), `${orderId} shipped`)
      }).pipe(Effect.scoped))

    it.live("many starts, and a signal with its start, commit together, or not at all", () =>
      Effect.gen(function*() {
        const { schema, stored, url } = yield* open
        const write = async (inside: Inside) => {
          await insertOrder(inside, schema)
          const client = Client.within(Transaction.make(inside.connection, { schema }))
          const starts = ["a", "b", "a"].map((instanceId) => ({ instanceId, payload: "o-1" }))
          const outcomes = await Effect.runPromise(client.startMany(Fulfil, starts))
          assert.deepStrictEqual(outcomes.map(({ outcome }) => outcome), ["Started", "Started", "AlreadyExists"])
          const orStart = { orchestration: Fulfil, payload: "o-1" }
          await Effect.runPromise(client.send(Approved, "c", true, { orStart }))
          await Effect.runPromise(client.send(Approved, "a", true, { orStart }))
        }
        const failed = yield* transact(url, async (inside) => {
          await write(inside)
          throw new Error("the payment was declined")
        })
        assert.isTrue(Exit.isFailure(failed))
        assert.deepStrictEqual(yield* stored, nothing)
        assert.deepStrictEqual(yield* transact(url, write), Exit.void)
        // Three starts, and two signals.
        assert.deepStrictEqual(yield* stored, { orders: ["o-1"], instances: 3, executions: 3, messages: 5 })
      }).pipe(Effect.scoped))

    it.live("a rollback leaves nothing", () =>
      Effect.gen(function*() {
        const { schema, stored, url } = yield* open
        const exit = yield* transact(url, async (inside) => {
          await insertOrder(inside, schema)
          const queues = Transaction.make(inside.connection, { schema })
          const client = Client.within(queues)
          await Effect.runPromise(client.start(Fulfil, { instanceId: "order-1", payload: "o-1" }))
          await Effect.runPromise(client.send(Approved, "order-1", true))
          await Effect.runPromise(
            queues.enqueueForWorker({
              _tag: "ActivityExecute",
              instance: "order-1",
              executionId: 1,
              id: 2,
              name: "Ship",
              input: "\"o-1\""
            })
          )
          throw new Error("the payment was declined")
        })
        assert.isTrue(Exit.isFailure(exit))
        assert.deepStrictEqual(yield* stored, nothing)
      }).pipe(Effect.scoped))

    it.live("a taken id is an outcome, not a failed statement: the transaction can still commit", () =>
      Effect.gen(function*() {
        const { schema, stored, url } = yield* open
        const start = (inside: Inside) =>
          Client.within(Transaction.make(inside.connection, { schema })).start(Fulfil, {
            instanceId: "order-1",
            payload: "o-1"
          })
        yield* transact(url, (inside) => Effect.runPromise(start(inside)))
        const exit = yield* transact(url, async (inside) => {
          const error = await Effect.runPromise(Effect.flip(start(inside)))
          assert.strictEqual(error._tag, "InstanceAlreadyExists")
          await insertOrder(inside, schema, "o-2")
        })
        assert.isTrue(Exit.isSuccess(exit))
        assert.deepStrictEqual(yield* stored, { orders: ["o-2"], instances: 1, executions: 1, messages: 1 })
      }).pipe(Effect.scoped))

    it.live("input that is refused sends no statement: the transaction can still commit", () =>
      Effect.gen(function*() {
        const { schema, stored, url } = yield* open
        const exit = yield* transact(url, async (inside) => {
          const client = Client.within(Transaction.make(inside.connection, { schema }))
          const error = await Effect.runPromise(
            Effect.flip(client.start(Fulfil, { instanceId: "a\0b", payload: "o-1" }))
          )
          assert.strictEqual(error._tag, "ProviderError")
          await insertOrder(inside, schema)
        })
        assert.isTrue(Exit.isSuccess(exit))
        assert.deepStrictEqual(yield* stored, { ...nothing, orders: ["o-1"] })
      }).pipe(Effect.scoped))

    it.live("a failed call is a ProviderError, and nothing commits", () =>
      Effect.gen(function*() {
        const { schema, stored, url } = yield* open
        let error: unknown
        const exit = yield* transact(url, async (inside) => {
          await insertOrder(inside, schema)
          const client = Client.within(Transaction.make(inside.connection, { schema: "not_migrated" }))
          error = await Effect.runPromise(
            Effect.flip(client.start(Fulfil, { instanceId: "order-1", payload: "o-1" }))
          )
          // Continuing in spite of it commits nothing either.
        })
        assert.instanceOf(error, ProviderError)
        assert.strictEqual(error.reason._tag, "SchemaMismatch")
        if (name === "pg client") assert.isTrue(Exit.isFailure(exit))
        assert.deepStrictEqual(yield* stored, nothing)
      }).pipe(Effect.scoped))

    it.live("a failed statement of the application undoes an earlier start, and a later start fails with the reason", () =>
      Effect.gen(function*() {
        const { schema, stored, url } = yield* open
        let error: unknown
        yield* transact(url, async (inside) => {
          const client = Client.within(Transaction.make(inside.connection, { schema }))
          await Effect.runPromise(client.start(Fulfil, { instanceId: "order-1", payload: "o-1" }))
          await insertOrder(inside, "no_such_schema").catch(() => {})
          error = await Effect.runPromise(
            Effect.flip(client.start(Fulfil, { instanceId: "order-2", payload: "o-2" }))
          )
        })
        assert.instanceOf(error, ProviderError)
        assert.deepStrictEqual([error.reason._tag, error.isRetryable], ["TransactionAborted", false])
        assert.match(error.message, /aborted.* roll it back/)
        assert.deepStrictEqual(yield* stored, nothing)
      }).pipe(Effect.scoped))

    it.live("after a rollback to a savepoint the transaction continues", () =>
      Effect.gen(function*() {
        const { schema, stored, url } = yield* open
        const exit = yield* transact(url, async (inside) => {
          await insertOrder(inside, schema)
          await inside.run("SAVEPOINT before_start")
          const client = Client.within(Transaction.make(inside.connection, { schema: "not_migrated" }))
          await Effect.runPromise(Effect.flip(client.terminate("order-1", "")))
          await inside.run("ROLLBACK TO SAVEPOINT before_start")
        })
        assert.isTrue(Exit.isSuccess(exit))
        assert.deepStrictEqual(yield* stored, { ...nothing, orders: ["o-1"] })
      }).pipe(Effect.scoped))

    it.live("works in a schema whose name needs quotes", () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.emptyDatabase
        const schema = "needs \"quotes\"; ünd mehr"
        const quoted = "\"needs \"\"quotes\"\"; ünd mehr\""
        yield* Effect.addFinalizer(() => sql(`DROP SCHEMA IF EXISTS ${quoted} CASCADE`))
        yield* Effect.provide(Migrator.migrate({ url, schema }), Logger.layer([]))
        const exit = yield* transact(url, (inside) =>
          Effect.runPromise(
            Client.within(Transaction.make(inside.connection, { schema })).start(Fulfil, {
              instanceId: "order-1",
              payload: "o-1"
            })
          ))
        assert.deepStrictEqual(exit, Exit.void)
        assert.deepStrictEqual(yield* sql(`SELECT instance_id FROM ${quoted}.instances`), [{ instance_id: "order-1" }])
      }).pipe(Effect.scoped))

    it.live("another start of the same id waits for the outcome", () =>
      Effect.gen(function*() {
        const test = yield* open
        const services = yield* Layer.build(App.store(test.url))
        const client = yield* Effect.provide(Client.Client, services)
        const start = (instanceId: string) => ({ instanceId, payload: "o-1" })
        for (const outcome of ["commits", "rolls back"] as const) {
          let other: Fiber.Fiber<Exit.Exit<void, unknown>> | undefined
          yield* transact(test.url, async (inside) => {
            const within = Client.within(Transaction.make(inside.connection, { schema: test.schema }))
            await Effect.runPromise(within.start(Fulfil, start(outcome)))
            other = Effect.runFork(Effect.exit(client.start(Fulfil, start(outcome))))
            await Effect.runPromise(waitForStatement(test, "dx_start_orchestrations", "Lock"))
            if (outcome === "rolls back") throw new Error(outcome)
          })
          const exit = yield* Fiber.join(other!)
          assert.strictEqual(Exit.isSuccess(exit), outcome === "rolls back")
        }
      }).pipe(Effect.scoped))
  })
}

describe("Transaction.make:", () => {
  it.effect("an invalid schema name is refused before anything is sent", () =>
    Effect.gen(function*() {
      let sent = 0
      const connection = { query: () => Promise.resolve({ rows: [sent++] }) }
      for (const schema of ["", "x".repeat(64), "a\0b", "pg_catalog"]) {
        const queues = Transaction.make(connection, { schema })
        const error = yield* Effect.flip(
          queues.enqueueForOrchestrator({
            message: { _tag: "CancelInstance", instance: "a", reason: "" },
            delay: Option.none()
          })
        )
        assert.strictEqual(error.reason._tag, "ConfigurationInvalid")
      }
      assert.strictEqual(sent, 0)
    }))

  it.effect("sends one statement per call, and does not repeat a failed one", () =>
    Effect.gen(function*() {
      const texts: Array<string> = []
      const connection = {
        query: (text: string) => {
          texts.push(text)
          return Promise.reject(new Error("Connection terminated unexpectedly"))
        }
      }
      const client = Client.within(Transaction.make(connection, { schema: "public" }))
      const error = yield* Effect.flip(client.terminate("a", ""))
      assert.strictEqual(error.reason._tag, "ConnectionLost")
      assert.deepStrictEqual(texts, [
        `SELECT "public".dx_enqueue_for_orchestrator($1::jsonb,$2::text[],$3::bigint) AS answer`
      ])
    }))
})
