/** A release that awaits a promise beside what its history has, and one that never rests. */
import * as Effect from "effect/Effect"
import { Fulfil, Meter } from "./definitions.ts"
import { charge } from "./matching.ts"

export const FulfilLive = Fulfil.toLayer((order) =>
  Effect.andThen(charge(order), Effect.promise(() => new Promise(() => {})))
)

export const MeterLive = Meter.toLayer(() => Effect.forever(Effect.void))
