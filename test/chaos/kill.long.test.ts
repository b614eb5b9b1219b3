import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { FiveSteps } from "../programs/steps.ts"
import * as App from "../utils/app.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

const rounds = 6
const instances = 200

const layer = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url, { maxBatch: 200 }))).pipe(
  Layer.provideMerge(PgServer.layer)
)

describe("Two processes", () => {
  it.live(
    `one of them killed half way: ${instances} instances of five activities complete, ${rounds} times`,
    () =>
      Effect.scoped(Effect.gen(function*() {
        const client = yield* Client.Client
        const { sql, url } = yield* PgServer.PgServer
        const completed = (round: number) =>
          Effect.map(
            sql<{ count: number }>(
              `SELECT count(*)::int AS count FROM executions WHERE status = 'Completed' AND instance_id LIKE $1`,
              [`round-${round}-%`]
            ),
            ([row]) => row!.count
          )
        /** With and without optimistic turns; each may start instances itself. */
        const worker = (optimisticTurns: boolean, starts: ReadonlyArray<string> = []) =>
          ChildProcess.start("worker", url, JSON.stringify({ optimisticTurns, starts }))
        let survivor = yield* worker(true)
        let heldAtKill = 0
        for (let round = 0; round < rounds; round++) {
          const ids = Array.from({ length: instances }, (_, i) => `round-${round}-${i}`)
          const startAll = Effect.forEach(
            ids,
            (instanceId, i) => client.start(FiveSteps, { instanceId, payload: i, ifExists: "ignore" }),
            { concurrency: "unbounded", discard: true }
          )
          yield* survivor.printed("ready")
          const startsThem = round % 2 === 0
          const victim = yield* worker(round % 3 !== 2, startsThem ? ids : [])
          yield* victim.printed("ready")
          if (!startsThem) yield* startAll
          // The moment to kill: half of the work is done, and locks are held.
          yield* Effect.repeat(completed(round), { until: (count) => count >= instances / 2 })
          yield* victim.kill
          const [held] = yield* sql<{ count: number }>(
            `SELECT (SELECT count(*) FROM instance_locks)::int
                  + (SELECT count(*) FROM worker_queue WHERE lock_token IS NOT NULL)::int AS count`
          )
          heldAtKill += held!.count
          // Those that the victim no longer could.
          yield* startAll
          const results = yield* Effect.forEach(
            ids,
            (instanceId) => client.wait(FiveSteps, instanceId, { timeout: "4 minutes" }),
            { concurrency: "unbounded" }
          )
          assert.deepStrictEqual(results, ids.map((_, i) => i + 5))
          // Roles alternate, so that both the older and the newer process are killed.
          if (round % 2 === 1) {
            yield* survivor.kill
            survivor = yield* worker(round % 4 === 3)
          }
        }
        yield* survivor.printed("ready")
        assert.strictEqual(yield* survivor.stop, 0)
        assert.isAbove(heldAtKill, 0, "no kill interrupted anything: the test showed nothing")

        const gaps = yield* sql(
          `SELECT instance_id FROM history GROUP BY instance_id, execution_id
           HAVING min(event_id) <> 1 OR max(event_id) <> count(*)`
        )
        assert.deepStrictEqual(gaps, [])
        const twice = yield* sql(
          `SELECT instance_id, event_data::jsonb ->> 'source_event_id' FROM history
           WHERE event_data::jsonb ->> 'type' = 'ActivityCompleted' GROUP BY 1, 2 HAVING count(*) > 1`
        )
        assert.deepStrictEqual(twice, [])
        const [totals] = yield* sql(
          `SELECT count(DISTINCT instance_id)::int AS instances,
                  count(*) FILTER (WHERE event_data::jsonb ->> 'type' = 'ActivityCompleted')::int AS results,
                  (SELECT count(*) FROM orchestrator_queue)::int AS messages,
                  (SELECT count(*) FROM worker_queue)::int AS activities,
                  (SELECT count(*) FROM instance_locks)::int AS locks,
                  (SELECT count(*) FROM sessions)::int AS sessions
           FROM history`
        )
        const total = rounds * instances
        assert.deepStrictEqual(totals, {
          instances: total,
          results: total * 5,
          messages: 0,
          activities: 0,
          locks: 0,
          sessions: 0
        })
        console.log(`${rounds} rounds, ${heldAtKill} locks held when a process was killed`)
      })).pipe(Effect.provide(layer))
  )
})
