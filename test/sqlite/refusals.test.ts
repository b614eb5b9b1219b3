import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import * as SqliteImport from "../../src/sqlite/SqliteImport.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Files from "./files.ts"

it.layer(PgServer.layer)((it) => {
  /** Nothing was written. */
  const refused = Effect.fnUntraced(function*(file: string, options: Partial<SqliteImport.ImportOptions> = {}) {
    const target = yield* PgServer.PgServer
    const { reason } = yield* Effect.flip(SqliteImport.importFile({ file, target, ...options }))
    const [row] = yield* target.sql(
      "SELECT FROM instances UNION ALL SELECT FROM instance_locks UNION ALL SELECT FROM sqlite_imports"
    )
    assert.isUndefined(row)
    return reason
  })

  describe("files", () => {
    it.effect("that do not exist, or are something else, are refused by name", () =>
      Effect.gen(function*() {
        const { path } = yield* Files.make()
        const folder = dirname(path)
        yield* Effect.promise(async () => {
          await mkdir(join(folder, "folder"))
          await writeFile(join(folder, "text"), "this is not a database, but long enough to be one: ".repeat(50))
          await writeFile(join(folder, "empty"), "")
        })
        for (
          const [name, tag, text] of [
            ["nowhere.db", "FileUnreadable", "there is no such file"],
            ["folder", "FileUnreadable", "not a file"],
            ["text", "FileUnreadable", "not a database"],
            ["empty", "NotDuroxide", "table instances"]
          ] as const
        ) {
          const reason = yield* refused(join(folder, name))
          assert.strictEqual(reason._tag, tag)
          assert.include(reason.message, join(folder, name))
          assert.include(reason.message, text)
        }
        yield* Effect.promise(async () => assert.strictEqual((await readFile(join(folder, "empty"))).length, 0))
      }))

    it.effect("without their write-ahead log are refused as no store, with that advice", () =>
      Effect.gen(function*() {
        const { path } = yield* Files.make()
        const copy = join(dirname(path), "copy.db")
        yield* Effect.promise(() => copyFile(path, copy))
        const reason = yield* refused(copy)
        assert.strictEqual(reason._tag, "NotDuroxide")
        assert.include(reason.message, "-wal")
      }))

    it.effect("of a newer Duroxide are refused: a column, a migration, a migration that did not end", () =>
      Effect.gen(function*() {
        const file = yield* Files.make()
        file.sql(
          `ALTER TABLE worker_queue ADD COLUMN priority INTEGER;
           INSERT INTO _sqlx_migrations VALUES (20990101000000, 'add wonders', '2026-01-01', 1, x'00', 1);
           UPDATE _sqlx_migrations SET success = 0 WHERE version = 20240112000000`
        )
        const reason = yield* refused(file.path)
        assert(reason._tag === "LayoutUnknown")
        assert.deepStrictEqual(reason.differences, [
          "column worker_queue.priority is unknown",
          "migration 20240112000000 (add kv delta) did not end",
          "migration 20990101000000 (add wonders) is unknown"
        ])
      }))

    it.effect("are not written: neither the main file nor the log", () =>
      Effect.gen(function*() {
        const file = yield* Files.make()
        Files.addWaiting(file, "a")
        const read = Effect.promise(() =>
          Promise.all(["", "-wal"].map((ending) => readFile(file.path + ending, "hex")))
        )
        const before = yield* read
        const target = yield* PgServer.database
        yield* SqliteImport.importFile({ file: file.path, target })
        assert.deepStrictEqual(yield* read, before)
        assert.isAbove(before[1]!.length, 0)
      }))

    it.effect("that another process has locked for a moment are waited for", () =>
      Effect.gen(function*() {
        const file = yield* Files.make()
        Files.addWaiting(file, "a")
        file.sql("PRAGMA journal_mode = DELETE") // in which a writer locks readers out, too
        const target = yield* PgServer.database
        yield* lockedForASecond(file.path)
        yield* SqliteImport.importFile({ file: file.path, target })
        assert.lengthOf(yield* target.sql("SELECT FROM instances"), 1)
      }))
  })

  describe("rows", () => {
    it.effect("with NUL, invalid UTF-8, ids too long or wrong types are all named, and nothing is written", () =>
      Effect.gen(function*() {
        const file = yield* Files.make()
        for (const id of ["a", "b", "c", "d"]) Files.addWaiting(file, id)
        file.sql(
          `UPDATE history SET event_data = 'x' || char(0) || 'secret' WHERE instance_id = 'a' AND event_id = 2;
           UPDATE executions SET output = CAST(x'ff41' AS TEXT) WHERE instance_id = 'b';
           UPDATE instances SET created_at = 'tomorrow' WHERE instance_id = 'c';
           UPDATE executions SET duroxide_version_major = 'x' WHERE instance_id = 'd'`
        )
        Files.addMessage(file, "i".repeat(2049), {})
        const reason = yield* refused(file.path)
        assert(reason._tag === "RowsRefused")
        assert.strictEqual(reason.count, 5)
        assert.deepStrictEqual(
          reason.rows.map(({ column, instanceId, table }) => [table, instanceId?.[0], column]),
          [
            ["instances", "c", "created_at"],
            ["executions", "b", "output"],
            ["executions", "d", "duroxide_version_major"],
            ["history", "a", "event_data"],
            ["orchestrator_queue", "i", "instance_id"]
          ]
        )
        assert.include(reason.message, "row 2 of history (instance a), event_data: it contains a NUL character")
        assert.notInclude(reason.message, "secret")
      }))

    it.effect("with numbers, times, ids or types outside PostgreSQL's are all named, and nothing is written", () =>
      Effect.gen(function*() {
        const file = yield* Files.make()
        Files.addEverything(file, 0)
        file.sql(
          `PRAGMA foreign_keys = OFF;
           UPDATE instances SET custom_status_version = 3000000000 WHERE instance_id = 'child';
           UPDATE instances SET updated_at = 'infinity' WHERE instance_id = 'done';
           UPDATE instances SET parent_instance_id = '${"p".repeat(4000)}' WHERE instance_id = 'eternal';
           UPDATE instances SET current_execution_id = 9007199254740993 WHERE instance_id = 'failed';
           UPDATE executions SET duroxide_version_minor = -3000000000 WHERE instance_id = 'child';
           UPDATE executions SET completed_at = -9e15 WHERE instance_id = 'done';
           UPDATE executions SET started_at = 9e15 WHERE instance_id = 'parent';
           UPDATE history SET event_data = CAST(event_data AS BLOB) WHERE instance_id = 'child' AND event_id = 2;
           UPDATE kv_store SET key = x'6b' WHERE instance_id = 'done';
           UPDATE orchestrator_queue SET attempt_count = 3000000000 WHERE instance_id = 'parent';
           UPDATE orchestrator_queue SET visible_at = -9000000000000000 WHERE instance_id = 'eternal';
           UPDATE orchestrator_queue SET visible_at = 'infinity' WHERE instance_id = 'new';
           UPDATE worker_queue SET attempt_count = 3000000000 WHERE instance_id = 'parent';
           UPDATE worker_queue SET visible_at = -9000000000000000 WHERE activity_id = 3;
           UPDATE sessions SET worker_id = '${"w".repeat(4000)}', last_activity_at = 9e300`
        )
        const reason = yield* refused(file.path)
        assert(reason._tag === "RowsRefused")
        assert.deepStrictEqual(
          reason.rows.map(({ column, instanceId, problem, table }) => `${table} ${instanceId} ${column}: ${problem}`),
          [
            "instances child custom_status_version: it is 3000000000, but must be a whole number from -1000000000 to 1000000000",
            "instances done updated_at: it is not a time in the years 1 to 9999",
            "instances eternal parent_instance_id: it has 4000 bytes, the limit is 2048",
            "instances failed current_execution_id: it is 9007199254740992, but must be a whole number from -9007199254740991 to 9007199254740991",
            "executions child duroxide_version_minor: it is -3000000000, but must be a whole number from -1000000000 to 1000000000",
            "executions done completed_at: it is not a time in the years 1 to 9999",
            "executions parent started_at: it is not a time in the years 1 to 9999",
            "history child event_data: it is not a text",
            "kv_store done key: it is not a text",
            "orchestrator_queue eternal visible_at: it is not a time in the years 1 to 9999",
            "orchestrator_queue parent attempt_count: it is 3000000000, but must be a whole number from -1000000000 to 1000000000",
            "orchestrator_queue new visible_at: it is not a time in the years 1 to 9999",
            "worker_queue child visible_at: it is not a time in the years 1 to 9999",
            "worker_queue parent attempt_count: it is 3000000000, but must be a whole number from -1000000000 to 1000000000",
            "sessions null worker_id: it has 4000 bytes, the limit is 2048",
            "sessions null last_activity_at: it is 9e+300, but must be a whole number from -9007199254740991 to 9007199254740991"
          ]
        )
        assert.include(reason.message, "Change or delete these rows in the file")
      }))

    it.effect("with ids that are not texts are named; the import ends, and so does verify", () =>
      Effect.gen(function*() {
        const file = yield* Files.make()
        Files.addWaiting(file, "a")
        file.sql(
          `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1100)
           INSERT INTO instances (instance_id, orchestration_name, orchestration_version)
             SELECT CAST('id ' || i AS BLOB), 'Errand', '1.0.0' FROM n;
           INSERT INTO executions (instance_id, execution_id) SELECT instance_id, 1 FROM instances WHERE instance_id <> 'a'`
        )
        const reason = yield* refused(file.path)
        assert(reason._tag === "RowsRefused")
        assert.strictEqual(reason.count, 2200)
        assert.deepInclude(reason.rows[0], { table: "instances", column: "instance_id", problem: "it is not a text" })
        const target = yield* PgServer.PgServer
        const verified = yield* Effect.flip(SqliteImport.verify({ file: file.path, target }))
        assert.strictEqual(verified.reason._tag, "RowsRefused")
      }))
  })

  describe("processes", () => {
    it.effect("whose locks have not expired are noticed, with the time at which they end", () =>
      Effect.gen(function*() {
        const file = yield* Files.make()
        Files.addEverything(file, 4_000_000_000_000)
        // The clock of the test stands at 0: the locks have not expired.
        const reason = yield* refused(file.path)
        assert(reason._tag === "FileInUse")
        assert.deepInclude(reason, { locks: 6, untilMs: 4_000_000_000_000, isRetryable: true })
        file.sql("UPDATE sessions SET locked_until = 9000000000000000000")
        assert.include((yield* refused(file.path)).message, "it has 6 locks, until 9999-12-31T23:59:59.999Z")
        const target = yield* PgServer.database
        const { outcome } = yield* SqliteImport.importFile({ file: file.path, target, ignoreLocks: true })
        assert.strictEqual(outcome, "imported")
      }))

    it.effect("that write during the import: the copy is of one moment, and no instance is released", () =>
      Effect.gen(function*() {
        const target = yield* PgServer.database
        const file = yield* Files.make()
        for (const id of ["a", "b", "c"]) {
          Files.addWaiting(file, id)
          Files.addMessage(file, id, Files.signal(id, "1"))
        }
        let written = false
        const options = {
          file: file.path,
          target,
          batch: 1,
          onProgress: ({ phase }: SqliteImport.Progress) =>
            Effect.sync(() => {
              if (phase !== "copying" || written) return
              written = true
              Files.addWaiting(file, "aa")
              file.sql(
                "DELETE FROM orchestrator_queue WHERE instance_id = 'c'; DELETE FROM history WHERE instance_id = 'c'"
              )
            })
        }
        const { reason } = yield* Effect.flip(SqliteImport.importFile(options))
        assert.strictEqual(reason._tag, "FileChanged")
        const [found] = yield* target.sql(
          `SELECT (SELECT count(*)::int FROM instances) AS instances, (SELECT count(*)::int FROM history) AS events,
             (SELECT count(*)::int FROM instance_locks) AS locks, (SELECT count(*)::int FROM orchestrator_queue) AS messages`
        )
        assert.deepStrictEqual(found, { instances: 3, events: 6, locks: 3, messages: 0 })

        const again = yield* Effect.flip(SqliteImport.importFile(options))
        assert.strictEqual(again.reason._tag, "ImportUnfinished")
        const report = yield* SqliteImport.importFile({ ...options, discardUnfinished: true })
        assert.deepInclude(report.counts, { instances: 4, history: 6, orchestrator_queue: 2 })
        assert.isTrue((yield* SqliteImport.verify(options)).isEqual)
      }))
  })

  describe("options", () => {
    it.effect("out of their range are refused", () =>
      Effect.gen(function*() {
        const { path } = yield* Files.make()
        for (
          const [field, options] of [
            ["batch", { batch: 0 }],
            ["batch", { batch: 1.5 }],
            ["serve", { serve: [""] }]
          ] as const
        ) assert.deepInclude(yield* refused(path, options), { _tag: "InvalidInput", field })
      }))

    it.effect("serve: a name that the file does not have is refused, with the names that it has", () =>
      Effect.gen(function*() {
        const file = yield* Files.make()
        Files.addWaiting(file, "waits")
        Files.addWaiting(file, "ended", { name: "Ended" })
        file.sql("UPDATE executions SET status = 'Completed' WHERE instance_id = 'ended'")
        Files.addMessage(file, "begins", { StartOrchestration: { instance: "begins", orchestration: "Queued" } })
        assert.deepInclude(yield* refused(file.path, { serve: ["Errand", "Ended", "Queued", "Erand"] }), {
          _tag: "InvalidInput",
          field: "serve",
          problem: "the file has no execution of Erand; orchestrations of the file: Ended, Errand"
        })
        const target = yield* PgServer.database
        const serve = ["Errand", "Ended", "Queued"]
        const { served } = yield* SqliteImport.importFile({ file: file.path, target, serve })
        assert.strictEqual(served, 1)
        const again = yield* Effect.flip(SqliteImport.importFile({ file: file.path, target, serve: ["Erand"] }))
        assert.strictEqual(again.reason._tag, "InvalidInput")
      }))

    it.effect("a schema without the migrations of this version is refused", () =>
      Effect.gen(function*() {
        const { path } = yield* Files.make()
        const target = yield* PgServer.emptyDatabase
        const { reason } = yield* Effect.flip(SqliteImport.importFile({ file: path, target }))
        assert.strictEqual(reason._tag, "SchemaBehind")
      }))
  })
})

// internal

/** Ends when another process has the file for itself, which it keeps for a second. */
const lockedForASecond = (path: string) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      spawn(
        process.execPath,
        [
          "--input-type=module",
          "-e",
          `import Libsql from "libsql"
           const database = new Libsql(process.argv[1])
           database.exec("BEGIN EXCLUSIVE")
           console.log("held")
           setTimeout(() => { database.exec("ROLLBACK"); database.close() }, 1000)`,
          path
        ],
        { stdio: ["ignore", "pipe", "inherit"] }
      )
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  ).pipe(Effect.tap((child) => Effect.promise(() => once(child.stdout, "data"))))
