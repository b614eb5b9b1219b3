/**
 * Processes with schedulers that are killed at any moment: each occurrence fires once nevertheless, and runs that may
 * not overlap do not.
 */
import { assert, describe, it } from "@effect/vitest"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Schedules } from "duroxide-prisma/schedules"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const processes = 3
const kills = 8

describe("schedules: processes killed", () => {
  it.live("every occurrence fires once, in order, and queued runs never overlap", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const launch = Effect.tap(ChildProcess.start("scheduler", url), ({ printed }) => printed("ready"))
      const fleet = yield* Effect.all(Array.from({ length: processes }, () => launch), { concurrency: "unbounded" })
      const count = Effect.map(
        sql<{ count: number }>(
          "SELECT count(*)::int AS count FROM instances WHERE instance_id LIKE 'schedule/often/%'"
        ),
        ([row]) => row!.count
      )
      for (let kill = 0; kill < kills; kill++) {
        const before = yield* count
        const index = kill % processes
        // The last one leaves no process for a while.
        const victims = kill === kills - 1 ? [...fleet] : [fleet[index]!]
        yield* waitUntil(Effect.map(count, (now) => now > before))
        yield* Effect.forEach(victims, (victim) => victim.kill, { concurrency: "unbounded" })
        if (victims.length > 1) yield* Effect.sleep("3 seconds")
        fleet[index] = yield* launch
      }
      const before = yield* count
      yield* waitUntil(Effect.map(count, (now) => now > before))
      const schedules = yield* Effect.provide(
        Effect.provide(Schedules.Schedules, Schedules.layerClient),
        yield* Layer.build(
          PrismaProvider.layerDatabase({ url, migrate: "none" }).pipe(Layer.provide(Logger.layer([])))
        )
      )
      for (const name of ["often", "long"]) yield* schedules.pause(name)

      // From the creation on, each second has an instance; a primary key says that it has one only.
      const [{ from, missing, until }] = (yield* sql<{ from: number; until: number; missing: number }>(`
        WITH bounds AS (
          SELECT floor(extract(epoch FROM created_at))::bigint + 1 AS from,
            floor(extract(epoch FROM fired_until))::bigint AS until
          FROM schedules WHERE name = 'often'
        )
        SELECT bounds.from::int, bounds.until::int, (
          SELECT count(*)::int FROM generate_series(bounds.from, bounds.until) AS second
          WHERE NOT EXISTS (
            SELECT FROM instances
            WHERE instance_id = 'schedule/often/'
              || to_char(to_timestamp(second) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS".000Z"')
          )
        ) AS missing FROM bounds`)) as [{ from: number; until: number; missing: number }]
      assert.isAbove(until - from, kills)
      assert.strictEqual(missing, 0)
      assert.strictEqual(yield* count, until - from + 1, "and no other one")

      // Each of the runs kept is of another occurrence.
      const runs = (yield* schedules.runs("often")).filter(({ outcome }) => outcome === "Started")
      assert.strictEqual(new Set(runs.map(({ occurrence }) => occurrence.getTime())).size, runs.length)

      // A run that was queued began after the end of the one before.
      yield* waitUntil(Effect.map(
        sql("SELECT FROM instances WHERE instance_id LIKE 'schedule/%' AND status = 'Running'"),
        ({ length }) => length === 0
      ))
      const overlaps = yield* sql(`
        SELECT a.instance_id, b.instance_id FROM executions AS a JOIN executions AS b ON a.instance_id < b.instance_id
        WHERE a.instance_id LIKE 'schedule/long/%' AND b.instance_id LIKE 'schedule/long/%'
          AND b.started_at < a.completed_at`)
      assert.deepStrictEqual(overlaps, [])
      const long = yield* sql("SELECT FROM instances WHERE instance_id LIKE 'schedule/long/%'")
      assert.isAbove(long.length, 3)
    }).pipe(Effect.scoped))
})
