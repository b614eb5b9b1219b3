import { assert, it } from "@effect/vitest"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import { Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Random from "effect/Random"
import { Call } from "../programs/limitedTasks.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

const tenants = ["big", "one", "two", "three"] as const

const [inAll, each] = [6, 3]

it.live(
  "limits of tasks: four workers are killed while tasks of four tenants run; no limit is exceeded, and every task runs",
  () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* sql(`CREATE TABLE calls (
        id serial PRIMARY KEY, tenant text, key text, pid integer,
        began timestamptz NOT NULL DEFAULT clock_timestamp(), ended timestamptz
      )`)
      yield* Effect.gen(function*() {
        const tasks = yield* Tasks.Tasks
        const admin = yield* Admin.Admin
        yield* admin.setLimit("task", "Call", { total: { concurrency: inAll }, eachKey: { concurrency: each } })
        const worker = Effect.tap(ChildProcess.start("limitedTasks", url), ({ printed }) => printed("ready"))
        const killed: Array<number> = []
        const interrupted: Array<string> = []
        /** Three workers, of which the oldest is killed and replaced again and again: with it ends what it runs. */
        const killing: Effect.Effect<never> = Effect.scoped(Effect.gen(function*() {
          const workers = [yield* worker, yield* worker]
          while (true) {
            workers.push(yield* worker)
            yield* Effect.sleep(yield* Random.nextIntBetween(300, 1_000))
            const victim = workers.shift()!
            yield* victim.kill
            const cut = yield* sql<{ key: string }>(
              "UPDATE calls SET ended = clock_timestamp() WHERE pid = $1 AND ended IS NULL RETURNING key",
              [victim.pid]
            )
            interrupted.push(...cut.map(({ key }) => key))
            killed.push(victim.pid)
          }
        }))
        let rounds = 0
        /** Until four were killed, one of them during a call. */
        const working = Effect.gen(function*() {
          while (killed.length < 4 || interrupted.length === 0) {
            const round = rounds++
            const ids = yield* Effect.forEach(tenants, (tenant) =>
              tasks.createMany(
                Call,
                Array.from({ length: tenant === "big" ? 60 : 15 }, (_, n) => ({
                  key: `${tenant}-${round}-${n}`,
                  payload: { tenant, n }
                }))
              ))
            yield* Effect.forEach(ids.flat(), (id) => tasks.wait(Call, id), {
              concurrency: "unbounded",
              discard: true
            })
          }
        })
        yield* Effect.raceFirst(working, killing)

        const [{ keys } = { keys: 0 }] = yield* sql<{ keys: number }>(
          "SELECT count(DISTINCT key)::int AS keys FROM calls"
        )
        assert.strictEqual(keys, rounds * 105)
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
        assert.deepInclude(yield* admin.getLimit("task", "Call"), { inUse: 0, waiting: 0 })
      }).pipe(
        Effect.provide(Tasks.layer.pipe(
          Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" })),
          Layer.provide(Logger.layer([]))
        ))
      )
    })
)
