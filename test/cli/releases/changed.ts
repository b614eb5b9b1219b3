/** A release with a new step in front of the others. */
import * as Effect from "effect/Effect"
import { Approved, CheckFraud, Fulfil, Meter } from "./definitions.ts"
import { charge, meter } from "./matching.ts"

export default [
  Fulfil.toLayer(Effect.fn(function*(order) {
    yield* CheckFraud.execute(order.card)
    yield* charge(order)
    yield* Approved.wait
  })),
  Meter.toLayer(meter)
] as const
