/**
 * How an order is fulfilled: an ordinary Effect program that survives the death of its process.
 *
 * Every `execute`, `wait` and `sleep` is recorded. After any interruption, the program continues where its records end:
 * on this machine or another one, seconds or months later.
 */
import { Orchestration, Signal } from "duroxide-prisma"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { Charge, Refund, Release, RequestApproval, Reserve, Ship } from "./activities.ts"
import {
  approvalLimitCents,
  ApprovalMissing,
  ApprovalRefused,
  NotFulfilled,
  Order,
  Shipment,
  totalCents
} from "./orders.ts"

/** A person's answer: whether an order above the limit may go out. */
export const Approval = Signal.make("Approval", { payload: Schema.Boolean })

export const Fulfil = Orchestration.make("Fulfil", {
  version: "1.0.0",
  payload: Order,
  success: Shipment,
  error: NotFulfilled,
  instanceId: (order) => order.id
})

export const FulfilLive = Fulfil.toLayer(Effect.fn(function*(order) {
  // Not `Effect.all`: it would interrupt the others at the first failure, and a reservation that is interrupted may or
  // may not have been made. `partition` lets all of them end, so that we know what there is to release.
  const [reserved, missing] = yield* Effect.partition(
    order.lines,
    (line) => Reserve.execute({ orderId: order.id, warehouse: order.warehouse, line }),
    { concurrency: "unbounded" }
  )
  const release = Effect.forEach(reserved, Release.execute, { concurrency: "unbounded", discard: true })
  if (missing[0] !== undefined) {
    yield* release
    return yield* missing[0]
  }

  const payment = yield* Charge.execute(order).pipe(
    // A charge that the bank refused for a while has had no effect, so each try may be a call of its own, with another
    // idempotency key. The option `retry` of `Activity.make` keeps one key for all tries.
    Effect.retry({
      schedule: Schedule.exponential("200 millis"), // a timer in the database, not a process that waits
      times: 3,
      while: (error) => error._tag === "BankUnavailable"
    }),
    Effect.onError(() => release) // it failed, or its activity died
  )

  const parcel = yield* approve(order).pipe(
    Effect.andThen(Effect.sleep(Duration.seconds(order.shipAfterSeconds ?? 0))),
    Effect.andThen(Ship.execute(order)),
    Effect.onError(() => Effect.all([release, Refund.execute(payment)], { concurrency: "unbounded" }))
  )
  return { orderId: order.id, chargedCents: payment.cents, parcel }
}))

const approve = Effect.fnUntraced(function*(order: Order) {
  if (totalCents(order) <= approvalLimitCents) return
  // A signal reaches only an open wait, so the wait begins together with the request: no answer can come too early.
  const answer = yield* Effect.all([Approval.wait, RequestApproval.execute(order)], { concurrency: "unbounded" }).pipe(
    Effect.timeoutOption(Duration.seconds(order.approvalWithinSeconds ?? 60))
  )
  if (Option.isNone(answer)) return yield* new ApprovalMissing()
  const [approved] = answer.value
  if (!approved) return yield* new ApprovalRefused()
})
