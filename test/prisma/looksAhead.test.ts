import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as PgServer from "../utils/PgServer.ts"
import { session } from "../utils/session.ts"

/** Claims beside rows of the future: timers and delays, and rows from before the clock was set back. */
const queues = [
  {
    queue: "worker_queue",
    insert: (count: number, createdAt: string) =>
      `INSERT INTO worker_queue (work_item, visible_at, created_at, route)
       SELECT '{}', now() + interval '1 hour', ${createdAt}, 'A' FROM generate_series(1, ${count})`,
    claim: "SELECT * FROM dx_fetch_work_items(1, 60000, true, NULL, NULL, NULL, ARRAY['A'])"
  },
  {
    queue: "orchestrator_queue",
    insert: (count: number, createdAt: string) =>
      `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
       SELECT 'i' || n || clock_timestamp(), '{}', now() + interval '1 hour', ${createdAt}, '1000.0.0 =1.0.0 O'
       FROM generate_series(1, ${count}) AS n`,
    claim: "SELECT * FROM dx_fetch_orchestration_items(1, 60000, NULL, NULL, ARRAY['O'], ARRAY['1.0.0'])"
  }
]

describe("claims that find nothing look ahead:", () => {
  for (const { claim, insert, queue } of queues) {
    it.live(`${queue}: once in ten seconds, and at once when the clock was set back`, () =>
      Effect.gen(function*() {
        const test = yield* PgServer.database
        const run = yield* session(test)
        const entries = Effect.map(
          run(`SELECT pg_stat_get_xact_tuples_returned('${queue}_route_visible_at_id_idx'::regclass)::int AS read`),
          ([row]) => row.read as number
        )
        const claiming = Effect.gen(function*() {
          const before = yield* entries
          const { length: claimed } = yield* run(claim)
          return { claimed, read: (yield* entries) - before }
        })
        const setting = `duroxide_prisma.${queue}_ahead`
        /** Moves the time of the last look; by hours forward: as if the clock had been set back by them. */
        const lookedAt = (offset: string) =>
          run(
            `SELECT set_config('${setting}', ARRAY[one.looked[1], (one.looked[2]::bigint + ${offset})::text]::text, false)
             FROM (SELECT current_setting('${setting}')::text[]) AS one (looked)`
          )

        yield* test.sql(insert(300, "now()"))
        const first = yield* claiming
        assert.isAtLeast(first.read, 100)
        assert.strictEqual(first.claimed, 0, "what is to wait waits")
        const next = yield* claiming
        assert.isBelow(next.read, 10)

        yield* test.sql(insert(1, "now() + interval '1 hour'"))
        assert.strictEqual((yield* claiming).claimed, 0)
        yield* lookedAt("-10000")
        assert.strictEqual((yield* claiming).claimed, 0, "behind 300 timers of the same time")
        yield* test.sql(`DELETE FROM ${queue} WHERE created_at < visible_at`)
        yield* lookedAt("3600000")
        assert.strictEqual((yield* claiming).claimed, 1)

        // More than one look gives the present time.
        yield* test.sql(insert(250, "now() + interval '1 hour'"))
        yield* lookedAt("3600000")
        let claims = 0
        while ((yield* claiming).claimed > 0) claims++
        assert.strictEqual(claims, 250)
      }))
  }
})
