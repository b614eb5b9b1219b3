import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

describe("While a transaction of the application locks the row of one activity", () => {
  it.live("the other activities of the process keep their locks", () =>
    Effect.scoped(Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const ids = ["a", "b", "c"]
      const Hold = Activity.make("Hold", { payload: { id: Schema.String }, success: Schema.String })
      const Holds = Orchestration.make("Holds", { payload: { id: Schema.String }, success: Schema.String })
      const allBegun = yield* Deferred.make<void>()
      const end = yield* Deferred.make<void>()
      const runs: Array<string> = []
      const process = (name: string) =>
        Runtime.layer({ orchestrations: [Holds], activities: [Hold] }).pipe(
          Layer.provide([
            Holds.toLayer(Effect.fn(({ id }) => Hold.execute({ id }))),
            Hold.toLayer(({ id }) =>
              Effect.suspend(() => {
                runs.push(id)
                return Effect.andThen(
                  runs.length === ids.length ? Deferred.succeed(allBegun, undefined) : Effect.void,
                  Effect.as(Deferred.await(end), name)
                )
              })
            )
          ]),
          Layer.provide(RuntimeConfig.layer({ workerLockTimeout: "4 seconds" })),
          Layer.merge(Client.layer),
          Layer.provide(PrismaProvider.layer({ url, migrate: "none" })),
          Layer.provide(Logger.layer([]))
        )
      const client = Context.get(yield* Layer.build(process("one")), Client.Client)
      for (const id of ids) yield* client.start(Holds, { instanceId: id, payload: { id } })
      yield* Deferred.await(allBegun)
      const stranger = yield* PgServer.connect(url.replace(/\?.*$/, ""))
      yield* Effect.promise(() => stranger.query("BEGIN"))
      yield* Effect.promise(() => stranger.query("SELECT FROM worker_queue WHERE instance_id = 'a' FOR UPDATE"))
      const [row] = yield* sql<{ lockedUntil: number }>(
        `SELECT max(locked_until)::float8 AS "lockedUntil" FROM worker_queue`
      )
      yield* Layer.build(process("two"))
      // Beyond the locks that a last renewal before now can have given.
      yield* waitUntil(Effect.map(
        sql("SELECT WHERE extract(epoch FROM clock_timestamp()) * 1000 > $1::float8 + 4000", [row!.lockedUntil]),
        ({ length }) => length > 0
      ))
      yield* Effect.promise(() => stranger.query("ROLLBACK"))
      yield* Deferred.succeed(end, undefined)
      for (const id of ids) yield* client.wait(Holds, id)
      assert.deepStrictEqual(runs.filter((id) => id !== "a"), ["b", "c"])
    })))
})
