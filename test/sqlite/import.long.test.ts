import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as SqliteImport from "../../src/sqlite/SqliteImport.ts"
import * as Test from "../utils/driver.ts"
import * as Duroxide from "../utils/duroxideSchema.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Files from "./files.ts"

const equal = Effect.fnUntraced(function*(file: Files.TestFile, target: PgServer.TestDatabase) {
  const report = yield* SqliteImport.verify({ file: file.path, target })
  assert.isTrue(report.isEqual, SqliteImport.render(report))
  return report
})

/** Contents of all tables with work and state, in a form that does not depend on ids of rows. */
const contents = ({ sql }: PgServer.TestDatabase) =>
  sql<{ rows: string }>(
    `SELECT (SELECT count(*) FROM instances) || ' ' || (SELECT count(*) FROM executions) || ' ' ||
       (SELECT count(*) FROM history) || ' ' || (SELECT count(*) FROM orchestrator_queue) || ' ' ||
       (SELECT count(*) FROM worker_queue) || ' ' || (SELECT count(*) FROM instance_locks) AS rows`
  )

describe("importFile", () => {
  it.live("writes every table of the file, releases its locks, and writes it once", () =>
    Effect.gen(function*() {
      const target = yield* PgServer.database
      const { sql } = target
      const file = yield* Files.make()
      Files.addEverything(file)

      const first = yield* SqliteImport.importFile({ file: file.path, target, batch: 2 })
      assert.deepInclude(first, { outcome: "imported", resumed: false, kept: [], replaced: 0, served: 0 })
      assert.deepStrictEqual(first.counts, {
        instances: 6,
        executions: 7,
        history: 19,
        kv_store: 2,
        kv_delta: 2,
        orchestrator_queue: 5,
        worker_queue: 3,
        sessions: 1
      })
      yield* equal(file, target)
      assert.deepStrictEqual(
        yield* sql(
          `SELECT event_type, event_data, to_char(created_at, 'YYYY-MM-DD HH24:MI:SS') AS created_at FROM history
           WHERE instance_id = 'unread' AND event_id = 2`
        ),
        [{ event_type: "CustomStatusUpdated", event_data: "garbage \\u0000", created_at: "2026-10-01 10:00:00" }]
      )
      assert.deepStrictEqual(
        yield* sql(
          `SELECT e.status, i.status AS known_as, e.output, extract(epoch FROM e.completed_at)::text AS completed, i.parent_instance_id,
             i.custom_status, i.custom_status_version
           FROM executions AS e JOIN instances AS i USING (instance_id)
           WHERE instance_id IN ('child', 'done', 'failed') ORDER BY instance_id`
        ),
        [
          {
            status: "Running",
            known_as: "Running",
            output: null,
            completed: null,
            parent_instance_id: "parent",
            custom_status: "half",
            custom_status_version: 2
          },
          ...[["Completed", "\"ok ü\"", "1790848802.000000"], ["Failed", "boom", "1790000000.456000"]].map((
            [status, output, completed]
          ) => ({
            status,
            known_as: status,
            output,
            completed,
            parent_instance_id: null,
            custom_status: null,
            custom_status_version: 0
          }))
        ]
      )
      assert.deepStrictEqual(
        yield* sql(
          `SELECT work_item::jsonb -> 'ActivityExecute' ->> 'id' AS activity, activity_id::text, attempt_count, tag,
             session_id, route, lock_token, (extract(epoch FROM visible_at) * 1000)::bigint::text AS visible_at
           FROM worker_queue ORDER BY id`
        ),
        [
          ["3", null, "session", "Charge"],
          ["2", "gpu", null, "Charge #gpu"],
          ["1", null, null, "Charge"]
        ].map(([id, tag, session_id, route]) => ({
          activity: id,
          activity_id: id,
          attempt_count: Number(id),
          tag,
          session_id,
          route,
          lock_token: null,
          visible_at: "1790000000007"
        }))
      )
      assert.deepStrictEqual(
        yield* sql(
          `SELECT instance_id, attempt_count, lock_token, route,
             (extract(epoch FROM visible_at) * 1000)::bigint::text AS visible_at
           FROM orchestrator_queue ORDER BY id`
        ),
        [
          ["eternal", 0, "4000000000000"],
          ["child", 0, "1790000000123"],
          ["parent", 4, "1790000000123"],
          ["child", 0, "1789999999999"],
          ["new", 0, "1790000000123"]
        ].map(([instance_id, attempt_count, visible_at]) => ({
          instance_id,
          attempt_count,
          lock_token: null,
          route: instance_id === "new" ? "- * Errand" : "0.1.30 =1.0.0 Errand",
          visible_at
        }))
      )
      assert.deepStrictEqual(yield* sql("SELECT * FROM sessions"), [
        { session_id: "session", worker_id: "worker", locked_until: "0", last_activity_at: "1790000000000" }
      ])
      assert.deepStrictEqual(yield* contents(target), [{ rows: "6 7 19 5 3 0" }])

      const second = yield* SqliteImport.importFile({ file: file.path, target })
      assert.deepInclude(second, { outcome: "alreadyImported", counts: first.counts })
      assert.deepStrictEqual(yield* contents(target), [{ rows: "6 7 19 5 3 0" }])
    }))

  it.live("makes work claimable: by the pinned version, and by this package for names that it serves", () =>
    Effect.gen(function*() {
      const target = yield* Test.open()
      const { driver } = target
      const file = yield* Files.make()
      for (const [id, name] of [["theirs", "Errand"], ["ours", "Served"], ["ended", "Served"]] as const) {
        Files.addWaiting(file, id, { name })
        Files.addMessage(file, id, Files.signal(id, "1"))
      }
      file.sql("UPDATE executions SET status = 'Completed' WHERE instance_id = 'ended'")
      const report = yield* SqliteImport.importFile({ file: file.path, target, serve: ["Served"] })
      assert.strictEqual(report.served, 1)
      yield* equal(file, target)

      const claim = (major: number) =>
        Effect.map(
          driver.fetchOrchestrationItems({
            limit: 10,
            lockTimeoutMs: 30_000,
            versions: { min: { major, minor: 0, patch: 0 }, max: { major, minor: 999, patch: 0 } }
          }),
          (claimed) =>
            claimed.map(({ history, instanceId, messages }) => [instanceId, history?.length, messages.length])
        )
      assert.deepStrictEqual(yield* claim(1000), [["ours", 2, 1]])
      assert.sameDeepMembers([...yield* claim(0)], [["theirs", 2, 1], ["ended", 2, 1]])
    }))

  it.live("into a schema of duroxide-pg: marks activities of served instances, which Rust must not take", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* Duroxide.empty("rust")
      yield* Effect.provide(Migrator.adopt({ url }), Logger.layer([]))
      const file = yield* Files.make()
      Files.addEverything(file)
      file.sql("UPDATE instances SET orchestration_name = 'Served' WHERE instance_id = 'parent'")
      const target = { url, schema }
      yield* SqliteImport.importFile({ file: file.path, target, serve: ["Served"] })
      const report = yield* SqliteImport.verify({ file: file.path, target })
      assert.isTrue(report.isEqual, SqliteImport.render(report))
      assert.deepStrictEqual(yield* sql("SELECT instance_id, tag, route FROM worker_queue ORDER BY id"), [
        { instance_id: "child", tag: null, route: "Charge" },
        { instance_id: "child", tag: "gpu", route: "Charge #gpu" },
        { instance_id: "parent", tag: "duroxide-prisma", route: "Charge" }
      ])
    }))

  it.live("continues beside other instances, and delivers what was sent to an id before after what the file has", () =>
    Effect.gen(function*() {
      const target = yield* Test.open()
      yield* Test.waiting(target.driver, ["other"])
      const file = yield* Files.make()
      for (const id of ["a", "b"]) {
        Files.addWaiting(file, id)
        yield* target.driver.enqueueForOrchestrator([Test.message(id, JSON.stringify(Files.signal(id, "sent here")))])
      }
      // More than one statement inserts.
      const there = Array.from({ length: 2001 }, (_, n) => `sent there ${n}`)
      for (const data of there) Files.addMessage(file, "a", Files.signal("a", data))
      file.sql(
        "INSERT INTO timer_queue (work_item, fire_at, created_at) VALUES (?, 1790000000000, '2026-10-01 10:00:00')",
        JSON.stringify({ TimerSchedule: { instance: "a", execution_id: 1, id: 5, fire_at_ms: 1_790_000_000_000 } })
      )
      yield* SqliteImport.importFile({ file: file.path, target })
      const claimed = yield* target.driver.fetchOrchestrationItems({ limit: 10, lockTimeoutMs: 30_000, versions: null })
      assert.sameDeepMembers(
        claimed.map(({ instanceId, messages }) => [
          instanceId,
          ...messages.map(({ workItem }) => String(JSON.parse(workItem).ExternalRaised?.data ?? "timer"))
        ]),
        [["a", ...there, "timer", "sent here"], ["b", "sent here"]]
      )
    }))

  it.live("reads texts of many megabytes, and hundreds of rows of one instance", () =>
    Effect.gen(function*() {
      const target = yield* PgServer.database
      const file = yield* Files.make()
      Files.addWaiting(file, "long", { events: 300 })
      for (const [id, bytes] of [[1, 65_536], [2, 65_537], [3, 6_000_000]] as const) {
        file.sql(
          "UPDATE history SET event_data = ? WHERE instance_id = 'long' AND event_id = ?",
          JSON.stringify({ type: "x", data: "ä".repeat(bytes / 2) }),
          id
        )
      }
      const { counts } = yield* SqliteImport.importFile({ file: file.path, target, batch: 1 })
      assert.strictEqual(counts.history, 300)
      yield* equal(file, target)
    }))

  it.live("copies values at the limits as they are; what is due after the year 9999 is due at its end", () =>
    Effect.gen(function*() {
      const target = yield* PgServer.database
      const file = yield* Files.make()
      Files.addEverything(file)
      const [first, last] = ["0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"].map((text) => Date.parse(text))
      file.sql(
        `UPDATE instances SET custom_status_version = 1000000000, created_at = ${first}, updated_at = ${last}
           WHERE instance_id = 'child';
         UPDATE orchestrator_queue SET attempt_count = 1000000000, visible_at = ${first} WHERE instance_id = 'parent';
         UPDATE orchestrator_queue SET visible_at = ${last! + 1} WHERE instance_id = 'eternal';
         UPDATE worker_queue SET visible_at = 9223372036854775807 WHERE instance_id = 'parent';
         UPDATE executions SET execution_id = 9007199254740991 WHERE instance_id = 'done'`
      )
      // Deeper than the parsers of both databases read.
      for (const kind of ["StartOrchestration", "ActivityExecute"]) {
        file.sql(
          `INSERT INTO ${kind === "ActivityExecute" ? "worker_queue" : "orchestrator_queue"} (instance_id, work_item)
           VALUES ('deep', ?)`,
          `{"${kind}":${"[".repeat(100_000)}${"]".repeat(100_000)}}`
        )
      }
      yield* SqliteImport.importFile({ file: file.path, target })
      yield* equal(file, target)
      const due = (table: string, id: string) => `(SELECT visible_at FROM ${table} WHERE instance_id = '${id}')`
      assert.deepStrictEqual(
        yield* target.sql(
          `SELECT ${due("orchestrator_queue", "parent")} AS past, ${due("orchestrator_queue", "eternal")} AS timer,
             ${due("worker_queue", "parent")} AS activity`
        ),
        [{ past: new Date(first!), timer: new Date(last!), activity: new Date(last!) }]
      )
    }))

  it.live("reads files of older layouts, with defaults for what they lack", () =>
    Effect.gen(function*() {
      const target = yield* PgServer.database
      const layouts = [1, 2, 4, 6, 7, 9, 10, 11, 12]
      for (const migrations of layouts) {
        const file = yield* Files.make(migrations)
        const id = `of-${String(migrations).padStart(2, "0")}`
        file.sql(
          `INSERT INTO instances (instance_id, orchestration_name, orchestration_version) VALUES ('${id}', 'Errand', '1.0.0');
           INSERT INTO executions (instance_id, execution_id) VALUES ('${id}', 1);
           INSERT INTO history VALUES ('${id}', 1, 1, 'OrchestrationStarted', '{}', '2026-10-01 10:00:00')`
        )
        file.sql(
          "INSERT INTO worker_queue (work_item, created_at) VALUES (?, '2026-10-01 10:00:00')",
          JSON.stringify({
            ActivityExecute: {
              instance: id,
              execution_id: 1,
              id: 2,
              name: "Charge",
              input: "",
              tag: "t",
              session_id: "s"
            }
          })
        )
        if (migrations < 3) {
          file.sql(
            "INSERT INTO timer_queue (work_item, fire_at) VALUES (?, '2026-10-01 10:00:00.5')",
            JSON.stringify({ TimerSchedule: { instance: id, execution_id: 1, id: 3, fire_at_ms: 5 } })
          )
        }
        if (migrations >= 10) {
          file.sql(
            `INSERT INTO kv_store (instance_id, key, value${migrations < 12 ? ", execution_id" : ""})
             VALUES ('${id}', 'k', 'v'${migrations < 12 ? ", 7" : ""})`
          )
        }
        yield* SqliteImport.importFile({ file: file.path, target })
        yield* equal(file, target)
      }
      const [work] = yield* target.sql(
        `SELECT count(*)::int AS activities, array_agg(DISTINCT concat_ws(' ', execution_id, activity_id, tag, session_id,
           attempt_count, to_char(visible_at, 'YYYY'))) AS kinds FROM worker_queue`
      )
      assert.deepStrictEqual(work, { activities: layouts.length, kinds: ["1 2 t s 0 2026"] })
      assert.deepStrictEqual(
        yield* target.sql(
          `SELECT instance_id, work_item, extract(epoch FROM visible_at)::text AS at FROM orchestrator_queue ORDER BY 1`
        ),
        ["of-01", "of-02"].map((instance_id) => ({
          instance_id,
          work_item: `{"TimerFired":{"instance":"${instance_id}","execution_id":1,"id":3,"fire_at_ms":5}}`,
          at: "1790848800.500000"
        }))
      )
      assert.deepStrictEqual(
        yield* target.sql(
          "SELECT instance_id, execution_id::int, last_updated_at_ms::int AS at FROM kv_store ORDER BY 1"
        ),
        [["of-10", 7], ["of-11", 7], ["of-12", 1]].map(([instance_id, execution_id]) => ({
          instance_id,
          execution_id,
          at: 0
        }))
      )
    }))
})

describe("onConflict", () => {
  const prepared = Effect.gen(function*() {
    const target = yield* Test.open()
    const tokens = yield* Test.waiting(target.driver, ["b"])
    const file = yield* Files.make()
    for (const id of ["a", "b", "c"]) {
      Files.addWaiting(file, id)
      Files.addMessage(file, id, Files.signal(id, "1"))
    }
    return { target, tokens, file, options: { file: file.path, target, batch: 1 } }
  })

  it.live("refuse: names the ids, and writes nothing", () =>
    Effect.gen(function*() {
      const { options, target } = yield* prepared
      const before = yield* contents(target)
      const { reason } = yield* Effect.flip(SqliteImport.importFile(options))
      assert.deepInclude(reason, { _tag: "IdsTaken", instanceIds: ["b"], count: 1 })
      assert.deepStrictEqual(yield* contents(target), before)
      assert.deepStrictEqual(yield* target.sql("SELECT * FROM sqlite_imports"), [])
    }))

  it.live("keep: leaves the instance of the target and its work alone", () =>
    Effect.gen(function*() {
      const { file, options, target } = yield* prepared
      const report = yield* SqliteImport.importFile({ ...options, onConflict: "keep" })
      assert.deepInclude(report, { kept: ["b"], replaced: 0 })
      assert.deepInclude(report.counts, { instances: 2, history: 4, orchestrator_queue: 2 })
      assert.deepInclude(yield* equal(file, target), { instances: 2, kept: 1 })
      assert.deepStrictEqual(
        yield* target.sql("SELECT orchestration_name AS name FROM instances ORDER BY instance_id"),
        [
          { name: "Errand" },
          { name: "Orchestration" },
          { name: "Errand" }
        ]
      )
    }))

  it.live("replace: deletes the instance of the target with its work; a worker of it has lost its lock", () =>
    Effect.gen(function*() {
      const { file, options, target, tokens } = yield* prepared
      yield* target.sql("INSERT INTO paused VALUES ('instance', 'b', '', 'broken', now())")
      yield* target.sql(
        "INSERT INTO blocked_instances VALUES ('b', 1, 1, 'HistoryDiffers', 'it differs', 1, '', now(), now(), 1)"
      )
      yield* target.sql("INSERT INTO removed_events VALUES ('b', 1, now(), 1, '', '{}')")
      yield* target.sql("INSERT INTO attributes VALUES ('b', 'tenant', 'a', NULL, NULL, now())")
      const report = yield* SqliteImport.importFile({ ...options, onConflict: "replace" })
      assert.deepInclude(report, { kept: [], replaced: 1 })
      assert.deepStrictEqual(
        yield* target.sql(
          `SELECT instance_id FROM blocked_instances UNION ALL SELECT instance_id FROM removed_events
          UNION ALL SELECT instance_id FROM attributes UNION ALL SELECT name FROM paused`
        ),
        []
      )
      yield* equal(file, target)
      assert.deepStrictEqual(yield* target.driver.ackWorkItems([{ lockToken: tokens["b"]![0]!, completion: null }]), [
        "LockLost"
      ])
    }))
})
