/**
 * The order book: what `orders.json` holds. Besides each order also what is to become of it, so that a run can be
 * checked.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { readFile } from "node:fs/promises"
import { approvalLimitCents, Order, totalCents } from "../orders.ts"

const { id: _, warehouse: __, ...fields } = Order.fields

export const Entry = Schema.Struct({
  ...fields,
  number: Schema.NonEmptyString,
  /** What the person who is asked for approval answers; nothing when absent. */
  manager: Schema.optionalKey(Schema.Literals(["approves", "refuses"])),
  expect: Schema.Literals([
    "Shipped",
    "OutOfStock",
    "CardDeclined",
    "BankUnavailable",
    "ApprovalRefused",
    "ApprovalMissing",
    "NotDeliverable"
  ])
}).check(
  Schema.makeFilter((entry) =>
    totalCents(entry) > approvalLimitCents === (entry.approvalWithinSeconds !== undefined) ||
    `order ${entry.number}: orders above the limit, and only those, have approvalWithinSeconds`
  )
)

export type Entry = typeof Entry.Type

export const Book = Schema.Struct({
  /** Units in the warehouse before the first order, by article. */
  stock: Schema.Record(Schema.String, Schema.Int),
  orders: Schema.NonEmptyArray(Entry)
})

export type Book = typeof Book.Type

export class BookUnreadable extends Schema.TaggedError<BookUnreadable>()("BookUnreadable", {
  path: Schema.String,
  problem: Schema.String
}) {
  override get message() {
    return `the orders in ${this.path} cannot be read: ${this.problem}`
  }
}

export const read = (path: string): Effect.Effect<Book, BookUnreadable> => {
  const unreadable = (problem: string) => new BookUnreadable({ path, problem })
  return Effect.tryPromise({ try: () => readFile(path, "utf8"), catch: (thrown) => unreadable(String(thrown)) }).pipe(
    Effect.flatMap((text) => Effect.mapError(decode(text), ({ message }) => unreadable(message)))
  )
}

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Book))

/** What is done for an order when each step takes effect exactly once: steps by kind, and the counters of its row. */
export const expected = ({ stock }: Book, entry: Entry) => {
  const reserved = entry.lines.filter(({ quantity, sku }) => quantity <= (stock[sku] ?? 0))
  const units = reserved.reduce((sum, { quantity }) => sum + quantity, 0)
  const shipped = entry.expect === "Shipped"
  const charged = shipped || ["ApprovalRefused", "ApprovalMissing", "NotDeliverable"].includes(entry.expect)
  const refunded = charged && !shipped
  const asked = charged && entry.approvalWithinSeconds !== undefined
  const cents = totalCents(entry)
  return {
    effects: {
      "reserve": reserved.length,
      "release": shipped ? 0 : reserved.length,
      "charge": Number(charged),
      "refund": Number(refunded),
      "request approval": Number(asked),
      "ship": Number(shipped)
    },
    row: {
      reserved_units: units,
      released_units: shipped ? 0 : units,
      charged_cents: charged ? cents : 0,
      refunded_cents: refunded ? cents : 0,
      approval_requests: Number(asked),
      parcels: Number(shipped)
    }
  }
}
