/**
 * A file that was imported is imported again with more names to serve.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as SqliteImport from "../../src/sqlite/SqliteImport.ts"
import * as Test from "../utils/driver.ts"
import * as Duroxide from "../utils/duroxideSchema.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Files from "./files.ts"

describe("importFile, again", () => {
  it.live("pins executions of the file that are still under way, still pinned to Duroxide and not locked", () =>
    Effect.gen(function*() {
      const target = yield* Test.open()
      const { sql } = target
      const file = yield* Files.make()
      const ids = ["continued", "ended", "expired", "free", "kept", "locked", "recreated"]
      for (const id of ids) {
        Files.addWaiting(file, id)
        Files.addMessage(file, id, Files.signal(id, "1"))
      }
      Files.addWaiting(file, "other", { name: "Other" })
      yield* Test.waiting(target.driver, ["kept"])
      const options = { file: file.path, target, onConflict: "keep" } as const
      const first = yield* SqliteImport.importFile(options)
      // As an earlier import of the same instances would have left it.
      yield* sql(
        `UPDATE instances SET orchestration_name = 'Errand' WHERE instance_id = 'kept';
         UPDATE executions AS e SET started_at = free.started_at, duroxide_version_major = 0
         FROM executions AS free WHERE e.instance_id = 'kept' AND free.instance_id = 'free'`
      )
      assert.deepInclude(first, { served: 0, stayPinned: { Errand: 6, Other: 1 } })

      // What processes of Duroxide have done since.
      yield* sql(
        `UPDATE executions SET status = 'Completed' WHERE instance_id IN ('ended', 'continued');
         INSERT INTO executions (instance_id, execution_id, status, started_at, duroxide_version_major,
           duroxide_version_minor, duroxide_version_patch) VALUES ('continued', 2, 'Running', now(), 0, 1, 30);
         UPDATE instances SET current_execution_id = 2 WHERE instance_id = 'continued';
         UPDATE executions SET started_at = now() WHERE instance_id = 'recreated';
         INSERT INTO instance_locks VALUES ('locked', 'token', 4000000000000, 1), ('expired', 'token', 1, 1)`
      )
      const again = { ...options, serve: ["Errand"] }
      const expected = { outcome: "alreadyImported", counts: first.counts } as const
      assert.deepInclude(yield* SqliteImport.importFile(again), {
        ...expected,
        served: 2,
        stayPinned: { Errand: 1, Other: 1 }
      })
      const pinned = () =>
        Effect.map(
          sql("SELECT instance_id AS id FROM executions WHERE duroxide_version_major = 1000 ORDER BY 1"),
          (rows) => rows.map((row) => row["id"])
        )
      assert.deepStrictEqual(yield* pinned(), ["expired", "free"])
      // The process whose lock has expired cannot renew it.
      assert.deepStrictEqual(yield* sql("SELECT instance_id AS id FROM instance_locks"), [{ id: "locked" }])

      assert.deepInclude(yield* SqliteImport.importFile(again), { ...expected, served: 0 })
      yield* sql("DELETE FROM instance_locks")
      assert.deepInclude(yield* SqliteImport.importFile(again), { ...expected, served: 1, stayPinned: { Other: 1 } })

      const claimed = yield* target.driver.fetchOrchestrationItems({
        limit: 10,
        lockTimeoutMs: 30_000,
        versions: { min: { major: 1000, minor: 0, patch: 0 }, max: { major: 1000, minor: 999, patch: 0 } }
      })
      assert.sameMembers(claimed.map(({ instanceId }) => instanceId), ["expired", "free", "locked"])
    }))

  it.live("verify expects the pins of every call", () =>
    Effect.gen(function*() {
      const target = yield* PgServer.database
      const file = yield* Files.make()
      Files.addEverything(file)
      Files.addWaiting(file, "other", { name: "Other" })
      for (const serve of [[], ["Errand"], ["Other"]]) {
        const { stayPinned } = yield* SqliteImport.importFile({ file: file.path, target, serve })
        assert.strictEqual("Errand" in stayPinned, serve.length === 0)
        const report = yield* SqliteImport.verify({ file: file.path, target })
        assert.isTrue(report.isEqual, SqliteImport.render(report))
      }
    }))

  it.live("into a schema of duroxide-pg: marks the activities, which Rust must not take", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* Duroxide.empty("rust")
      yield* Effect.provide(Migrator.adopt({ url }), Logger.layer([]))
      const file = yield* Files.make()
      Files.addEverything(file)
      file.sql("UPDATE instances SET orchestration_name = 'Served' WHERE instance_id = 'parent'")
      const target = { url, schema }
      yield* SqliteImport.importFile({ file: file.path, target })
      const { served } = yield* SqliteImport.importFile({ file: file.path, target, serve: ["Served"] })
      assert.strictEqual(served, 1)
      const report = yield* SqliteImport.verify({ file: file.path, target })
      assert.isTrue(report.isEqual, SqliteImport.render(report))
      assert.deepStrictEqual(yield* sql("SELECT instance_id, tag FROM worker_queue ORDER BY id"), [
        { instance_id: "child", tag: null },
        { instance_id: "child", tag: "gpu" },
        { instance_id: "parent", tag: "duroxide-prisma" }
      ])
    }))

  it.live("discardUnfinished removes what another import has copied, also when this one has ended", () =>
    Effect.gen(function*() {
      const target = yield* PgServer.database
      const [done, given] = [yield* Files.make(), yield* Files.make()]
      Files.addWaiting(done, "done")
      for (const id of ["a", "b"]) Files.addWaiting(given, id)
      yield* SqliteImport.importFile({ file: done.path, target })
      let written = false
      yield* Effect.flip(SqliteImport.importFile({
        file: given.path,
        target,
        batch: 1,
        onProgress: ({ phase }) =>
          Effect.sync(() => {
            if (phase === "copying" && !written) Files.addWaiting(given, "c")
            if (phase === "copying") written = true
          })
      }))
      const again = SqliteImport.importFile({ file: done.path, target, discardUnfinished: true })
      assert.deepInclude(yield* again, { outcome: "alreadyImported", discarded: 1 })
      assert.deepStrictEqual(yield* target.sql("SELECT instance_id AS id FROM instances"), [{ id: "done" }])
      assert.deepInclude(yield* again, { discarded: 0 })
    }))
})
