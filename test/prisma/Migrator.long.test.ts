import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as pg from "pg"
import type { MigrationError } from "../../src/prisma/MigrationError.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import { names as ours, ours as files, read, withMigrations } from "../utils/migrations.ts"
import * as PgServer from "../utils/PgServer.ts"
import { prismaCli } from "../utils/prismaCli.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))
const migrate = (options: Migrator.Options) => silently(Migrator.migrate(options))
const refusal = <A, R>(effect: Effect.Effect<A, MigrationError, R>) =>
  Effect.map(Effect.flip(effect), ({ reason }) => reason)

/** The recorded migrations, without what differs in every run. */
const books = ({ sql }: PgServer.TestDatabase, schema: string) =>
  sql(
    `SELECT migration_name, checksum, logs, applied_steps_count, rolled_back_at,
       length(id) AS id_length, finished_at >= started_at AS in_order
     FROM ${pg.escapeIdentifier(schema)}._prisma_migrations ORDER BY started_at`
  )

const inSchema = (url: string, schema: string) => {
  const changed = new URL(url)
  changed.searchParams.set("schema", schema)
  return changed.toString()
}

/** A schema with a unique name, dropped with the scope; on a server without CREATE DATABASE, tests share a database. */
const freshSchema = Effect.fnUntraced(function*(name: string) {
  const test = yield* PgServer.emptyDatabase
  const quoted = pg.escapeIdentifier(name)
  yield* Effect.addFinalizer(() => test.sql(`DROP SCHEMA IF EXISTS ${quoted} CASCADE`))
  return { test, schema: name, url: inSchema(test.url, name), quoted }
})

it("the migrations in the code: are the files of the repository, byte for byte", () => {
  assert.isAbove(files.length, 1)
  assert.deepStrictEqual(files.map(({ name, sql }) => [name, sql]), Object.entries(read("prisma/migrations")))
})

describe("migrate", () => {
  it.live("migrate: applies everything to a fresh schema, and nothing the second time", () =>
    Effect.gen(function*() {
      const { test, url } = yield* freshSchema("fresh")
      assert.deepStrictEqual(yield* migrate({ url }), ours)
      assert.deepStrictEqual(yield* migrate({ url }), [])
      yield* Migrator.verify({ url })
      assert.lengthOf(yield* books(test, "fresh"), ours.length)
    }))

  it.live("migrate: ten at once apply each migration once", () =>
    Effect.gen(function*() {
      const { test, url } = yield* freshSchema("ten")
      const applied = yield* Effect.all(Array.from({ length: 10 }, () => migrate({ url })), {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(applied.flat(), ours)
      assert.lengthOf(yield* books(test, "ten"), ours.length)
    }))

  for (const schema of ["Mixed Case", "with-dash", "quo\"te", "back\\slash", "ünïcödé", "select"]) {
    it.live(`migrate: works in schema ${schema}, functions included`, () =>
      Effect.gen(function*() {
        const { quoted, test, url } = yield* freshSchema(schema)
        assert.deepStrictEqual(yield* migrate({ url }), ours)
        // Under another search path: the function must find its tables through its own.
        const rows = yield* test.sql(`SELECT ${quoted}.dx_enqueue_for_worker('[]'::jsonb, NULL) AS enqueued`)
        assert.lengthOf(rows, 1)
      }))
  }

  it.live("migrate: keeps committed migrations when its session is killed, and blocks no other process", () =>
    Effect.gen(function*() {
      const { test, url } = yield* freshSchema("killed")
      const slow = "CREATE TABLE slow (); SELECT pg_sleep(CASE WHEN EXISTS (SELECT FROM gate) THEN 60 ELSE 0 END)"
      const these = withMigrations({ "1_gate": "CREATE TABLE gate AS SELECT 1", "2_slow": slow })
      const running = yield* Effect.forkChild(refusal(these(migrate({ url }))))
      yield* waitForStatement(test, "CREATE TABLE slow")
      yield* test.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'duroxide-prisma migrator' AND datname = current_database()"
      )
      const reason = yield* Fiber.join(running)
      assert.isTrue(reason.isRetryable, reason.message)
      yield* test.sql("DELETE FROM killed.gate")
      assert.deepStrictEqual(yield* these(migrate({ url })), ["2_slow"])
    }))

  it.live("layer: migrates before the layers built on it", () =>
    Effect.gen(function*() {
      const { url } = yield* freshSchema("layered")
      const checked = Layer.effectDiscard(Migrator.verify({ url })).pipe(Layer.provide(Migrator.layer({ url })))
      const built = yield* Effect.exit(silently(Layer.build(checked)))
      assert.isTrue(Exit.isSuccess(built))
    }))
})

describe("beside the Prisma CLI", () => {
  const schema = "Shared Name"

  it.live("migrate: leaves a schema that `prisma migrate` reports as up to date", () =>
    Effect.gen(function*() {
      const { url } = yield* freshSchema(schema)
      yield* migrate({ url })
      const status = yield* prismaCli(url, "migrate", "status")
      assert.include(status.output, "Database schema is up to date!")
      assert.strictEqual(status.exitCode, 0)
      const deploy = yield* prismaCli(url, "migrate", "deploy")
      assert.include(deploy.output, "No pending migrations to apply.")
    }))

  /** These name no table, and a setting would keep the planner from inlining them. */
  const inlined = [
    "dx_group_of",
    "dx_is_clock_off",
    "dx_is_free",
    "dx_is_plain",
    "dx_is_taken",
    "dx_limit_place",
    "dx_next_token_ms",
    "dx_no_end",
    "dx_process_key",
    "dx_route",
    "dx_row_id",
    "dx_semantic_version",
    "dx_share_at_once",
    "dx_status",
    "dx_tag",
    "dx_task_id",
    "dx_time_of",
    "dx_tokens_back_ms"
  ]
  /** Only other functions call these, under their settings. */
  const parts = [
    "dx_admit_activities",
    "dx_admit_at_once",
    "dx_admit_instances",
    "dx_admit_tasks",
    "dx_admit_wakeups",
    "dx_advance_with_plain_turn",
    "dx_bring_activities_forward",
    "dx_bring_messages_forward",
    "dx_bury_messages",
    "dx_cancel_activities",
    "dx_check_first_turns",
    "dx_check_turns",
    "dx_clean_limit_keys",
    "dx_count_slots",
    "dx_count_waiting",
    "dx_create_instances",
    "dx_delete_ended",
    "dx_free_task_slots",
    "dx_hold_activities",
    "dx_insert_chunks",
    "dx_instances_of_children",
    "dx_instances_of_starts",
    "dx_is_limit_awaited",
    "dx_is_schedule_running",
    "dx_judge_unlocked_tasks",
    "dx_leave_messages",
    "dx_limit_activities",
    "dx_limit_instances",
    "dx_limit_key",
    "dx_limit_tasks",
    "dx_limited_messages",
    "dx_limited_tasks",
    "dx_lock_stream",
    "dx_may_notify",
    "dx_may_take_session",
    "dx_meet_parked",
    "dx_move_outbox",
    "dx_next_activities",
    "dx_next_instances",
    "dx_next_sessions",
    "dx_oldest_activity",
    "dx_oldest_message",
    "dx_park_instances",
    "dx_parked_activity_routes",
    "dx_parked_instance_routes",
    "dx_present_blocks",
    "dx_release_activities",
    "dx_release_instances",
    "dx_release_limited_instances",
    "dx_room_at_once",
    "dx_release_tasks",
    "dx_reroute_instances",
    "dx_reroute_message",
    "dx_route_earlier_messages",
    "dx_routes_of_activities",
    "dx_routes_of_messages",
    "dx_routes_of_sessions",
    "dx_run_tasks_again",
    "dx_served_routes",
    "dx_start_with_more",
    "dx_start_with_plain_turn",
    "dx_store_activities",
    "dx_store_attributes",
    "dx_store_chunks",
    "dx_store_claim_findings",
    "dx_store_executions",
    "dx_store_instances",
    "dx_store_key_values",
    "dx_store_messages",
    "dx_store_plain_turn",
    "dx_store_starts",
    "dx_store_turns",
    "dx_take_instances",
    "dx_take_limit_parts",
    "dx_take_limited_tasks",
    "dx_take_sessions",
    "dx_turn_inputs",
    "dx_unpark_instances",
    "dx_wake_limited_task",
    "dx_wakeup_of"
  ]

  it.live("migrate: finds nothing to do after `prisma migrate deploy`, and the same migration table and functions", () =>
    Effect.gen(function*() {
      const { quoted, test, url } = yield* freshSchema(schema)
      const deploy = yield* prismaCli(url, "migrate", "deploy")
      assert.strictEqual(deploy.exitCode, 0, deploy.output)
      assert.deepStrictEqual(yield* migrate({ url }), [])
      yield* Migrator.verify({ url })
      yield* migrate({ url: inSchema(test.url, "own") })
      yield* Effect.addFinalizer(() => test.sql("DROP SCHEMA own CASCADE"))
      assert.deepStrictEqual(yield* books(test, "own"), yield* books(test, schema))
      const functions = (name: string) =>
        Effect.map(
          test.sql<{ proname: string; proconfig: ReadonlyArray<string> | null }>(
            "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = quote_ident($1)::regnamespace ORDER BY 1",
            [name]
          ),
          (rows) => {
            assert.deepStrictEqual(
              rows.filter(({ proconfig }) => proconfig === null).map(({ proname }) => proname),
              [...inlined, ...parts].toSorted()
            )
            for (const { proconfig, proname } of rows) {
              if (proconfig !== null) {
                assert.include(proconfig, `search_path=${name === "own" ? "own" : quoted}, pg_temp`, proname)
              }
            }
            return rows.map(({ proname }) => proname)
          }
        )
      assert.isAbove((yield* functions("own")).length, 0)
      assert.deepStrictEqual(yield* functions("own"), yield* functions(schema))
      const columns = (name: string) =>
        test.sql(
          `SELECT column_name, data_type, is_nullable, column_default, character_maximum_length
           FROM information_schema.columns
           WHERE table_schema = $1 AND table_name = '_prisma_migrations' ORDER BY ordinal_position`,
          [name]
        )
      assert.deepStrictEqual(yield* columns("own"), yield* columns(schema))
    }))

  it.live("migrate: at the same time as `prisma migrate deploy`, applies each migration once", () =>
    Effect.gen(function*() {
      const { test, url } = yield* freshSchema(schema)
      const [deploy] = yield* Effect.all([
        prismaCli(url, "migrate", "deploy"),
        // Checks repeatedly, so that some checks happen during the run of the CLI.
        Effect.repeat(migrate({ url }), { times: 20 })
      ], { concurrency: "unbounded" })
      assert.strictEqual(deploy.exitCode, 0, deploy.output)
      assert.lengthOf(yield* books(test, schema), ours.length)
    }))

  it.live("migrate: the CLI sees a failure, and the advice of the message resolves it", () =>
    Effect.gen(function*() {
      const { test, url } = yield* freshSchema("broken")
      const good = { "1_good": "CREATE TABLE good (id integer)" }
      const later = { "3_later": "CREATE TABLE later ()" }
      const failing = withMigrations({
        ...good,
        "2_bad": "CREATE TABLE bad (); INSERT INTO good VALUES (1); SELECT missing();",
        ...later
      })
      const first = yield* refusal(failing(migrate({ url })))
      assert.strictEqual(first._tag, "MigrationFailed")
      assert.include(
        first.message,
        "migration 2_bad failed in schema broken: function missing() does not exist (42883). Remove"
      )
      assert.isFalse(first.isRetryable)
      const tables = yield* test.sql<{ tablename: string }>(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'broken' ORDER BY 1"
      )
      assert.deepStrictEqual(tables.map(({ tablename }) => tablename), ["_prisma_migrations", "good"])
      assert.lengthOf(yield* test.sql("SELECT FROM broken.good"), 0)

      for (const again of [migrate({ url }), Migrator.verify({ url })]) {
        const reason = yield* refusal(failing<unknown, MigrationError, never>(again))
        assert.strictEqual(reason._tag, "MigrationFailed")
        assert.include(reason.message, "an earlier attempt did not finish (function missing() does not exist (42883))")
      }
      const cli = yield* prismaCli(url, "migrate", "deploy")
      assert.notStrictEqual(cli.exitCode, 0)
      assert.include(cli.output, "P3009")

      const mended = withMigrations({ ...good, "2_bad": "CREATE TABLE bad ()", ...later })
      const advice = /DELETE FROM .* IS NULL/.exec(first.message)
      assert.isNotNull(advice)
      yield* test.sql(advice[0])
      assert.deepStrictEqual(yield* mended(migrate({ url })), ["2_bad", "3_later"])
    }))
})

describe("a migration that the server refuses", () => {
  const broken = {
    "a syntax error": ["CREATE TABEL t ()", "syntax error at or near \"TABEL\" (42601)"],
    "a table that is missing": ["UPDATE nowhere SET x = 1", "relation \"nowhere\" does not exist (42P01)"],
    "outside a transaction": [
      "CREATE INDEX CONCURRENTLY ON nowhere (x)",
      "relation \"nowhere\" does not exist (42P01)"
    ]
  }
  for (const [name, [statement, problem]] of Object.entries(broken)) {
    it.live(`${name}: is named with the server's message, without advice to migrate`, () =>
      Effect.gen(function*() {
        const { url } = yield* freshSchema("refused")
        const { message } = yield* refusal(withMigrations({ "1_bad": statement! })(migrate({ url })))
        assert.include(message, `migration 1_bad failed in schema refused: ${problem}. Remove the cause`)
        assert.notInclude(message, "Run the migrations")
      }))
  }
})

describe("verify", () => {
  it.live("verify: a schema that lacks migrations is SchemaBehind and lists them", () =>
    Effect.gen(function*() {
      const { quoted, test, url } = yield* freshSchema("behind")
      const missing = yield* refusal(Migrator.verify({ url }))
      assert.deepInclude(missing, { _tag: "SchemaBehind", pending: ours })
      yield* migrate({ url })
      const last = ours.at(-1)!
      yield* test.sql(`DELETE FROM ${quoted}._prisma_migrations WHERE migration_name = $1`, [last])
      assert.deepInclude(yield* refusal(Migrator.verify({ url })), { _tag: "SchemaBehind", pending: [last] })
      assert.deepInclude(
        yield* refusal(Layer.build(Migrator.layerVerify({ url }))),
        { _tag: "SchemaBehind", pending: [last] }
      )
    }))

  it.live("verify: while another process migrates, the schema is behind, not broken", () =>
    Effect.gen(function*() {
      const { quoted, test, url } = yield* freshSchema("busy")
      yield* migrate({ url })
      const last = ours.at(-1)!
      yield* test.sql(`UPDATE ${quoted}._prisma_migrations SET finished_at = NULL WHERE migration_name = $1`, [last])
      yield* test.sql("SELECT pg_advisory_lock(72707369)")
      assert.deepInclude(yield* refusal(Migrator.verify({ url })), { _tag: "SchemaBehind", pending: [last] })
      yield* test.sql("SELECT pg_advisory_unlock(72707369)")
      assert.strictEqual((yield* refusal(Migrator.verify({ url })))._tag, "MigrationFailed")
    }))

  it.live("verify and migrate: a schema of a newer release is SchemaAhead, unless allowed", () =>
    Effect.gen(function*() {
      const { quoted, test, url } = yield* freshSchema("ahead")
      yield* migrate({ url })
      yield* test.sql(
        `INSERT INTO ${quoted}._prisma_migrations (id, checksum, migration_name, finished_at)
         VALUES ('x', 'x', '99990101000000_from_the_future', now())`
      )
      for (const attempt of [Migrator.verify({ url }), migrate({ url })]) {
        assert.deepInclude(yield* refusal<unknown, never>(attempt), {
          _tag: "SchemaAhead",
          unknown: ["99990101000000_from_the_future"]
        })
      }
      yield* Migrator.verify({ url, allowAhead: true })
      assert.deepStrictEqual(yield* migrate({ url, allowAhead: true }), [])
    }))
})

describe("migrations of our names with another text", () => {
  it.live("migrate and verify: are MigrationsDiffer, which names them, and reset is the way out", () =>
    Effect.gen(function*() {
      const { test, url } = yield* freshSchema("edited")
      const [first, ...others] = files
      const text = Object.fromEntries(others.map(({ name, sql }) => [name, sql]))
      yield* withMigrations({
        [first.name]: `${first.sql}\nCREATE TABLE edited (\n  id BIGINT NOT NULL,\n  PRIMARY KEY (id)\n);`,
        ...text
      })(migrate({ url }))
      const before = yield* books(test, "edited")
      for (const attempt of [Migrator.verify({ url }), migrate({ url }), migrate({ url, allowAhead: true })]) {
        const reason = yield* refusal<unknown, never>(attempt)
        assert.deepInclude(reason, { _tag: "MigrationsDiffer", schema: "edited", migrations: [first.name] })
        assert.include(reason.message, first.name)
        assert.isFalse(reason.isRetryable)
      }
      assert.deepStrictEqual(yield* books(test, "edited"), before)
      yield* silently(Migrator.reset({ url }))
      assert.deepStrictEqual(yield* migrate({ url }), ours)
      yield* Migrator.verify({ url })
    }))
})

describe("refusals", () => {
  it.live("migrate: a schema with a table of one of our names is SchemaOccupied and stays as it is", () =>
    Effect.gen(function*() {
      const { quoted, test, url } = yield* freshSchema("occupied")
      yield* test.sql(`CREATE SCHEMA ${quoted}`)
      yield* test.sql(`CREATE TABLE ${quoted}.sessions (id integer)`)
      const reason = yield* refusal(migrate({ url }))
      assert.strictEqual(reason._tag, "SchemaOccupied")
      assert.include(reason.message, "tables sessions")
      const tables = yield* test.sql("SELECT FROM pg_tables WHERE schemaname = 'occupied'")
      assert.lengthOf(tables, 1)
    }))

  it.live("migrate and verify: a schema with another project's migrations is SchemaOccupied", () =>
    Effect.gen(function*() {
      const { url } = yield* freshSchema("shop")
      yield* withMigrations({ "20200101000000_shop": "CREATE TABLE orders ()" })(migrate({ url }))
      for (const attempt of [migrate({ url }), Migrator.verify({ url })]) {
        const reason = yield* refusal<unknown, never>(attempt)
        assert.strictEqual(reason._tag, "SchemaOccupied")
        assert.include(reason.message, "20200101000000_shop")
      }
    }))

  it.live("migrate: waits no longer than lockTimeout for another process", () =>
    Effect.gen(function*() {
      const { test, url } = yield* freshSchema("locked")
      yield* test.sql("SELECT pg_advisory_lock(72707369)")
      const reason = yield* refusal(migrate({ url, lockTimeout: "50 millis" }))
      assert.deepInclude(reason, { _tag: "LockTimeout", waitedMs: 50 })
      assert.isTrue(reason.isRetryable)
    }))

  it.live("migrate: takes any lockTimeout, also an infinite one", () =>
    Effect.gen(function*() {
      for (const lockTimeout of ["100 days", Infinity] as const) {
        const { url } = yield* freshSchema("patient")
        assert.isAbove((yield* migrate({ url, lockTimeout })).length, 0)
        yield* Migrator.reset({ url, lockTimeout })
      }
    }))

  it.live("a role without rights: cannot migrate, gets an error that says so, and can verify", () =>
    Effect.gen(function*() {
      const { quoted, test, url } = yield* freshSchema("restricted")
      yield* test.sql(`CREATE SCHEMA ${quoted}`)
      const [role] = yield* test.sql<{ super: boolean }>(
        "SELECT rolsuper AS super FROM pg_roles WHERE rolname = current_user"
      )
      const restricted = new URL(url)
      if (role!.super) {
        // A superuser has every right; another role has only the granted ones.
        restricted.searchParams.set("options", "-c role=pg_monitor")
        yield* test.sql(`GRANT USAGE ON SCHEMA ${quoted} TO pg_monitor`)
      } else {
        yield* test.sql(`REVOKE CREATE ON SCHEMA ${quoted} FROM CURRENT_USER`)
      }
      const reason = yield* refusal(migrate({ url: restricted.toString() }))
      assert.strictEqual(reason._tag, "PermissionDenied")
      assert.include(reason.message, "Migrator.layerVerify")
      const behind = yield* refusal(Migrator.verify({ url: restricted.toString() }))
      assert.deepInclude(behind, { _tag: "SchemaBehind", pending: ours })

      if (!role!.super) yield* test.sql(`GRANT CREATE ON SCHEMA ${quoted} TO CURRENT_USER`)
      yield* migrate({ url })
      if (role!.super) yield* test.sql(`GRANT SELECT ON ${quoted}._prisma_migrations TO pg_monitor`)
      else yield* test.sql(`REVOKE CREATE ON SCHEMA ${quoted} FROM CURRENT_USER`)
      yield* Migrator.verify({ url: restricted.toString() })
      assert.deepStrictEqual(yield* migrate({ url: restricted.toString() }), [])
    }))

  it.live("a connection that cannot work: is the reason of the connection", () =>
    Effect.gen(function*() {
      const down = yield* refusal(migrate({ url: "postgresql://u:hunter2@127.0.0.1:1/db" }))
      assert.strictEqual(down._tag, "ConnectionLost")
      assert.notInclude(down.message, "hunter2")
      const pooled = yield* refusal(
        migrate({ url: PgServer.urlWith((url) => url.searchParams.set("pgbouncer", "true")) })
      )
      assert.strictEqual(pooled._tag, "ConfigurationInvalid")
    }))
})
