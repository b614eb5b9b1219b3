import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/internal/client.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import { counting, queues } from "../utils/countedClaims.ts"
import * as Test from "../utils/driver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { session } from "../utils/session.ts"
import type { Run } from "../utils/session.ts"

type Queue = (typeof queues)[number]

/** A session on a queue with 8,000 dead rows that an open transaction keeps. */
const behindDeadRows = Effect.fnUntraced(function*({ insert, queue }: Queue) {
  const test = yield* PgServer.database
  const holder = yield* session(test)
  yield* holder("SELECT pg_current_xact_id()::text")
  yield* test.sql(insert(8000, "now() - interval '10 seconds'"))
  yield* test.sql(`DELETE FROM ${queue}`)
  return yield* session(test)
})

/** Lets the mark of a session last. */
const keepMark = (run: Run, { queue }: Queue) =>
  run(
    `SELECT set_config('duroxide_prisma.${queue}', (mark[1:2] || '9999999999999'::text || mark[4:])::text, false)
     FROM (SELECT current_setting('duroxide_prisma.${queue}')::text[]) AS one (mark)`
  )

describe("dead rows:", () => {
  for (const one of queues) {
    const { claim, insert, queue } = one
    it.live(`${queue}: one claim reads past them, the next ones do not, and no row is missed for good`, () =>
      Effect.gen(function*() {
        const test = yield* PgServer.database
        const holder = yield* session(test)
        yield* holder("SELECT pg_current_xact_id()::text")
        yield* test.sql(insert(8000, "now() - interval '10 seconds'"))
        yield* test.sql(`DELETE FROM ${queue}`)

        const run = yield* session(test)
        const claiming = counting(run, one)
        const never = "9999999999999"
        const lasting = (until: string) =>
          run(
            `SELECT set_config('duroxide_prisma.${queue}', (mark[1:2] || $1::text || mark[4:])::text, false)
             FROM (SELECT current_setting('duroxide_prisma.${queue}')::text[]) AS one (mark)`,
            [until]
          )

        yield* run(insert(1, "now() - interval '5 seconds'"))
        const full = yield* claiming
        assert.strictEqual(full.claimed, 1)
        assert.isAtLeast(full.read, 8000)
        yield* lasting(never)

        yield* run(insert(2, "clock_timestamp() - interval '10 milliseconds'"))
        for (const claimed of [1, 1, 0]) {
          const next = yield* claiming
          assert.strictEqual(next.claimed, claimed)
          assert.isBelow(next.read, 100)
        }

        // As one of a transaction that commits late.
        yield* run(insert(1, "now() - interval '5 seconds'"))
        assert.strictEqual((yield* claiming).claimed, 0, "below the mark")
        yield* lasting("0")
        assert.strictEqual((yield* claiming).claimed, 1, "found by the next full look")

        // Another claim on the same connection asks for something else.
        yield* lasting(never)
        yield* run(insert(1, "now() - interval '5 seconds'"))
        assert.lengthOf(
          yield* run(claim.replace("ARRAY['A']", "NULL").replace("ARRAY['O'], ARRAY['1.0.0']", "NULL, NULL")),
          1
        )
      }))
  }

  for (const one of queues) {
    it.live(`${one.queue}: a claim that a mark keeps from a new route says that a later one may find more`, () =>
      Effect.gen(function*() {
        const run = yield* behindDeadRows(one)
        assert.lengthOf(yield* run(one.claim), 0)
        yield* keepMark(run, one)
        yield* run(one.insert(1, "clock_timestamp() - interval '10 milliseconds'"))
        const [more, ...others] = yield* run(one.claim)
        assert.deepStrictEqual([more.out_lock_token, others], [null, []])
        yield* run(`SELECT set_config('duroxide_prisma.${one.queue}', '', false)`)
        assert.lengthOf(yield* run(`SELECT FROM (${one.claim}) AS claimed WHERE out_lock_token IS NOT NULL`), 1)
      }))
  }

  for (const one of queues) {
    it.live(`${one.queue}: a claim behind a mark that takes less than it may says that a later one may find more`, () =>
      Effect.gen(function*() {
        const run = yield* behindDeadRows(one)
        yield* run(one.insert(1, "now() - interval '5 seconds'"))
        const ten = one.claim.replace(/\(1,/, "(10,")
        assert.notStrictEqual(ten, one.claim)
        assert.lengthOf(yield* run(ten), 1)
        yield* keepMark(run, one)
        yield* run(one.insert(1, "clock_timestamp() - interval '10 milliseconds'"))
        const [claimed, more, ...others] = yield* run(ten)
        assert.isNotNull(claimed.out_lock_token)
        assert.deepStrictEqual([more.out_lock_token, others], [null, []])
      }))
  }

  it.live("handover: one look reads past them, the next ones begin behind them, until the next full look", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const holder = yield* session(test)
      yield* holder("SELECT pg_current_xact_id()::text")
      const { insert } = queues[0]
      yield* test.sql(insert(8000, "now() - interval '10 seconds'"))
      yield* test.sql("DELETE FROM worker_queue")

      // One connection, which keeps the mark.
      const database = yield* Database.make({ url: test.url, schema: test.schema, maxConnections: 1 })
      const driver = yield* Effect.provideService(PrismaDriver.make(), Database.Database, database)
      const handedOver = (instanceId: string) => {
        const turn = Test.unclaimedTurn(0, {
          ...Test.named,
          history: Test.events(1, 2),
          status: "Running",
          workerItems: [Test.activity({ instanceId, name: "A" })]
        })
        const handOver = {
          activities: ["A"],
          tags: { _tag: "Any" },
          limit: 10,
          spare: 0,
          lockTimeoutMs: 60_000
        } as const
        return Effect.map(
          driver.startOrchestrations([Test.start(instanceId, { firstTurn: { turn, handOver } })]),
          ([answer]) => typeof answer === "object" && answer._tag === "Begun" ? answer.handedOver.length : answer
        )
      }
      const lasting = (until: string) =>
        database.query(
          "test",
          Prisma
            .sql`SELECT set_config('duroxide_prisma.handover', (mark[1:2] || ${until}::text || mark[4:])::text, false)
            FROM (SELECT current_setting('duroxide_prisma.handover')::text[]) AS one (mark)`
        )

      assert.strictEqual(yield* handedOver("a"), 1)
      yield* lasting("9999999999999")
      yield* test.sql(insert(1, "now() - interval '5 seconds'"))
      assert.strictEqual(yield* handedOver("b"), 1, "what waits is below the mark")
      yield* lasting("0")
      assert.strictEqual(yield* handedOver("c"), 0, "the next full look finds it")
    }))

  it.live("few of them: every claim looks through all", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const run = yield* session(test)
      const { claim, insert } = queues[0]
      yield* run(insert(1000, "now() - interval '10 seconds'"))
      yield* run("DELETE FROM worker_queue")
      yield* run(claim)
      const [row] = yield* run("SELECT current_setting('duroxide_prisma.worker_queue', true) AS mark")
      assert.isNull(row.mark)
    }))

  it.live("a thorough claim looks below the mark", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const database = yield* Database.make({ url: test.url, schema: test.schema, maxConnections: 1 })
      const driver = yield* Effect.provideService(PrismaDriver.make(), Database.Database, database)
      const mark = (queue: string, key: Prisma.Sql) =>
        database.query(
          "test",
          Prisma.sql`SELECT set_config(
            ${`duroxide_prisma.${queue}`}::text,
            ARRAY[concat(${queue}::text::regclass::oid, ${key}), '0', '9999999999999', '9999999999998']::text,
            false
          )`
        )
      yield* driver.enqueueForWorker([Test.activity()])
      yield* driver.startOrchestrations([Test.start("a")])
      const activities = (isThorough: boolean) =>
        Effect.map(
          driver.fetchWorkItems({ limit: 1, lockTimeoutMs: 1, tags: { _tag: "Any" }, session: null, isThorough }),
          ({ length }) => length
        )
      const instances = (isThorough: boolean) =>
        Effect.map(
          driver.fetchOrchestrationItems({ limit: 1, lockTimeoutMs: 1, versions: null, isThorough }),
          ({ length }) => length
        )
      yield* mark("worker_queue", Prisma.sql`true, null::text[], null::text[]`)
      yield* mark(
        "orchestrator_queue",
        Prisma.sql`null::integer[], null::integer[], null::text[], null::text[], false`
      )
      assert.deepStrictEqual([yield* activities(false), yield* instances(false)], [0, 0])
      assert.deepStrictEqual([yield* activities(true), yield* instances(true)], [1, 1])
    }))
})

describe("activities under way:", () => {
  it.live("a handover reads about a thousand of them, however many there are", () =>
    Effect.gen(function*() {
      const run = yield* session(yield* PgServer.database)
      const reads = (count: number) =>
        Effect.gen(function*() {
          yield* run(
            `INSERT INTO worker_queue (work_item, visible_at, created_at, route, tag, lock_token, locked_until, attempt_count)
             SELECT '{}', now(), now(), 'A', dx_no_tag(), 'x', 9e15, 1 FROM generate_series(1, ${count})`
          )
          const entries = Effect.map(
            run(
              "SELECT pg_stat_get_xact_tuples_returned('worker_queue_route_visible_at_id_idx'::regclass)::int AS read"
            ),
            ([row]) => row.read as number
          )
          const before = yield* entries
          const workers = JSON.stringify([{ names: ["A"], untagged: true, tags: [] }])
          yield* run(`SELECT dx_count_waiting($1, 8, ${Date.now() + 60_000})`, [workers])
          return (yield* entries) - before
        })
      assert.isBelow(yield* reads(200), 250)
      assert.isBelow(yield* reads(2800), 1100)
    }))
})
