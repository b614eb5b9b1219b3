/** A release that asks for the same with another payload. */
import * as Effect from "effect/Effect"
import { Approved, Charge, Fulfil, Meter } from "./definitions.ts"
import { meter } from "./matching.ts"

export const FulfilLive = Fulfil.toLayer(Effect.fn(function*({ card, lines }) {
  for (let line = 1; line <= lines; line++) yield* Charge.execute({ card, cents: line === 2 ? 200 : line })
  yield* Approved.wait
}))

export const MeterLive = Meter.toLayer(meter)
