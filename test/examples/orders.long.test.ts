import { assert, describe, it } from "@effect/vitest"
import { Activity } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { fileURLToPath } from "node:url"
import { audit } from "../../examples/orders/demo/audit.ts"
import * as Book from "../../examples/orders/demo/book.ts"
import { type Event, run } from "../../examples/orders/demo/run.ts"
import { table } from "../../examples/orders/demo/screen.ts"
import * as Shop from "../../examples/orders/shop.ts"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"

const file = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url))

const layer = Layer.unwrap(
  Effect.map(PgServer.PgServer, ({ schema, url }) => Layer.merge(App.store(url), Shop.layer({ url, schema })))
).pipe(Layer.provideMerge(PgServer.layer))

describe("orders", () => {
  it.live(
    "demo: every order ends as expected and every effect is applied once, though the worker is killed half way",
    () =>
      Effect.gen(function*() {
        const { schema, sql, url } = yield* PgServer.PgServer
        const book = yield* Book.read(file("examples/orders/orders.json"))
        const events: Array<Event> = []
        const result = yield* run({
          book,
          url,
          schema,
          workerFile: file("build/examples/orders/worker.js"),
          tell: (_, event) => events.push(event)
        })
        const report = yield* audit(book, result)
        assert.deepStrictEqual(report.problems, [], result.log)
        assert.deepStrictEqual(report.orders, { completed: 30, failed: 1, compensated: 9, different: 0 })
        assert.isAtLeast(report.recognised, 1, "no effect was found by its key: the kill showed nothing")
        assert.isAtLeast(report.attempts, report.calls + report.repeated)
        assert.include(table(result, report), "orders                        40")

        const shown = events.flatMap((event) => event._tag === "Progress" ? [] : [event._tag])
        assert.deepStrictEqual(shown.slice(0, 2), ["WorkerStarted", "WorkerKilled"])
        assert.strictEqual(shown.filter((tag) => tag === "Answered").length, 2)
        assert.strictEqual(shown.at(-1), "WorkerStopped")

        // The sums of the audit, computed from the tables in another way.
        const [orders] = yield* sql(
          `SELECT count(*)::int AS orders, sum(parcels)::int AS parcels, sum(approval_requests)::int AS requests,
                bool_and(released_units IN (0, reserved_units)) AS "allOrNothing",
                bool_and(charged_cents IN (0, total_cents)) AS "chargedOnce",
                bool_and(refunded_cents IN (0, charged_cents)) AS "refundedOnce"
         FROM orders`
        )
        assert.deepStrictEqual(orders, {
          orders: 40,
          parcels: 30,
          requests: 3,
          allOrNothing: true,
          chargedOnce: true,
          refundedOnce: true
        })
        const [left] = yield* sql(
          `SELECT (SELECT count(*) FROM worker_queue)::int AS activities,
                (SELECT count(*) FROM orchestrator_queue WHERE visible_at <= now())::int AS messages,
                (SELECT count(*) FROM instance_locks)::int AS locks`
        )
        assert.deepStrictEqual(left, { activities: 0, messages: 0, locks: 0 })

        // An audit that reports nothing must be able to report something.
        yield* sql("UPDATE orders SET charged_cents = 2 * charged_cents WHERE order_id LIKE '%/A-1001'")
        yield* sql("DELETE FROM history WHERE instance_id LIKE '%/A-1002' AND event_id = 3")
        assert.deepStrictEqual((yield* audit(book, result)).problems, [
          "charged_cents of A-1001 is 16120, expected 8060",
          "number of histories with gaps is 1, expected 0",
          "number of activity calls that left their key is 207, expected 206"
        ])
      }).pipe(Effect.provide(layer))
  )

  it.effect("Book.read: refuses orders it cannot use, and says where the mistake is", () =>
    Effect.gen(function*() {
      const missing = yield* Effect.flip(Book.read("missing.json"))
      assert.include(missing.message, "missing.json cannot be read: Error: ENOENT")
      const other = yield* Effect.flip(Book.read(file("package.json")))
      assert.include(other.message, "at [\"stock\"]")
    }))
})

describe("shop", () => {
  const call: Activity.Call["Service"] = {
    activityName: "Ship",
    instanceId: "W/1",
    executionId: 1,
    activityId: 2,
    tryNumber: 1,
    deliveryNumber: 1,
    idempotencyKey: "W/1/1/1893456000000/2",
    sessionId: Option.none(),
    tag: Option.none(),
    workerId: "here"
  }
  const ship = (attempt: number, outcome: (query: Shop.Query) => Effect.Effect<string, Shop.DatabaseTrouble>) =>
    Shop.once({ orderId: "W/1", effect: "ship", subject: "DE" }, outcome).pipe(
      Effect.provideService(Activity.Call, { ...call, deliveryNumber: attempt })
    )
  const addParcel = (query: Shop.Query) => query("UPDATE orders SET parcels = parcels + 1")
  const parcels = Effect.flatMap(Shop.Shop, ({ query }) => query<{ parcels: number }>("SELECT parcels FROM orders"))

  it.live("Shop.once: applies an effect once, also when attempts overlap, and gives all of them its answer", () =>
    Effect.gen(function*() {
      const shop = yield* Shop.Shop
      yield* Shop.createTables
      yield* shop.query("INSERT INTO orders (order_id, total_cents) VALUES ('W/1', 100)")
      const attempts = [1, 2, 3, 4, 5]
      const answers = yield* Effect.forEach(
        attempts,
        (attempt) => ship(attempt, (query) => Effect.as(addParcel(query), `answer of ${attempt}`)),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(new Set(answers).size, 1)
      assert.deepStrictEqual(yield* parcels, [{ parcels: 1 }])
    }).pipe(Effect.provide(layer)))

  it.live("Shop.once: leaves nothing behind if it is interrupted, and can be repeated", () =>
    Effect.gen(function*() {
      const shop = yield* Shop.Shop
      yield* Shop.createTables
      yield* shop.query("INSERT INTO orders (order_id, total_cents) VALUES ('W/1', 100)")
      yield* Effect.timeoutOption(ship(1, (query) => Effect.andThen(addParcel(query), Effect.never)), "200 millis")
      assert.deepStrictEqual(yield* parcels, [{ parcels: 0 }])
      assert.strictEqual(yield* ship(2, (query) => Effect.as(addParcel(query), "done")), "done")
      assert.deepStrictEqual(yield* parcels, [{ parcels: 1 }])
    }).pipe(Effect.provide(layer)))

  it.live("Shop.createTables: may run several times at once", () =>
    Effect.all([Shop.createTables, Shop.createTables, Shop.createTables], { concurrency: "unbounded" }).pipe(
      Effect.exit,
      Effect.map((created) => assert.isTrue(Exit.isSuccess(created))),
      Effect.provide(layer)
    ))
})
