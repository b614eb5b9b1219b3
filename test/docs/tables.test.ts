import { assert, it } from "@effect/vitest"
import { Database } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as Shop from "../cli/shop.ts"

const failedOrders = Effect.gen(function*() {
  const { client } = yield* Database.Database
  return yield* Effect.promise(() =>
    client.instance.findMany({
      where: { orchestrationName: "Order", status: "Failed" },
      include: { children: true, executions: { include: { events: true } } },
      orderBy: { createdAt: "desc" },
      take: 20
    })
  )
})

// -----------------------------------------------------------------------------
// tests
// -----------------------------------------------------------------------------

it.layer(Shop.layer, { excludeTestServices: true })("docs/tables.md, with Prisma", (it) => {
  it.effect("instances lead to their executions, events, children, values, messages and activities", () =>
    Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      yield* Effect.gen(function*() {
        const [order] = yield* failedOrders
        assert.deepInclude(order, { instanceId: "order-2", status: "Failed" })
        assert.deepStrictEqual(order!.executions.map(({ output, status }) => [status, output]), [
          ["Failed", "\"card declined\""]
        ])
        assert.strictEqual(order!.executions[0]!.events[0]!.eventType, "OrchestrationStarted")
        const { client } = yield* Database.Database
        const running = yield* Effect.promise(() =>
          client.instance.findUnique({
            where: { instanceId: "order-4" },
            include: {
              children: { include: { messages: true } },
              values: true,
              activities: true,
              block: true,
              parent: true
            }
          })
        )
        assert.deepInclude(running, { block: null, parent: null, activities: [] })
        assert.deepStrictEqual(running!.children.map(({ instanceId }) => instanceId), ["table-return"])
        assert.lengthOf(running!.children[0]!.messages, 1)
      }).pipe(Effect.provide(Layer.mergeAll(PrismaProvider.layerDatabase({ url, migrate: "none" }), Logger.layer([]))))
    }))
})
