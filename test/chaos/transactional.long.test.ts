import { assert, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import { activitiesEach, writesOf, Writing } from "../programs/transactional.ts"
import * as App from "../utils/app.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import { proxyFor } from "../utils/cuttingProxy.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/** Activities in all: `TRANSACTIONAL_RUNS=10000` for the long form. */
const runs = Number(process.env["TRANSACTIONAL_RUNS"] ?? 1_000)

const instances = Math.ceil(runs / activitiesEach)

/** One kill and some cuts for so many activities. */
const runsPerKill = 150

it.live(
  `${runs} transactional activities under kill -9, cut connections and lost answers: effects = results`,
  () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* PgServer.database
      yield* sql("CREATE TABLE effects (instance_id text NOT NULL, activity_id integer NOT NULL)")
      // One for each process: a cut breaks the connections of the pool and those of the provider.
      const proxies = [yield* proxyFor(url), yield* proxyFor(url)]
      /** The two that live. Whatever ends one, another takes its place: a cut may end it before it serves. */
      const processes: Array<ChildProcess.Process> = []
      let starts = 0
      const supervise = (i: number) =>
        Effect.gen(function*() {
          const process = yield* ChildProcess.start("transactional", proxies[i]!.through(url), schema)
          processes[i] = process
          starts++
          yield* process.ended
        }).pipe(Effect.scoped, Effect.forever, Effect.forkChild)
      const services = yield* Layer.build(App.store(url))
      const client = yield* Effect.provide(Client.Client, services)
      const ended = Effect.map(
        sql<{ count: number }>("SELECT count(*)::int AS count FROM executions WHERE status <> 'Running'"),
        ([row]) => row!.count
      )

      yield* Effect.forEach([0, 1], supervise)
      yield* waitUntil(
        Effect.sync(() => processes.length === 2 && processes.every((one) => one.output().includes("ready")))
      )
      const ids = Array.from({ length: instances }, (_, i) => `writing-${i}`)
      yield* Effect.forkChild(Effect.forEach(
        ids,
        (instanceId, payload) => client.start(Writing, { instanceId, payload, ifExists: "ignore" }),
        { concurrency: 10 }
      ))

      let cuts = 0
      let done = 0
      // No faster than the work proceeds, on whatever machine: cuts that leave no statement whole show nothing.
      const mayCut = waitUntil(Effect.sync(() => cuts < 20 + 3 * done))
      yield* Effect.forkChild(Effect.forever(Effect.gen(function*() {
        yield* mayCut
        const within = (["statement", "answer", "between"] as const)[yield* Random.nextIntBetween(0, 2)]!
        yield* proxies[yield* Random.nextIntBetween(0, 1)]!.cut({
          within,
          afterBytes: yield* Random.nextIntBetween(0, 2_000),
          manner: (yield* Random.nextBoolean) ? "reset" : "finish"
        }).pipe(Effect.timeoutOption("2 seconds"))
        cuts++
        yield* Effect.sleep(yield* Random.nextIntBetween(0, 150))
      })))

      let kills = 0
      let nextKill = runsPerKill / activitiesEach
      for (; done < instances; done = yield* ended) {
        if (done >= nextKill) {
          yield* processes[kills++ % 2]!.kill
          nextKill = done + runsPerKill / activitiesEach
        }
        yield* Effect.sleep("50 millis")
      }
      const results = yield* Effect.forEach(ids, (id) => client.wait(Writing, id), { concurrency: 20 })
      assert.deepStrictEqual(results, ids.map((_, i) => writesOf(i)))

      const [totals] = yield* sql(
        `WITH result AS (
           SELECT instance_id, (event_data::jsonb ->> 'source_event_id')::int AS activity_id
           FROM history WHERE event_data::jsonb ->> 'type' = 'ActivityCompleted'
         )
         SELECT (SELECT count(*) FROM effects)::int AS effects,
                (SELECT count(DISTINCT (instance_id, activity_id)) FROM effects)::int AS distinct_effects,
                (SELECT count(*) FROM result)::int AS results,
                (SELECT count(*) FROM result JOIN effects USING (instance_id, activity_id))::int AS both,
                (SELECT count(*) FROM worker_queue)::int AS activities`
      )
      const expected = ids.reduce((sum, _, i) => sum + writesOf(i), 0)
      assert.deepStrictEqual(totals, {
        effects: expected,
        distinct_effects: expected,
        results: expected,
        both: expected,
        activities: 0
      })
      assert.isAbove(kills, 0, "no process was killed: the test showed nothing")
      assert.isAbove(cuts, 10, "hardly a connection was cut: the test showed nothing")
      console.log(
        `${
          instances * activitiesEach
        } runs, ${kills} kills, ${starts} starts, ${cuts} cuts: ${expected} effects and results`
      )
    }).pipe(Effect.scoped, Effect.provide(PgServer.layer)),
  { timeout: 600_000 + runs * 300 }
)
