import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Finding } from "../../src/prisma/shared/doctor.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as RefusingProxy from "../utils/refusingProxy.ts"
import { session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

/** What `doctor --json` answers. */
const examine = (url: string) =>
  Effect.map(Cli.run("doctor --json", { env: { DATABASE_URL: url } }), ({ exitCode, stderr, stdout }) => {
    const { findings }: { readonly findings: ReadonlyArray<Finding> } = JSON.parse(stdout)
    return {
      exitCode,
      stderr,
      findings,
      of: (name: string) => {
        const finding = findings.find((one) => one.name === name)
        if (finding === undefined) throw new Error(`no finding is called ${name}`)
        return finding
      },
      problems: findings.filter(({ result }) => result === "problem").map(({ name }) => name)
    }
  })

/** A setting of the database holds for new sessions. */
const set = (test: PgServer.TestDatabase, setting: string) =>
  test.sql(`ALTER DATABASE ${new URL(test.url).pathname.slice(1)} SET ${setting}`)

const objects = (test: PgServer.TestDatabase) =>
  test.sql(
    `SELECT (SELECT count(*) FROM pg_namespace WHERE nspname NOT LIKE 'pg_%') AS schemas,
       (SELECT count(*) FROM pg_class) AS relations, (SELECT count(*) FROM pg_proc) AS functions,
       (SELECT count(*) FROM pg_type) AS types`
  )

/** Tests that change the whole database need one of their own. */
const whereDatabases = (name: string, test: () => Effect.Effect<unknown, unknown, never>) =>
  it.live(name, () => PgServer.server().template === null ? Effect.void : Effect.orDie(test()))

describe("doctor", () => {
  it.live("finds no problem in a migrated store, and leaves nothing", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const before = yield* objects(test)
      const { exitCode, findings, of, problems, stderr } = yield* examine(test.url)
      assert.deepStrictEqual([exitCode, stderr, problems], [0, "", []])
      assert.deepStrictEqual(yield* objects(test), before)
      assert.deepStrictEqual(
        findings.filter(({ area, result }) => (area === "needed" || area === "indexes") && result !== "ok"),
        []
      )
      assert.strictEqual(of("migrations").found, "up to date")
      assert.strictEqual(of("notifications").result, "ok")
      assert.include(of("our indexes").found, "of which")
      for (const { found, result, todo } of findings) {
        assert.isNotEmpty(found)
        assert.strictEqual(result === "advice" || result === "problem", todo !== null, found)
      }
    }))

  it.live("before the first migration: the server can carry a store, exit code 0", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const { exitCode, findings, of, problems } = yield* examine(test.url)
      assert.deepStrictEqual([exitCode, problems], [0, []])
      assert.include(of("migrations").todo, "Create them: duroxide-prisma migrate")
      assert.include(of("role").found, "may create tables")
      assert.isAbove(findings.filter(({ area, result }) => area === "needed" && result === "ok").length, 10)
      assert.isEmpty(findings.filter(({ area }) => area === "indexes"))
    }))

  it.live("people read an area at a time, and what to do last, problems at the end", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* test.sql("DROP INDEX worker_queue_session_id_idx")
      const { exitCode, stderr, stdout } = yield* Cli.run("doctor", { env: { DATABASE_URL: test.url } })
      assert.strictEqual(exitCode, 1)
      assert.strictEqual(stderr, "error: 1 problem: missing index\n")
      const titles = [...stdout.matchAll(/^([A-Z]+) +RESULT +FOUND$/gm)].map(([, title]) => title)
      assert.deepStrictEqual(
        titles,
        ["SERVER", "NEEDED", "OPTIONAL", "RIGHTS", "SETTINGS", "VACUUM", "INDEXES", "LISTENING"]
      )
      const [, todos = ""] = stdout.split("\nWhat to do\n")
      assert.match(todos, /problem: missing index +Create it again: .*\n$/)
      assert.notMatch(stdout, /someone|postgresql:/)
    }))

  it.live("a server that does not answer: one line, exit code 3; a URL that cannot be read: 2", () =>
    Effect.gen(function*() {
      const nowhere = "postgresql://someone:sesame@127.0.0.1:1/nothing"
      const unanswered = yield* Cli.run("doctor", { env: { DATABASE_URL: nowhere } })
      assert.deepStrictEqual([unanswered.exitCode, unanswered.stdout], [3, ""])
      assert.match(unanswered.stderr, /^error: .*127\.0\.0\.1:1\/nothing.*\n$/)
      assert.notMatch(unanswered.stderr, /someone|sesame/)
      assert.strictEqual((yield* Cli.run("doctor", { env: { DATABASE_URL: "no url" } })).exitCode, 2)
    }))

  it.live("a DIRECT_URL that leads to another database is a problem", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const other = new URL(test.url)
      other.pathname = "/postgres"
      const env = { DATABASE_URL: test.url, DIRECT_URL: other.toString() }
      const { exitCode, stdout } = yield* Cli.run("doctor --json", { env })
      assert.strictEqual(exitCode, 1)
      const direct = JSON.parse(stdout).findings.find(({ name }: Finding) => name === "direct URL")
      assert.strictEqual(direct.result, "problem")
      assert.include(direct.found, "another database")
    }))
})

describe("doctor, settings:", () => {
  whereDatabases("names those that are wrong for this database", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* set(test, "lock_timeout = '5s'")
      yield* set(test, "synchronous_commit = 'local'")
      yield* set(test, "idle_in_transaction_session_timeout = '90s'")
      yield* set(test, "track_counts = off")
      const { exitCode, of, problems } = yield* examine(test.url)
      assert.deepStrictEqual([exitCode, problems], [1, ["statistics"]])
      assert.strictEqual(of("lock_timeout").result, "advice")
      assert.include(of("lock_timeout").found, "5 s")
      assert.strictEqual(of("idle transactions").found, "ended after 90 s")
      assert.strictEqual(of("durability").result, "advice")
    }).pipe(Effect.scoped))

  whereDatabases("a session that may not write: a problem, and nothing is tried", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* set(test, "default_transaction_read_only = on")
      const { findings, of, problems } = yield* examine(test.url)
      assert.deepStrictEqual(problems, ["writes"])
      assert.include(of("writes").found, "default_transaction_read_only")
      assert.deepStrictEqual(
        [...new Set(findings.filter(({ area }) => area === "needed").map(({ result }) => result))],
        ["unknown"]
      )
    }).pipe(Effect.scoped))

  it.live("more connections than the server allows are a problem", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const env = { DATABASE_URL: test.url, POSTGRES_MAX_CONNECTIONS: "100000" }
      const { exitCode, stdout } = yield* Cli.run("doctor --json", { env })
      const found = JSON.parse(stdout).findings.find(({ name }: Finding) => name === "connections")
      assert.deepStrictEqual([exitCode, found.result], [1, "problem"])
      assert.include(found.found, "100,002")
    }))

  it.live("storage parameters: what is missing is set by what it says to do", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* test.sql("ALTER TABLE worker_queue RESET (fillfactor, vacuum_truncate)")
      const missing = (yield* examine(test.url)).of("table settings")
      assert.strictEqual(missing.result, "advice")
      yield* test.sql(missing.todo!)
      assert.strictEqual((yield* examine(test.url)).of("table settings").result, "ok")

      yield* test.sql("ALTER TABLE worker_queue SET (autovacuum_enabled = false)")
      const disabled = (yield* examine(test.url)).of("table settings")
      assert.strictEqual(disabled.result, "problem")
      yield* test.sql(disabled.todo!)
      assert.strictEqual((yield* examine(test.url)).of("table settings").result, "ok")
    }))
})

describe("doctor, rights:", () => {
  const { worker } = PgServer.server()
  if (worker === null) return

  it.live("a worker has those of a worker, and what it may not see is unknown", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const { exitCode, of, problems } = yield* examine(test.workerUrl)
      assert.deepStrictEqual([exitCode, problems], [0, []])
      assert.include(of("role").found, "has the rights of a worker")
      assert.strictEqual(of("creation in transactions").result, "unknown")
      assert.strictEqual(of("stored functions").result, "ok") // in temporary objects
      assert.strictEqual(of("observing").result, "advice")
    }))

  it.live("a part of the rights of a role is a problem that names what is missing", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* test.sql(`REVOKE UPDATE ON queue_outbox FROM ${worker.user}`)
      yield* test.sql(`REVOKE USAGE ON SEQUENCE worker_queue_id_seq FROM ${worker.user}`)
      const { of, problems } = yield* examine(test.workerUrl)
      assert.deepStrictEqual(problems, ["role"])
      assert.include(of("role").found, "lacks UPDATE on queue_outbox, USAGE on worker_queue_id_seq")
    }))

  it.live("without any right: a problem, the answers it may not have are unknown", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* test.sql(`REVOKE ALL ON ALL TABLES IN SCHEMA public FROM ${worker.user}`)
      yield* test.sql(`REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM ${worker.user}`)
      const { of, problems } = yield* examine(test.workerUrl)
      assert.deepStrictEqual(problems, ["role"])
      assert.include(of("role").found, "no rights on the tables")
      for (const name of ["migrations", "processes"]) assert.strictEqual(of(name).result, "unknown", name)
    }))

  it.live("functions that the login may not call are a problem", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* test.sql(`REVOKE EXECUTE ON FUNCTION dx_read_next_due FROM PUBLIC, ${worker.user}`)
      const { of, problems } = yield* examine(test.workerUrl)
      assert.deepStrictEqual(problems, ["role"])
      assert.include(of("role").found, "may not call 1 function")
    }))
})

describe("doctor, indexes:", () => {
  it.live("one of ours that is missing or broken is a problem, with the statement that mends it", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* test.sql("DROP INDEX worker_queue_route_visible_at_id_idx")
      yield* test.sql("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'sessions_worker_id_idx'::regclass")
      const { of, problems } = yield* examine(test.url)
      assert.deepStrictEqual(problems, ["missing index", "broken index"])
      for (const name of problems) yield* test.sql(of(name).todo!.replace("Create it again: ", ""))
      assert.deepStrictEqual((yield* examine(test.url)).problems, [])
    }))

  it.live("one of others is named if it was never used, or slows every claim", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* test.sql("CREATE INDEX app_created ON history (created_at)")
      yield* test.sql("CREATE INDEX app_locked ON worker_queue (locked_until)")
      const { exitCode, findings } = yield* examine(test.url)
      assert.strictEqual(exitCode, 0)
      const named = findings.filter(({ name }) => name === "other index")
      assert.deepStrictEqual(named.map(({ result }) => result), ["advice", "advice"])
      assert.match(named[0]!.found, /app_created on history was never used/)
      assert.match(named[1]!.found, /app_locked on worker_queue covers locked_until/)
    }))
})

describe("doctor, dead rows:", () => {
  whereDatabases("who keeps them is a problem, until it ends", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const run = yield* session(test)
      const [{ pid }] = yield* run("SELECT pg_backend_pid()::text AS pid, pg_current_xact_id()::text AS began")
      yield* test.sql(`INSERT INTO worker_queue (work_item, visible_at, created_at, route)
        SELECT '{}', now(), now(), 'Step' FROM generate_series(1, 12000)`)
      yield* test.sql("DELETE FROM worker_queue")
      yield* waitUntil(Effect.map(
        test.sql<{ readonly dead: number }>(
          "SELECT pg_stat_get_dead_tuples('worker_queue'::regclass)::integer AS dead, pg_stat_clear_snapshot()::text"
        ),
        ([row]) => row!.dead >= 12_000
      ))
      // One that is about to end keeps dead rows as well.
      assert.strictEqual((yield* examine(test.url)).of("oldest transaction").result, "ok")

      yield* test.sql(
        `DO $$ BEGIN FOR i IN 1 .. 110000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`
      )
      const { of, problems } = yield* examine(test.url)
      assert.deepStrictEqual(problems, ["oldest transaction"])
      assert.include(of("oldest transaction").found, `transaction ${pid}`)
      assert.strictEqual(of("oldest transaction").todo, `End it: SELECT pg_terminate_backend(${pid})`)
      assert.strictEqual(of("dead rows").result, "advice")
      assert.include(of("dead rows").found, "worker_queue has 12,000")
      yield* run("COMMIT")
      assert.deepStrictEqual((yield* examine(test.url)).problems, [])
    }).pipe(Effect.scoped))
})

describe("doctor, servers that are not PostgreSQL:", () => {
  it.live("without LISTEN: processes poll, and the exit code is 0", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = yield* RefusingProxy.inFrontOf(test.url, RefusingProxy.refuse(/\bLISTEN\b/))
      const { exitCode, of } = yield* examine(url)
      assert.strictEqual(exitCode, 0)
      const { found, result, todo } = of("notifications")
      assert.strictEqual(result, "advice")
      assert.include(found, "LISTEN is refused: not supported here")
      assert.include(todo, "processes poll")
    }))

  it.live("where NOTIFY is refused", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const refused = yield* RefusingProxy.inFrontOf(test.url, RefusingProxy.refuse(/pg_notify\(/))
      assert.include((yield* examine(refused)).of("notifications").found, "NOTIFY is refused")
    }))

  it.live("what is optional is advice that says what goes without it", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = yield* RefusingProxy.inFrontOf(
        test.url,
        RefusingProxy.refuse(
          /pg_advisory_lock_shared/,
          /autovacuum_vacuum_scale_factor/,
          /FOR EACH STATEMENT/,
          /PARTITION BY/
        )
      )
      const { exitCode, findings } = yield* examine(url)
      assert.strictEqual(exitCode, 0)
      const missing = findings.filter(({ area, found }) => area === "optional" && found.startsWith("refused: "))
      assert.deepStrictEqual(
        missing.map(({ name }) => name),
        ["locks of sessions", "storage parameters", "statement triggers", "partitions"]
      )
      for (const { result, todo } of missing) {
        assert.strictEqual(result, "advice")
        assert.match(todo ?? "", /^Without it /)
      }
    }))

  it.live("what is needed is a problem, each for itself, and nothing is left", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const before = yield* objects(test)
      const url = yield* RefusingProxy.inFrontOf(
        test.url,
        RefusingProxy.refuse(/SKIP LOCKED/, /GENERATED ALWAYS/, /pg_try_advisory_xact_lock/, /jsonb_to_recordset/)
      )
      const { exitCode, problems } = yield* examine(url)
      assert.strictEqual(exitCode, 1)
      assert.deepStrictEqual(problems, ["generated columns", "SKIP LOCKED", "JSON functions", "advisory locks"])
      assert.deepStrictEqual(yield* objects(test), before)
    }))

  it.live("one that keeps what a rolled back transaction has created: a problem, and it is removed", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const before = yield* objects(test)
      // Statements of such a server commit one by one.
      const url = yield* RefusingProxy.inFrontOf(
        test.url,
        (sql) => sql.replace(/^(?:ROLLBACK; )?BEGIN[^;]*;?|^ROLLBACK$/, "")
      )
      const { problems } = yield* examine(url)
      assert.deepStrictEqual(problems, ["advisory locks", "creation in transactions"])
      assert.deepStrictEqual(yield* objects(test), before)
    }))
})
