import { assert, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Random from "effect/Random"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { Calls } from "../programs/limited.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

const tenants = ["big", "one", "two", "three"] as const

const [inAll, each] = [6, 3]

/** Instances: two of the four tenants wait. */
const atOnce = 2

it.live(
  "limits: four workers are killed while four tenants call; no limit of calls or instances is exceeded, and all run",
  () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* sql(`CREATE TABLE calls (
        id serial PRIMARY KEY, tenant text, instance text, key text, pid integer,
        began timestamptz NOT NULL DEFAULT clock_timestamp(), ended timestamptz
      )`)
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const admin = yield* Admin.Admin
        yield* admin.setLimit("orchestration", "Calls", { total: { concurrency: atOnce } })
        yield* admin.setLimit("activity", "Call", { total: { concurrency: inAll }, eachKey: { concurrency: each } })
        const worker = Effect.tap(ChildProcess.start("limited", url), ({ printed }) => printed("ready"))
        /** How many calls each kill ended. */
        const kills: Array<number> = []
        /** Three workers, of which the oldest is killed and replaced again and again: with it ends what it runs. */
        const killing: Effect.Effect<never> = Effect.scoped(Effect.gen(function*() {
          const workers = [yield* worker, yield* worker]
          while (true) {
            workers.push(yield* worker)
            yield* Effect.sleep(yield* Random.nextIntBetween(300, 1_000))
            const victim = workers.shift()!
            // On a busy machine its calls begin elsewhere before this process learns that it is dead.
            const [{ now }] = (yield* sql("SELECT clock_timestamp() AS now")) as [{ now: Date }]
            yield* victim.kill
            const running = yield* sql(
              "UPDATE calls SET ended = greatest(began, $2) WHERE pid = $1 AND ended IS NULL RETURNING id",
              [victim.pid, now]
            )
            kills.push(running.length)
          }
        }))
        let rounds = 0
        /** Until four were killed, and one of them while it ran calls: one process may have them all. */
        const working = Effect.gen(function*() {
          while (kills.length < 4 || kills.every((calls) => calls === 0)) {
            const round = rounds++
            yield* Effect.forEach(tenants, (tenant) =>
              client.execute(Calls, {
                instanceId: `${tenant}-${round}`,
                payload: { tenant, count: tenant === "big" ? 100 : 25 }
              }), { concurrency: "unbounded", discard: true })
          }
        })
        yield* Effect.raceFirst(working, killing)

        const [{ keys } = { keys: 0 }] = yield* sql<{ keys: number }>(
          "SELECT count(DISTINCT key)::int AS keys FROM calls"
        )
        assert.strictEqual(keys, rounds * 175)
        // At the moment when each began, how many ran.
        const [most] = yield* sql<{ all: number; each: number; again: number }>(`
          SELECT
            max((
              SELECT count(*) FROM calls AS o WHERE o.began <= c.began AND (o.ended IS NULL OR o.ended > c.began)
            ))::int AS all,
            max((
              SELECT count(*) FROM calls AS o
              WHERE o.tenant = c.tenant AND o.began <= c.began AND (o.ended IS NULL OR o.ended > c.began)
            ))::int AS each,
            (count(*) - count(DISTINCT c.key))::int AS again
          FROM calls AS c`)
        assert.isAbove(most!.again, 0, "no kill interrupted a call: the test showed nothing")
        assert.isAtMost(most!.all, inAll)
        assert.isAtMost(most!.each, each)
        assert.isAtLeast(most!.all, each + 1, "the limit was not used")
        assert.deepInclude(yield* admin.getLimit("activity", "Call"), { inUse: 0, waiting: 0 })

        // From its first call to its last one, an instance runs.
        const [instances] = yield* sql<{ all: number }>(`
          WITH runs AS (SELECT min(began) AS began, max(COALESCE(ended, began)) AS ended FROM calls GROUP BY instance)
          SELECT max((
            SELECT count(*) FROM runs AS o WHERE o.began <= r.began AND o.ended > r.began
          ))::int AS all
          FROM runs AS r`)
        assert.strictEqual(instances!.all, atOnce)
        assert.deepInclude(yield* admin.getLimit("orchestration", "Calls"), { inUse: 0, waiting: 0 })
      }).pipe(
        Effect.provide(Client.layer.pipe(
          Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" })),
          Layer.provide(Logger.layer([]))
        ))
      )
    })
)
