import { assert, it } from "@effect/vitest"
import { Client, Orchestration } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"

const Order = Orchestration.make("Order")

it.live("attributes of instances that Duroxide has deleted are not seen, also by later instances of their ids", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      const { count, getInstanceInfo, list } = yield* Admin.Admin
      const start = (instanceId: string, attributes: Admin.InstanceInfo["attributes"]) =>
        client.start(Order, { instanceId, attributes })
      const ids = ["a", "b", "c", "d", "e"]
      for (const [size, id] of ids.entries()) yield* start(id, { customer: "c1", size, kind: "first" })
      // Its functions know no table of ours.
      yield* sql(`DELETE FROM instances WHERE instance_id IN ('b', 'd');
        DELETE FROM executions WHERE instance_id IN ('b', 'd'); DELETE FROM orchestrator_queue WHERE instance_id IN ('b', 'd')`)

      for (const attributes of [{ customer: "c1" }, { size: { from: 0 } }, { customer: "c1", size: { from: 0 } }]) {
        const found: Array<string> = []
        let cursor: string | undefined
        do {
          const page = yield* list({ attributes, orderBy: "oldest", limit: 1, cursor })
          found.push(...page.instances.map(({ instanceId }) => instanceId))
          cursor = page.next ?? undefined
        } while (cursor !== undefined)
        assert.deepStrictEqual(found, ["a", "c", "e"])
        const [counted] = yield* count({ attributes })
        assert.strictEqual(counted?.instances, 3)
      }

      yield* start("b", { customer: "c2" })
      assert.deepStrictEqual((yield* getInstanceInfo("b")).attributes, { customer: "c2" })
      yield* client.start(Order, { instanceId: "d" })
      assert.deepStrictEqual((yield* getInstanceInfo("d")).attributes, {})
      const again = yield* list({ attributes: { kind: "first" }, orderBy: "oldest" })
      assert.deepStrictEqual(again.instances.map(({ instanceId }) => instanceId), ["a", "c", "e"])
      const byId = yield* list({ attributes: { kind: "first" }, orderBy: "id" })
      assert.deepStrictEqual(byId.instances.map(({ instanceId }) => instanceId), ["a", "c", "e"])
    }).pipe(Effect.provide(Client.layer.pipe(
      Layer.provideMerge(PrismaProvider.layer({ url })),
      Layer.provide(Logger.layer([]))
    )))
  }))
