import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Prisma } from "../../src/prisma/internal/client.ts"
import * as lists from "../../src/prisma/internal/lists.ts"
import type { Listing } from "../../src/provider/AdminDriver.ts"
import { everything } from "../../src/provider/internal/lists.ts"
import * as PgServer from "../utils/PgServer.ts"
import { counted } from "../utils/reads.ts"

/**
 * What a page and a count read beside many other instances: index entries and rows, counted by the server.
 */

const firstPage: Listing = { ...everything, limit: 20 }

const customer = { name: "customer", equals: "c7" }

const many = 30_000
const nowMs = 1_800_000_000_000
const day = 86_400_000

/** Ended instances of three names, each a second later; a few that failed; some that run; children of one parent. */
const filled = `
  INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, status)
  SELECT 'ended-' || g, 'Name ' || g % 3, '1.' || g % 2 || '.0', at, at, CASE WHEN g % 1000 = 7 THEN 'Failed' ELSE 'Completed' END
  FROM generate_series(1, ${many}) AS g, to_timestamp(${nowMs / 1000} - g) AS at;
  INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at, parent_instance_id)
  SELECT 'running-' || g, 'Name 1', '2.0.0', at, at, CASE WHEN g <= 100 THEN 'parent' END
  FROM generate_series(1, 200) AS g, to_timestamp(${nowMs / 1000} - 100 * g) AS at;
  INSERT INTO executions (instance_id, execution_id, status, output, started_at)
  SELECT instance_id, 1, status, CASE status WHEN 'Failed' THEN 'card declined' END, created_at FROM instances;
  -- Of every ended instance: one of a hundred customers, its number, and its time; a rare one of every 5,000th.
  INSERT INTO attributes (instance_id, name, text_value, number_value, time_value, created_at)
  SELECT 'ended-' || g, a.name, a.text_value, a.number_value, a.time_value, at
  FROM generate_series(1, ${many}) AS g, to_timestamp(${nowMs / 1000} - g) AS at, LATERAL (VALUES
    ('customer', 'c' || g % 100, NULL::float8, NULL::timestamptz),
    ('amount', NULL, g % 1000, NULL),
    ('due', NULL, NULL, at),
    ('kind', CASE g % 5000 WHEN 0 THEN 'rare' ELSE 'usual' END, NULL, NULL)
  ) AS a (name, text_value, number_value, time_value);
  ANALYZE instances;`

const open = Effect.gen(function*() {
  const test = yield* PgServer.database
  yield* test.sql(filled)
  const session = yield* counted(test)
  let entries = 0
  const { countInstances, listInstances } = lists.make({
    schemaSql: Prisma.raw(`"${test.schema}"`),
    query: <Row>(_: string, sql: Prisma.Sql) =>
      Effect.map(session(sql.text, sql.values), ({ reads, rows }) => {
        entries += reads.reduce((sum, read) => sum + read.entries, 0)
        return rows as ReadonlyArray<Row>
      })
  })
  const read = <A, E>(effect: Effect.Effect<A, E>) =>
    Effect.gen(function*() {
      entries = 0
      const result = yield* effect
      return { result, entries }
    })
  return { ...test, countInstances, listInstances, read }
})

describe("lists", () => {
  it.live("a page reads little, whatever there is beside it", () =>
    Effect.gen(function*() {
      const { listInstances, read } = yield* open
      const cases: ReadonlyArray<readonly [search: Partial<Listing>, first: string, most: number]> = [
        [{}, "ended-1", 600],
        [{ orderBy: "oldest" }, `ended-${many}`, 600],
        [{ status: "Completed" }, "ended-1", 400],
        [{ status: "Failed" }, "ended-7", 400],
        [{ status: "Failed", orchestrationName: "Name 2" }, "ended-1007", 100],
        [{ status: "Running" }, "running-1", 150],
        [{ orchestrationName: "Name 1" }, "ended-1", 300],
        [{ parentInstanceId: "parent" }, "running-1", 100],
        [{ createdBeforeMs: nowMs - 8 * 3_600_000 }, "ended-28801", 600],
        [{ createdFromMs: nowMs - day, orderBy: "oldest" }, `ended-${many}`, 600],
        [{ orderBy: "id" }, "ended-1", 100],
        // Looked for in a thousand instances.
        [{ orchestrationVersion: "2.0.0", status: "Running" }, "running-1", 700],
        [{ error: "DECLINED", status: "Failed" }, "ended-7", 200],
        // An entry and an instance for each of 21.
        [{ attributes: [customer] }, "ended-7", 130],
        [{ attributes: [customer], orderBy: "oldest" }, `ended-${many - 93}`, 130],
        [{ attributes: [{ name: "kind", equals: "rare" }] }, "ended-5000", 130],
        [{ attributes: [{ name: "amount", equals: 999 }], orderBy: "oldest" }, "ended-29999", 130],
        [{ attributes: [{ name: "due", equals: { timeMs: nowMs - 77_000 } }] }, "ended-77", 50],
        [{ attributes: [customer], createdBeforeMs: nowMs - 10_000_000 }, "ended-10007", 130],
        // Its 120 entries are sorted, and compared again with their instances.
        [{ attributes: [{ name: "amount", kind: "number", from: 996, below: null }] }, "ended-996", 700],
        [{ attributes: [{ name: "due", kind: "time", from: null, below: nowMs - 29_950_000 }] }, "ended-29951", 400],
        // More than 10,000 are in the range: a thousand with this attribute are looked at, in their order.
        [{ attributes: [{ name: "amount", kind: "number", from: 10, below: null }] }, "ended-10", 15_000],
        // The customer leads, the range is looked for.
        [{ attributes: [{ name: "amount", kind: "number", from: null, below: 8 }, customer] }, "ended-7", 3_000],
        [{ attributes: [customer], status: "Failed" }, "ended-7", 2_000],
        [{ attributes: [customer], parentInstanceId: "parent" }, "", 1_000],
        [{ attributes: [customer], status: "Blocked" }, "", 100]
      ]
      for (const [search, first, most] of cases) {
        const { entries, result } = yield* read(listInstances({ ...firstPage, ...search }))
        const label = JSON.stringify(search)
        assert.strictEqual(result.instanceIds[0] ?? "", first, label)
        assert.isAtMost(entries, most, label)
        if (result.next === null) continue
        const next = yield* read(listInstances({ ...firstPage, ...search, after: result.next }))
        assert.isAtMost(next.entries, most, `${label}, the next page`)
        assert.notIncludeMembers([...next.result.instanceIds], [...result.instanceIds])
      }
    }))

  it.live("a page without a match is empty, and says where to continue", () =>
    Effect.gen(function*() {
      const { listInstances, read } = yield* open
      const { entries, result } = yield* read(listInstances({ ...firstPage, error: "no such text" }))
      assert.lengthOf(result.instanceIds, 0)
      assert.isNotNull(result.next)
      assert.isAtMost(entries, 12_000)
    }))

  it.live("ids with a prefix are found without an index for it, and led to with one", () =>
    Effect.gen(function*() {
      const { listInstances, read, sql } = yield* open
      const search: Listing = { ...firstPage, orderBy: "id", idPrefix: "running-19" }
      const ids = Array.from({ length: 11 }, (_, index) => index === 0 ? "running-19" : `running-${189 + index}`)
      const all = Effect.gen(function*() {
        const found: Array<string> = []
        let after: Listing["after"] = null
        do {
          const page: Effect.Success<ReturnType<typeof listInstances>> = yield* listInstances({ ...search, after })
          found.push(...page.instanceIds)
          after = page.next
        } while (after !== null)
        return found
      })
      assert.sameMembers(yield* all, ids)
      yield* sql("CREATE INDEX instances_by_prefix ON instances (instance_id text_pattern_ops)")
      const { entries, result } = yield* read(all)
      assert.sameMembers(result, ids)
      assert.isAtMost(entries, 300)
    }))

  it.live("counts are exact up to a bound, and estimates beyond it", () =>
    Effect.gen(function*() {
      const { countInstances, read } = yield* open
      const counting = { status: null, orchestrationName: null, attributes: [], byVersion: false, exactUpTo: 1_000 }
      const { entries, result } = yield* read(countInstances(counting))
      assert.isAtMost(entries, 6_000)
      assert.deepStrictEqual(
        result.filter(({ status }) => status !== "Completed").map((
          { instances, isEstimate, orchestrationName, status }
        ) => `${orchestrationName} ${status} ${instances} ${isEstimate}`).sort(),
        ["Name 0 Failed 10 false", "Name 1 Failed 10 false", "Name 1 Running 200 false", "Name 2 Failed 10 false"]
      )
      for (const { instances, isEstimate } of result.filter(({ status }) => status === "Completed")) {
        assert.isTrue(isEstimate)
        assert.approximately(instances, many / 3, many / 60)
      }
      const byVersion = yield* countInstances({ ...counting, status: "Completed", byVersion: true })
      assert.lengthOf(byVersion, 6)
      for (const { instances } of byVersion) assert.approximately(instances, many / 6, many / 60)
    }))
})
