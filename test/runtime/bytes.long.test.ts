import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"

/** Almost the largest payload there may be. */
const large = "x".repeat(4_000_000)

const Words = Signal.make("Words", { payload: Schema.String })
const Fetch = Activity.make("Fetch", { success: Schema.String })
const Keep = Activity.make("Keep", { payload: Schema.String })

const Reads = Orchestration.make("Reads", { payload: Schema.Int, success: Schema.Int })
const Gathers = Orchestration.make("Gathers", { payload: Schema.Int, success: Schema.Int })
const Scatters = Orchestration.make("Scatters", { payload: Schema.Int })

const RuntimeLive = Runtime.layer({ orchestrations: [Reads, Gathers, Scatters], activities: [Fetch, Keep] }).pipe(
  Layer.provide([
    Reads.toLayer(Effect.fn(function*(count) {
      let length = 0
      for (let i = 0; i < count; i++) length += (yield* Words.wait).length
      return length
    })),
    Gathers.toLayer(Effect.fn(function*(count) {
      const texts = yield* Effect.all(Array.from({ length: count }, () => Fetch.execute()), {
        concurrency: "unbounded"
      })
      return texts.reduce((length, text) => length + text.length, 0)
    })),
    Scatters.toLayer((count) =>
      Effect.all(Array.from({ length: count }, () => Keep.execute(large)), { concurrency: "unbounded", discard: true })
    ),
    Fetch.toLayer(() => Effect.succeed(large)),
    Keep.toLayer(() => Effect.void)
  ])
)

const layer = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url))).pipe(
  Layer.provideMerge(PgServer.layer)
)

const attempts = (instanceId: string) =>
  Effect.flatMap(
    PgServer.PgServer,
    ({ sql }) =>
      sql<{ most: number | null }>("SELECT max(attempt_count) AS most FROM orchestrator_queue WHERE instance_id = $1", [
        instanceId
      ])
  )

it.layer(layer, { excludeTestServices: true })("Bytes:", (it) => {
  it.effect(
    "132 MiB of unread messages are read in parts, each delivered once",
    () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const count = 33
        yield* client.start(Reads, { instanceId: "reads", payload: count })
        // Before there is a process that reads them.
        for (let i = 0; i < count; i++) yield* client.send(Words, "reads", large)
        const { sql } = yield* PgServer.PgServer
        yield* sql(`CREATE TABLE deliveries AS SELECT * FROM orchestrator_queue WHERE false`)
        yield* sql(
          `CREATE FUNCTION note_delivery() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN INSERT INTO deliveries SELECT OLD.*; RETURN OLD; END $$`
        )
        yield* sql(
          `CREATE TRIGGER note_delivery BEFORE DELETE ON orchestrator_queue FOR EACH ROW EXECUTE FUNCTION note_delivery()`
        )
        // This examines the parts only; no lock expires, however busy the machine.
        yield* Layer.build(
          RuntimeLive.pipe(Layer.provide(RuntimeConfig.layer({ orchestrationLockTimeout: "2 minutes" })))
        )
        assert.strictEqual(yield* client.wait(Reads, "reads"), count * large.length)
        assert.deepStrictEqual(
          yield* sql(
            "SELECT count(*)::int AS messages, max(attempt_count) AS most, count(DISTINCT lock_token) >= 7 AS parts FROM deliveries"
          ),
          // 16 MiB hold four of them, and the fifth begins below that: 34 rows are at least seven parts.
          [{ messages: count + 1, most: 1, parts: true }]
        )
        yield* sql("DROP TRIGGER note_delivery ON orchestrator_queue")
      }).pipe(Effect.scoped)
  )

  it.effect("24 parallel results of 4 MB each are gathered", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* Layer.build(RuntimeLive)
      assert.strictEqual(
        yield* client.execute(Gathers, { instanceId: "gathers", payload: 24 }),
        24 * large.length
      )
      assert.deepStrictEqual(yield* attempts("gathers"), [{ most: null }])
    }).pipe(Effect.scoped))

  it.effect("a turn that would store more than 64 MiB fails its instance, and says so", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* Layer.build(RuntimeLive)
      const error = yield* Effect.flip(client.execute(Scatters, { instanceId: "scatters", payload: 17 }))
      assert.strictEqual(error._tag, "InstanceFailed")
      assert.match(error.message, /more than 67108864/)
      yield* client.execute(Scatters, { instanceId: "fewer", payload: 3 })
    }).pipe(Effect.scoped))
})
