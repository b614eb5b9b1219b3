import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type { ProviderError } from "../../src/provider/ProviderError.ts"
import * as App from "../utils/app.ts"
import { proxyFor } from "../utils/cuttingProxy.ts"
import type { Cut } from "../utils/cuttingProxy.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const instances = 150
const cuts = 100

const Step = Activity.make("Step", { payload: Schema.Int, success: Schema.Int })

const Go = Signal.make("Go")

/** Four activities, one after another and side by side; every third instance waits for a signal in between. */
const Walk = Orchestration.make("Walk", { payload: Schema.Int, success: Schema.Int })

const waits = (n: number) => n % 3 === 0

const WalkLive = Walk.toLayer(Effect.fn(function*(n) {
  const first = yield* Step.execute(n)
  if (waits(n)) yield* Go.wait
  const [second] = yield* Effect.all([Step.execute(first), Step.execute(first + 1)], { concurrency: "unbounded" })
  return yield* Step.execute(second)
}))

const results = instances * 4

/** A random point in the traffic of the next connection that reaches it. Most statements have a few hundred bytes. */
const somewhere: Effect.Effect<Cut> = Effect.gen(function*() {
  const within = (["statement", "answer", "between"] as const)[yield* Random.nextIntBetween(0, 2)]!
  return {
    within,
    afterBytes: yield* Random.nextIntBetween(0, within === "between" ? 1500 : 3000),
    manner: (yield* Random.nextBoolean) ? "reset" : "finish"
  }
})

it.live.each([true, false])(
  `${instances} instances, connections cut at ${cuts} random points, optimistic turns %s: nothing is lost or stored twice`,
  (optimisticTurns) =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.PgServer
      const proxy = yield* proxyFor(url)
      let runs = 0
      const RuntimeLive = Runtime.layer({ orchestrations: [Walk], activities: [Step] }).pipe(
        Layer.provide([
          WalkLive,
          Step.toLayer((n) => Effect.andThen(Effect.sleep(n % 10), Effect.sync(() => (runs++, n + 1))))
        ]),
        Layer.provide(
          RuntimeConfig.layer({
            optimisticTurns,
            orchestrationLockTimeout: "500 millis",
            workerLockTimeout: "500 millis"
          })
        )
      )
      // Small sets: more statements, and so more places for a cut.
      const services = yield* Layer.build(
        RuntimeLive.pipe(Layer.provideMerge(App.store(proxy.through(url), { lanes: 3, maxBatch: 4 })))
      )
      const client = yield* Effect.provide(Client.Client, services)

      let unknown = 0
      let wereStored = 0
      /** What a caller does if the outcome is unknown: the same call again. */
      const insistently = <E>(instanceId: string, call: Effect.Effect<void, E | ProviderError>, table: string) =>
        call.pipe(
          Effect.tapError(Effect.fnUntraced(function*() {
            unknown++
            if ((yield* sql(`SELECT FROM ${table} WHERE instance_id = $1`, [instanceId])).length > 0) wereStored++
          })),
          Effect.retry({ schedule: Schedule.spaced("20 millis") })
        )

      const cutting = yield* Effect.forkChild(Effect.gen(function*() {
        for (let i = 0; i < cuts; i++) {
          yield* proxy.cut(yield* somewhere)
          yield* Effect.sleep(yield* Random.nextIntBetween(0, 30))
        }
      }))

      const ids = Array.from({ length: instances }, (_, n) => `walk-${n}`)
      const walk = Effect.fnUntraced(function*(instanceId: string, n: number) {
        yield* Effect.sleep(n * 20) // starts fall between the cuts, not all before the first
        yield* insistently(
          instanceId,
          client.start(Walk, { instanceId, payload: n, ifExists: "ignore" }),
          "instances"
        )
        // A signal without an open wait is lost, so it is sent until it is received; the others are dropped.
        const ended = client.wait(Walk, instanceId).pipe(
          Effect.retry({ while: (error) => error._tag === "ProviderError" })
        )
        if (!waits(n)) return yield* ended
        const signals = Effect.repeat(
          Effect.ignore(client.send(Go, instanceId)),
          Schedule.spaced("300 millis")
        )
        return yield* Effect.raceFirst(ended, Effect.andThen(signals, Effect.never))
      })
      const answers = yield* Effect.forEach(ids, walk, { concurrency: "unbounded" })
      assert.deepStrictEqual(answers, ids.map((_, n) => n + 3))
      assert.isDefined(cutting.pollUnsafe(), "the run was over before the last cut")

      // The remaining signals find that their instance has ended.
      yield* waitUntil(Effect.map(sql("SELECT FROM orchestrator_queue"), (rows) => rows.length === 0))
      yield* waitUntil(Effect.map(sql("SELECT FROM instance_locks"), (rows) => rows.length === 0))
      const [totals] = yield* sql(
        `WITH event AS (
           SELECT instance_id, execution_id, event_id, event_data::jsonb ->> 'type' AS type,
                  event_data::jsonb ->> 'source_event_id' AS source
           FROM history
         )
         SELECT (SELECT count(*) FROM instances)::int AS instances,
                (SELECT count(*) FROM executions WHERE status = 'Completed')::int AS completed,
                (SELECT count(*) FROM executions)::int AS executions,
                (SELECT count(*) FROM event WHERE type = 'OrchestrationStarted')::int AS starts,
                (SELECT count(*) FROM event WHERE type = 'ActivityScheduled')::int AS scheduled,
                (SELECT count(*) FROM event WHERE type = 'ActivityCompleted')::int AS results,
                (SELECT count(DISTINCT (instance_id, source)) FROM event WHERE type = 'ActivityCompleted')::int
                  AS distinct_results,
                (SELECT count(*) FROM (
                   SELECT FROM event GROUP BY instance_id, execution_id
                   HAVING max(event_id) <> count(*) OR min(event_id) <> 1
                 ) AS gap)::int AS gaps,
                (SELECT count(*) FROM worker_queue)::int AS activities`
      )
      assert.deepStrictEqual(totals, {
        instances,
        completed: instances,
        executions: instances,
        starts: instances,
        scheduled: results,
        results,
        distinct_results: results,
        gaps: 0,
        activities: 0
      })
      assert.isAtLeast(runs, results)
      console.log(
        `${cuts} cuts, optimistic turns ${optimisticTurns}: ${unknown} starts got no answer, ${wereStored} of them were stored; ` +
          `${runs - results} of ${runs} activity runs were repetitions`
      )
    }).pipe(Effect.scoped, Effect.provide(PgServer.layer))
)
