/**
 * An orchestration whose histories are recorded in memory, and replayed with other programs.
 */
import { Activity, Client, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import type { Admin } from "duroxide-prisma/provider"
import { recordHistory, replayHistory, TestRuntime } from "duroxide-prisma/testing"
import type { History } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"

export const Order = Schema.Struct({ sku: Schema.String, cents: Schema.Int })
const activity = (name: string) =>
  Activity.make(name, { payload: Schema.Unknown, success: Schema.Unknown, error: Schema.String })
export const Reserve = activity("Reserve")
export const Charge = activity("Charge")
export const Ship = activity("Ship")
export const Approved = Signal.make("Approved")
export const Orders = Signal.make("Orders", { payload: Schema.Int })
export const Total = KeyValue.make("total", Schema.Int)

export const Fulfil = Orchestration.make("Fulfil", { payload: Order, success: Schema.Unknown, error: Schema.Unknown })

export type Program = (order: typeof Order.Type) => Effect.Effect<unknown, unknown, Orchestration.Instance>

/** What happens after the start. */
export type Drive = Effect.Effect<unknown, unknown, Client.Client | TestRuntime.TestRuntime | Admin.Admin>

export const order = { sku: "book", cents: 100 }

/** The history of an instance that ran the program, up to where `drive` brings it. */
export const recorded = (program: Program, drive: Drive = TestRuntime.runToEnd("order-1")) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.start(Fulfil, { instanceId: "order-1", payload: order })
    yield* drive
    return yield* recordHistory("order-1")
  }).pipe(
    Effect.provide(
      TestRuntime.layer(
        Runtime.layer({ orchestrations: [Fulfil], activities: [Reserve, Charge, Ship] }).pipe(Layer.provide([
          Fulfil.toLayer(program),
          Reserve.toLayer(() => Effect.succeed(true)),
          Charge.toLayer(() => Effect.succeed({ receipt: 7 })),
          Ship.toLayer(() => Effect.as(Effect.sleep("1 hour"), "shipped"))
        ]))
      ).pipe(Layer.provideMerge(Logger.layer([])))
    )
  )

export const replay = (program: Program, history: History) =>
  Effect.provide(replayHistory(Fulfil, history), Fulfil.toLayer(program))

export const paid: Program = (order) =>
  Effect.gen(function*() {
    yield* Reserve.execute(order.sku)
    yield* Charge.execute({ lines: [order] })
    yield* Effect.sleep("1 day")
    return yield* Ship.execute(order.sku)
  })

export const all = { concurrency: "unbounded" } as const
