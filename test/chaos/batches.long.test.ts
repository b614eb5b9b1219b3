import { assert, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { Clicks, CountTo } from "../programs/batcher.ts"
import * as App from "../utils/app.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

const instances = 10
const clicks = 150
const kills = 5

const layer = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url))).pipe(
  Layer.provideMerge(PgServer.layer)
)

it.live(
  "batches, while workers are killed: each click is in exactly one, in the order in which they were sent",
  () =>
    Effect.scoped(Effect.gen(function*() {
      const { sql, url } = yield* PgServer.PgServer
      const client = yield* Client.Client
      yield* sql(
        "CREATE TABLE batches (number serial, key text PRIMARY KEY, instance_id text, at_ms float8, clicks integer[])"
      )
      const worker = ChildProcess.start("batcher", url)
      let victim = yield* worker
      const survivor = yield* worker
      yield* Effect.all([victim.printed("ready"), survivor.printed("ready")])
      const ids = Array.from({ length: instances }, (_, index) => `count ${index}`)
      yield* Effect.forEach(ids, (instanceId) => client.start(CountTo, { instanceId, payload: { clicks, done: 0 } }))
      const sending = yield* Effect.forkChild(
        Effect.forEach(ids, (id) =>
          Effect.forEach(
            Array.from({ length: clicks }, (_, click) => click),
            (click) => Effect.andThen(client.send(Clicks, id, click), Effect.sleep("15 millis"))
          ), { concurrency: "unbounded" })
      )
      const stored = Effect.map(
        sql<{ count: number }>("SELECT coalesce(sum(cardinality(clicks)), 0)::int AS count FROM batches"),
        ([row]) => row!.count
      )
      let held = 0
      for (let kill = 1; kill <= kills; kill++) {
        yield* Effect.repeat(Effect.delay(stored, "10 millis"), {
          until: (count) => count >= instances * clicks * kill / (kills + 1)
        })
        yield* victim.kill
        const [locks] = yield* sql<{ count: number }>(
          `SELECT ((SELECT count(*) FROM instance_locks)
             + (SELECT count(*) FROM worker_queue WHERE lock_token IS NOT NULL))::int AS count`
        )
        held += locks!.count
        victim = yield* worker
        yield* victim.printed("ready")
      }
      yield* Fiber.join(sending)
      yield* Effect.forEach(ids, (id) => client.wait(CountTo, id, { timeout: "4 minutes" }), {
        concurrency: "unbounded"
      })
      for (const id of ids) {
        const rows = yield* sql<{ clicks: ReadonlyArray<number> }>(
          "SELECT clicks FROM batches WHERE instance_id = $1 ORDER BY number",
          [id]
        )
        assert.deepStrictEqual(rows.flatMap((row) => row.clicks), Array.from({ length: clicks }, (_, click) => click))
        assert.isTrue(rows.every((row) => row.clicks.length >= 1 && row.clicks.length <= 7))
      }
      assert.isAbove(held, 0, "no kill interrupted anything: the test showed nothing")
    })).pipe(Effect.provide(layer))
)
