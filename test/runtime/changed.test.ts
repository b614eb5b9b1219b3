/**
 * A program that is changed in place under running instances, on PostgreSQL.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Step = Activity.make("Step", { payload: Schema.String, success: Schema.String })
const Go = Signal.make("Go")
const Work = Orchestration.make("Work", { success: Schema.Array(Schema.String) })

const before = Work.toLayer(Effect.fn(function*() {
  const steps = [yield* Step.execute("one")]
  yield* Go.wait
  steps.push(yield* Step.execute("two"))
  yield* Go.wait
  return steps
}))

const after = Work.toLayer(Effect.fn(function*() {
  const steps: Array<string> = []
  if (yield* Orchestration.changed("zero")) steps.push(yield* Step.execute("zero"))
  steps.push(yield* Step.execute("one"))
  yield* Go.wait
  if (yield* Orchestration.changed("half")) steps.push(yield* Step.execute("one and a half"))
  steps.push(yield* Step.execute("two"))
  yield* Go.wait
  return steps
}))

const runtime = (program: typeof before) =>
  Runtime.layer({ orchestrations: [Work], activities: [Step] }).pipe(
    Layer.provide([program, Step.toLayer((name) => Effect.succeed(name))])
  )

describe("Orchestration.changed on PostgreSQL", () => {
  it.live("instances of the old code continue with the new code, and a restart replays their answers", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      /** One release of the application, from its start until its processes have stopped. */
      const release = <A, E>(program: typeof before, use: Effect.Effect<A, E, Client.Client>) =>
        Effect.scoped(Effect.provide(use, Layer.fresh(runtime(program).pipe(Layer.provideMerge(App.store(url))))))
      const waits = (instanceId: string, times: number) =>
        waitUntil(Effect.map(
          sql<{ waits: number }>(
            `SELECT count(*)::int AS waits FROM history WHERE instance_id = $1 AND event_type = 'ExternalSubscribedPersistent'`,
            [instanceId]
          ),
          ([row]) => row!.waits === times
        ))
      const go = (instanceId: string) => Effect.flatMap(Client.Client, (client) => client.send(Go, instanceId))
      const outcome = (instanceId: string) => Effect.flatMap(Client.Client, (client) => client.wait(Work, instanceId))

      yield* release(
        before,
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* Effect.forEach(["waits", "passed"], (instanceId) => client.start(Work, { instanceId }))
          yield* waits("waits", 1)
          yield* waits("passed", 1)
          yield* go("passed")
          yield* waits("passed", 2)
        })
      )
      yield* release(
        after,
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* client.start(Work, { instanceId: "new" })
          yield* waits("new", 1)
          yield* Effect.forEach(["waits", "new"], go)
          yield* waits("waits", 2)
          yield* waits("new", 2)
        })
      )
      // Every instance is replayed from its rows.
      yield* release(
        after,
        Effect.gen(function*() {
          yield* Effect.forEach(["waits", "passed", "new"], go)
          assert.deepStrictEqual(yield* outcome("passed"), ["one", "two"])
          assert.deepStrictEqual(yield* outcome("waits"), ["one", "one and a half", "two"])
          assert.deepStrictEqual(yield* outcome("new"), ["zero", "one", "one and a half", "two"])
        })
      )
      const [left] = yield* sql("SELECT count(*)::int AS rows FROM worker_queue")
      assert.deepStrictEqual(left, { rows: 0 })
    }).pipe(Effect.scoped, Effect.provide(Logger.layer([]))))
})
