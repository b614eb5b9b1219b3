/** The release that runs. */
import type { Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Approved, Charge, Decline, Fulfil, Meter, Total } from "./definitions.ts"
import type { Order } from "./definitions.ts"

export const charge = Effect.fn(function*({ card, lines }: typeof Order.Type) {
  for (let line = 1; line <= lines; line++) yield* Charge.execute({ card, cents: line })
})

export const FulfilLive = Fulfil.toLayer(Effect.fn(function*(order) {
  yield* charge(order)
  yield* Approved.wait
}))

const DeclineLive = Decline.toLayer(Effect.fn(function*() {
  yield* Charge.execute({ card: "declined", cents: 1 })
  return yield* Effect.fail("declined")
}))

export const meter = Effect.fn(function*(round: number): Effect.fn.Return<void, never, Orchestration.Instance> {
  if (round === 1) {
    yield* Total.set(7)
    return yield* Meter.continueAsNew(2)
  }
  const before = yield* Total.get
  yield* Total.set(8)
  if (Option.contains(before, 7)) yield* Charge.execute({ card: "meter", cents: 7 })
  yield* Approved.wait
})

const MeterLive = Meter.toLayer(meter)

/** Nested; the first is exported twice. */
export const programs = { orders: [FulfilLive], others: [MeterLive, DeclineLive] } as const
