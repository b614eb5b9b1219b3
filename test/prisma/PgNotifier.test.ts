import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import * as pg from "pg"
import * as Channels from "../../src/prisma/internal/channels.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import { Hint } from "../../src/waking/Notifier.ts"
import * as Listening from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

const everyKind = [
  Hint.Work({ queue: "orchestrator", visibleAtMs: 1_700_000_000_000 }),
  Hint.Work({ queue: "worker", visibleAtMs: 1_700_000_000_001 }),
  Hint.Serves({ queue: "worker" }),
  Hint.Locks({ queue: "orchestrator", untilMs: 1_700_000_005_000 }),
  Hint.Locks({ queue: "worker", untilMs: null }),
  Hint.Changed({ fingerprints: ["01234567", "89abcdef"] }),
  Hint.Waiting(),
  Hint.Hello()
]

const hints = (received: ReadonlyArray<{ readonly hint: Hint }>) => received.map(({ hint }) => hint)

describe("PgNotifier:", () => {
  it.live("hints of every kind travel to the other processes, in order, and not back", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const one = yield* Listening.connected(test)
      const two = yield* Listening.connected(test)
      yield* one.announce(...everyKind)
      const arrived = yield* two.next(everyKind.length)
      assert.deepStrictEqual(hints(arrived), everyKind)
      const senders = new Set(arrived.map(({ sender }) => sender))
      assert.strictEqual(senders.size, 1)
      assert.match([...senders][0]!, /^[0-9a-z]{12}$/)
      // What it hears first is not its own.
      yield* two.announce(Hint.Waiting())
      const [back] = yield* one.next(1)
      assert.deepStrictEqual(back!.hint, Hint.Waiting())
      assert.isFalse(senders.has(back!.sender))
    }).pipe(silently))

  it.live("all hints are one statement, however many instances have changed", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const one = yield* Listening.connected(test)
      const two = yield* Listening.connected(test)
      const fingerprints = Array.from({ length: 3000 }, (_, i) => i.toString(16).padStart(8, "0"))
      yield* one.announce(Hint.Work({ queue: "worker", visibleAtMs: 1 }), Hint.Changed({ fingerprints }))
      const [work, ...changed] = yield* two.next(1 + Math.ceil(3000 / 800))
      assert.deepStrictEqual(work!.hint, Hint.Work({ queue: "worker", visibleAtMs: 1 }))
      assert.deepStrictEqual(
        changed.flatMap(({ hint }) => Hint.$is("Changed")(hint) ? hint.fingerprints : []),
        fingerprints
      )
      yield* one.announce()
      // The other one is its question whether notifications arrive.
      assert.deepStrictEqual(yield* one.database.statementCounts, { announce: 1, checkNotifications: 1 })
    }).pipe(silently))

  it.live("what plain SQL sends arrives, without a sender; what cannot be read is ignored", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const one = yield* Listening.connected(test)
      const send = (channel: string, payload: string) => test.sql("SELECT pg_notify($1, $2)", [channel, payload])
      const { changes, orchestrator, worker } = Channels.channelsOf(test.schema)
      yield* send(orchestrator, "not a time")
      yield* send(changes, "")
      yield* send("another channel", "1")
      yield* send(worker, "1700000000000")
      yield* send(changes, "- changed 01234567")
      assert.deepStrictEqual(yield* one.next(2), [
        { hint: Hint.Work({ queue: "worker", visibleAtMs: 1_700_000_000_000 }), sender: null },
        { hint: Hint.Changed({ fingerprints: ["01234567"] }), sender: null }
      ])
    }).pipe(silently))

  for (const schema of ["plain", `"${"ü".repeat(31)}`]) {
    it.live(`schema ${schema}: rows that plain SQL stores wake a process of this package`, () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.emptyDatabase
        yield* Effect.addFinalizer(() => sql(`DROP SCHEMA IF EXISTS ${pg.escapeIdentifier(schema)} CASCADE`))
        yield* Migrator.migrate({ url, schema })
        const one = yield* Listening.connected({ url, schema })
        yield* sql(`SET search_path = ${pg.escapeIdentifier(schema)}`)
        yield* sql(
          `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
           VALUES ('i', '{"TimerFired":{}}', '2100-01-01Z', now())`
        )
        yield* sql(
          `INSERT INTO worker_queue (work_item, visible_at, created_at)
           VALUES ('{"ActivityExecute":{"name":"A"}}', '2100-01-02Z', now())`
        )
        yield* sql("INSERT INTO executions SELECT 'i', 1, 'Running', NULL, now()")
        yield* sql("UPDATE executions SET status = 'Completed', output = '', completed_at = now()")
        assert.deepStrictEqual(yield* one.next(3), [
          { hint: Hint.Work({ queue: "orchestrator", visibleAtMs: Date.UTC(2100, 0, 1) }), sender: null },
          { hint: Hint.Work({ queue: "worker", visibleAtMs: Date.UTC(2100, 0, 2) }), sender: null },
          // The first digits of what `printf i | sha256sum` prints.
          { hint: Hint.Changed({ fingerprints: ["de7d1b72"] }), sender: null }
        ])
      }).pipe(silently))
  }

  it.live("schemas of any name are apart, also those whose names begin with the same 62 bytes", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const long = `Änderung "größer" \\ ${"ü".repeat(19)}x`
      const schemas = ["plain", "Quo\"te", "with 'apostrophe'; --", "🎉", `${long}1`, `${long}2`]
      for (const schema of schemas.slice(-2)) assert.strictEqual(new TextEncoder().encode(schema).length, 63, schema)
      const opened = yield* Effect.forEach(schemas, (schema) =>
        Effect.all({
          one: Listening.connected({ url, schema }),
          two: Listening.connected({ url, schema })
        }))
      for (const [i, { one }] of opened.entries()) yield* one.announce(Hint.Work({ queue: "worker", visibleAtMs: i }))
      for (const [i, { two }] of opened.entries()) {
        assert.deepStrictEqual(hints(yield* two.next(1)), [Hint.Work({ queue: "worker", visibleAtMs: i })])
      }
      // A second round: no hint of another schema has come between.
      for (const { one } of opened) yield* one.announce(Hint.Hello())
      for (const { two } of opened) assert.deepStrictEqual(hints(yield* two.next(1)), [Hint.Hello()])
    }).pipe(silently))

  it.live("processes: counts those that listen on this schema and serve a queue, also after a loss", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const one = yield* Listening.connected(test)
      yield* Listening.connected({ ...test, schema: "another" })
      // Names that the URL gives to connections do not matter.
      const url = new URL(test.url)
      url.searchParams.set("application_name", "shop")
      const two = yield* Listening.connected(test, { url: url.toString() })
      const polling = yield* Listening.open(test, { listens: false })
      const client = yield* Listening.connected(test)
      const counted = { orchestrator: 1, worker: 2 }
      const all = Effect.map(
        Effect.forEach([one, two, polling, client], ({ processes }) => processes),
        (counts) => counts.every(({ orchestrator, worker }) => orchestrator === 1 && worker === 2)
      )
      assert.deepStrictEqual(yield* client.processes, { orchestrator: 0, worker: 0 })
      yield* one.announce(Hint.Serves({ queue: "worker" }), Hint.Serves({ queue: "orchestrator" }))
      yield* two.announce(Hint.Serves({ queue: "worker" }))
      yield* polling.announce(Hint.Serves({ queue: "worker" }))
      yield* waitUntil(all)
      yield* Listening.terminate(test)
      for (const { connections, until } of [one, two, client]) yield* until(() => connections() === 2)
      assert.deepStrictEqual(yield* client.processes, counted)
    }).pipe(silently))

  it.live("processes: counts those of another application, which has a role of its own", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const role = `shop_${Date.now()}`
      yield* test.sql(`CREATE ROLE ${role} LOGIN PASSWORD 'hunter2'`)
      yield* Effect.addFinalizer(() => test.sql(`DROP ROLE ${role}`))
      yield* Effect.scoped(Effect.gen(function*() {
        const url = new URL(test.url)
        url.username = role
        url.password = "hunter2"
        const shop = yield* Listening.connected({ ...test, url: url.toString() })
        const ours = yield* Listening.connected(test)
        for (const { announce } of [shop, ours]) yield* announce(Hint.Serves({ queue: "worker" }))
        for (const { processes } of [shop, ours]) {
          yield* waitUntil(Effect.map(processes, ({ worker }) => worker > 1))
          assert.deepStrictEqual(yield* processes, { orchestrator: 0, worker: 2 })
        }
      }))
    }).pipe(Effect.scoped, silently))

  it.live("listens: false opens no connection, and announces to those that have one", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const log = Listening.logging()
      const polling = yield* log.into(Listening.open(test, { listens: false }))
      const other = yield* Listening.connected(test)
      yield* polling.announce(...everyKind)
      assert.deepStrictEqual(hints(yield* other.next(everyKind.length)), everyKind)
      assert.lengthOf(yield* Listening.backends(test), 1)
      assert.deepStrictEqual(polling.changes, [])
      assert.deepStrictEqual(log.lines.filter(({ text }) => text.startsWith("Listener")), [])
    }).pipe(silently))

  it.live("the server's limit for idle sessions does not end it", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = new URL(test.url)
      url.searchParams.set("options", "-c idle_session_timeout=100")
      const one = yield* Listening.connected(test, { url: url.toString() })
      const idle = yield* PgServer.connect(url.toString())
      yield* Effect.callback<void>((resume) => void idle.on("end", () => resume(Effect.void)))
      assert.deepStrictEqual(one.changes, ["connected"])
    }).pipe(silently))

  it.live("closing the scope ends the connection, in any state", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const none = waitUntil(Effect.map(Listening.backends(test), (rows) => rows.length === 0))
      const scope = yield* Scope.make()
      const one = yield* Scope.provide(Listening.connected(test), scope)
      assert.lengthOf(yield* Listening.backends(test), 1)
      yield* Scope.close(scope, Exit.void)
      yield* none
      assert.deepStrictEqual(one.changes, ["connected"], "closing is not a loss")

      for (let i = 0; i < 10; i++) yield* Effect.scoped(Listening.open(test)) // while it connects
      yield* none
    }).pipe(silently))

  it.live("a URL that cannot be read is one clear error, without its secrets", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      for (const url of ["", "mysql://u:hunter2@h/d", "postgresql://u:hunter2%@h/d"]) {
        const error = yield* Effect.flip(Listening.open(test, { url }))
        assert.strictEqual(error.operation, "listen")
        assert.strictEqual(error.reason._tag, "ConfigurationInvalid")
        assert.notInclude(`${error.message} ${JSON.stringify(error)}`, "hunter2")
      }
    }).pipe(silently))

  it.live("hints that cannot be sent are one error", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const scope = yield* Scope.make()
      const database = yield* Scope.provide(Listening.open(test, { listens: false }), scope)
      yield* Scope.close(scope, Exit.void)
      const exit = yield* Effect.exit(database.announce(Hint.Hello()))
      assert.include(String(exit), "the provider is closed")
    }).pipe(silently))

  it.live("log lines: listening, and each hint at Debug with what it is, and no secrets", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const log = Listening.logging()
      const one = yield* log.into(Listening.connected(test))
      const two = yield* Listening.connected(test)
      yield* two.announce(Hint.Changed({ fingerprints: ["01234567"] }))
      yield* one.next(1)
      yield* waitUntil(Effect.sync(() => log.of("Debug").includes("Listener: hint received")))
      assert.deepStrictEqual(log.of("Info"), ["Listener: listening; hints of other processes arrive"])
      const [line] = log.lines.filter(({ text }) => text === "Listener: hint received")
      assert.deepInclude(line!.annotations, { hint: "Changed", operation: "listen", package: "duroxide-prisma" })
      const password = new URL(test.url).password
      if (password !== "") assert.notInclude(JSON.stringify(log.lines), password)
    }).pipe(silently))
})
