/**
 * Who lives, as PostgreSQL sees it: by the lock of the session that listens, or by what was written lately.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Database, PrismaProvider } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import { hostname } from "node:os"
import * as Listening from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Charge = Activity.make("Charge")
const Order = Orchestration.make("Order", { version: "1.2.0" })

const application = (url: string, options: Partial<PrismaProvider.Options> = {}) =>
  Runtime.layer({ orchestrations: [Order], activities: [Charge] }).pipe(
    Layer.provide([
      Charge.toLayer(() => Effect.void),
      Order.toLayer(() => Effect.void),
      RuntimeConfig.layer({ build: "a1b2", tags: { _tag: "DefaultAnd", tags: ["gpu"] }, workerConcurrency: 4 })
    ]),
    Layer.provideMerge(PrismaProvider.layer({ url, ...options })),
    Layer.provideMerge(Logger.layer([Logger.make(({ logLevel, message }) => {
      if (logLevel !== "Info" && logLevel !== "Debug") complaints.push(String(message))
    })]))
  )

/** Lines above Info. */
const complaints: Array<string> = []

/** Starts the only process of the application, or the nth. */
const start = Effect.fnUntraced(function*(url: string, options?: Partial<PrismaProvider.Options>, nth = 1) {
  complaints.splice(0)
  const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
  const services = yield* Layer.buildWithScope(application(url, options), scope)
  const { listProcesses } = Context.get(services, Admin.Admin)
  return {
    ...Context.get(services, Database.Database),
    listProcesses,
    registered: waitUntil(
      Effect.map(listProcesses, (all) => all.filter(({ build, isAlive }) => build === "a1b2" && isAlive).length === nth)
    ),
    close: Scope.close(scope, Exit.void)
  }
})

const ids = ["a", "b", "c", "d"].map((first) => `${first}0000000-0000-4000-8000-00000000000f`)

const locks = `
  SELECT FROM pg_locks
  WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

/** Rows of other processes: one without its lock, one with it, and two that write, the last four minutes ago. */
const others = `
  SELECT dx_register_process(jsonb_build_object(
    'id', id, 'build', 'x', 'host', 'h', 'pid', 1, 'orchestrations', '[]'::jsonb, 'activities', '[]'::jsonb,
    'untagged', true, 'tags', '[]'::jsonb, 'listens', n <= 2
  ))
  FROM unnest($1::text[]) WITH ORDINALITY AS one (id, n)`

describe("a process", () => {
  it.live("is known by one statement while it listens, and by none when it has closed", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const { close, listProcesses, registered, statementCounts } = yield* start(test.url)
      yield* registered
      const [found, ...others] = yield* listProcesses
      assert.deepStrictEqual(others, [])
      const { id, seenMs, sinceMs, slotsInUse, ...report } = found!
      assert.match(id, /^[0-9a-f-]{36}$/)
      assert.isAtLeast(seenMs, sinceMs)
      assert.deepStrictEqual(report, {
        build: "a1b2",
        host: hostname(),
        pid: process.pid,
        orchestrations: ["Order@1.2.0"],
        activities: ["Charge"],
        tags: { _tag: "DefaultAnd", tags: ["gpu"] },
        orchestrationSlots: 40,
        activitySlots: 4,
        isListening: true,
        isAlive: true
      })
      assert.deepInclude(slotsInUse, { orchestrations: 0, activities: 0 })
      assert.strictEqual((yield* statementCounts)["registerProcess"], 1)
      yield* close
      assert.deepStrictEqual(complaints, [])
      assert.deepStrictEqual(yield* test.sql("SELECT FROM processes"), [])
      yield* waitUntil(Effect.map(test.sql(locks), (rows) => rows.length === 0))
    }).pipe(Effect.scoped))

  it.live("lives on when its connection is lost and opened again", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const { listProcesses, registered, statementCounts } = yield* start(test.url)
      yield* registered
      assert.strictEqual(yield* Listening.terminate(test), 1)
      yield* waitUntil(Effect.map(statementCounts, (counts) => counts["registerProcess"] === 2))
      assert.deepInclude((yield* listProcesses)[0], { isListening: true, isAlive: true })
    }).pipe(Effect.scoped))

  it.live("that does not listen lives while it writes", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const { close, listProcesses, registered } = yield* start(test.url, { longPolling: { enabled: false } })
      yield* registered
      assert.deepInclude((yield* listProcesses)[0], { isListening: false, isAlive: true })
      yield* test.sql("UPDATE processes SET seen_at = now() - interval '4 minutes'")
      assert.deepInclude((yield* listProcesses)[0], { isListening: false, isAlive: false })
      yield* close
      assert.deepStrictEqual(complaints, [])
    }).pipe(Effect.scoped))

  it.live("is dead as soon as its lock is gone, and is forgotten a day after another one has found that", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* test.sql(others, [ids])
      yield* test.sql("SELECT pg_advisory_lock_shared(dx_process_key($1::uuid))", [ids[1]])
      yield* test.sql("UPDATE processes SET seen_at = now() - interval '4 minutes' WHERE id = $1::uuid", [ids[3]])
      const living = Effect.map(
        test.sql<{ readonly id: string; readonly lives: boolean }>(
          "SELECT out_id::text AS id, out_is_alive AS lives FROM dx_read_processes() WHERE out_host = 'h' ORDER BY out_id"
        ),
        (rows) => rows.map(({ id, lives }) => `${id[0]} ${lives ? "lives" : "is dead"}`)
      )
      assert.deepStrictEqual(yield* living, ["a is dead", "b lives", "c lives", "d is dead"])
      yield* (yield* start(test.url)).registered
      assert.deepStrictEqual(yield* living, ["a is dead", "b lives", "c lives", "d is dead"])
      yield* test.sql("UPDATE processes SET found_dead_at = found_dead_at - interval '25 hours'")
      yield* (yield* start(test.url, {}, 2)).registered
      assert.deepStrictEqual(yield* living, ["b lives", "c lives"])
      yield* test.sql("SELECT pg_advisory_unlock_shared(dx_process_key($1::uuid))", [ids[1]])
      assert.deepStrictEqual(yield* living, ["b is dead", "c lives"])
    }).pipe(Effect.scoped))
})

/** A runtime in virtual time with two slots, and with handlers that end when the scope is closed. */
const busy = Effect.fnUntraced(function*(url: string, options: Partial<PrismaProvider.Options> = {}) {
  const begun = Latch.makeUnsafe()
  const ends = Latch.makeUnsafe()
  const services = yield* Layer.build(
    Runtime.layer({ orchestrations: [Order], activities: [Charge] }).pipe(
      Layer.provide([
        Charge.toLayer(() => Effect.andThen(begun.open, ends.await)),
        Order.toLayer(Effect.fn(function*() {
          yield* Effect.all([Charge.execute(), Charge.execute(), Charge.execute()], { concurrency: "unbounded" })
        })),
        RuntimeConfig.layer({ workerConcurrency: 2 })
      ]),
      Layer.provideMerge(Client.layer),
      Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none", ...options })),
      Layer.provideMerge(Logger.layer([]))
    )
  )
  yield* Effect.addFinalizer(() => ends.open)
  const { start } = Context.get(services, Client.Client)
  const { listProcesses } = Context.get(services, Admin.Admin)
  return {
    ...Context.get(services, Database.Database),
    begin: Effect.andThen(start(Order, { instanceId: "a" }), begun.await),
    /** How many activities run, as it is listed. */
    inUse: Effect.orDie(Effect.map(listProcesses, ([process]) => process?.slotsInUse?.activities))
  }
})

/** Lets time pass in such steps until it holds. */
const passing = (step: Duration.Input, holds: Effect.Effect<boolean>) =>
  Effect.andThen(TestClock.adjust(step), TestClock.withLive(Effect.andThen(Effect.sleep("5 millis"), holds))).pipe(
    Effect.repeat({ until: (holds) => holds })
  )

describe("the slots in use", () => {
  it.effect("of a process that listens are in its heartbeats: its row stays as it is, and it sends nothing more", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const { begin, inUse, statementCounts } = yield* busy(test.url)
      yield* passing("100 millis", Effect.map(inUse, (activities) => activities === 0))
      yield* begin
      const row = yield* test.sql("SELECT xmin::text, * FROM processes")
      yield* passing("5 seconds", Effect.map(inUse, (activities) => activities === 2))
      assert.deepStrictEqual(yield* test.sql("SELECT xmin::text, * FROM processes"), row)
      assert.strictEqual((yield* statementCounts)["registerProcess"], 1)
    }).pipe(Effect.scoped))

  it.effect("of a process that polls are in the row that it writes once a minute", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const { begin, inUse, statementCounts } = yield* busy(test.url, { longPolling: { enabled: false } })
      yield* passing("100 millis", Effect.map(inUse, (activities) => activities === 0))
      yield* Effect.raceFirst(begin, Effect.forever(TestClock.adjust("10 millis")))
      yield* passing("5 seconds", Effect.map(inUse, (activities) => activities === 2))
      const written = (yield* statementCounts)["registerProcess"]
      yield* TestClock.adjust("55 seconds")
      assert.strictEqual((yield* statementCounts)["registerProcess"], written)
      yield* test.sql("UPDATE processes SET seen_at = now() - interval '2 minutes'")
      assert.strictEqual(yield* inUse, 2)
      yield* test.sql("UPDATE processes SET seen_at = now() - interval '4 minutes'")
      assert.isUndefined(yield* inUse)
    }).pipe(Effect.scoped))

  it.effect("are not known to a role that may not see the sessions of another one", () =>
    Effect.gen(function*() {
      if (PgServer.server().worker === null) return
      const test = yield* PgServer.database
      const { inUse } = yield* busy(test.url)
      yield* passing("100 millis", Effect.map(inUse, (activities) => activities === 0))
      const reader = yield* PgServer.connect(test.workerUrl)
      const read = Effect.promise(() =>
        reader.query(
          `SELECT out_is_alive AS lives, out_activities_in_use AS activities FROM "${test.schema}".dx_read_processes()`
        )
      )
      const rowOf = (age: string) =>
        Effect.andThen(
          test.sql("UPDATE processes SET seen_at = now() - $1::interval, activities_in_use = 1", [age]),
          Effect.map(read, ({ rows }) => rows)
        )
      // Its own first rows may still be under way, and what it has to try again waits for time to pass.
      const hasRow = (age: string, expected: unknown) =>
        passing("100 millis", Effect.map(rowOf(age), (rows) => JSON.stringify(rows) === JSON.stringify(expected)))
      yield* hasRow("1 minute", [{ lives: true, activities: 1 }])
      yield* hasRow("4 minutes", [{ lives: true, activities: null }])
      assert.deepStrictEqual(yield* rowOf("4 minutes"), [{ lives: true, activities: null }])
    }).pipe(Effect.scoped))
})
