import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Transaction } from "duroxide-prisma/prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as pg from "pg"
import * as App from "../utils/app.ts"
import * as Docs from "../utils/docs.ts"
import * as LocalProcess from "../utils/localProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

const Order = Schema.Struct({ id: Schema.String, cents: Schema.Int })
const Receipt = Schema.String
const Frame = Schema.Struct({ film: Schema.String, number: Schema.Int })
class CardDeclined extends Schema.TaggedError<CardDeclined>()("CardDeclined", { reason: Schema.String }) {}

class Payments extends Context.Service<Payments, {
  readonly charge: (order: typeof Order.Type, options: { readonly idempotencyKey: string }) => Effect.Effect<string>
}>()("Payments") {}

const Charge = Activity.make("Charge", {
  payload: Order,
  success: Receipt,
  error: CardDeclined,
  timeout: "2 minutes", // of each try; adds ActivityTimedOut to what execute fails with
  totalTimeout: "10 minutes",
  retry: {
    schedule: Schedule.exponential("1 second"),
    times: 5,
    while: (outcome) => outcome._tag !== "CardDeclined" // again after a death or a timeout only
  }
})

const Render = Activity.make("Render", { payload: Frame, success: Schema.String, tag: "gpu" })

const ChargeLive = Charge.toLayer(Effect.fn(function*(order) {
  const { idempotencyKey } = yield* Activity.Call
  const { charge } = yield* Payments
  return yield* charge(order, { idempotencyKey })
}))

const Checkout = Orchestration.make("Checkout", { payload: Order, success: Schema.Array(Schema.String) })

const CheckoutLive = Checkout.toLayer(Effect.fn(function*(order) {
  const receipt = yield* Charge.execute(order).pipe(
    Effect.catchTag("ActivityTimedOut", () => Effect.succeed("charged later")),
    Effect.catchTag("CardDeclined", ({ reason }) => Effect.succeed(reason))
  )
  return [receipt, ...yield* Film.execute({ name: order.id, count: 3 })]
}))

const Film = Orchestration.make("Film", {
  payload: Schema.Struct({ name: Schema.String, count: Schema.Int }),
  success: Schema.Array(Schema.String)
})

const FilmLive = Film.toLayer(({ count, name }) => {
  const onOneWorker = Render.with({ sessionId: `film-${name}` })
  const frames = Array.from({ length: count }, (_, number) => ({ film: name, number }))
  return Effect.forEach(frames, onOneWorker.execute, { concurrency: "unbounded" })
})

const charged = (order: typeof Order.Type) =>
  Charge.execute(order).pipe(
    Effect.catchTag(
      "ActivityTimedOut",
      ({ option, timeoutMs }) => Effect.succeed(`${option} of ${timeoutMs} ms is over`)
    )
  )

const Charged = Orchestration.make("Charged", { payload: Order, success: Schema.String, error: CardDeclined })

const ChargedLive = Charged.toLayer(charged)

const Purchase = Orchestration.make("Purchase", {
  payload: Order,
  success: Receipt,
  error: Schema.Union([CardDeclined, Activity.ActivityTimedOut])
})

const PurchaseLive = Purchase.toLayer((order) => Charge.execute(order))

class OutOfStock extends Schema.TaggedError<OutOfStock>()("OutOfStock", { item: Schema.String }) {}

const TakeStock = Activity.make("TakeStock", {
  payload: { item: Schema.String, quantity: Schema.Int },
  error: OutOfStock
})

const TakeStockLive = (pool: pg.Pool) =>
  TakeStock.toLayer(
    Activity.transactional(Transaction.ofPool(pool), ({ item, quantity }, tx) =>
      Effect.gen(function*() {
        const taken = yield* Effect.promise(() =>
          tx.query("UPDATE stock SET available = available - $2 WHERE item = $1 AND available >= $2", [item, quantity])
        )
        if (taken.rowCount === 0) return yield* new OutOfStock({ item })
      }))
  )

const Buy = Orchestration.make("Buy", {
  payload: { item: Schema.String, quantity: Schema.Int },
  error: OutOfStock
})

const calls: Array<string> = []

const handlers = Layer.merge(
  ChargeLive.pipe(Layer.provide(Layer.succeed(Payments, {
    charge: (_order, { idempotencyKey }) =>
      Effect.suspend(() => {
        calls.push(idempotencyKey)
        return calls.length === 1 ? Effect.die(new Error("line is busy")) : Effect.succeed("paid")
      })
  }))),
  Render.toLayer(({ number }) => Effect.map(Activity.Call, ({ workerId }) => `${workerId} ${number}`))
)

const GpuWorker = RuntimeConfig.layer({
  tags: { _tag: "DefaultAnd", tags: ["gpu"] }, // untagged work as well
  workerId: "gpu-1",
  maxSessions: 4
})

const layer = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url))).pipe(
  Layer.provideMerge(PgServer.layer)
)

it("docs/activities.md: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(
    Docs.read("test/docs/activities.test.ts") + Docs.read("test/utils/transactions.ts")
  )
  const examples = Docs.blocks(Docs.read("docs/activities.md"), "ts")
  assert.lengthOf(examples, 9)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
})

it.live("docs/activities.md: a retried charge, and frames on one worker", () =>
  Effect.gen(function*() {
    const runtime = Runtime.layer({ orchestrations: [Checkout, Film], activities: [Charge, Render] })
    yield* LocalProcess.start(runtime.pipe(Layer.provide([CheckoutLive, FilmLive, handlers]), Layer.provide(GpuWorker)))
    const client = yield* Client.Client
    const result = yield* client.execute(Checkout, { instanceId: "checkout", payload: { id: "o1", cents: 4200 } })
    assert.deepStrictEqual(result, ["paid", "gpu-1 0", "gpu-1 1", "gpu-1 2"])
    assert.lengthOf(calls, 2)
    assert.strictEqual(calls[0], calls[1])
  }).pipe(Effect.scoped, Effect.provide(layer)))

it.effect("docs/activities.md: a call that is over time, caught and passed on", () => {
  const runtime = Runtime.layer({ orchestrations: [Charged, Purchase], activities: [Charge] }).pipe(Layer.provide([
    ChargedLive,
    PurchaseLive,
    Charge.toLayer(() => Effect.as(Effect.sleep(Duration.infinity), ""))
  ]))
  return Effect.gen(function*() {
    const client = yield* Client.Client
    const payload = { id: "o1", cents: 4200 }
    const caught = yield* client.execute(Charged, { instanceId: "caught", payload })
    assert.strictEqual(caught, "totalTimeout of 600000 ms is over")
    const error = yield* Effect.flip(client.execute(Purchase, { instanceId: "passed on", payload }))
    assert.instanceOf(error, Activity.ActivityTimedOut)
  }).pipe(Effect.provide(TestRuntime.layer(runtime)))
})

it.live("docs/activities.md, Exactly once in PostgreSQL: stock is taken, or is too low", () =>
  Effect.gen(function*() {
    const { schema, sql, url } = yield* PgServer.database
    yield* sql("CREATE TABLE stock AS SELECT 'tea' AS item, 5 AS available")
    const pool = yield* Effect.acquireRelease(
      Effect.sync(() =>
        new pg.Pool({ connectionString: url.replace(/\?.*$/, ""), options: `-c search_path=${schema}` })
      ),
      (pool) => Effect.promise(() => pool.end())
    )
    const services = yield* Layer.build(
      Runtime.layer({ orchestrations: [Buy], activities: [TakeStock] }).pipe(
        Layer.provide([Buy.toLayer((order) => TakeStock.execute(order)), TakeStockLive(pool)]),
        Layer.provideMerge(App.store(url))
      )
    )
    const client = yield* Effect.provide(Client.Client, services)
    yield* client.execute(Buy, { instanceId: "b1", payload: { item: "tea", quantity: 3 } })
    const error = yield* Effect.flip(client.execute(Buy, { instanceId: "b2", payload: { item: "tea", quantity: 3 } }))
    assert.instanceOf(error, OutOfStock)
    assert.deepStrictEqual(yield* sql("SELECT available FROM stock"), [{ available: 2 }])
  }).pipe(Effect.scoped, Effect.provide(PgServer.layer)))
