import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Admin, FromDriver, MemoryDriver, Provider } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { times } from "../utils/times.ts"
import * as operators from "./operators.ts"

const stores: {
  readonly [where: string]: Layer.Layer<Client.Client | Admin.Admin | Provider.Provider, unknown>
} = {
  "in memory": Layer.provideMerge(
    Layer.mergeAll(Client.layer, FromDriver.layerAdmin),
    Layer.provideMerge(FromDriver.layer(), MemoryDriver.layer)
  ),
  "on PostgreSQL": Layer.unwrap(
    Effect.map(
      PgServer.database,
      ({ url }) => Layer.provideMerge(Client.layer, PrismaProvider.layer({ url, migrate: "none" }))
    )
  )
}

describe("Operators at random beside running work", () => {
  for (const [where, store] of Object.entries(stores)) {
    for (let seed = 1; seed <= times(1); seed++) {
      it.live(
        `leave no instance between before and after, and histories that replay, ${where}, seed ${seed}`,
        () =>
          Effect.gen(function*() {
            const histories = yield* operators.run(seed)
            // No program has run the last turn of those that were terminated while they were blocked.
            const ran = [...histories.values()].filter((events) =>
              !events.some(({ _tag }) => _tag === "OrchestrationCancelRequested")
            )
            assert.isAbove(ran.length, 20)
            for (const events of ran) yield* operators.replay(events)
          }).pipe(Effect.provide(store), Effect.scoped)
      )
    }
  }
})
