/** A release that has another version of one orchestration, and the definition of another without its program. */
import { Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import { Order } from "./definitions.ts"

export { Meter } from "./definitions.ts"

export const Fulfil = Orchestration.make("Fulfil", { version: "2.0.0", payload: Order })

export const FulfilLive = Fulfil.toLayer(() => Effect.void)
