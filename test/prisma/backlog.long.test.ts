/**
 * The cost of claims behind work that this process may not take. The server counts reads; times are the best of several
 * and only guard against a plan that reads the same rows more slowly.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as PgServer from "../utils/PgServer.ts"
import { type Counted, counted } from "../utils/reads.ts"

/** Rows of each of five kinds, all in front of the work. By hand: `BACKLOG_ROWS=1000000`. */
const rows = Number(process.env.BACKLOG_ROWS ?? 50_000)
const patience = 600_000 + rows
const now = 1_800_000_000_000
const at = (offsetMs: number) => `to_timestamp(${(now + offsetMs) / 1000})`
const route = "1000.0.0 =1.0.0 Ours"

const ours = `
  INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, route)
    SELECT 'ours' || g, 'Ours', '1.0.0', now(), now(), '${route}' FROM generate_series(1, 200) AS g;
  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
    SELECT 'ours' || g, '{}', ${at(-1000)} + g * interval '1 us', now(), '${route}' FROM generate_series(1, 200) AS g;
  INSERT INTO worker_queue (work_item, visible_at, created_at, session_id, route)
    SELECT '{}', ${at(-1000)} + g * interval '1 us', now(), CASE WHEN g % 2 = 0 THEN 'mine' || g % 5 END, 'Ours'
    FROM generate_series(1, 400) AS g;`

/** Older than the work to claim, except rows that are not due. */
const messages = (instanceId: string, of: string, visibleAt = at(-60_000)) =>
  `ALTER TABLE orchestrator_queue DISABLE TRIGGER USER;
   INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
     SELECT ${instanceId}, '{}', ${visibleAt} + g * interval '1 us', now(), '${of}' FROM generate_series(1, ${rows}) AS g;
   ALTER TABLE orchestrator_queue ENABLE TRIGGER USER;`
const activities = (of: string, options: { tag?: string; session?: string; visibleAt?: string } = {}) =>
  `INSERT INTO worker_queue (work_item, visible_at, created_at, tag, session_id, route)
     SELECT '{}', ${options.visibleAt ?? at(-60_000)} + g * interval '1 us', now(), ${options.tag ?? "NULL"},
       ${options.session ?? "NULL"}, '${of}'
     FROM generate_series(1, ${rows}) AS g;`

const foreign = {
  instances: {
    "pinned by Duroxide": messages("'a' || g", "0.1.30 =1.0.0 Ours"),
    "of another name": messages("'b' || g", "1000.0.0 =1.0.0 Theirs"),
    "of another version": messages("'c' || g", "1000.0.0 =2.0.0 Ours"),
    "without a start": messages("'d' || g", ""),
    "with a timer that is not due": messages("'e' || g", route, at(60_000))
  },
  activities: {
    "of another name": activities("Theirs"),
    "of a tag that is not taken": activities("Ours #gpu", { tag: "'gpu'" }),
    "of a session of another owner": `INSERT INTO sessions VALUES ('busy', 'other', ${now + 60_000}, 1); ${
      activities("Ours", { session: "'busy'" })
    }`,
    "of many sessions, of another name": activities("Theirs", { session: "'s' || g" }),
    "that are delayed": activities("Ours", { visibleAt: at(60_000) })
  }
}

const claims = {
  instances: (limit: number) =>
    `SELECT * FROM dx_fetch_orchestration_items(${limit}, 60000, '{1000,0,0}', '{1000,0,0}', '{Ours,Other}',
       '{1.0.0,1.0.0}', p_history_limit => 128, p_now_ms => ${now})`,
  activities: (limit: number) =>
    `SELECT * FROM dx_fetch_work_items(${limit}, 60000, true, '{cpu}', NULL, NULL, '{Ours,Other}', p_now_ms => ${now})`,
  "activities and sessions": (limit: number) =>
    `SELECT * FROM dx_fetch_work_items(${limit}, 60000, true, '{cpu}', 'me', 60000, '{Ours,Other}',
       p_max_new_sessions => 10, p_now_ms => ${now})`
}

/** The best of several, each in a transaction that is rolled back. */
const measure = (test: PgServer.TestDatabase, run: Counted, sql: string) =>
  Effect.gen(function*() {
    yield* run(sql) // plans
    // Row versions of earlier measurements would count for this one. Later statements do not remove them
    // while a transaction is open anywhere on the server, such as in other test files: then pages are full, and
    // updates go to other pages and into every index.
    for (const table of ["orchestrator_queue", "worker_queue", "instance_locks", "sessions"]) {
      yield* test.sql(`VACUUM (INDEX_CLEANUP ON) ${table}`)
    }
    const tries = yield* Effect.forEach(Array.from({ length: 15 }), () => run(sql))
    const { reads, rowCount } = tries[0]!
    const total = (of: (read: (typeof reads)[number]) => number) => reads.reduce((sum, read) => sum + of(read), 0)
    return {
      claimed: rowCount,
      ms: Math.min(...tries.map(({ ms }) => ms)),
      entries: total(({ entries }) => entries),
      looks: total(({ scans }) => scans),
      pages: total(({ blocks }) => blocks)
    }
  })

describe("a claim costs the same behind a backlog of other work:", () => {
  const cases = [
    ["instances", foreign.instances, claims.instances],
    ["activities", foreign.activities, claims.activities],
    ["activities and sessions", foreign.activities, claims["activities and sessions"]]
  ] as const
  it.live.each(cases)("%s", ([what, kinds, claim]) =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      for (const table of ["orchestrator_queue", "worker_queue"]) {
        yield* test.sql(`ALTER TABLE ${table} SET (autovacuum_enabled = off)`)
      }
      yield* test.sql(ours)
      const run = yield* counted(test)
      const limits = [1, 16, 50]
      const alone = yield* Effect.forEach(limits, (limit) => measure(test, run, claim(limit)))
      let behind = 0
      for (const [kind, sql] of Object.entries(kinds)) {
        yield* test.sql(sql)
        behind += rows
        for (const statistics of ["from before", "of now"]) {
          if (statistics === "of now") yield* test.sql("ANALYZE")
          for (const [i, limit] of limits.entries()) {
            const measured = yield* measure(test, run, claim(limit))
            const label = `${limit} ${what} behind ${behind} rows, the last ${kind}, statistics ${statistics}: ${
              JSON.stringify(measured)
            }, alone ${JSON.stringify(alone[i])}`
            console.log(label)
            assert.strictEqual(measured.claimed, limit, label)
            // One look at each of the new routes, and two at the session that another worker owns.
            assert.isAtMost(measured.entries, alone[i]!.entries + 2 * Object.keys(kinds).length, label)
            assert.isAtMost(measured.looks, alone[i]!.looks + 2 * Object.keys(kinds).length, label)
            // An index of one or two pages grows by two levels, which every look descends; free space on pages varies.
            assert.isAtMost(measured.pages, alone[i]!.pages * 1.1 + 2 * measured.looks + 20, label)
          }
        }
      }
    }), patience)

  it.live("each locked instance costs one look at its lock", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* test.sql(ours)
      const lock = (from: number, to: number) =>
        test.sql(
          `INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at, route)
             SELECT 'l' || g, 'Ours', now(), now(), '${route}' FROM generate_series(${from}, ${to}) AS g;
           INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
             SELECT 'l' || g, '{}', ${at(-60_000)} + g * interval '1 us', now(), '${route}'
             FROM generate_series(${from}, ${to}) AS g;
           INSERT INTO instance_locks SELECT 'l' || g, 'x', ${
            now + 60_000
          }, 1 FROM generate_series(${from}, ${to}) AS g`
        )
      const run = yield* counted(test)
      yield* lock(1, 500)
      const few = yield* measure(test, run, claims.instances(1))
      yield* lock(501, 2000)
      const many = yield* measure(test, run, claims.instances(1))
      const label = `behind 500 locked instances ${JSON.stringify(few)}, behind 2000 ${JSON.stringify(many)}`
      console.log(label)
      assert.strictEqual(many.claimed, 1, label)
      // Its message and its lock; the last round reads at most as much again.
      assert.isAtMost(many.entries, 2 * 2 * 2000, label)
      assert.isAtMost(many.ms, 20 * few.ms + 20, label)
    }))
})
