/** A release of the shop with a new step in front of the others. */
import { Activity } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import { Order, order } from "../shop.ts"

export { DeliveryLive } from "../shop.ts"

const CheckStock = Activity.make("CheckStock", { payload: Order.payload })

export const OrderLive = Order.toLayer((payload) => Effect.andThen(CheckStock.execute(payload), order(payload)))
