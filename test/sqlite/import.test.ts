import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as SqliteImport from "../../src/sqlite/SqliteImport.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Files from "./files.ts"

describe("importFile", () => {
  it.live("writes what the file has, from its write-ahead log too, and writes it once", () =>
    Effect.gen(function*() {
      const target = yield* PgServer.database
      const file = yield* Files.make()
      for (const id of ["a", "b", "c"]) Files.addWaiting(file, id, { events: 5 })
      Files.addMessage(file, "b", Files.signal("b", "1"))
      Files.addMessage(file, "b", Files.signal("b", "2"), "2026-10-01 10:00:02")
      const options = { file: file.path, target, batch: 2 }

      const first = yield* SqliteImport.importFile(options)
      assert.strictEqual(first.outcome, "imported")
      assert.deepInclude(first.counts, { instances: 3, executions: 3, history: 15, orchestrator_queue: 2 })
      const report = yield* SqliteImport.verify(options)
      assert.isTrue(report.isEqual, SqliteImport.render(report))

      const second = yield* SqliteImport.importFile(options)
      assert.strictEqual(second.outcome, "alreadyImported")
      assert.deepStrictEqual(second.counts, first.counts)
      const [rows] = yield* target.sql(
        `SELECT (SELECT count(*)::int FROM history) AS events, (SELECT count(*)::int FROM orchestrator_queue) AS messages,
           (SELECT count(*)::int FROM instance_locks) AS locks`
      )
      assert.deepStrictEqual(rows, { events: 15, messages: 2, locks: 0 })
    }))
})
