import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import type { MigrationError } from "../../src/prisma/MigrationError.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { duroxideLockKey } from "../../src/prisma/shared/directSession.ts"
import { ProviderDriver } from "../../src/provider/ProviderDriver.ts"
import * as Test from "../utils/driver.ts"
import * as Duroxide from "../utils/duroxideSchema.ts"
import { names as ours } from "../utils/migrations.ts"
import * as PgServer from "../utils/PgServer.ts"
import { prismaCli } from "../utils/prismaCli.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))
const adopt = (options: Migrator.Options) => silently(Migrator.adopt(options))
const refusal = <A, R>(effect: Effect.Effect<A, MigrationError, R>) =>
  Effect.map(Effect.flip(effect), ({ reason }) => reason)

/**
 * Rows of all tables of duroxide-pg, as text, in its columns; without the names of event types, which adopting sets.
 */
const contents = (sql: PgServer.TestDatabase["sql"]) =>
  sql(
    `SELECT (SELECT jsonb_agg(to_jsonb(i) - '{route,status,limit_name,limit_key,limit_route,limit_place}'::text[] ORDER BY instance_id) FROM instances AS i)::text AS instances,
       (SELECT json_agg(e ORDER BY instance_id, execution_id) FROM executions AS e)::text AS executions,
       (SELECT json_agg((instance_id, execution_id, event_id, event_data, created_at)
         ORDER BY instance_id, execution_id, event_id) FROM history)::text AS history,
       (SELECT json_agg(k ORDER BY instance_id, key) FROM kv_store AS k)::text AS kv,
       (SELECT json_agg(m ORDER BY version) FROM _duroxide_migrations AS m)::text AS books`
  )

/** The entries of `after` that `before` does not have. */
const added = (before: ReadonlyArray<string>, after: ReadonlyArray<string>) =>
  after.filter((object) => !before.includes(object))

describe("adopt", () => {
  it.live("adopt: adds functions, indexes, routes with triggers, tables of queues and migration records, and changes nothing that exists", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* Duroxide.filled("Rust made")
      const rows = yield* contents(sql)
      const before = yield* Duroxide.objects(sql, schema)
      assert.deepStrictEqual(yield* adopt({ url }), ours)
      const after = yield* Duroxide.objects(sql, schema)
      const lost = before.filter((object) => !after.includes(object))
      // On Duroxide's tables, only storage parameters change.
      assert.deepStrictEqual(lost.filter((object) => !/^relation \w+ r$/.test(object)), [])
      const strangers = added(before, after).filter((object) =>
        !/^\w+ ((queue|sqlite)_|(attributes|blocked_instances|limits|limit_keys|operator_actions|paused|processes|progress_chunks|progress_streams|removed_events|schedule_runs|schedules)(_(pkey|id_seq)|[. ]))/
          .test(
            object
          ) &&
        !/^(function dx_|relation dx_\w+ c$|relation \w+ r \{fillfactor=|relation \w+_idx i$|(relation|column) _prisma_migrations)/
          .test(
            object
          ) &&
        !/^(column (instances|orchestrator_queue|worker_queue)[.]route text|column (instances|worker_queue)[.]limit_(name|key|route) text|column instances[.]limit_place bigint|column instances[.]status text|column orchestrator_queue[.]due_at |trigger \w+[.]dx_(route|notify|set|delete)_\w+ dx_)/
          .test(
            object
          )
      )
      assert.deepStrictEqual(strangers, [])
      assert.deepStrictEqual(yield* contents(sql), rows)
    }))

  it.live("adopt: afterwards verify, migrate and the Prisma CLI have nothing to do", () =>
    Effect.gen(function*() {
      const { url } = yield* Duroxide.filled("Rust made")
      yield* adopt({ url })
      yield* Migrator.verify({ url })
      assert.deepStrictEqual(yield* silently(Migrator.migrate({ url })), [])
      const status = yield* prismaCli(url, "migrate", "status")
      assert.include(status.output, "Database schema is up to date!")
      const deploy = yield* prismaCli(url, "migrate", "deploy")
      assert.include(deploy.output, "No pending migrations to apply.")
    }))

  it.live("adopt: instances have the status of their executions, then and later", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* Duroxide.filled("rust")
      yield* adopt({ url })
      const wrong = sql(
        `SELECT i.instance_id FROM instances AS i
         JOIN executions AS e ON e.instance_id = i.instance_id AND e.execution_id = i.current_execution_id
         WHERE i.status <> dx_status(e.status, e.output)`
      )
      assert.deepStrictEqual(yield* wrong, [])
      const statuses = sql<{ readonly status: string }>("SELECT DISTINCT status FROM instances ORDER BY 1")
      assert.includeMembers((yield* statuses).map(({ status }) => status), ["Completed", "Running"])
      // As processes of Duroxide write it.
      yield* sql(
        "INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ('new', 'O', now(), now())"
      )
      yield* sql(
        "INSERT INTO executions (instance_id, execution_id, status, started_at) VALUES ('new', 1, 'Running', now())"
      )
      const change = (changes: string) => sql(`UPDATE executions SET ${changes} WHERE instance_id = 'new'`)
      const status = Effect.map(
        sql<{ status: string }>("SELECT status FROM instances WHERE instance_id = 'new'"),
        ([row]) => row!.status
      )
      assert.strictEqual(yield* status, "Running")
      yield* change("status = 'ContinuedAsNew'")
      assert.strictEqual(yield* status, "Running")
      yield* change("status = 'Failed', output = 'canceled: stop'")
      assert.strictEqual(yield* status, "Cancelled")
      yield* change("status = 'Completed', output = NULL")
      assert.strictEqual(yield* status, "Completed")
    }))

  it.live("adopt: names the types of stored events", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* Duroxide.filled("rust")
      yield* sql("INSERT INTO history VALUES ('unreadable', 1, 1, 'Event', 'no json', now())")
      yield* adopt({ url })
      assert.deepStrictEqual(
        yield* sql(
          `SELECT instance_id FROM history
           WHERE instance_id <> 'unreadable' AND event_type IS DISTINCT FROM event_data::json ->> 'type'`
        ),
        []
      )
      assert.deepStrictEqual(
        yield* sql("SELECT event_type FROM history WHERE instance_id = 'unreadable'"),
        [{ event_type: "Event" }]
      )
    }))

  it.live("adopt: has the indexes and storage parameters of a schema of our own", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* Duroxide.empty("rust")
      yield* adopt({ url })
      yield* silently(Migrator.migrate({ url, schema: "own" }))
      yield* Effect.addFinalizer(() => sql("DROP SCHEMA own CASCADE"))
      const own = yield* Duroxide.objects(sql, "own")
      const extras = own.filter((object) => /^relation \w+ r \{|_idx i$/.test(object))
      assert.isAbove(extras.length, 10)
      assert.deepStrictEqual(added(yield* Duroxide.objects(sql, schema), extras), [])
    }))

  it.live("adopt: does nothing the second time, and leaves storage parameters that were set", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* Duroxide.empty("rust")
      yield* sql("ALTER TABLE worker_queue SET (fillfactor = 60)")
      assert.deepStrictEqual(yield* adopt({ url }), ours)
      assert.deepStrictEqual(yield* adopt({ url }), [])
      const [row] = yield* sql("SELECT reloptions FROM pg_class WHERE oid = 'worker_queue'::regclass")
      assert.deepStrictEqual(row, { reloptions: ["fillfactor=60"] })
    }))

  it.live("adopt: ten at once apply each migration once", () =>
    Effect.gen(function*() {
      const { url } = yield* Duroxide.filled("rust")
      const applied = yield* Effect.all(Array.from({ length: 10 }, () => adopt({ url })), { concurrency: "unbounded" })
      assert.deepStrictEqual(applied.flat(), ours)
    }))

  it.live("adopt: continues where an earlier attempt stopped", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* Duroxide.empty("rust")
      yield* sql("CREATE TABLE instances_parent_instance_id_created_at_idx ()") // the name of one of our indexes
      const first = yield* refusal(adopt({ url }))
      assert.strictEqual(first._tag, "MigrationFailed")
      assert.include(first.message, "instances_parent_instance_id_created_at_idx")
      yield* sql("DROP TABLE instances_parent_instance_id_created_at_idx")
      yield* sql(/DELETE FROM .* IS NULL/.exec(first.message)![0])
      assert.deepStrictEqual(yield* adopt({ url }), ours)
    }))

  it.live("layer: our driver reads what duroxide-pg stored, and works beside it", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* Duroxide.filled("Rust \"made\"")
      yield* Effect.gen(function*() {
        const driver = yield* ProviderDriver
        const stored = yield* sql<{ instance_id: string; execution_id: string; events: ReadonlyArray<string> }>(
          `SELECT instance_id, execution_id, array_agg(event_data ORDER BY event_id) AS events
           FROM history GROUP BY instance_id, execution_id`
        )
        assert.isAbove(stored.length, Duroxide.scenarios.length)
        for (const { events, execution_id, instance_id } of stored) {
          const history = yield* driver.readHistory({ instanceId: instance_id, executionId: Number(execution_id) })
          assert.deepStrictEqual(history, events)
        }
        const [timer] = yield* driver.readInstances(["fx-timer"])
        assert.deepInclude(timer, { status: "Completed", output: "\"fired\"" })

        assert.deepStrictEqual(yield* driver.startOrchestrations([Test.start("ours")]), ["Started"])
        const { lockToken } = yield* Test.claimOne(driver)
        const ack = Test.turn(lockToken, { ...Test.named, history: Test.events(1), workerItems: [Test.activity()] })
        assert.deepStrictEqual(yield* driver.ackOrchestrationItems([ack]), ["Done"])
        const [taken] = yield* Test.take(driver)
        assert.deepStrictEqual(
          yield* driver.ackWorkItems([
            { lockToken: taken!.lockToken, completion: { instanceId: "ours", workItem: "{}" } }
          ]),
          ["Done"]
        )
      }).pipe(Effect.provide(PrismaProvider.layer({ url, schema, migrate: "adopt" })), silently)
      const [row] = yield* sql("SELECT latest_execution_id('ours')::int AS execution")
      assert.deepStrictEqual(row, { execution: 1 })
    }))

  it.live("adopt: waits for a duroxide-pg that migrates", () =>
    Effect.gen(function*() {
      const { schema, sql, url, ...test } = yield* Duroxide.empty("rust")
      const key = 6525839948726140266n // FNV-1a of 64 bits over "duroxide_pg:migrations:rust", computed elsewhere.
      assert.strictEqual(duroxideLockKey(schema), key)
      yield* sql("SELECT pg_advisory_lock($1)", [String(key)])
      const timeout = yield* refusal(adopt({ url, lockTimeout: "50 millis" }))
      assert.strictEqual(timeout._tag, "LockTimeout")
      const waiting = yield* Effect.forkChild(adopt({ url }))
      yield* waitForStatement({ ...test, schema, sql, url }, "pg_advisory_lock", "Lock")
      yield* sql("SELECT pg_advisory_unlock($1)", [String(key)])
      assert.deepStrictEqual(yield* Fiber.join(waiting), ours)
    }))
})

describe("refusals", () => {
  const cases: ReadonlyArray<readonly [what: string, change: string, differences: ReadonlyArray<string>]> = [
    ["a missing column", "ALTER TABLE worker_queue DROP COLUMN tag", ["column worker_queue.tag is missing"]],
    ["a missing table", "DROP TABLE kv_delta", ["table kv_delta is missing"]],
    ["a view in place of a table", "ALTER TABLE kv_delta RENAME TO kv; CREATE VIEW kv_delta AS SELECT * FROM kv", [
      "table kv_delta is missing"
    ]],
    ["another type", "ALTER TABLE kv_store ALTER last_updated_at_ms TYPE integer", [
      "column kv_store.last_updated_at_ms is integer, not bigint"
    ]],
    ["a column that may be null", "ALTER TABLE history ALTER created_at DROP NOT NULL", [
      "column history.created_at is nullable"
    ]],
    ["a column that must not be null", "ALTER TABLE kv_delta ALTER value SET NOT NULL", [
      "column kv_delta.value is not nullable"
    ]],
    ["another default", "ALTER TABLE executions ALTER status SET DEFAULT 'New'", [
      "column executions.status has the default 'New', not 'Running'"
    ]],
    ["a sequence without effect", "ALTER TABLE worker_queue ALTER id DROP DEFAULT", [
      "column worker_queue.id has the default null, not counted"
    ]],
    ["a missing primary key", "ALTER TABLE kv_store DROP CONSTRAINT kv_store_pkey", [
      "the primary key of kv_store is missing, not instance_id, key"
    ]],
    ["a column our rows would lack", "ALTER TABLE sessions ADD region text NOT NULL", [
      "column sessions.region is unknown and has to be filled"
    ]],
    ["an old duroxide-pg", "DELETE FROM _duroxide_migrations WHERE version IN (20, 23); DROP TABLE kv_delta", [
      "its migration 20 is not applied",
      "table kv_delta is missing"
    ]],
    ["no duroxide-pg at all", "DROP TABLE _duroxide_migrations", [
      "table _duroxide_migrations is missing, so duroxide-pg was never here"
    ]]
  ]
  for (const [what, change, differences] of cases) {
    it.live(`adopt: ${what} is LayoutMismatch, and nothing is written`, () =>
      Effect.gen(function*() {
        const { schema, sql, url } = yield* Duroxide.empty("rust")
        yield* sql(change)
        const before = yield* Duroxide.objects(sql, schema)
        const reason = yield* refusal(adopt({ url }))
        assert.deepInclude(reason, { _tag: "LayoutMismatch", schema, differences: [...differences] })
        assert.include(reason.message, differences[0]!)
        assert.deepStrictEqual(yield* Duroxide.objects(sql, schema), before)
        assert.strictEqual((yield* refusal(Layer.build(Migrator.layerAdopt({ url }))))._tag, "LayoutMismatch")
      }))
  }

  it.live("adopt: a newer duroxide-pg whose columns fit is a warning", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* Duroxide.empty("rust")
      yield* sql(
        `INSERT INTO _duroxide_migrations (version, name) VALUES (24, '0024_new.sql');
         ALTER TABLE sessions ADD region text, ADD zone text NOT NULL DEFAULT '', ALTER worker_id TYPE text`
      )
      const logged: Array<string> = []
      const logger = Logger.layer([
        Logger.make(({ logLevel, message }) => void logged.push(`${logLevel} ${String(message)}`))
      ])
      assert.deepStrictEqual(yield* Migrator.adopt({ url }).pipe(Effect.provide(logger)), ours)
      assert.lengthOf(logged.filter((line) => line.startsWith("Warn") && line.includes("0024_new.sql")), 1)
    }))

  it.live("migrate: a schema of duroxide-pg is SchemaOccupied, and the message names adopt", () =>
    Effect.gen(function*() {
      const { url } = yield* Duroxide.empty("rust")
      const reason = yield* refusal(silently(Migrator.migrate({ url })))
      assert.strictEqual(reason._tag, "SchemaOccupied")
      assert.include(reason.message, "Migrator.adopt")
    }))

  it.live("adopt: a role that does not own the tables gets an error that says so", () =>
    Effect.gen(function*() {
      const { quoted, sql, url } = yield* Duroxide.empty("rust")
      const [role] = yield* sql<{ super: boolean }>(
        "SELECT rolsuper AS super FROM pg_roles WHERE rolname = current_user"
      )
      const restricted = new URL(url)
      if (role!.super) {
        // A superuser has every right; another role has only the granted ones.
        restricted.searchParams.set("options", "-c role=pg_monitor")
        yield* sql(
          `GRANT USAGE, CREATE ON SCHEMA ${quoted} TO pg_monitor; GRANT SELECT ON _duroxide_migrations TO pg_monitor`
        )
      } else {
        yield* sql(`REVOKE CREATE ON SCHEMA ${quoted} FROM CURRENT_USER`)
      }
      const reason = yield* refusal(adopt({ url: restricted.toString() }))
      assert.strictEqual(reason._tag, "PermissionDenied")
      assert.include(reason.message, "the role that owns the tables")
    }))
})
