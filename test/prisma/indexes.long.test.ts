import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as Test from "../utils/driver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { type Counted, counted, workedOff } from "../utils/reads.ts"
import { cases, done, first, held, idle, queued } from "./indexedReads.ts"

/**
 * What each stored function reads beside large backlogs of other work, counted by the server in the transaction of the
 * call: no table is scanned, and few index entries and pages are read. Plans are kept by a session, so a session that
 * planned on empty tables, before ANALYZE ran, or after an ANALYZE that met empty tables, must do as well as one that
 * knows the sizes.
 */

describe("indexes:", () => {
  // Those of queues, the outbox and tasks are in files of their own.
  it.live("every index has a reader above", () =>
    Effect.gen(function*() {
      const { schema, sql } = yield* PgServer.database
      const names = yield* sql<{ name: string }>(
        `SELECT indexname AS name FROM pg_indexes
         WHERE schemaname = $1 AND tablename NOT LIKE '\\_%' AND tablename NOT LIKE 'queue\\_%'
           AND tablename NOT IN ('sqlite_imports', 'processes') -- one row per file, or per process`,
        [schema]
      )
      const read = new Set(Object.values(cases).flatMap(([, indexes]) => indexes))
      assert.deepStrictEqual(names.map(({ name }) => name).filter((name) => !read.has(name)), [])
    }))

  it.live.each([
    "on empty tables",
    "on empty tables, analyzed",
    "on queues that were full, analyzed",
    "before there were executions, locks and sessions, analyzed",
    "without statistics"
  ])("every function finds its rows through them, planned %s", (planned) =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      // Where statistics call a queue empty, two indexes cost the planner the same. PostgreSQL 18 may then take the one
      // in which it has to skip: that reads more pages (up to 40 in a look here), but not more entries. Left out is
      // what looks for sessions: there it may take the index of all of them.
      const maySkip = planned === "on queues that were full, analyzed"
      const asked = Object.entries(cases).filter(([what]) => !maySkip || goesToItsRows.test(what))
      for (const { relname } of yield* test.sql<{ relname: string }>("SELECT relname FROM pg_stat_user_tables")) {
        yield* test.sql(`ALTER TABLE ${relname} SET (autovacuum_enabled = off)`)
      }
      // Twice: the second run keeps the plans of the first.
      const run = (planned: string, session: Counted) =>
        Effect.forEach(asked, ([what, [sql, indexes, most]]) =>
          Effect.map(Effect.andThen(session(sql), session(sql)), ({ reads }) => {
            const label = `${what}, planned ${planned}`
            const scanned = reads.filter(({ is_table, scans }) =>
              is_table && scans > 0
            ).map(({ name }) => name)
            assert.deepStrictEqual(scanned, [], `${label}: tables read from end to end`)
            const used = new Set(reads.filter(({ scans }) => scans > 0).map((read) => read.name))
            if (!maySkip) assert.deepStrictEqual(indexes.filter((index) => !used.has(index)), [], `${label}: unused`)
            const entries = reads.reduce((sum, read) => sum + read.entries, 0)
            const detail = JSON.stringify(reads.filter((read) => read.blocks > 0))
            assert.isAtMost(entries, most, `${label}: entries read, ${detail}`)
            // Entries that a scan skips inside an index do not count as read, but its pages do; a look climbs three of
            // them.
            const indexed = reads.filter(({ is_table }) => !is_table)
            const pages = indexed.reduce((sum, read) => sum + read.blocks, 0)
            const looks = indexed.reduce((sum, read) => sum + read.scans, 0)
            assert.isAtMost(pages, (maySkip ? 45 : 3) * looks + entries + 20, `${label}: index pages read, ${detail}`)
          }))
      const plan = (session: Counted) =>
        Effect.andThen(test.sql(first + idle), Effect.forEach(Object.values(cases), ([sql]) => session(sql)))
      const early = yield* counted(test)
      if (maySkip) {
        for (const [queue, fill] of Object.entries(done)) yield* workedOff(test, queue, fill)
      }
      if (planned === "on empty tables, analyzed") yield* test.sql("ANALYZE")
      if (/^on (empty|queues)/.test(planned)) yield* plan(early)
      yield* test.sql(queued)
      if (planned === "before there were executions, locks and sessions, analyzed") {
        yield* test.sql("ANALYZE")
        yield* plan(early)
      }
      yield* test.sql(held + idle)
      yield* run(planned, early)
      yield* test.sql("ANALYZE")
      yield* run("with statistics", early)
    }))

  it.live("many starts at once read their own messages only, planned while the queue was empty", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      yield* Effect.provide(Migrator.migrate({ url: test.url }), Logger.layer([]))
      for (const table of ["orchestrator_queue", "instances"]) {
        yield* test.sql(`ALTER TABLE ${table} SET (autovacuum_enabled = off)`)
      }
      const session = yield* counted(test)
      const starts = (prefix: string, count: number) =>
        session(`SELECT dx_start_orchestrations((
          SELECT jsonb_agg(jsonb_build_object(
            'instance_id', '${prefix}' || g, 'orchestration_name', 'O', 'work_item', '{}', 'major', 1, 'minor', 0, 'patch', 0
          ))
          FROM generate_series(1, ${count}) AS g
        ))`)
      yield* starts("before", 2000)
      yield* test.sql("DELETE FROM orchestrator_queue")
      yield* test.sql("ANALYZE")
      yield* starts("planned", 64)
      yield* starts("waiting", 500)
      const { reads } = yield* starts("more", 64)
      const entries = reads.reduce(
        (sum, read) => sum + (read.name.startsWith("orchestrator_queue") ? read.entries : 0),
        0
      )
      assert.isAtMost(entries, 3 * 64, JSON.stringify(reads.filter((read) => read.blocks > 0)))
    }))

  it.live("claims and renewals write no index, in sets of 200, too", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* Test.open()
      const two = Array.from({ length: 200 }, (_, i) => `instance-${i}`)
      yield* driver.enqueueForOrchestrator(two.map((id) => Test.message(id, "x".repeat(400))))
      yield* driver.enqueueForWorker(two.map((instanceId) => Test.activity({ instanceId, workItem: "x".repeat(400) })))
      // One statement, so that it can read the counters of its own transaction.
      const [counts] = yield* sql(
        `SELECT claims.instances, claims.activities, updates.*
         FROM (
           SELECT (SELECT count(*)::int FROM dx_fetch_orchestration_items(200, 60000, NULL, NULL, p_orphans => true)) AS instances,
             (SELECT count(*)::int FROM dx_fetch_work_items(200, 60000, true, NULL, NULL, NULL)) AS activities
           OFFSET 0
         ) AS claims
         CROSS JOIN LATERAL (
           SELECT sum(pg_stat_get_xact_tuples_updated(oid))::int AS all,
             sum(pg_stat_get_xact_tuples_hot_updated(oid))::int AS heap_only
           FROM pg_class
           WHERE relname IN ('orchestrator_queue', 'worker_queue', 'instance_locks') AND claims.instances >= 0
             AND pg_table_is_visible(oid)
         ) AS updates`
      )
      assert.deepStrictEqual(counts, { instances: 200, activities: 200, all: 400, heap_only: 400 })
    }))
})

const goesToItsRows =
  /^(fetchWorkItems of (a name|every name|a rare tag)|(ack|abandon|renew|defer|delete)(?!.*session)[A-Z].*)/
