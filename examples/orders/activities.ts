/**
 * The steps of an order that touch the world, and what they do.
 *
 * An activity runs at least once: when a process dies, another one repeats what was not yet recorded. The handlers here
 * therefore pass their idempotency keys on (`Shop.once`), and their effects happen exactly once. `Refund` does without:
 * it is transactional.
 */
import { Activity } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import { BankUnavailable, CardDeclined, Cents, Line, NotDeliverable, Order, OutOfStock, totalCents } from "./orders.ts"
import * as Shop from "./shop.ts"

// -----------------------------------------------------------------------------
// definitions
// -----------------------------------------------------------------------------

export const Reservation = Schema.Struct({ orderId: Schema.String, warehouse: Schema.String, line: Line })

export const Payment = Schema.Struct({ orderId: Schema.String, cents: Cents })

export const Reserve = Activity.make("Reserve", { payload: Reservation, success: Reservation, error: OutOfStock })

/** Undoes `Reserve`. */
export const Release = Activity.make("Release", { payload: Reservation })

export const Charge = Activity.make("Charge", {
  payload: Order,
  success: Payment,
  error: Schema.Union([CardDeclined, BankUnavailable])
})

/** Undoes `Charge`. */
export const Refund = Activity.make("Refund", { payload: Payment })

export const RequestApproval = Activity.make("RequestApproval", { payload: Order })

/** Answers with the parcel's number. */
export const Ship = Activity.make("Ship", { payload: Order, success: Schema.String, error: NotDeliverable })

// -----------------------------------------------------------------------------
// handlers
// -----------------------------------------------------------------------------

const ReserveLive = Reserve.toLayer(Effect.fn(function*(reservation) {
  const { line, orderId, warehouse } = reservation
  const answer = yield* step({ orderId, effect: "reserve", subject: line.sku }, (query) =>
    Effect.gen(function*() {
      const taken = yield* query(
        `UPDATE stock SET available = available - $3
         WHERE warehouse = $1 AND sku = $2 AND available >= $3 RETURNING 1`,
        [warehouse, line.sku, line.quantity]
      )
      return taken.length === 0
        ? "out of stock"
        : yield* add(query, orderId, "reserved", { reserved_units: line.quantity })
    }))
  return answer === "done" ? reservation : yield* new OutOfStock({ sku: line.sku })
}))

const ReleaseLive = Release.toLayer(Effect.fn(function*({ line, orderId, warehouse }) {
  yield* step({ orderId, effect: "release", subject: line.sku }, (query) =>
    Effect.andThen(
      query(
        "UPDATE stock SET available = available + $3 WHERE warehouse = $1 AND sku = $2",
        [warehouse, line.sku, line.quantity]
      ),
      add(query, orderId, "cancelled", { released_units: line.quantity })
    ))
}))

// Stands for a bank that knows idempotency keys, as banks do: the same key gets the same answer, also "busy".
const ChargeLive = Charge.toLayer(Effect.fn(function*(order) {
  const cents = totalCents(order)
  const answer = yield* step(
    { orderId: order.id, effect: "charge", subject: order.card },
    (query) =>
      Effect.gen(function*() {
        if (order.card === "declined") return "declined"
        const [before] = yield* query<{ tries: number }>(
          "SELECT count(*)::int AS tries FROM order_effects WHERE order_id = $1 AND answer = 'busy'",
          [order.id]
        )
        return before!.tries < timesBusy[order.card]
          ? "busy"
          : yield* add(query, order.id, "charged", { charged_cents: cents })
      })
  )
  switch (answer) {
    case "declined":
      return yield* new CardDeclined()
    case "busy":
      return yield* new BankUnavailable()
    case "done":
      return { orderId: order.id, cents }
  }
}))

const timesBusy = { "accepted": 0, "busy once": 1, "busy twice": 2, "always busy": Infinity }

// Needs no key: the refund and the result of the activity commit together, or neither does.
const RefundLive = Layer.unwrap(
  Effect.map(
    Shop.Shop,
    ({ transactions }) =>
      Refund.toLayer(Activity.transactional(transactions, ({ cents, orderId }, tx) =>
        Effect.andThen(
          work,
          Shop.within(
            tx,
            { orderId, effect: "refund", subject: "payment" },
            (query) => add(query, orderId, "cancelled", { refunded_cents: cents })
          )
        )))
  )
)

const RequestApprovalLive = RequestApproval.toLayer(Effect.fn(function*({ id }) {
  yield* step(
    { orderId: id, effect: "request approval", subject: "order" },
    (query) => add(query, id, "in approval", { approval_requests: 1 })
  )
}))

const ShipLive = Ship.toLayer(Effect.fn(function*({ country, id }) {
  const answer = yield* step(
    { orderId: id, effect: "ship", subject: country },
    (query) => country === "AQ" ? Effect.succeed("no carrier") : add(query, id, "shipped", { parcels: 1 })
  )
  return answer === "done" ? `parcel of ${id}` : yield* new NotDeliverable({ country })
}))

/** All handlers; they need the shop. */
export const layer = Layer.mergeAll(ReserveLive, ReleaseLive, ChargeLive, RefundLive, RequestApprovalLive, ShipLive)

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

type Counter =
  | "reserved_units"
  | "released_units"
  | "charged_cents"
  | "refunded_cents"
  | "approval_requests"
  | "parcels"

/** Adds to a counter of the order. Done twice, it counts twice. */
const add = (query: Shop.Query, orderId: string, status: string, counter: Partial<Record<Counter, number>>) => {
  const [[column, amount]] = Object.entries(counter) as [[string, number]]
  return Effect.as(
    query(`UPDATE orders SET status = $2, ${column} = ${column} + $3 WHERE order_id = $1`, [orderId, status, amount]),
    "done" as const
  )
}

/** 50 to 300 milliseconds of work around the effect, so that a kill finds activities before and after it. */
const step: typeof Shop.once = (what, apply) => Effect.tap(Effect.andThen(work, Shop.once(what, apply)), work)

const work = Effect.flatMap(Random.nextIntBetween(25, 150), (millis) => Effect.sleep(millis))
