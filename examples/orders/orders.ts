/**
 * What an order is: the Schemas that orchestration, activities and clients share.
 *
 * Payloads, results and errors of durable code are stored as JSON, so each of them has a Schema.
 */
import * as Schema from "effect/Schema"

/** Whole cents; money is never a fraction of a float. */
export const Cents = Schema.Int

export const Line = Schema.Struct({
  sku: Schema.NonEmptyString,
  article: Schema.String,
  quantity: Schema.Int,
  unitPriceCents: Cents
})

export const Order = Schema.Struct({
  /** Unique; also the id of the instance that fulfils the order. */
  id: Schema.NonEmptyString,
  /** Where the goods are taken from. */
  warehouse: Schema.NonEmptyString,
  country: Schema.String,
  lines: Schema.NonEmptyArray(Line),
  /** What the simulated bank makes of this card. */
  card: Schema.Literals(["accepted", "declined", "busy once", "busy twice", "always busy"]),
  /** Made to order: ready so much later. */
  shipAfterSeconds: Schema.optionalKey(Schema.Int),
  /** Time within which an order above the limit must be approved. */
  approvalWithinSeconds: Schema.optionalKey(Schema.Int)
})

export type Order = typeof Order.Type

/** Above this, a person has to approve: 1000.00. */
export const approvalLimitCents = 100_000

export const totalCents = (order: Pick<Order, "lines">): number =>
  order.lines.reduce((sum, { quantity, unitPriceCents }) => sum + quantity * unitPriceCents, 0)

export const Shipment = Schema.Struct({ orderId: Schema.String, chargedCents: Cents, parcel: Schema.String })

// Why an order is not fulfilled. Expected failures are values with a Schema: they cross processes, and stay typed.

export class OutOfStock extends Schema.TaggedError<OutOfStock>()("OutOfStock", { sku: Schema.String }) {}

export class CardDeclined extends Schema.TaggedError<CardDeclined>()("CardDeclined", {}) {}

/** The bank does not answer now. Worth another try. */
export class BankUnavailable extends Schema.TaggedError<BankUnavailable>()("BankUnavailable", {}) {}

export class ApprovalRefused extends Schema.TaggedError<ApprovalRefused>()("ApprovalRefused", {}) {}

export class ApprovalMissing extends Schema.TaggedError<ApprovalMissing>()("ApprovalMissing", {}) {}

export class NotDeliverable extends Schema.TaggedError<NotDeliverable>()("NotDeliverable", {
  country: Schema.String
}) {}

export const NotFulfilled = Schema.Union([
  OutOfStock,
  CardDeclined,
  BankUnavailable,
  ApprovalRefused,
  ApprovalMissing,
  NotDeliverable
])
