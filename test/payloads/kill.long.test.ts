/**
 * Keys rotate while instances run, and the processes that hold them are killed.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { FiveSteps } from "../programs/steps.ts"
import * as App from "../utils/app.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { encrypted, keysText } from "./utils.ts"

const instances = 60

/** Plain text first, then each key in turn. All but the first process know the keys before. */
const rotation = [undefined, keysText("k1"), keysText("k2", "k1"), keysText("k3", "k2", "k1")]

const layer = Layer.unwrap(
  Effect.map(PgServer.PgServer, ({ url }) => Layer.provide(App.store(url), encrypted("k3", "k2", "k1")))
).pipe(Layer.provideMerge(PgServer.layer))

describe("Keys that rotate", () => {
  it.live("while processes are killed: every instance ends with its result, and each text can be read", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const { sql, url } = yield* PgServer.PgServer
      const steps = Effect.map(
        sql<{ readonly count: number }>(
          "SELECT count(*)::int AS count FROM history WHERE event_type = 'ActivityCompleted'"
        ),
        ([row]) => row!.count
      )
      const ids: Array<string> = []
      for (const [round, keys] of rotation.entries()) {
        const starts = Array.from({ length: instances }, (_, i) => `round-${round}-${i}`)
        ids.push(...starts)
        const before = yield* steps
        const process = yield* ChildProcess.start("worker", url, JSON.stringify({ keys, starts }))
        yield* process.printed("ready")
        // Early, for a machine that notices it late: the next process continues with what this one has left.
        yield* Effect.repeat(steps, { until: (count) => count >= before + instances })
        yield* process.kill
      }
      yield* Effect.forEach(
        ids,
        (instanceId, i) => client.start(FiveSteps, { instanceId, payload: i % instances, ifExists: "ignore" }),
        { concurrency: 20, discard: true }
      )
      const last = yield* ChildProcess.start("worker", url, JSON.stringify({ keys: rotation.at(-1) }))
      const results = yield* Effect.forEach(
        ids,
        (instanceId) => client.wait(FiveSteps, instanceId, { timeout: "4 minutes" }),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(results, ids.map((_, i) => i % instances + 5))
      const kinds = yield* sql<{ readonly key: string | null }>(
        "SELECT DISTINCT substring(event_data FROM 'aes-256-gcm:(k[0-9])') AS key FROM history WHERE event_type = 'ActivityCompleted'"
      )
      assert.sameMembers(kinds.map(({ key }) => key), [null, "k1", "k2", "k3"])
      // Histories with texts of several keys.
      const mixed = yield* sql(
        `SELECT instance_id FROM history GROUP BY instance_id
         HAVING count(DISTINCT substring(event_data FROM 'aes-256-gcm:(k[0-9])')) > 1`
      )
      assert.isAbove(mixed.length, 0, "no kill has come between: the test showed nothing")
      const blocked = yield* sql("SELECT FROM blocked_instances")
      assert.deepStrictEqual(blocked, [])
      assert.strictEqual(yield* last.stop, 0)
    }).pipe(Effect.scoped, Effect.provide(layer)))
})
