/**
 * An import that is killed at any point continues where it was, and until its end it has released no instance.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Target from "../../src/sqlite/internal/target.ts"
import * as SqliteImport from "../../src/sqlite/SqliteImport.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as Test from "../utils/driver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Files from "./files.ts"

const instances = 60
const events = 40

const prepared = Effect.gen(function*() {
  const target = yield* Test.open()
  const file = yield* Files.make()
  file.sql("BEGIN")
  for (let i = 10; i < 10 + instances; i++) {
    Files.addWaiting(file, `i-${i}`, { events })
    Files.addMessage(file, `i-${i}`, Files.signal(`i-${i}`, "1"))
    file.sql("INSERT INTO kv_delta VALUES (?, 'k', 'v', 1)", `i-${i}`)
  }
  file.sql("INSERT INTO sessions VALUES ('s', 'w', 1, 1)")
  file.sql("COMMIT")
  return { target, file }
})

/** Every imported instance is whole and held, and there is no work; returns how many there are. */
const checkHeld = Effect.fnUntraced(function*({ driver, sql }: Test.Opened) {
  const [found] = yield* sql(
    `SELECT
       (SELECT count(*)::int FROM orchestrator_queue) AS messages,
       (SELECT count(*)::int FROM sessions) AS sessions,
       (SELECT count(*)::int FROM instances AS i WHERE NOT EXISTS (
         SELECT FROM instance_locks AS l
         WHERE l.instance_id = i.instance_id AND l.locked_until > extract(epoch FROM now()) * 1000 + 1e12
       )) AS free,
       (SELECT count(*)::int FROM instances AS i WHERE ${events} <> (
         SELECT count(*) FROM history AS h WHERE h.instance_id = i.instance_id
       )) AS torn,
       (SELECT count(*)::int FROM instances)
         - (SELECT count(*)::int FROM kv_delta) AS without_values`
  )
  assert.deepStrictEqual(found, { messages: 0, sessions: 0, free: 0, torn: 0, without_values: 0 })
  assert.deepStrictEqual(yield* Test.claim(driver), [])
  const [{ count } = { count: -1 }] = yield* sql<{ count: number }>("SELECT count(*)::int AS count FROM instances")
  return count
})

describe("kill -9", () => {
  it.live(
    "in the middle of batches and of the release: each call continues, and the end is complete",
    () =>
      Effect.gen(function*() {
        const { file, target } = yield* prepared
        const { sql, url } = target
        yield* sql(
          `CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END'`
        )
        const locker = yield* PgServer.connect(url)
        yield* Effect.promise(() => locker.query("SELECT pg_advisory_lock(4711)"))
        /**
         * Kills the import when it inserts this row, in the middle of a transaction; returns how many instances are
         * there.
         */
        const killAt = Effect.fnUntraced(function*(table: string, condition: string) {
          yield* sql(
            `CREATE TRIGGER stop BEFORE INSERT ON ${table} FOR EACH ROW WHEN (${condition}) EXECUTE FUNCTION stop()`
          )
          const child = yield* ChildProcess.start("sqliteImport", file.path, url, "7")
          const sessions = sql<{ event: string | null }>(
            `SELECT wait_event AS event FROM pg_stat_activity
           WHERE datname = current_database() AND application_name = 'duroxide-prisma migrator'`
          )
          yield* waitUntil(Effect.map(sessions, (found) => found.some(({ event }) => event === "advisory")))
          yield* child.kill
          // The server notices when the statement ends.
          yield* Effect.promise(() => locker.query("SELECT pg_advisory_unlock(4711)"))
          yield* waitUntil(Effect.map(sessions, (left) => left.length === 0))
          yield* Effect.promise(() => locker.query("SELECT pg_advisory_lock(4711)"))
          yield* sql(`DROP TRIGGER stop ON ${table}`)
          return yield* checkHeld(target)
        })
        assert.strictEqual(yield* killAt("history", "NEW.instance_id = 'i-12'"), 0)
        assert.strictEqual(yield* killAt("kv_delta", "NEW.instance_id = 'i-25'"), 14)
        assert.strictEqual(yield* killAt("executions", "NEW.instance_id = 'i-25'"), 14)
        assert.strictEqual(yield* killAt("instances", "NEW.instance_id = 'i-69'"), 56)
        assert.strictEqual(yield* killAt("sessions", "true"), instances) // after all messages

        const progress: Array<number> = []
        const report = yield* SqliteImport.importFile({
          file: file.path,
          target,
          onProgress: ({ done, phase }) => Effect.sync(() => phase === "copying" && progress.push(done))
        })
        assert.deepInclude(report, { outcome: "imported", resumed: true })
        assert.deepInclude(report.counts, { instances, history: instances * events, orchestrator_queue: instances })
        const verified = yield* SqliteImport.verify({ file: file.path, target })
        assert.isTrue(verified.isEqual, SqliteImport.render(verified))
        assert.lengthOf(progress, 1) // only the release was left
        assert.lengthOf(yield* Test.claim(target.driver, 100), instances)
      })
  )

  it.live("an unfinished import continues with its options only, and can be removed without a trace", () =>
    Effect.gen(function*() {
      const { file, target } = yield* prepared
      yield* Test.waiting(target.driver, ["other"])
      const tables = ["instances", "executions", "history", "kv_delta", "instance_locks", "sqlite_imports"]
      const counts = Effect.forEach(
        tables,
        (table) => Effect.map(target.sql<{ n: number }>(`SELECT count(*)::int AS n FROM ${table}`), ([row]) => row?.n)
      )
      const before = yield* counts
      const stopped = yield* SqliteImport.importFile({
        file: file.path,
        target,
        batch: 7,
        serve: ["Errand"],
        onProgress: ({ done, phase }) => phase === "copying" && done > 500 ? Effect.interrupt : Effect.void
      }).pipe(Effect.exit)
      assert.strictEqual(stopped._tag, "Failure")
      assert.isAbove((yield* counts)[0]!, before[0]!)
      assert.strictEqual((yield* SqliteImport.verify({ file: file.path, target })).import, "unfinished")

      const other = yield* Effect.flip(SqliteImport.importFile({ file: file.path, target }))
      assert.deepInclude(other.reason, { _tag: "InvalidInput", field: "serve" })
      const another = yield* Files.make()
      const refused = yield* Effect.flip(SqliteImport.importFile({ file: another.path, target }))
      assert.deepInclude(refused.reason, { _tag: "ImportUnfinished", file: "store #1?.db" })
      yield* SqliteImport.importFile({ file: another.path, target, discardUnfinished: true })
      // That of the other file, which is empty.
      assert.deepStrictEqual(yield* counts, before.map((n, index) => tables[index] === "sqlite_imports" ? 1 : n))
    }))

  it.live("a host that vanished holds the lock of its import for less than a minute", () =>
    Effect.gen(function*() {
      const { run } = yield* Target.open(yield* PgServer.database)
      // As the socket has them.
      const [socket] = yield* run(
        `SELECT current_setting('tcp_keepalives_idle')::int + current_setting('tcp_keepalives_interval')::int
             * current_setting('tcp_keepalives_count')::int AS silent,
           current_setting('tcp_user_timeout')::int / 1000 AS unanswered`
      )
      assert.deepStrictEqual(socket, { silent: 50, unanswered: 50 })
    }))

  it.live("of two imports at the same time, the second writes nothing while the first runs", () =>
    Effect.gen(function*() {
      const { file, target } = yield* prepared
      const locker = yield* PgServer.connect(target.url)
      const lock = "hashtextextended('duroxide-prisma:sqlite_imports:' || current_schema(), 0)"
      yield* Effect.promise(() => locker.query(`SELECT pg_advisory_lock(${lock})`))
      const running = yield* Effect.forkChild(SqliteImport.importFile({ file: file.path, target }))
      yield* waitUntil(Effect.map(
        target.sql("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"),
        (waiting) => waiting.length > 0
      ))
      assert.strictEqual(yield* checkHeld(target), 0)
      yield* Effect.promise(() => locker.query(`SELECT pg_advisory_unlock(${lock})`))
      assert.strictEqual((yield* Fiber.join(running)).outcome, "imported")
    }))
})
