// A release that a process of the command line loads, compiled or as it is.
import { Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"

const Order = Orchestration.make("Order")

export const OrderLive = Order.toLayer(() => Effect.sleep("1 day"))
