// Instances that collect signals until they are closed, and return them.
import { Orchestration, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

export const Item = Signal.make("Item", { payload: Schema.String })

export const Collect = Orchestration.make("Collect", { success: Schema.Array(Schema.String) })

/** Ends with the item `close`. */
export const collect = Effect.fn(function*() {
  const items: Array<string> = []
  while (true) {
    const item = yield* Item.wait
    if (item === "close") return items
    items.push(item)
  }
})
