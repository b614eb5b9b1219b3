/** A release with a Schema that refuses what is stored, and a program that dies of what it gets. */
import { Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { Charge, Meter, Total } from "./definitions.ts"

const Fulfil = Orchestration.make("Fulfil", { payload: { card: Schema.String, country: Schema.String } })

export const FulfilLive = Fulfil.toLayer(() => Effect.void)

export const MeterLive = Meter.toLayer(Effect.fn(function*() {
  yield* Total.set(8)
  const receipt = yield* Charge.execute({ card: "meter", cents: 7 })
  return yield* Effect.die(new Error(`no such receipt: ${receipt}`))
}))
