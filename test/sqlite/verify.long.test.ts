import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as SqliteImport from "../../src/sqlite/SqliteImport.ts"
import * as Test from "../utils/driver.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Files from "./files.ts"

/** What to break in the target, and how the report names it. */
const defects: ReadonlyArray<readonly [name: string, sql: string, found: ReadonlyArray<string>]> = [
  [
    "a byte of an event",
    `UPDATE history SET event_data = overlay(event_data PLACING 'Y' FROM 40 FOR 1) WHERE instance_id = 'child' AND event_id = 2`,
    ["history child execution 1, event 2 differs event_data"]
  ],
  [
    "a missing event in the middle, and at an end",
    "DELETE FROM history WHERE (instance_id = 'child' AND event_id = 2) OR (instance_id = 'unread' AND event_id = 3)",
    ["history child execution 1, event 2 missing ", "history unread execution 1, event 3 missing "]
  ],
  [
    "an additional event",
    "INSERT INTO history VALUES ('eternal', 2, 2, 'x', '{}', now())",
    ["history eternal execution 2, event 2 additional "]
  ],
  [
    "a missing message",
    "DELETE FROM orchestrator_queue WHERE work_item LIKE '%second%'",
    ["orchestrator_queue child number 2 in its queue missing "]
  ],
  [
    "messages in another order",
    `UPDATE orchestrator_queue SET id = -id WHERE instance_id = 'child'`,
    ["orchestrator_queue child  order "]
  ],
  [
    "the time of a timer",
    "UPDATE orchestrator_queue SET visible_at = visible_at + interval '1 millisecond' WHERE instance_id = 'eternal'",
    ["orchestrator_queue eternal number 1 in its queue missing ", "orchestrator_queue eternal  additional "]
  ],
  [
    "the attempts of an activity",
    "UPDATE worker_queue SET attempt_count = 0 WHERE instance_id = 'parent'",
    ["worker_queue parent number 1 in its queue missing ", "worker_queue parent  additional "]
  ],
  [
    "a status, an output and a pinned version",
    "UPDATE executions SET status = 'Completed', output = 'x', duroxide_version_patch = 1 WHERE instance_id = 'failed'",
    ["executions failed execution 1 differs status,output,duroxide_version_patch"]
  ],
  ["a custom status", "UPDATE instances SET custom_status = NULL WHERE instance_id = 'child'", [
    "instances child  differs custom_status"
  ]],
  ["a removed key", "UPDATE kv_delta SET value = '' WHERE value IS NULL", ["kv_delta eternal key käse differs value"]],
  ["a missing key", "DELETE FROM kv_store WHERE instance_id = 'done'", ["kv_store done key k missing "]],
  ["a missing instance", "DELETE FROM instances WHERE instance_id = 'done'", ["instances done  missing "]],
  ["a missing session", "DELETE FROM sessions", ["sessions null session session missing "]],
  [
    "who may claim: locks and routes",
    `INSERT INTO instance_locks VALUES ('parent', 'foreign', 0, 0);
     UPDATE instances SET route = '1000.0.0 *Errand' WHERE instance_id = 'done';
     UPDATE orchestrator_queue SET route = '' WHERE instance_id = 'child' AND work_item LIKE '%second%';
     UPDATE worker_queue SET route = 'Charge' WHERE tag = 'gpu';
     UPDATE worker_queue SET lock_token = 'foreign' WHERE instance_id = 'parent'`,
    [
      "instances done  differs route",
      "orchestrator_queue child number 2 in its queue differs route",
      "worker_queue child number 2 in its queue differs route",
      "worker_queue parent number 1 in its queue differs lock_token",
      "instance_locks parent  additional "
    ]
  ],
  [
    "times without an end",
    `UPDATE executions SET completed_at = 'infinity' WHERE instance_id = 'child';
     UPDATE worker_queue SET visible_at = '-infinity' WHERE instance_id = 'parent'`,
    [
      "executions child execution 1 differs completed_at",
      "worker_queue parent number 1 in its queue missing ",
      "worker_queue parent  additional "
    ]
  ],
  [
    "activities without an instance",
    `DELETE FROM worker_queue WHERE work_item = 'unreadable';
     UPDATE worker_queue SET route = 'Charge' WHERE work_item = 'without an instance'`,
    [
      "worker_queue null number 1 without an instance missing ",
      "worker_queue null number 1 without an instance differs route"
    ]
  ]
]

describe("verify", () => {
  it.live("names every difference by its instance, whatever else the target has", () =>
    Effect.gen(function*() {
      const target = yield* Test.open()
      yield* Test.waiting(target.driver, ["another", "zebra"])
      const file = yield* Files.make()
      Files.addEverything(file)
      file.sql(
        `INSERT INTO worker_queue (work_item, created_at)
         VALUES ('unreadable', '2026-10-01 10:00:00'), ('without an instance', '2026-10-01 10:00:00')`
      )
      yield* target.sql("INSERT INTO worker_queue (work_item, visible_at, created_at) VALUES ('another', now(), now())")
      yield* SqliteImport.importFile({ file: file.path, target })
      const verify = SqliteImport.verify({ file: file.path, target })
      const before = yield* verify
      assert.deepInclude(before, { isEqual: true, import: "finished", instances: 7, differences: [] })
      for (const { inFile, inTarget } of before.tables) assert.deepStrictEqual(inFile, inTarget)

      /** Its columns but those that the server computes. */
      const written = (table: string) =>
        target.sql<{ columns: string }>(
          `SELECT string_agg(quote_ident(attname), ', ') AS columns FROM pg_attribute
           WHERE attrelid = $1::regclass AND attnum > 0 AND attgenerated = '' AND NOT attisdropped`,
          [table]
        ) as Effect.Effect<readonly [{ readonly columns: string }]>

      for (const [name, sql, found] of defects) {
        const report = yield* Effect.acquireUseRelease(
          target.sql("CREATE SCHEMA kept").pipe(
            Effect.andThen(
              Effect.forEach(before.tables, ({ table }) => target.sql(`CREATE TABLE kept.${table} AS TABLE ${table}`), {
                discard: true
              })
            ),
            Effect.andThen(target.sql(sql))
          ),
          () => verify,
          () =>
            Effect.forEach(before.tables, ({ table }) =>
              Effect.flatMap(written(table), ([{ columns }]) =>
                target.sql(
                  `DELETE FROM ${table}; INSERT INTO ${table} (${columns}) SELECT ${columns} FROM kept.${table}`
                )), { discard: true })
              .pipe(
                Effect.andThen(target.sql("DROP SCHEMA kept CASCADE"))
              )
        )
        assert.deepStrictEqual(
          report.differences.map(({ columns, instanceId, kind, row, table }) =>
            `${table} ${instanceId} ${row} ${kind} ${columns.join()}`
          ),
          found,
          name
        )
        assert.isFalse(report.isEqual, name)
        const [first] = SqliteImport.render(report).split("\n")
        assert.isTrue(first!.endsWith(found.length === 1 ? ": 1 difference" : `: ${found.length} differences`), first)
        const tables = found.map((line) => line.split(" ")[0])
        for (const { inFile, inTarget, table: one } of report.tables) {
          assert.strictEqual(inFile.checksum === inTarget.checksum, !tables.includes(one), `${name}: ${one}`)
        }
      }
      assert.isTrue((yield* verify).isEqual)
    }))

  it.live("finds a change of the file after the import, and lists as many differences as it may", () =>
    Effect.gen(function*() {
      const target = yield* PgServer.database
      const file = yield* Files.make()
      for (const id of ["a", "b"]) Files.addWaiting(file, id, { events: 20 })
      yield* SqliteImport.importFile({ file: file.path, target })
      file.sql("UPDATE history SET event_data = event_data || ' ' WHERE instance_id = 'b'")
      const report = yield* SqliteImport.verify({ file: file.path, target, maxDifferences: 3 })
      assert.deepInclude(report, { import: "never", differenceCount: 20, differingInstances: 1 })
      assert.lengthOf(report.differences, 3)
      const text = SqliteImport.render(report)
      assert.include(text, "20 differences")
      assert.include(text, "history, instance b, execution 1, event 1: differs in event_data")
      assert.include(text, "and 17 more")
    }))

  it.live("a session that the target has already is equal, also with another worker", () =>
    Effect.gen(function*() {
      const target = yield* PgServer.database
      const session = "INSERT INTO sessions VALUES ('session-1', ?, 0, ?)"
      for (const onConflict of ["refuse", "keep", "replace"] as const) {
        const file = yield* Files.make()
        Files.addWaiting(file, onConflict === "refuse" ? "a" : "b", { events: 2 + onConflict.length })
        file.sql(session, `worker of ${onConflict}`, 1_790_000_000_000 + onConflict.length)
        yield* SqliteImport.importFile({ file: file.path, target, onConflict })
        const report = yield* SqliteImport.verify({ file: file.path, target })
        assert.isTrue(report.isEqual, SqliteImport.render(report))
      }
      assert.deepStrictEqual(yield* target.sql("SELECT worker_id FROM sessions"), [{ worker_id: "worker of refuse" }])
    }))

  it.live("compares an instance with more events than a page", () =>
    Effect.gen(function*() {
      const target = yield* PgServer.database
      const file = yield* Files.make()
      for (const id of ["a", "long", "z"]) Files.addWaiting(file, id)
      file.sql(
        `WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 40005)
         INSERT INTO history SELECT 'long', 1, i, 'TimerFired', '{"n":' || i || '}', '2026-10-01 10:00:00' FROM n`
      )
      yield* SqliteImport.importFile({ file: file.path, target })
      assert.isTrue((yield* SqliteImport.verify({ file: file.path, target })).isEqual)
      yield* target.sql("DELETE FROM history WHERE instance_id = 'long' AND event_id IN (40000, 40001, 40005)")
      const report = yield* SqliteImport.verify({ file: file.path, target })
      assert.deepStrictEqual(report.differences.map(({ kind, row }) => `${row} ${kind}`), [
        "execution 1, event 40000 missing",
        "execution 1, event 40001 missing",
        "execution 1, event 40005 missing"
      ])
    }))
})
