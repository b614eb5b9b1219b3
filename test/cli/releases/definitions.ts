/**
 * Definitions whose programs stand in the modules beside this one, each of which is a release that may be deployed.
 */
import { Activity, KeyValue, Orchestration, Signal } from "duroxide-prisma"
import * as Schema from "effect/Schema"

export const Charge = Activity.make("Charge", {
  payload: Schema.Struct({ card: Schema.String, cents: Schema.Int }),
  success: Schema.String
})
export const CheckFraud = Activity.make("CheckFraud", { payload: Schema.String })
export const Approved = Signal.make("Approved")
export const Total = KeyValue.make("total", Schema.Int)

export const Order = Schema.Struct({ card: Schema.String, lines: Schema.Int })

/** Charges a card for each line, and waits for an approval. */
export const Fulfil = Orchestration.make("Fulfil", { payload: Order })

/** Continues as new once, and takes the way that a value of its first execution leads. */
export const Meter = Orchestration.make("Meter", { payload: Schema.Int })

/** Fails once it has charged. */
export const Decline = Orchestration.make("Decline", { error: Schema.String })
