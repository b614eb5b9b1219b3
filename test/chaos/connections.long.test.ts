import { assert, describe, it } from "@effect/vitest"
import { Client, RuntimeConfig } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { proxyFor } from "../programs/latencyProxy.ts"
import { FiveSteps, RuntimeLive } from "../programs/steps.ts"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"

const instances = 100
const cuts = 40

describe("One process", () => {
  it.live(
    `its connections cut ${cuts} times: every instance completes, nothing is lost or stored twice`,
    () =>
      Effect.scoped(Effect.gen(function*() {
        const { sql, url } = yield* PgServer.PgServer
        const proxy = yield* proxyFor(url)
        const services = yield* Layer.build(
          RuntimeLive.pipe(
            Layer.provide(
              RuntimeConfig.layer({
                orchestrationLockTimeout: "500 millis",
                workerLockTimeout: "500 millis"
              })
            ),
            Layer.provideMerge(App.store(proxy.through(url)))
          )
        )
        const direct = yield* Layer.build(App.store(url))
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          const ids = Array.from({ length: instances }, (_, i) => `cut-${i}`)
          yield* Effect.forEach(ids, (instanceId, i) => client.start(FiveSteps, { instanceId, payload: i }), {
            concurrency: "unbounded",
            discard: true
          })
          // A cut after every few turns, so that they fall on claims, commits and idle connections alike.
          const cutting = yield* Effect.forkChild(Effect.gen(function*() {
            for (let i = 0; i < cuts; i++) {
              const [before] = yield* sql<{ count: number }>(`SELECT count(*)::int AS count FROM history`)
              yield* Effect.repeat(
                sql<{ count: number; running: number }>(
                  `SELECT (SELECT count(*) FROM history)::int AS count,
                        (SELECT count(*) FROM executions WHERE status = 'Running')::int AS running`
                ),
                { until: ([row]) => row!.count > before!.count + 5 || row!.running === 0 }
              )
              if (i % 2 === 0) proxy.reset()
              else proxy.finish()
            }
          }))
          const results = yield* Effect.forEach(
            ids,
            (instanceId) => client.wait(FiveSteps, instanceId, { timeout: "4 minutes" }),
            { concurrency: "unbounded" }
          )
          assert.deepStrictEqual(results, ids.map((_, i) => i + 5))
          yield* Fiber.join(cutting)
        }).pipe(Effect.provide(direct))
        const [totals] = yield* sql(
          `SELECT count(*) FILTER (WHERE event_data::jsonb ->> 'type' = 'ActivityCompleted')::int AS results,
                (SELECT count(*) FROM (
                   SELECT FROM history GROUP BY instance_id, execution_id HAVING max(event_id) <> count(*)
                 ) AS gap)::int AS gaps,
                (SELECT count(*) FROM worker_queue)::int AS activities
         FROM history`
        )
        assert.deepStrictEqual(totals, { results: instances * 5, gaps: 0, activities: 0 })
        assert.isDefined(services)
      })).pipe(Effect.provide(PgServer.layer))
  )
})
