/**
 * Roles with the least rights, on the server: what each may do, and what the server refuses. The validation suite of
 * drivers runs as a worker, too (`prismaSuite.ts`).
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { Health } from "duroxide-prisma/observability"
import { Outbox } from "duroxide-prisma/outbox"
import { type MigrationError, Migrator, PgQueue, PrismaProvider, Roles } from "duroxide-prisma/prisma"
import { Admin, Provider, type ProviderError } from "duroxide-prisma/provider"
import { Queue } from "duroxide-prisma/queue"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { randomUUID } from "node:crypto"
import * as pg from "pg"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

// -----------------------------------------------------------------------------
// a store with its four roles, each with a login of its own
// -----------------------------------------------------------------------------

const roles = ["migrator", "worker", "client", "reader"] as const

interface Store {
  readonly schema: string
  readonly url: (role: Roles.Role) => string
  /** Runs SQL as the owner of the server. */
  readonly sql: PgServer.TestDatabase["sql"]
  readonly apply: Effect.Effect<void, unknown>
  /** The SQLSTATE of the server's answer; undefined if it does what the role asks. Nothing is committed. */
  readonly refusal: (role: Roles.Role, statement: string) => Effect.Effect<string | undefined>
}

const silently = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.provide(effect, Logger.layer([]))

const withLogin = (url: string, name: string) => {
  const login = new URL(url)
  login.username = name
  login.password = name
  return login.toString()
}

const loginOf = (store: Store, role: Roles.Role) => decodeURIComponent(new URL(store.url(role)).username)

/**
 * In a schema of its own, made by the migrator; the roles are logins that exist, with other names than in the files.
 */
const makeStore: Effect.Effect<Store, unknown, Scope.Scope> = Effect.gen(function*() {
  const { sql, url: ownerUrl } = yield* PgServer.emptyDatabase
  const unique = randomUUID().slice(0, 8)
  const schema = `store ${unique}`
  const login = (role: Roles.Role) => `${role}-${unique}`
  yield* Effect.addFinalizer(() => sql(`DROP SCHEMA IF EXISTS ${pg.escapeIdentifier(schema)} CASCADE`))
  for (const role of roles) {
    const name = pg.escapeIdentifier(login(role))
    yield* Effect.acquireRelease(
      sql(`CREATE ROLE ${name} LOGIN PASSWORD '${login(role)}'`),
      () => Effect.andThen(sql(`DROP OWNED BY ${name} CASCADE`), sql(`DROP ROLE ${name}`))
    )
  }
  const url = (role: Roles.Role) => withLogin(ownerUrl, login(role))
  const { migrator, ...others } = Object.fromEntries(roles.map((role) => [role, login(role)])) as Record<
    Roles.Role,
    string
  >
  yield* Roles.apply({ url: ownerUrl, schema, roles: { migrator } })
  yield* silently(Migrator.migrate({ url: url("migrator"), schema }))
  // The owner of the tables may grant without being an administrator.
  const apply = Roles.apply({ url: url("migrator"), schema, roles: others })
  yield* apply
  yield* sql(`SET search_path = ${pg.escapeIdentifier(schema)}`)
  const connections = new Map<Roles.Role, pg.Client>()
  const refusal = (role: Roles.Role, statement: string) =>
    Effect.promise(async () => {
      const client = connections.get(role)!
      await client.query("BEGIN")
      try {
        await client.query(statement)
        return undefined
      } catch (error) {
        return (error as pg.DatabaseError).code
      } finally {
        await client.query("ROLLBACK")
      }
    })
  for (const role of roles) {
    const connection = yield* PgServer.connect(url(role))
    yield* Effect.promise(() => connection.query(`SET search_path = ${pg.escapeIdentifier(schema)}`))
    connections.set(role, connection)
  }
  return { schema, url, sql, apply, refusal }
})

// -----------------------------------------------------------------------------
// an application
// -----------------------------------------------------------------------------

const Add = Activity.make("Add", { payload: Schema.Int, success: Schema.Int })
const Go = Signal.make("Go", { payload: Schema.Int })
const Sum = Orchestration.make("Sum", { payload: Schema.Int, success: Schema.Int })
const Double = Task.make("Double", { payload: Schema.Int, success: Schema.Int })

const queues = { tasks: {} }

const provider = (store: Store, role: Roles.Role) =>
  PrismaProvider.layer({ url: store.url(role), schema: store.schema, migrate: "verify" })

const queueing = (store: Store, role: Roles.Role) =>
  PgQueue.layer({ queues }).pipe(
    Layer.provideMerge(PrismaProvider.layerDatabase({ url: store.url(role), schema: store.schema, migrate: "verify" }))
  )

const worker = (store: Store) =>
  Layer.merge(
    Runtime.layer({ orchestrations: [Sum], activities: [Add] }).pipe(
      Layer.provide([
        Add.toLayer((n) => Effect.succeed(n + 1)),
        Sum.toLayer((n) =>
          Effect.gen(function*() {
            const one = yield* Add.execute(n)
            return one + (yield* Go.wait)
          })
        )
      ]),
      Layer.provide(RuntimeConfig.layer({ shutdownTimeout: "1 second" })),
      Layer.provide(provider(store, "worker"))
    ),
    TaskWorker.layer({ tasks: [Double] }).pipe(
      Layer.provide([Double.toLayer((n) => Effect.succeed(n * 2)), Outbox.publisher()]),
      Layer.provide(queueing(store, "worker"))
    )
  )

// -----------------------------------------------------------------------------
// what the server refuses
// -----------------------------------------------------------------------------

const changesOfTables = [
  "CREATE TABLE of_our_own ()",
  "ALTER TABLE instances ADD COLUMN more text",
  "DROP TABLE history",
  "TRUNCATE orchestrator_queue",
  "CREATE INDEX ON history (event_type)",
  "ALTER TABLE worker_queue DISABLE TRIGGER ALL",
  "CREATE OR REPLACE FUNCTION dx_no_tag() RETURNS text LANGUAGE sql AS $$ SELECT 'mine' $$",
  "DROP FUNCTION dx_no_tag",
  "CREATE FUNCTION dx_mine() RETURNS text LANGUAGE sql AS $$ SELECT 'mine' $$",
  "CREATE SCHEMA of_our_own"
]

const beyond = [
  "SELECT * FROM elsewhere.secrets",
  "INSERT INTO elsewhere.secrets VALUES ('mine')",
  "CREATE ROLE of_our_own",
  "ALTER ROLE CURRENT_USER SUPERUSER",
  "ALTER ROLE CURRENT_USER CREATEROLE",
  "SET ROLE postgres",
  "SELECT pg_read_file('postgresql.conf')",
  "COPY instances TO PROGRAM 'cat'",
  "SELECT pg_reload_conf()"
]

const ofWorkers = [
  "UPDATE history SET event_data = '{}'",
  "UPDATE queue_task_attempts SET outcome = 'Completed'",
  "DELETE FROM queue_datasets",
  "UPDATE operator_actions SET actor = 'mine'",
  "DELETE FROM operator_actions",
  "INSERT INTO _prisma_migrations (id, checksum, migration_name) VALUES ('a', 'b', 'c')",
  "DELETE FROM _prisma_migrations",
  "SELECT setval('orchestrator_queue_id_seq', 1)",
  "ALTER TABLE instances OWNER TO CURRENT_USER"
]

/** Claims, results and locks. */
const work = [
  "UPDATE orchestrator_queue SET lock_token = 'mine'",
  "UPDATE orchestrator_queue SET attempt_count = 9",
  "DELETE FROM orchestrator_queue",
  "UPDATE worker_queue SET lock_token = 'mine'",
  "DELETE FROM worker_queue",
  "INSERT INTO worker_queue (work_item, visible_at, created_at) VALUES ('{}', now(), now())",
  "INSERT INTO instance_locks VALUES ('s-1', 'mine', 1, 1)",
  "INSERT INTO history VALUES ('s-1', 1, 1, 'x', '{}', now())",
  "UPDATE instances SET custom_status = 'mine'",
  "DELETE FROM instances",
  "UPDATE executions SET status = 'Completed'",
  "DELETE FROM executions",
  "INSERT INTO kv_store (instance_id, key, value, execution_id) VALUES ('s-1', 'k', '1', 1)",
  "UPDATE attributes SET name = 'mine'",
  "DELETE FROM attributes",
  "UPDATE queue_tasks SET attempt = 1",
  "UPDATE queue_tasks SET result = '1'",
  "DELETE FROM queue_tasks",
  "UPDATE queue_messages SET lease_token = 'mine'",
  "DELETE FROM queue_messages",
  "UPDATE queue_outbox SET sent_at = now()",
  "INSERT INTO queue_listeners VALUES ('mine', now())",
  "INSERT INTO queue_datasets (dataset_uuid, name, created_at, updated_at) VALUES (gen_random_uuid(), 'mine', now(), now())"
]

/** Every table that someone may insert into. */
const inserts = [
  "INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ('x', 'x', now(), now())",
  "INSERT INTO executions (instance_id, execution_id, started_at) VALUES ('x', 1, now())",
  "INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at) VALUES ('x', '{}', now(), now())",
  "INSERT INTO attributes (instance_id, name, text_value, created_at) VALUES ('x', 'a', 'x', now())",
  "INSERT INTO queue_outbox (queue, payload, created_at, deliver_at) VALUES ('q', '{}', now(), now())",
  "INSERT INTO queue_messages (queue, payload, created_at, visible_at) VALUES ('q', '{}', now(), now())",
  "INSERT INTO operator_actions (actor, action, target, details, outcome) VALUES ('a', 'b', 'c', 'd', 'done')",
  "INSERT INTO schedules (name, definition, created_at, updated_at, fired_until) VALUES ('x', '{}', now(), now(), now())",
  "INSERT INTO schedule_runs (schedule_name, number, kind, occurrence_at, outcome, settled_at) VALUES ('x', 1, 'Manual', now(), 'Skipped', now())",
  "SELECT nextval('orchestrator_queue_id_seq')"
]

describe("Roles", () => {
  it.live(
    "a client starts, signals, cancels and waits; a worker runs; a reader sees it all",
    () =>
      silently(Effect.scoped(Effect.gen(function*() {
        const store = yield* makeStore
        yield* Layer.build(worker(store))
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          yield* client.start(Sum, { instanceId: "s-1", payload: 1, attributes: { customer: "c1" } })
          yield* client.send(Go, "s-1", 40)
          assert.strictEqual(yield* client.wait(Sum, "s-1"), 42)
          const many = yield* client.startMany(Sum, [{ instanceId: "s-3", payload: 2 }, {
            instanceId: "s-1",
            payload: 2
          }])
          assert.deepStrictEqual(many.map(({ outcome }) => outcome), ["Started", "AlreadyExists"])
          for (const [instanceId, sum] of [["s-3", 43], ["s-4", 42]] as const) {
            yield* client.send(Go, instanceId, 40, { orStart: { orchestration: Sum, payload: 1 } })
            assert.strictEqual(yield* client.wait(Sum, instanceId), sum)
          }
          // It deletes, as workers may.
          const replaced = yield* Effect.flip(
            client.start(Sum, { instanceId: "s-1", payload: 1, ifExists: "replaceEnded" })
          )
          assert.strictEqual(replaced._tag === "ProviderError" && replaced.reason._tag, "PermissionDenied")
          yield* client.start(Sum, { instanceId: "s-2", payload: 1 })
          yield* client.terminate("s-2", "enough")
          const end = yield* Effect.exit(client.wait(Sum, "s-2"))
          assert.strictEqual(end._tag, "Failure")
        }).pipe(Effect.provide(Layer.provide(Client.layer, provider(store, "client"))))
        yield* Effect.gen(function*() {
          const tasks = yield* Tasks.Tasks
          const id = yield* tasks.create(Double, { payload: 21, key: "d" })
          assert.strictEqual(yield* tasks.wait(Double, id), 42)
          const later = yield* tasks.create(Double, { payload: 1, delay: "1 hour" })
          yield* tasks.cancel(later, "enough")
          yield* (yield* Queue.Queue).publish("tasks", { kind: "other" })
        }).pipe(Effect.provide(Layer.provideMerge(Tasks.layer, queueing(store, "client"))))
        yield* Effect.gen(function*() {
          const admin = yield* Admin.Admin
          assert.lengthOf((yield* admin.list()).instances, 4)
          assert.isAbove((yield* (yield* Provider.Provider).read("s-1")).length, 3)
        }).pipe(Effect.provide(provider(store, "reader")))
        // Both are ended: a worker may delete them.
        yield* waitUntil(
          Effect.map(store.sql("SELECT FROM executions WHERE status = 'Running'"), (rows) => rows.length === 0)
        )
        yield* Effect.gen(function*() {
          yield* (yield* Admin.Admin).deleteInstance("s-1")
        }).pipe(Effect.provide(provider(store, "worker")))
      })))
  )

  it.live("the server refuses what a role may not do", () =>
    Effect.scoped(Effect.gen(function*() {
      const store = yield* makeStore
      yield* store.sql("CREATE SCHEMA elsewhere")
      yield* Effect.addFinalizer(() => store.sql("DROP SCHEMA elsewhere CASCADE"))
      yield* store.sql("CREATE TABLE elsewhere.secrets (secret text)")
      const forbidden = {
        worker: [...changesOfTables, ...beyond, ...ofWorkers],
        client: [...changesOfTables, ...beyond, ...ofWorkers, ...work],
        reader: [...changesOfTables, ...beyond, ...ofWorkers, ...work, ...inserts],
        migrator: beyond
      }
      for (const role of roles) {
        for (const statement of forbidden[role]) {
          assert.strictEqual(yield* store.refusal(role, statement), "42501", `${role}: ${statement}`)
        }
      }
      // The statements are right: those who may run them can. The owner does not need a grant.
      for (const statement of [...ofWorkers, ...work]) {
        assert.strictEqual(yield* store.refusal("migrator", statement), undefined, statement)
      }
      for (const statement of work) assert.strictEqual(yield* store.refusal("worker", statement), undefined, statement)
      for (const statement of inserts) {
        assert.strictEqual(yield* store.refusal("client", statement), undefined, statement)
      }
    })))

  it.live(
    "a process with a role of another kind says what it may not do",
    () =>
      silently(Effect.scoped(Effect.gen(function*() {
        const store = yield* makeStore
        const claim = Effect.gen(function*() {
          return yield* (yield* Provider.Provider).fetchOrchestrationItem({
            lockTimeout: Duration.seconds(1),
            pollTimeout: Duration.zero,
            versions: Option.none()
          })
        })
        const start = Effect.gen(function*() {
          yield* (yield* Client.Client).start(Sum, { instanceId: "s-1", payload: 1 })
        }).pipe(Effect.provide(Client.layer))
        yield* Effect.provide(start, provider(store, "client"))
        for (
          const [role, call] of [
            ["client", claim],
            ["reader", claim],
            ["reader", start]
          ] as const
        ) {
          const error = yield* Effect.flip(Effect.provide(call, provider(store, role)))
          assert.strictEqual((error as ProviderError.ProviderError).reason._tag, "PermissionDenied", role)
        }
        yield* Effect.gen(function*() {
          const { check } = yield* Health.TaskHealth
          // On a busy machine, the worker may have failed before the first check that finds it.
          const refused =
            /^a task worker of this process (may not claim tasks|has failed): the database role lacks a right/
          yield* waitUntil(Effect.map(check, ({ problems }) => problems.some((problem) => refused.test(problem))))
        }).pipe(Effect.provide(
          TaskWorker.layer({ tasks: [Double] }).pipe(
            Layer.provide(Double.toLayer((n) => Effect.succeed(n * 2))),
            Layer.merge(Health.layerTasks()),
            Layer.provide(queueing(store, "client"))
          )
        ))
        const migrate = Migrator.migrate({ url: store.url("worker"), schema: `${store.schema} 2` })
        assert.strictEqual((yield* Effect.flip(migrate)).reason._tag, "PermissionDenied")
      })))
  )

  it.live(
    "a login without a role, or before it is applied: the error says so and what to do",
    () =>
      silently(Effect.scoped(Effect.gen(function*() {
        const store = yield* makeStore
        const { schema } = store
        const [quoted, reader] = [pg.escapeIdentifier(schema), pg.escapeIdentifier(loginOf(store, "reader"))]
        const refused = (effect: Effect.Effect<unknown, MigrationError.MigrationError>, problem: string) =>
          Effect.map(Effect.flip(effect), ({ message, reason }) => {
            assert.strictEqual(reason._tag, "PermissionDenied", message)
            assert.include(message, problem)
            assert.include(message, "docs/postgresql.md")
          })
        const url = store.url("reader")
        yield* store.sql(`REVOKE SELECT ON ${quoted}._prisma_migrations FROM ${reader}`)
        yield* refused(Migrator.verify({ url, schema }), "permission denied for table _prisma_migrations")
        yield* store.sql(`REVOKE USAGE ON SCHEMA ${quoted} FROM ${reader}`)
        yield* refused(Migrator.verify({ url, schema }), "permission denied for schema")
        yield* refused(Migrator.migrate({ url, schema }), "permission denied for schema")
        // A process that checks nothing says it with its first statement.
        const list = Effect.gen(function*() {
          return yield* (yield* Admin.Admin).list()
        }).pipe(Effect.provide(PrismaProvider.layer({ url, schema, migrate: "none" })))
        assert.include((yield* Effect.flip(list)).message, "permission denied for schema")
        yield* store.apply
        yield* Migrator.verify({ url, schema })
      })))
  )

  it.live(
    "a role that a migrator may not create: the error names it, and who creates it",
    () =>
      silently(Effect.scoped(Effect.gen(function*() {
        const store = yield* makeStore
        const { schema } = store
        const url = store.url("migrator")
        const error = yield* Effect.flip(Roles.apply({ url, schema, roles: { worker: "no such role" } }))
        assert.strictEqual(error.reason._tag, "PermissionDenied")
        assert.include(error.message, "Role \"no such role\" does not exist: an administrator creates it first")
        // One that exists lacks something else.
        const other = yield* Effect.flip(
          Roles.apply({ url: store.url("reader"), schema, roles: { worker: loginOf(store, "worker") } })
        )
        assert.strictEqual(other.reason._tag, "PermissionDenied")
        assert.notInclude(other.message, "does not exist")
      })))
  )

  it.live("applying again takes away what the file does not name, and each table is granted", () =>
    Effect.scoped(Effect.gen(function*() {
      const store = yield* makeStore
      const rights = store.sql<{ role: string; rights: number }>(
        `SELECT g.grantee AS role, count(*)::int AS rights FROM information_schema.role_table_grants AS g
         WHERE g.table_schema = $1 GROUP BY 1 ORDER BY 1`,
        [store.schema]
      )
      const before = yield* rights
      const worker = pg.escapeIdentifier(loginOf(store, "worker"))
      yield* store.sql(`GRANT ALL ON ALL TABLES IN SCHEMA ${pg.escapeIdentifier(store.schema)} TO ${worker}`)
      assert.notDeepEqual(yield* rights, before)
      yield* store.apply
      assert.deepStrictEqual(yield* rights, before)
      for (const role of ["worker", "client", "reader"] as const) {
        const unread = yield* store.sql(
          `SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p')
           AND NOT has_table_privilege($2, c.oid, 'SELECT')`,
          [pg.escapeIdentifier(store.schema), loginOf(store, role)]
        )
        assert.deepStrictEqual(unread, [], role)
      }
    })))

  it.live("a name with quotes is refused before anything is done", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      for (const worker of ["o'reilly", "a\"b", "", "x".repeat(64)]) {
        const error = yield* Effect.flip(Roles.apply({ url, roles: { worker } }))
        assert.strictEqual(error.reason._tag, "ConfigurationInvalid")
        assert.include(error.message, "prisma/roles/worker.sql")
      }
    }))
})
