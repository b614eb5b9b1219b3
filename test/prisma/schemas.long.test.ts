import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration } from "duroxide-prisma"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as pg from "pg"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as Transaction from "../../src/prisma/Transaction.ts"
import * as Test from "../utils/driver.ts"
import * as Errand from "../utils/errand.ts"
import * as PgServer from "../utils/PgServer.ts"

const Tomorrow = Orchestration.make("Tomorrow")

/** A schema's name in a database of its own; `url` carries it, `sql` looks at it. */
const named = Effect.fnUntraced(function*(...schemas: ReadonlyArray<string>) {
  const test = yield* PgServer.emptyDatabase
  const drop = (schema: string) => test.sql(`DROP SCHEMA IF EXISTS ${pg.escapeIdentifier(schema)} CASCADE`)
  yield* Effect.addFinalizer(() => Effect.forEach(schemas, drop))
  yield* test.sql(`SET search_path = ${pg.escapeIdentifier(schemas[0]!)}`)
  return { ...test, schema: schemas[0]! }
})

const withUrl = (url: string, parameters: Readonly<Record<string, string>>) => {
  const changed = new URL(url)
  for (const [name, value] of Object.entries(parameters)) changed.searchParams.set(name, value)
  return changed.toString()
}

const expected = (sender: string) => ({ greeting: `${sender} GREETS ANNA`, answer: `from ${sender}` })

describe("schemas", () => {
  for (const schema of ["a \"quoted\"; name", "Mixed.Case", "naïve-ünïcode", "user"]) {
    it.live(`a whole orchestration runs in schema ${schema}`, () =>
      Effect.gen(function*() {
        const test = yield* named(schema)
        const result = yield* Errand.run("anna", "from ME").pipe(
          Effect.provide(Errand.app("ME", { url: test.url, schema }))
        )
        assert.deepStrictEqual(result, expected("ME"))
      }))
  }

  it.live("two schemas of one database: the same id names two instances", () =>
    Effect.gen(function*() {
      const test = yield* named("one", "Two")
      const [one, two] = yield* Effect.all(
        [
          Layer.build(Errand.app("ONE", { url: test.url, schema: "one" })),
          Layer.build(Errand.app("TWO", { url: test.url, schema: "Two" }))
        ],
        { concurrency: "unbounded" }
      )
      const results = yield* Effect.all([
        Effect.provideContext(Errand.run("anna", "from ONE"), one),
        Effect.provideContext(Errand.run("anna", "from TWO"), two)
      ], { concurrency: "unbounded" })
      assert.deepStrictEqual(results, [expected("ONE"), expected("TWO")])
      // A message to one does not arrive at another.
      yield* Effect.provideContext(Errand.timerError(test), one)
      const status = yield* Context.get(two, Client.Client).status("tomorrow")
      assert.strictEqual(status._tag, "NotFound")
      const rows = yield* test.sql(
        `SELECT (SELECT count(*)::int FROM one.instances) AS one, (SELECT count(*)::int FROM "Two".instances) AS two`
      )
      assert.deepStrictEqual(rows, [{ one: 3, two: 2 }])
    }))

  it.live("two schemas of one database: a lock in one does not lock the other", () =>
    Effect.gen(function*() {
      const test = yield* named("one", "Two")
      const open = (schema: string) =>
        Effect.andThen(
          Effect.provide(Migrator.migrate({ url: test.url, schema }), Logger.layer([])),
          Test.openOn({ ...test, schema })
        )
      const one = yield* open("one")
      const two = yield* open("Two")
      const first = yield* Test.claimed(one.driver, "x")
      const second = yield* Test.claimed(two.driver, "x")
      assert.deepStrictEqual(
        yield* two.driver.ackOrchestrationItems([Test.turn(first.lockToken, Test.named)]),
        ["LockLost"]
      )
      for (const [{ driver }, claim] of [[one, first], [two, second]] as const) {
        assert.deepStrictEqual(yield* driver.ackOrchestrationItems([Test.turn(claim.lockToken, Test.named)]), ["Done"])
      }
    }))
})

describe("temporary tables of the caller", () => {
  it.live("temporary tables with our names in an application's transaction do not affect a start", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const application = yield* PgServer.connect(withUrl(test.url, {}))
      const run = (sql: string) => Effect.promise(() => application.query(sql))
      const tables = yield* test.sql<{ name: string }>(
        "SELECT tablename AS name FROM pg_tables WHERE schemaname = $1 AND tablename <> '_prisma_migrations'",
        [test.schema]
      )
      yield* run("BEGIN")
      for (const { name } of tables) {
        const shape = name === "instances" ? "()" : `(LIKE ${pg.escapeIdentifier(test.schema)}.${name} INCLUDING ALL)`
        yield* run(`CREATE TEMP TABLE ${name} ${shape}`)
      }
      yield* Client.within(Transaction.make(application, { schema: test.schema })).start(Tomorrow, {
        instanceId: "shadowed"
      })
      yield* run("COMMIT")
      assert.deepStrictEqual(
        yield* test.sql("SELECT instance_id FROM orchestrator_queue UNION ALL SELECT instance_id FROM instances"),
        [{ instance_id: "shadowed" }, { instance_id: "shadowed" }]
      )
    }))
})

describe("settings of the server and the role", () => {
  it.live("a foreign search_path and a time zone that is not UTC change nothing", () =>
    Effect.gen(function*() {
      const test = yield* named("zoned", "elsewhere")
      // Every session of the application and of its migrations begins with these.
      const settings = { TimeZone: "Asia/Kolkata", search_path: "elsewhere", DateStyle: "German" }
      let url = test.url
      if (PgServer.server().template === null) {
        const options = Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`).join(" ")
        url = withUrl(url, { options })
      } else {
        const database = pg.escapeIdentifier(new URL(url).pathname.slice(1))
        for (const [name, value] of Object.entries(settings)) {
          yield* test.sql(`ALTER DATABASE ${database} SET ${name} = '${value}'`)
        }
      }
      // Tables with our names that unqualified names find first.
      yield* test.sql("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.instances (); CREATE TABLE elsewhere.history ()")
      const onlooker = yield* PgServer.connect(url)
      const zone = yield* Effect.promise(() => onlooker.query("SHOW TimeZone"))
      assert.deepStrictEqual(zone.rows, [{ TimeZone: "Asia/Kolkata" }])

      yield* Effect.gen(function*() {
        assert.deepStrictEqual(yield* Errand.run("anna", "from ME"), expected("ME"))
        const error = yield* Errand.timerError(test)
        assert.strictEqual(error.row, 0)
        // A wrong time zone is off by hours; the clock of a first turn is late by the way of an answer.
        assert.isAbove(error.due, -600_000)
        assert.isBelow(error.due, 600_000)
      }).pipe(Effect.provide(Errand.app("ME", { url, schema: "zoned" })))

      const [times] = yield* test.sql<{ age: number }>(
        "SELECT extract(epoch FROM clock_timestamp() - max(created_at))::float AS age FROM zoned.history"
      )
      assert.isAtLeast(times!.age, 0)
      assert.isBelow(times!.age, 600)
      assert.lengthOf(yield* test.sql("SELECT FROM elsewhere.history"), 0)
    }))
})
