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

/** A session of the application that locks something of ours in its transaction. */
const strangerOf = Effect.fn(function*(url: string, lock: string) {
  const session = yield* PgServer.connect(url.replace(/\?.*$/, ""))
  yield* Effect.promise(() => session.query("BEGIN"))
  yield* Effect.promise(() => session.query(lock))
  return { end: Effect.promise(() => session.query("ROLLBACK")) }
})

describe.concurrent("While a transaction of the application locks the row of one activity", () => {
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
      const stranger = yield* strangerOf(url, "SELECT FROM worker_queue WHERE instance_id = 'a' FOR UPDATE")
      const [row] = yield* sql<{ lockedUntil: number }>(
        `SELECT max(locked_until)::float8 AS "lockedUntil" FROM worker_queue`
      )
      yield* Layer.build(process("two"))
      // Beyond the locks that a last renewal before now can have given.
      yield* waitUntil(Effect.map(
        sql("SELECT WHERE extract(epoch FROM clock_timestamp()) * 1000 > $1::float8 + 4000", [row!.lockedUntil]),
        ({ length }) => length > 0
      ))
      yield* stranger.end
      yield* Deferred.succeed(end, undefined)
      for (const id of ids) yield* client.wait(Holds, id)
      assert.deepStrictEqual(runs.filter((id) => id !== "a").sort(), ["b", "c"])
    })))
})

// They wait most of the time.
describe.concurrent("Work that a transaction of the application has locked for a while", () => {
  const Greet = Activity.make("Greet", { success: Schema.String })
  const Greets = Orchestration.make("Greets", { success: Schema.String })

  for (
    const [what, lock] of [
      ["an activity", "SELECT FROM worker_queue FOR UPDATE"],
      ["a message", "SELECT FROM orchestrator_queue FOR UPDATE"],
      ["an instance, by an advisory lock with the same key", "SELECT pg_advisory_xact_lock(hashtext('greets'))"]
    ] as const
  ) {
    it.live(`${what}: is found soon after the transaction ends, long before the fallback look`, () =>
      Effect.scoped(Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const provider = PrismaProvider.layer({ url, migrate: "none" })
        const client = Context.get(yield* Layer.build(Layer.provide(Client.layer, provider)), Client.Client)
        // One process has stored the work and is gone, another one comes while it is locked.
        yield* client.start(Greets, { instanceId: "greets" })
        if (what === "an activity") {
          yield* Effect.scoped(Effect.gen(function*() {
            yield* Layer.build(
              Runtime.layer({ orchestrations: [Greets], activities: [] }).pipe(
                Layer.provide([Greets.toLayer(() => Greet.execute()), Logger.layer([])]),
                Layer.provide(provider)
              )
            )
            yield* waitUntil(Effect.map(sql("SELECT FROM worker_queue"), ({ length }) => length === 1))
          }))
        }
        const stranger = yield* strangerOf(url, lock)
        yield* Layer.build(
          Runtime.layer({ orchestrations: [Greets], activities: [Greet] }).pipe(
            Layer.provide([
              Greets.toLayer(() => Greet.execute()),
              Greet.toLayer(() => Effect.succeed("Hello")),
              Logger.layer([])
            ]),
            Layer.provide(RuntimeConfig.layer({ orchestrationLockTimeout: "1 second", workerLockTimeout: "1 second" })),
            Layer.provide(provider)
          )
        )
        // Looks for locks that other processes may have left, and the first one for this work, are over by then.
        yield* Effect.sleep("6 seconds")
        yield* stranger.end
        assert.strictEqual(yield* client.wait(Greets, "greets", { timeout: "1 minute" }), "Hello")
      })))
  }
})
