import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Signal } from "duroxide-prisma"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { createHash } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as pg from "pg"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/internal/client.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import * as Transaction from "../../src/prisma/Transaction.ts"
import * as DatabaseServer from "../../src/server/DatabaseServer.ts"
import { makeInProcess, Notifier } from "../../src/waking/Notifier.ts"
import * as Test from "../utils/driver.ts"
import * as Duroxide from "../utils/duroxideSchema.ts"
import * as PgServer from "../utils/PgServer.ts"
import { session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/** The names are fixed: other programs listen on them. */
const channel = (schema: string, kind: string) =>
  Buffer.byteLength(`${schema}_${kind}`) <= 63
    ? `${schema}_${kind}`
    : `dx_${createHash("sha256").update(schema).digest("hex").slice(0, 32)}_${kind}`

const fingerprint = (id: string) => createHash("sha256").update(id).digest("hex").slice(0, 8)

const kinds = ["orch_work", "worker_work", "changes"] as const

const plain = (url: string) => {
  const changed = new URL(url)
  changed.searchParams.delete("schema")
  return changed.toString()
}

/** Listens to a schema. Each use of the effect takes what was sent by then: `<kind> <payload>`, in order. */
const listen = Effect.fnUntraced(function*({ schema, sql, url }: PgServer.TestDatabase) {
  const client = yield* PgServer.connect(plain(url))
  const kindOf = new Map(kinds.map((kind) => [channel(schema, kind), kind]))
  const heard: Array<string> = []
  let end = Deferred.makeUnsafe<void>()
  client.on("notification", (notification) => {
    const kind = kindOf.get(notification.channel)
    if (kind === undefined) Deferred.doneUnsafe(end, Effect.void)
    else heard.push(`${kind} ${notification.payload}`)
  })
  for (const name of [...kindOf.keys(), "the end"]) {
    yield* Effect.promise(() => client.query(`LISTEN ${pg.escapeIdentifier(name)}`))
  }
  return Effect.gen(function*() {
    end = Deferred.makeUnsafe<void>()
    // Notifications arrive in the order of the commits.
    yield* sql("SELECT pg_notify('the end', '')")
    yield* Deferred.await(end)
    return heard.splice(0)
  })
})

const open = Effect.gen(function*() {
  const test = yield* PgServer.database
  return { ...test, heard: yield* listen(test) }
})

/** Inserts like Duroxide and plain SQL. */
const insertMessages = (rows: string, lock = "NULL") =>
  `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, lock_token)
   SELECT 'i', '{"TimerFired":{}}', at, now(), ${lock} FROM (${rows}) AS one (at)`

const insertActivities = (rows: string, lock = "NULL") =>
  `INSERT INTO worker_queue (work_item, visible_at, created_at, lock_token)
   SELECT '{"ActivityExecute":{"name":"A"}}', at, now(), ${lock} FROM (${rows}) AS one (at)`

const inserts = [["orch_work", "orchestrator_queue", insertMessages], [
  "worker_work",
  "worker_queue",
  insertActivities
]] as const

const kindsOf = (heard: ReadonlyArray<string>) => heard.map((one) => one.split(" ")[0])

/** The payloads of work. */
const times = (heard: ReadonlyArray<string>) => heard.map((one) => Number(/^\w+_work (\d+)$/.exec(one)?.[1]))

const tomorrow = Date.now() + 86_400_000
const later = (offsetMs: number) => `to_timestamp(${(tomorrow + offsetMs) / 1000})`

describe("triggers:", () => {
  it.live("stand on both queues, on instances and executions, and on the outbox", () =>
    Effect.gen(function*() {
      const { sql } = yield* PgServer.database
      const rows = yield* sql<{ trigger: string }>(
        "SELECT tgrelid::regclass || '.' || tgname AS trigger FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1"
      )
      assert.deepStrictEqual(rows.map(({ trigger }) => trigger), [
        "executions.dx_set_first_status",
        "executions.dx_set_status",
        "instances.dx_delete_streams",
        "instances.dx_notify_deleted_instance_slot",
        "instances.dx_notify_free_instance_slot",
        "orchestrator_queue.dx_notify_moved_message",
        "orchestrator_queue.dx_route_message",
        "queue_outbox.dx_notify_outbox",
        "worker_queue.dx_notify_free_slot",
        "worker_queue.dx_notify_moved_activity",
        "worker_queue.dx_route_activity"
      ])
    }))

  for (const [kind, table, insert] of inserts) {
    it.live(`an insert into ${table} notifies its channel alone, with the time at which the row becomes visible`, () =>
      Effect.gen(function*() {
        const { heard, sql } = yield* open
        yield* sql(insert("SELECT now() + interval '60 s'"))
        const [row] = yield* sql<{ at: number }>(
          `SELECT ceil(extract(epoch FROM visible_at) * 1000)::float8 AS at FROM ${table}`
        )
        assert.deepStrictEqual(yield* heard, [`${kind} ${row!.at}`])
      }))

    it.live(`${table}: a statement makes one notification for each distinct time, whatever its rows`, () =>
      Effect.gen(function*() {
        const { heard, sql } = yield* open
        const [one, two] = [later(0), later(1000)]
        yield* sql(insert(`SELECT CASE g % 2 WHEN 1 THEN ${one} ELSE ${two} END FROM generate_series(1, 100) AS g`))
        assert.deepStrictEqual(times(yield* heard), [tomorrow, tomorrow + 1000])
      }))

    it.live(`${table}: what is visible makes one notification for all statements of a transaction`, () =>
      Effect.gen(function*() {
        const test = yield* open
        const run = yield* session(test)
        const [began] = yield* run("SELECT floor(extract(epoch FROM now()) * 1000)::text AS at")
        yield* run(insert("SELECT now() - interval '1 h'"))
        yield* run(insert("SELECT clock_timestamp() FROM generate_series(1, 20)"))
        yield* run(insert("SELECT '-infinity'::timestamptz"))
        assert.deepStrictEqual(yield* test.heard, [])
        yield* run("COMMIT")
        assert.deepStrictEqual(yield* test.heard, [`${kind} ${began.at}`])
      }))

    it.live(`${table}: rows that are born claimed make none`, () =>
      Effect.gen(function*() {
        const { heard, sql } = yield* open
        yield* sql(insert("SELECT now()", "'token'"))
        yield* sql(insert(`SELECT ${later(0)}`, "'token'"))
        assert.deepStrictEqual(yield* heard, [])
      }))

    it.live(`${table}: a transaction notifies of the present and 15 times, then only of earlier ones`, () =>
      Effect.gen(function*() {
        const test = yield* open
        const run = yield* session(test)
        const [began] = yield* run("SELECT floor(extract(epoch FROM now()) * 1000)::float8 AS at")
        yield* run(insert("SELECT now()"))
        yield* run(insert(`SELECT ${later(0)} + g * interval '1 s' FROM generate_series(1, 100) AS g`))
        yield* run(insert(`SELECT ${later(200_000)}`))
        yield* run(insert(`SELECT ${later(500)}`))
        yield* run(insert("SELECT clock_timestamp()"))
        yield* run("COMMIT")
        const seconds = Array.from({ length: 15 }, (_, i) => tomorrow + 1000 * (i + 1))
        assert.deepStrictEqual(times(yield* test.heard), [began.at, ...seconds, tomorrow + 500])
      }))

    it.live(`${table}: each transaction notifies again, and so does what follows a rollback to a savepoint`, () =>
      Effect.gen(function*() {
        const test = yield* open
        const run = yield* session(test)
        yield* run("SAVEPOINT s")
        yield* run(insert(`SELECT ${later(0)}`))
        yield* run("ROLLBACK TO s")
        yield* run(insert(`SELECT ${later(0)}`))
        yield* run("COMMIT")
        assert.deepStrictEqual(times(yield* test.heard), [tomorrow])
        yield* run(insert(`SELECT ${later(0)}`))
        assert.deepStrictEqual(times(yield* test.heard), [tomorrow])
      }))

    it.live(`${table}: giving a row back notifies of its new time, a claim of nothing`, () =>
      Effect.gen(function*() {
        const { heard, sql } = yield* open
        yield* sql(insert("SELECT now() FROM generate_series(1, 3)"))
        yield* heard
        // The statements of duroxide-pg.
        yield* sql(`UPDATE ${table} SET lock_token = 'token', locked_until = 1, attempt_count = attempt_count + 1`)
        assert.deepStrictEqual(yield* heard, [])
        const giveBack = (at: string) =>
          sql(
            `UPDATE ${table} SET lock_token = NULL, locked_until = NULL, visible_at = ${at} WHERE lock_token = 'token'`
          )
        yield* giveBack("now() + interval '60 s'")
        const [row] = yield* sql<{ at: string }>(
          `SELECT ceil(extract(epoch FROM visible_at) * 1000)::text AS at FROM ${table} LIMIT 1`
        )
        assert.deepStrictEqual(yield* heard, [`${kind} ${row!.at}`])
        yield* sql(`UPDATE ${table} SET lock_token = 'token', visible_at = ${later(0)}`)
        assert.deepStrictEqual(yield* heard, [], "rows that stay claimed")
        yield* giveBack("now()")
        assert.lengthOf(times(yield* heard), 1)
        yield* sql(`UPDATE ${table} SET visible_at = visible_at, attempt_count = 0`)
        assert.deepStrictEqual(yield* heard, [], "the same time")
      }))

    it.live(`${table}: a time that no clock reaches is stored without a notification`, () =>
      Effect.gen(function*() {
        const { heard, sql } = yield* open
        yield* sql(insert("SELECT 'infinity'::timestamptz"))
        yield* sql(`UPDATE ${table} SET visible_at = ${later(0)}`)
        assert.lengthOf(yield* heard, 1)
        yield* sql(`UPDATE ${table} SET visible_at = 'infinity'`)
        assert.deepStrictEqual(yield* heard, [])
        yield* sql(insert("SELECT '9999-12-31 23:59:59.9999Z'::timestamptz"))
        assert.deepStrictEqual(yield* heard, [`${kind} 253402300800000`])
      }))
  }

  it.live("a message to an instance of Duroxide, which only its processes take, makes none", () =>
    Effect.gen(function*() {
      const { heard, sql } = yield* open
      yield* sql(
        `INSERT INTO instances VALUES ('i', 'O', '1.0.0', 1, now(), now());
         INSERT INTO executions VALUES ('i', 1, 'Running', NULL, now(), NULL, 0, 1, 30)`
      )
      yield* sql(insertMessages("SELECT now()"))
      yield* sql(`UPDATE orchestrator_queue SET visible_at = ${later(0)}`)
      assert.deepStrictEqual(yield* heard, [])
      yield* sql("UPDATE executions SET duroxide_version_major = NULL")
      yield* sql(insertMessages("SELECT now()"))
      assert.lengthOf(yield* heard, 1)
    }))

  it.live("an activity whose name begins like a version of Duroxide notifies", () =>
    Effect.gen(function*() {
      const { heard, sql } = yield* open
      yield* sql(insertActivities("SELECT now()").replace("\"A\"", "\"0.1\""))
      assert.deepStrictEqual(kindsOf(yield* heard), ["worker_work"])
    }))

  it.live("the end of an execution notifies of its instance, no other status does", () =>
    Effect.gen(function*() {
      const { heard, sql } = yield* open
      yield* sql(
        "INSERT INTO executions SELECT id, 1, 'Running', NULL, now() FROM unnest('{one,two,three,\"wörd\"}'::text[]) AS id"
      )
      const end = (id: string, status: string) =>
        sql("UPDATE executions SET status = $2, output = '', completed_at = now() WHERE instance_id = $1", [id, status])
      yield* end("one", "Running")
      yield* end("two", "ContinuedAsNew")
      yield* sql("UPDATE executions SET output = 'x'")
      assert.deepStrictEqual(yield* heard, [])
      yield* end("one", "Completed")
      yield* end("two", "Failed")
      yield* end("wörd", "Completed")
      assert.deepStrictEqual(
        yield* heard,
        ["one", "two", "wörd"].map((id) => `changes - changed ${fingerprint(id)}`)
      )
    }))

  it.live("SET duroxide.notify = off turns notifications off, for the transaction or the session", () =>
    Effect.gen(function*() {
      const test = yield* open
      const run = yield* session(test)
      const everything = Effect.gen(function*() {
        yield* run(insertMessages("SELECT now()"))
        yield* run(insertActivities("SELECT now()"))
        yield* run(`UPDATE worker_queue SET visible_at = ${later(0)}`)
        yield* run("INSERT INTO executions VALUES (gen_random_uuid(), 1, 'Running', NULL, now())")
        yield* run("UPDATE executions SET status = 'Completed'")
      })
      yield* run("SET LOCAL duroxide.notify = off")
      yield* everything
      yield* run("COMMIT")
      assert.deepStrictEqual(yield* test.heard, [])
      yield* run("TRUNCATE executions, worker_queue")
      yield* everything
      assert.includeMembers(kindsOf(yield* test.heard), [...kinds])
    }))

  it.live("an adopted schema of duroxide-pg has them", () =>
    Effect.gen(function*() {
      const test = yield* Duroxide.empty("Rust made")
      yield* Effect.provide(Migrator.adopt({ url: test.url }), Logger.layer([]))
      const heard = yield* listen(test)
      yield* test.sql(insertMessages("SELECT now()"))
      yield* test.sql(insertActivities("SELECT now()"))
      yield* test.sql("INSERT INTO executions VALUES ('i', 1, 'Running', NULL, now())")
      yield* test.sql("UPDATE executions SET status = 'Completed'")
      assert.deepStrictEqual(kindsOf(yield* heard), [...kinds])
    }))

  it.live("names of schemas up to 63 bytes: an insert notifies the channel of its schema", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const schemas = [
        "s".repeat(51), // the longest with the name of every channel in full
        "s".repeat(52),
        "s".repeat(63),
        `${"ü".repeat(31)}x`,
        `it's "quoted"; ${"\"".repeat(48)}`
      ]
      for (const schema of schemas) {
        const quoted = pg.escapeIdentifier(schema)
        yield* Effect.addFinalizer(() => test.sql(`DROP SCHEMA IF EXISTS ${quoted} CASCADE`))
        yield* Effect.provide(Migrator.migrate({ url: plain(test.url), schema }), Logger.layer([]))
        const heard = yield* listen({ ...test, schema })
        yield* test.sql(`SET search_path = ${quoted}`)
        const names = yield* test.sql(
          "SELECT kind, dx_channel(kind) AS name FROM unnest($1::text[]) AS kind",
          [kinds]
        )
        assert.deepStrictEqual(names, kinds.map((kind) => ({ kind, name: channel(schema, kind) })))
        yield* test.sql(insertMessages("SELECT now()"))
        yield* test.sql(insertActivities("SELECT now()"))
        assert.deepStrictEqual(kindsOf(yield* heard), ["orch_work", "worker_work"], schema)
      }
    }))

  it.live("an insert does not fail while the server's queue of notifications is full", () =>
    Effect.gen(function*() {
      const test = yield* serverWithSmallQueue
      const heard = yield* listen(test)
      yield* test.sql(insertMessages("SELECT now()"))
      assert.lengthOf(yield* heard, 1)
      // What this session has not read stays in the queue.
      const reader = yield* PgServer.connect(test.url)
      yield* Effect.promise(() => reader.query("LISTEN fill"))
      yield* Effect.promise(() => reader.query("BEGIN"))
      const writer = yield* PgServer.connect(test.url)
      const fill = Effect.tryPromise(() => writer.query("SELECT pg_notify('fill', repeat('x', 7900))"))
      yield* Effect.flip(Effect.forever(fill))
      yield* test.sql(insertMessages("SELECT now()"))
      yield* test.sql(insertActivities("SELECT now()"))
      yield* test.sql(`UPDATE orchestrator_queue SET visible_at = ${later(0)}`)
      yield* test.sql("INSERT INTO executions VALUES ('i', 1, 'Running', NULL, now())")
      yield* test.sql("UPDATE executions SET status = 'Completed'")
      yield* Effect.promise(() => reader.query("COMMIT"))
      yield* waitUntil(Effect.map(
        test.sql<{ usage: number }>("SELECT pg_notification_queue_usage() AS usage"),
        ([row]) => row!.usage < 0.5
      ))
      assert.deepStrictEqual(yield* heard, [])
      yield* test.sql(insertMessages("SELECT now()"))
      assert.lengthOf(yield* heard, 1)
    }).pipe(Effect.provide(Logger.layer([]))))
})

/** Only the newest PostgreSQL can have a queue that is filled in a moment; the embedded one is new enough. */
const serverWithSmallQueue = Effect.gen(function*() {
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "duroxide-prisma-notify-"))),
    (directory) => Effect.promise(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }))
  )
  const server = yield* DatabaseServer.makeEmbedded({
    directory,
    settings: { fsync: "off", max_notify_queue_pages: "64" }
  })
  const url = Redacted.value(server.url)
  yield* Migrator.migrate({ url })
  const client = yield* PgServer.connect(url)
  const sql: PgServer.TestDatabase["sql"] = <Row>(text: string, values?: ReadonlyArray<unknown>) =>
    Effect.promise(async () => (await client.query(text, values && [...values])).rows as ReadonlyArray<Row>)
  return { url, schema: "public", sql }
})

/** Uses each operation that stores work or an end; what each of them made, by its name. */
const everyWrite = Effect.fnUntraced(function*({ driver }: Test.Opened, heard: Effect.Effect<ReadonlyArray<string>>) {
  const made: Record<string, ReadonlyArray<string | undefined>> = {}
  const watch = <A, E>(name: string, operation: Effect.Effect<A, E>) =>
    Effect.gen(function*() {
      yield* heard
      const result = yield* operation
      made[name] = kindsOf(yield* heard)
      return result
    })
  yield* watch("startOrchestrations", driver.startOrchestrations([Test.start("a")]))
  yield* watch("enqueueForOrchestrator", driver.enqueueForOrchestrator([Test.message("a")]))
  const first = yield* Test.claimOne(driver)
  yield* watch(
    "deferMessages",
    driver.deferMessages([{ lockToken: first.lockToken, ids: [first.messages[1]!.id], delayMs: 60_000 }])
  )
  yield* watch(
    "ackOrchestrationItems",
    driver.ackOrchestrationItems([Test.turn(first.lockToken, {
      ...Test.named,
      history: Test.events(1, 2),
      status: "Running",
      workerItems: [Test.activity({ instanceId: "a", activityId: 3 })],
      orchestratorItems: [{ ...Test.message("a"), delayMs: 60_000 }]
    })])
  )
  yield* watch("enqueueForWorker", driver.enqueueForWorker([Test.activity({ instanceId: "b" })]))
  const [one, two] = yield* Test.take(driver)
  yield* watch(
    "abandonWorkItems",
    driver.abandonWorkItems([{ lockToken: two!.lockToken, delayMs: 60_000, ignoreAttempt: false }])
  )
  yield* watch(
    "ackWorkItems",
    driver.ackWorkItems([{ lockToken: one!.lockToken, completion: { instanceId: "a", workItem: "{}" } }])
  )
  const last = yield* Test.claimOne(driver)
  yield* watch(
    "the end",
    driver.ackOrchestrationItems([Test.turn(last.lockToken, { status: "Completed", output: "" })])
  )
  const { c } = yield* Test.waiting(driver, ["c"])
  yield* watch(
    "advanceOrchestrations",
    driver.advanceOrchestrations!([Test.optimistic("c", c!, { orchestratorItems: [Test.message("d")] })])
  )
  return made
})

describe("this package's own statements:", () => {
  it.live("none of them notifies where a notifier announces what they store, and each does without one", () =>
    Effect.gen(function*() {
      const announcing = yield* open
      const quiet = yield* Effect.provideService(
        Test.openOn(announcing),
        Notifier,
        makeInProcess().connect("this process")
      )
      const silence = yield* everyWrite(quiet, announcing.heard)
      assert.deepStrictEqual(Object.values(silence).flat(), [])

      const alone = yield* open
      assert.deepStrictEqual(yield* everyWrite(yield* Test.openOn(alone), alone.heard), {
        startOrchestrations: ["orch_work"],
        enqueueForOrchestrator: ["orch_work"],
        deferMessages: ["orch_work"],
        ackOrchestrationItems: ["worker_work", "orch_work"],
        enqueueForWorker: ["worker_work"],
        abandonWorkItems: ["worker_work"],
        ackWorkItems: ["orch_work"],
        "the end": ["changes"],
        advanceOrchestrations: ["orch_work"]
      })
    }))

  it.live("are quiet without another statement, and only themselves: the next one on the connection notifies", () =>
    Effect.gen(function*() {
      const test = yield* open
      const database = yield* Database.make({ url: test.url, schema: test.schema, maxConnections: 1 })
      const driver = yield* PrismaDriver.make().pipe(
        Effect.provideService(Database.Database, database),
        Effect.provideService(Notifier, makeInProcess().connect("this process"))
      )
      yield* driver.startOrchestrations([Test.start("a")])
      assert.deepStrictEqual(yield* database.statementCounts, { startOrchestrations: 1 })
      yield* database.query(
        "insert",
        Prisma.sql`INSERT INTO ${database.schemaSql}.worker_queue (work_item, visible_at, created_at)
          VALUES ('{}', now(), now())`
      )
      assert.deepStrictEqual(kindsOf(yield* test.heard), ["worker_work"])
    }))
})

const Fulfil = Orchestration.make("Fulfil")

const Approved = Signal.make("Approved", { payload: Schema.Boolean })

describe("a transaction of the application:", () => {
  /** Starts two instances and sends to them; then ends the transaction like this. */
  const transact = Effect.fnUntraced(function*(test: PgServer.TestDatabase, begin: string, end: string) {
    const connection = yield* PgServer.connect(plain(test.url))
    const run = (sql: string) => Effect.promise(() => connection.query(sql))
    yield* run(begin)
    const { rows: [began] } = yield* run("SELECT floor(extract(epoch FROM now()) * 1000)::text AS at")
    const client = Client.within(Transaction.make(connection, { schema: test.schema }))
    yield* client.start(Fulfil, { instanceId: "one" })
    yield* client.send(Approved, "one", true)
    yield* client.start(Fulfil, { instanceId: "two" })
    yield* client.terminate("two", "changed our minds")
    yield* run(end)
    return String(began.at)
  })

  it.live("makes one notification for all that it starts and sends, with the commit", () =>
    Effect.gen(function*() {
      const test = yield* open
      const began = yield* transact(test, "BEGIN", "COMMIT")
      assert.deepStrictEqual(yield* test.heard, [`orch_work ${began}`])
    }))

  it.live("makes none when it is rolled back, or with duroxide.notify = off", () =>
    Effect.gen(function*() {
      const test = yield* open
      yield* transact(test, "BEGIN", "ROLLBACK")
      yield* transact(test, "BEGIN; SET LOCAL duroxide.notify = off", "COMMIT")
      assert.deepStrictEqual(yield* test.heard, [])
      assert.lengthOf(yield* test.sql("SELECT FROM instances"), 2)
    }))
})
