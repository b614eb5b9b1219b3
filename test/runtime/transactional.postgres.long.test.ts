import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import type { Transaction } from "duroxide-prisma/prisma"
import type { PayloadCodec } from "duroxide-prisma/provider"
import * as Deferred from "effect/Deferred"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { encrypted } from "../payloads/utils.ts"
import * as PgServer from "../utils/PgServer.ts"
import { ofDrizzle, ofKysely, ofPg, ofPrisma } from "../utils/transactions.ts"
import type { Application } from "../utils/transactions.ts"
import { waitUntil } from "../utils/waitUntil.ts"

class Refused extends Schema.TaggedError<Refused>()("Refused", { n: Schema.Int }) {}

const Book = Activity.make("Book", { payload: Schema.Int, success: Schema.Int, error: Refused })

const Booking = Orchestration.make("Booking", { payload: Schema.Int, success: Schema.String, error: Refused })

const BookingLive = Booking.toLayer((n) => Effect.map(Book.execute(n), (booked) => `booked ${booked}`))

interface Test<Tx> {
  readonly application: Application<Tx>
  readonly client: Client.Client["Service"]
  readonly sql: PgServer.TestDatabase["sql"]
  readonly effects: Effect.Effect<ReadonlyArray<number>>
  /** Results of activities in histories, work that is left, and deliveries. */
  readonly results: Effect.Effect<number>
}

/** An application whose handler runs `handler`, with its tables beside ours. */
const open = <Tx>(
  make: (url: string, schema: string) => Effect.Effect<Application<Tx>, never, Scope.Scope>,
  handler: (
    n: number,
    tx: Tx,
    application: Application<Tx>,
    /** Queries as the administrator. */
    sql: PgServer.TestDatabase["sql"]
  ) => Effect.Effect<number, Refused, Activity.Call>,
  { change = (same) => same, codec = Layer.empty, workerLockTimeout = "1 hour" }: {
    readonly change?: (transactions: Transaction.Transactions<Tx>) => Transaction.Transactions<Tx>
    readonly codec?: Layer.Layer<PayloadCodec.PayloadCodec> | Layer.Layer<never>
    /** By default so long that only a wake-up, and no end of a lock, brings an instance on. */
    readonly workerLockTimeout?: Duration.Input
  } = {}
) =>
  Effect.gen(function*() {
    const { schema, sql, url } = yield* PgServer.database
    yield* sql("CREATE TABLE effects (n integer NOT NULL)")
    yield* Effect.addFinalizer((exit) => Exit.hasInterrupts(exit) ? Effect.orDie(printLeft(sql)) : Effect.void)
    const application = yield* make(url, schema)
    const transactions = change(application.transactions)
    const services = yield* Layer.build(
      Runtime.layer({ orchestrations: [Booking], activities: [Book] }).pipe(
        Layer.provide([
          BookingLive,
          Book.toLayer(Activity.transactional(transactions, (n, tx) => handler(n, tx, application, sql)))
        ]),
        Layer.merge(Client.layer),
        Layer.provide(RuntimeConfig.layer({ workerLockTimeout, maxAttempts: 3 })),
        Layer.provide(PrismaProvider.layer({ url, migrate: "verify" })),
        Layer.provide(codec),
        Layer.provide(Logger.layer([]))
      )
    )
    const test: Test<Tx> = {
      application,
      client: yield* Effect.provide(Client.Client, services),
      sql,
      effects: Effect.map(sql<{ n: number }>("SELECT n FROM effects ORDER BY n"), (rows) => rows.map(({ n }) => n)),
      results: Effect.map(
        sql<{ count: number }>(
          "SELECT count(*)::int AS count FROM history WHERE event_data::jsonb ->> 'type' = 'ActivityCompleted'"
        ),
        ([row]) => row!.count
      )
    }
    return test
  })

/** What a test that hangs has waited for. */
const printLeft = (sql: PgServer.TestDatabase["sql"]) =>
  Effect.flatMap(
    sql("SELECT clock_timestamp() AS now, i.*, w.* FROM instances i LEFT JOIN worker_queue w USING (instance_id)"),
    (rows) => Effect.sync(() => console.error(`left: ${JSON.stringify(rows)}`))
  )

const insert = <Tx>(n: number, tx: Tx, { send }: Application<Tx>) =>
  Effect.promise(() => send(tx, `INSERT INTO effects VALUES (${n})`))

/** Calls `run` of the transactions with a body that fails at the commit, before or after it has happened. */
const losingAnswer = (isCommitted: boolean, lost: Error) => {
  let losses = 0
  const change = (transactions: Transaction.Transactions<any>): Transaction.Transactions<any> => ({
    ...transactions,
    run: async (body) => {
      if (losses++ > 0) return transactions.run(body)
      if (isCommitted) await transactions.run(body)
      else {
        await transactions.run(async (tx) => {
          await body(tx)
          throw lost
        })
      }
      throw lost
    }
  })
  return { change, runs: () => losses }
}

const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" })

for (
  const [name, make] of [["pg", ofPg], ["Prisma", ofPrisma], ["Drizzle", ofDrizzle], ["Kysely", ofKysely]] as const
) {
  describe(`a transactional activity (${name}):`, () => {
    it.live(
      "its rows and its result are committed together, and its instance continues at once",
      () =>
        Effect.gen(function*() {
          const { client, effects, sql } = yield* open<any>(make, (n, tx, application, sql) =>
            Effect.gen(function*() {
              yield* insert(n, tx, application)
              // No other session sees it before the commit.
              assert.deepStrictEqual(yield* sql("SELECT FROM effects"), [])
              return n + 1
            }))
          assert.strictEqual(yield* client.execute(Booking, { instanceId: "b", payload: 1 }), "booked 2")
          assert.deepStrictEqual(yield* effects, [1])
          assert.deepStrictEqual(yield* sql("SELECT FROM worker_queue"), [])
        }).pipe(Effect.scoped)
    )

    it.live("a typed failure and a defect roll its rows back, and are recorded", () =>
      Effect.gen(function*() {
        const { client, effects } = yield* open<any>(make, (n, tx, application) =>
          Effect.andThen(
            insert(n, tx, application),
            n === 1 ? Effect.fail(new Refused({ n })) : Effect.die(new Error("a bug"))
          ))
        const refused = yield* Effect.flip(client.execute(Booking, { instanceId: "b1", payload: 1 }))
        assert.deepStrictEqual(refused, new Refused({ n: 1 }))
        const failed = yield* Effect.flip(client.execute(Booking, { instanceId: "b2", payload: 2 }))
        assert.include(failed.message, "a bug")
        assert.deepStrictEqual(yield* effects, [])
      }).pipe(Effect.scoped))

    it.live(
      "a lost answer to a commit is found out: after a commit it does not run again, after a rollback it does",
      () =>
        Effect.gen(function*() {
          for (const [isCommitted, runs] of [[true, 1], [false, 2]] as const) {
            const lost = losingAnswer(isCommitted, reset)
            const { client, effects, results } = yield* open<any>(
              make,
              (n, tx, application) => Effect.as(insert(n, tx, application), n),
              { change: lost.change }
            )
            assert.strictEqual(yield* client.execute(Booking, { instanceId: "b", payload: 1 }), "booked 1")
            assert.deepStrictEqual([yield* effects, yield* results, lost.runs()], [[1], 1, runs])
          }
        }).pipe(Effect.scoped)
    )
  })
}

describe("a transactional activity:", () => {
  const busy = "no free connection for its transaction: nothing is recorded, and it runs again, however often"
  for (const [name, make] of [["pg", ofPg], ["Prisma", ofPrisma]] as const) {
    it.live(
      `${busy} (${name})`,
      () =>
        Effect.gen(function*() {
          let runs = 0
          let refusals = 0
          const released = yield* Deferred.make<void>()
          const { application, client, effects, results } = yield* open<any>(
            (url, schema) => make(url, schema, { max: 1, waitMs: 200 }),
            (n, tx, application) => {
              runs++
              return Effect.as(insert(n, tx, application), n)
            },
            {
              change: (transactions) => ({
                ...transactions,
                run: (body) =>
                  transactions.run(body).catch((error: unknown) => {
                    // More often than `maxAttempts`.
                    if (++refusals === 4) Deferred.doneUnsafe(released, Effect.void)
                    throw error
                  })
              })
            }
          )
          yield* Effect.addFinalizer(() => Deferred.succeed(released, undefined))
          const isHeld = yield* Deferred.make<void>()
          const hold = () =>
            application.transactions.run(() => {
              Deferred.doneUnsafe(isHeld, Effect.void)
              return Effect.runPromise(Deferred.await(released))
            })
          const holding = yield* Effect.forkChild(Effect.eventually(Effect.tryPromise(hold)))
          yield* Deferred.await(isHeld)
          assert.strictEqual(yield* client.execute(Booking, { instanceId: "b", payload: 1 }), "booked 1")
          yield* Fiber.join(holding)
          assert.deepStrictEqual([yield* effects, yield* results, runs, refusals], [[1], 1, 1, 4])
        }).pipe(Effect.scoped)
    )
  }

  it.live(
    "a connection that the server ends in the middle: nothing is recorded, and it runs again",
    () =>
      Effect.gen(function*() {
        let runs = 0
        const { client, effects, results } = yield* open(ofPg, (n, tx, application) =>
          Effect.gen(function*() {
            yield* insert(n, tx, application)
            if (runs++ === 0) yield* Effect.promise(() => tx.query("SELECT pg_terminate_backend(pg_backend_pid())"))
            return n
          }))
        assert.strictEqual(yield* client.execute(Booking, { instanceId: "b", payload: 1 }), "booked 1")
        assert.deepStrictEqual([yield* effects, yield* results, runs], [[1], 1, 2])
      }).pipe(Effect.scoped)
  )

  it.live("a constraint that fails at the commit is a death, and leaves no row", () =>
    Effect.gen(function*() {
      const { client, effects, sql } = yield* open(
        ofPg,
        (n, tx, application) => Effect.as(insert(n, tx, application), n)
      )
      yield* sql("ALTER TABLE effects ADD CONSTRAINT one UNIQUE (n) DEFERRABLE INITIALLY DEFERRED")
      assert.strictEqual(yield* client.execute(Booking, { instanceId: "b1", payload: 1 }), "booked 1")
      const failed = yield* Effect.flip(client.execute(Booking, { instanceId: "b2", payload: 1 }))
      assert.include(failed.message, "duplicate key")
      assert.deepStrictEqual(yield* effects, [1])
    }).pipe(Effect.scoped))

  it.live("a handler that ignores a failed statement dies, and is not taken for done", () =>
    Effect.gen(function*() {
      const { client, effects } = yield* open(ofPg, (n, tx, application) =>
        Effect.gen(function*() {
          yield* insert(n, tx, application)
          yield* Effect.promise(() => Promise.resolve(tx.query("SELECT * FROM no_such_table")).catch(() => {}))
          return n
        }))
      const failed = yield* Effect.flip(client.execute(Booking, { instanceId: "b", payload: 1 }))
      assert.include(failed.message, "aborted")
      assert.deepStrictEqual(yield* effects, [])
    }).pipe(Effect.scoped))

  it.live(
    "without a live lock nothing is committed: another delivery has its effect instead",
    () =>
      Effect.gen(function*() {
        let runs = 0
        const taken = yield* Deferred.make<void>()
        const { client, effects, results } = yield* open<any>(ofPg, (n, tx, application, sql) =>
          Effect.gen(function*() {
            const run = ++runs
            yield* insert(n * 10 + run, tx, application)
            if (run === 1) {
              // As another process does when the lock has run out.
              yield* sql("UPDATE worker_queue SET lock_token = gen_random_uuid()::text, locked_until = 0")
              yield* Deferred.succeed(taken, undefined)
            }
            return run
          }), { workerLockTimeout: "3 seconds" })
        yield* client.start(Booking, { instanceId: "b", payload: 1 })
        yield* Deferred.await(taken)
        assert.strictEqual(yield* client.wait(Booking, "b"), "booked 2")
        assert.deepStrictEqual([yield* effects, yield* results, runs], [[12], 1, 2])
      }).pipe(Effect.scoped)
  )

  it.live(
    "under a payload codec its result is sealed in the row, and plain for the program",
    () =>
      Effect.gen(function*() {
        const { client, effects, sql } = yield* open(
          ofPg,
          (n, tx, application) => Effect.as(insert(n, tx, application), 47114711),
          { codec: encrypted("a") }
        )
        assert.strictEqual(yield* client.execute(Booking, { instanceId: "b", payload: 1 }), "booked 47114711")
        assert.deepStrictEqual(yield* effects, [1])
        const events = yield* sql<{ text: string }>("SELECT event_data AS text FROM history")
        assert.isAbove(events.length, 3)
        for (const { text } of events) assert.notInclude(text, "47114711")
      }).pipe(Effect.scoped)
  )

  it.live("a cancelled one is rolled back", () =>
    Effect.gen(function*() {
      const begun = yield* Deferred.make<void>()
      const { client, effects, sql } = yield* open(ofPg, (n, tx, application) =>
        insert(n, tx, application).pipe(
          Effect.andThen(Deferred.succeed(begun, undefined)),
          Effect.andThen(Effect.never)
        ))
      yield* client.start(Booking, { instanceId: "b", payload: 1 })
      yield* Deferred.await(begun)
      yield* client.terminate("b", "no longer wanted")
      yield* waitUntil(Effect.map(
        sql("SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"),
        (rows) => rows.length === 0
      ))
      assert.deepStrictEqual(yield* effects, [])
    }).pipe(Effect.scoped))

  it.live("a connection to another database: it is not done there, and ends as poison", () =>
    Effect.gen(function*() {
      const other = yield* PgServer.database
      yield* other.sql("CREATE TABLE effects (n integer NOT NULL)")
      const { client, effects } = yield* open(
        () => ofPg(other.url, other.schema),
        (n, tx, application) => Effect.as(insert(n, tx, application), n)
      )
      const failed = yield* Effect.flip(client.execute(Booking, { instanceId: "b", payload: 1 }))
      assert.instanceOf(failed, Client.InstanceFailed)
      assert.deepStrictEqual([yield* effects, yield* other.sql("SELECT FROM effects")], [[], []])
    }).pipe(Effect.scoped))
})
