/**
 * What this package does without on servers that speak PostgreSQL and lack something: it finds out, and works.
 *
 * `npm run test:bare` runs other tests so.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration } from "duroxide-prisma"
import { Transaction } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as pg from "pg"
import { PauseTarget } from "../../src/model/Pause.ts"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/internal/client.ts"
import { release } from "../../src/prisma/internal/migrations.generated.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { Admin } from "../../src/provider/Admin.ts"
import * as Cli from "../cli/cli.ts"
import * as BareServer from "../utils/bareServer.ts"
import * as Errand from "../utils/errand.ts"
import * as Listening from "../utils/listening.ts"
import * as Migrations from "../utils/migrations.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as RefusingProxy from "../utils/refusingProxy.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const { template, worker } = PgServer.server()

const Shout = Orchestration.make("Shout", { payload: Schema.String, success: Schema.String })

/** A database whose server lacks everything that is optional. */
const bare = Effect.gen(function*() {
  const test = yield* PgServer.emptyDatabase
  if (!BareServer.isWanted) yield* Effect.scoped(Effect.flatMap(PgServer.connect(test.url), BareServer.strip))
  return { ...test, url: yield* BareServer.inFrontOf(test.url) }
})

const migrated = Effect.tap(bare, ({ url }) => Listening.logging().into(Migrator.migrate({ url })))

const warnings = (log: ReturnType<typeof Listening.logging>) =>
  log.lines.filter(({ level }) => level === "Warn").map(({ text }) => text)

describe("a server that has only what is needed", () => {
  if (template === null) return

  it.live("is migrated without the rest, which the log names", () =>
    Effect.gen(function*() {
      const test = yield* bare
      const log = Listening.logging()
      const applied = yield* log.into(Migrator.migrate({ url: test.url }))
      assert.deepStrictEqual(applied, release.migrations.map(({ name }) => name))
      const said = warnings(log)
      assert.lengthOf(said, 4)
      for (const name of ["locks of sessions", "storage parameters", "statement triggers", "locks of tables"]) {
        assert.isTrue(said.some((line) => line.includes(name)), name)
      }
      // As everywhere: `prisma migrate` sees the migrations of this release.
      yield* Migrator.verify({ url: test.url })
      const [kept] = yield* test.sql(
        `SELECT (SELECT count(*)::int FROM pg_class WHERE reloptions IS NOT NULL AND relnamespace = $1::regnamespace)
             AS parameters,
           (SELECT count(*)::int FROM pg_trigger WHERE NOT tgisinternal AND tgtype & 1 = 0) AS statements,
           (SELECT count(*)::int FROM pg_trigger WHERE NOT tgisinternal AND tgtype & 1 = 1) AS rows`,
        [test.schema]
      )
      assert.deepStrictEqual(kept, { parameters: 0, statements: 0, rows: 9 })
    }))

  it.live("runs whole orchestrations, with one warning", () =>
    Effect.gen(function*() {
      const test = yield* migrated
      const log = Listening.logging()
      const app = Errand.runtime("ME").pipe(
        Layer.provideMerge(Client.layer),
        Layer.provideMerge(PrismaProvider.layer({ url: test.url, migrate: "verify" }))
      )
      yield* log.into(Effect.provide(
        Effect.gen(function*() {
          assert.strictEqual((yield* Errand.run("anna", "heard")).answer, "heard")
          // The store itself announces pauses.
          const admin = yield* Admin
          yield* admin.pause(PauseTarget.Everything())
          yield* admin.resume(PauseTarget.Everything())
          yield* waitUntil(Effect.map(admin.listProcesses, (all) => all.some(({ isAlive }) => isAlive)))
          assert.deepStrictEqual((yield* admin.listProcesses).map(({ isListening }) => isListening), [false])
        }),
        app
      ))
      const refused = "Listener: the server refuses pg_notify, so the queues are polled"
      assert.deepStrictEqual([...new Set(warnings(log))], [refused])
      assert.deepStrictEqual(log.lines.filter(({ level }) => level === "Error"), [])
    }))

  it.live("doctor finds no problem there, before the migration and after it", () =>
    Effect.gen(function*() {
      const test = yield* bare
      for (const command of ["doctor", "migrate", "doctor"]) {
        const { exitCode, stderr } = yield* Cli.run(command, { env: { DATABASE_URL: test.url } })
        assert.strictEqual(exitCode, 0, stderr)
      }
    }))

  it.live("transactions of an application commit once duroxide.notify is off for the database", () =>
    Effect.gen(function*() {
      const test = yield* migrated
      const start = (instanceId: string) =>
        Effect.scoped(Effect.gen(function*() {
          const client = yield* Effect.acquireRelease(
            Effect.promise(() => new pg.Client(test.url).connect()),
            (client) => Effect.promise(() => client.end())
          )
          yield* Effect.promise(() => client.query("BEGIN"))
          const { start } = Client.within(Transaction.make(client, { schema: test.schema }))
          yield* start(Shout, { instanceId, payload: "hello" })
          yield* Effect.promise(() => client.query("COMMIT"))
        }))
      assert.include((yield* Effect.flip(start("a"))).message, "pg_notify is not supported here")
      yield* test.sql(`ALTER DATABASE ${new URL(test.url).pathname.slice(1)} SET duroxide.notify = off`)
      yield* start("a")
      assert.lengthOf(yield* test.sql("SELECT FROM instances WHERE instance_id = 'a'"), 1)
    }))
})

describe("a server that lacks one thing alone:", () => {
  if (template === null) return

  it.live("locks of sessions: hints arrive, and others see by its row that the process lives", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = yield* RefusingProxy.inFrontOf(test.url, RefusingProxy.refuse(/pg_advisory_lock_shared/))
      const log = Listening.logging()
      const app = Errand.runtime("ME").pipe(
        Layer.provideMerge(Client.layer),
        Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" }))
      )
      yield* log.into(Effect.provide(
        Effect.gen(function*() {
          yield* waitUntil(Effect.sync(() => log.of("Info").length > 0))
          const { listProcesses } = yield* Admin
          yield* waitUntil(Effect.map(listProcesses, (all) => all.length > 0))
          assert.deepStrictEqual(
            (yield* listProcesses).map(({ isAlive, isListening }) => ({ isAlive, isListening })),
            [{ isAlive: true, isListening: false }]
          )
        }),
        app
      ))
      assert.include(log.of("Info")[0], "listening; hints of other processes arrive")
      assert.deepStrictEqual(warnings(log), [])
    }))

  it.live("the right to notify, of a role: it polls, and what it stores is found", () =>
    Effect.gen(function*() {
      if (worker === null) return
      const test = yield* PgServer.database
      yield* test.sql("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC")
      yield* Effect.scoped(Effect.gen(function*() {
        const { notifies, query } = yield* Database.make({ url: test.workerUrl })
        assert.isFalse(notifies)
        // Each connection of the pool.
        const settings = yield* Effect.all(
          Array.from({ length: 3 }, () =>
            query<{ setting: string }>(
              "read",
              Prisma.sql`SELECT current_setting('duroxide.notify') AS setting, pg_sleep(0.1)::text`
            )),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(settings.map(([row]) => row?.setting), ["off", "off", "off"])
      }))
      const { answer } = yield* Effect.provide(
        Errand.run("anna", "heard"),
        Errand.app("ME", { url: test.workerUrl, migrate: "verify" })
      )
      assert.strictEqual(answer, "heard")
    }))

  it.live("locks of tables, where a store is in use: the migration fails, and changes nothing", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const first = Object.fromEntries(release.migrations.slice(0, -1).map(({ name, sql }) => [name, sql]))
      yield* Migrator.migrate({ url: test.url }).pipe(Migrations.withMigrations(first), Listening.logging().into)
      const url = yield* RefusingProxy.inFrontOf(test.url, RefusingProxy.refuse(/^LOCK TABLE/m))
      const error = yield* Effect.flip(Migrator.migrate({ url }))
      assert.strictEqual(error.reason._tag, "MigrationFailed")
      assert.include(error.message, "not supported here")
    }))
})
