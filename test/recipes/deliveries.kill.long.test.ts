/**
 * A process that is killed in the middle of a webhook.
 */
import { assert, it } from "@effect/vitest"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Delivery } from "duroxide-prisma/recipes/deliveries"
import { Tasks } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { endpoint, never, secret, status } from "./utils/deliveries.ts"

it.live(
  "killed before the endpoint has answered: the webhook is sent once more, under the same id",
  () =>
    Effect.scoped(Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const services = yield* Layer.build(
        Tasks.layer.pipe(
          Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" })),
          Layer.provide(Logger.layer([]))
        )
      )
      const tasks = Context.get(services, Tasks.Tasks)
      const { name, received, url: address } = yield* endpoint([never, status(204)])
      const start = Effect.tap(
        ChildProcess.start("deliverer", url, address, Redacted.value(secret)),
        (deliverer) => deliverer.printed("ready")
      )
      const victim = yield* start
      const id = yield* Effect.provide(
        Delivery.create({ endpoint: name, event: "order.placed", data: { order: "o-1" } }),
        services
      )
      yield* waitUntil(Effect.sync(() => received.length === 1))
      yield* victim.kill
      yield* start
      // Half a minute later.
      yield* sql(
        "UPDATE queue_tasks SET lease_until = 0, look_at = clock_timestamp() - interval '1 second' WHERE id = $1",
        [id]
      )
      yield* sql("SELECT FROM dx_sweep_tasks(1000, 100)")
      assert.deepStrictEqual(yield* tasks.wait(Delivery.Webhook, id), { status: 204 })
      assert.deepStrictEqual((yield* tasks.attempts(id)).map(({ outcome }) => outcome), ["Lost", "Completed"])
      assert.lengthOf(received, 2)
      const ids = yield* Effect.forEach(
        received,
        ({ body, headers }) => Effect.map(Delivery.verify(headers, body, secret), (verified) => verified.id)
      )
      assert.deepStrictEqual(ids, [id, id])
      assert.strictEqual(received[0]!.body, received[1]!.body)
    }))
)
