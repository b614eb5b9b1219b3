import { assert, describe, it } from "@effect/vitest"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as pg from "pg"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as Provider from "../../src/provider/Provider.ts"
import { ProviderDriver } from "../../src/provider/ProviderDriver.ts"
import * as Test from "../utils/driver.ts"
import * as Listening from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"

const silently = Layer.provide(Logger.layer([]))

/** Builds a provider with `options` and uses it; returns the outcome. */
const using = <A, E>(
  options: PrismaProvider.Options,
  use: Effect.Effect<A, E, Provider.Provider | ProviderDriver>
) => Effect.provide(use, silently(PrismaProvider.layer(options)))

const reason = <A, E extends { readonly reason: { readonly _tag: string } }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.flip(effect), (error) => error.reason._tag)

/** One instance from start to end, and an activity. */
const aWholeLife = Effect.gen(function*() {
  const driver = yield* ProviderDriver
  assert.deepStrictEqual(yield* driver.startOrchestrations([Test.start("a")]), ["Started"])
  const { lockToken } = yield* Test.claimOne(driver)
  const ack = Test.turn(lockToken, {
    ...Test.named,
    history: Test.events(1),
    keyValues: [{ action: "set", key: "k", value: "v", lastUpdatedAtMs: 1 }],
    status: "Completed",
    workerItems: [Test.activity({ sessionId: "s" })]
  })
  assert.deepStrictEqual(yield* driver.renewOrchestrationItemLocks([{ lockToken, extendForMs: 60_000 }]), ["Done"])
  assert.deepStrictEqual(yield* driver.ackOrchestrationItems([ack]), ["Done"])
  const [taken] = yield* Test.take(driver, { session: { workerId: "me", lockTimeoutMs: 1000 } })
  const completion = { instanceId: "a", workItem: "{}" }
  assert.deepStrictEqual(yield* driver.ackWorkItems([{ lockToken: taken!.lockToken, completion }]), ["Done"])
  assert.deepInclude((yield* driver.readInstances(["a"]))[0], { status: "Completed" })
  assert.lengthOf(yield* driver.readHistory({ instanceId: "a", executionId: null }), 1)
  const again = yield* Test.claimOne(driver)
  yield* driver.abandonOrchestrationItems([{ lockToken: again.lockToken, delayMs: null, ignoreAttempt: false }])
})

describe("PrismaProvider.layer:", () => {
  it.live("migrates a schema of any name and works in it, beside another one", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.emptyDatabase
      for (const schema of ["needs \"quotes\"; ünd mehr", "Other"]) {
        yield* Effect.addFinalizer(() => sql(`DROP SCHEMA IF EXISTS ${pg.escapeIdentifier(schema)} CASCADE`))
        yield* using({ url, schema }, aWholeLife)
      }
    }).pipe(Effect.scoped))

  it.live("offers the provider over the driver", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const state = yield* using(
        { url },
        Effect.gen(function*() {
          const driver = yield* ProviderDriver
          yield* driver.startOrchestrations([Test.start("a")])
          const provider = yield* Provider.Provider
          return yield* provider.readInstance("a")
        })
      )
      assert.strictEqual(Option.getOrThrow(state).instanceId, "a")
    }))

  it.live("verify: fails on a schema that is not migrated, and changes nothing", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* PgServer.emptyDatabase
      assert.strictEqual(yield* reason(using({ url, migrate: "verify" }, Effect.void)), "SchemaBehind")
      assert.lengthOf(yield* sql("SELECT FROM pg_tables WHERE schemaname = $1", [schema]), 0)
      yield* using({ url, migrate: "apply" }, Effect.void)
      yield* using({ url, migrate: "verify" }, aWholeLife)
    }))

  it.live("allowAhead: a schema of a newer release is used, and refused without it, by each mode that looks", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* PgServer.emptyDatabase
      yield* using({ url }, Effect.void)
      yield* sql(
        `INSERT INTO ${pg.escapeIdentifier(schema)}._prisma_migrations (id, checksum, migration_name, finished_at)
         VALUES ('x', 'x', '99990101000000_from_the_future', now())`
      )
      for (const migrate of ["apply", "verify"] as const) {
        for (const urls of [{ url }, { url, directUrl: url }]) {
          assert.strictEqual(yield* reason(using({ ...urls, migrate }, Effect.void)), "SchemaAhead")
          yield* using({ ...urls, migrate, allowAhead: true }, Effect.void)
        }
      }
      yield* using({ url, migrate: "verify", allowAhead: true }, aWholeLife)
    }))

  it.live("none: trusts the schema; a statement then says what is missing", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.emptyDatabase
      const read = Effect.flatMap(ProviderDriver, (driver) => driver.readInstances(["a"]))
      const error = yield* Effect.flip(using({ url, migrate: "none" }, read))
      assert.strictEqual(error.reason._tag, "SchemaMismatch")
      assert.include(error.message, "Run the migrations")
    }))

  it.live("migrates directly on the server when the URL leads to a pooler", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.emptyDatabase
      const pooled = new URL(url)
      pooled.searchParams.set("pgbouncer", "true")
      assert.strictEqual(yield* reason(using({ url: pooled.toString() }, Effect.void)), "ConfigurationInvalid")
      yield* using({ url: pooled.toString(), directUrl: url }, aWholeLife)
    }))

  it.live("a directUrl that leads to another database is refused by name, before anything is migrated there", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const other = yield* PgServer.emptyDatabase
      for (const migrate of ["apply", "adopt", "verify"] as const) {
        const error = yield* Effect.flip(using({ url, directUrl: other.url, migrate }, Effect.void))
        assert.strictEqual(error.reason._tag, "ConfigurationInvalid")
        assert.include(error.message, "directUrl: it leads to")
        assert.include(error.message, new URL(url).pathname.slice(1))
      }
      assert.lengthOf(yield* other.sql("SELECT FROM pg_class WHERE relname = '_prisma_migrations'"), 0)
    }))

  it.live("a role that may not read the identifier of the server compares the databases alone", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const other = yield* PgServer.emptyDatabase
      for (const database of [{ sql }, other]) {
        yield* database.sql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
      }
      const role = `stranger_${Date.now()}`
      yield* sql(`CREATE ROLE ${role} LOGIN PASSWORD 'hunter2'`)
      yield* Effect.addFinalizer(() => sql(`DROP ROLE ${role}`))
      const as = (url: string) => {
        const changed = new URL(url)
        changed.username = role
        changed.password = "hunter2"
        return changed.toString()
      }
      const error = yield* Effect.flip(
        using({ url: as(url), directUrl: as(other.url), migrate: "verify" }, Effect.void)
      )
      assert.include(error.message, "directUrl: it leads to")
      // The same database: what follows is the lack of other rights.
      const same = yield* Effect.flip(using({ url: as(url), directUrl: as(url), migrate: "verify" }, Effect.void))
      assert.notInclude(same.message, "leads to")
    }).pipe(Effect.scoped))

  it.live("what is wrong with directUrl is said of directUrl, and what is wrong with url is not", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const nowhere = new URL(url)
      nowhere.host = "localhost:1"
      for (
        const directUrl of [nowhere.toString(), "not a URL", `${url}${url.includes("?") ? "&" : "?"}pgbouncer=true`]
      ) {
        const error = yield* Effect.flip(using({ url, directUrl }, Effect.void))
        assert.match(error.message, /: directUrl: /)
      }
      const unreadable = yield* Effect.flip(using({ url, directUrl: "not a URL", migrate: "none" }, Effect.void))
      assert.match(unreadable.message, /: directUrl: /)
      const error = yield* Effect.flip(using({ url: nowhere.toString(), directUrl: url }, Effect.void))
      assert.notInclude(error.message, "directUrl")
      assert.include(error.message, "localhost:1")
    }))

  it.live("a line at the start has the settings, and no URL", () =>
    Effect.gen(function*() {
      const { schema, url } = yield* PgServer.database
      const log = Listening.logging()
      const settings = (options: Omit<PrismaProvider.Options, "url">) =>
        Effect.gen(function*() {
          log.lines.length = 0
          yield* log.into(Layer.build(PrismaProvider.layer({ url, schema, ...options })))
          const lines = log.lines.filter(({ level, text }) => level === "Info" && text === "Provider: open")
          assert.lengthOf(lines, 1)
          return lines[0]!.annotations["settings"]
        })
      assert.strictEqual(yield* settings({}), "defaults")
      // The object of a caller may have more.
      const others = { password: "hunter2" }
      assert.strictEqual(
        yield* settings({
          ...others,
          directUrl: url,
          maxConnections: 3,
          statementTimeout: "5 seconds",
          longPolling: { fallbackPollInterval: Duration.minutes(1) }
        }),
        "maxConnections=3, statementTimeout=5 seconds, directUrl=given, longPolling.fallbackPollInterval=1m"
      )
    }))

  it.live("a URL that is missing or empty is a typed error that names DATABASE_URL", () =>
    Effect.gen(function*() {
      const missing = JSON.parse("{}").url // what `process.env.DATABASE_URL!` is where it is not set
      for (const migrate of ["apply", "none"] as const) {
        for (const url of [missing, "", "  "]) {
          const error = yield* Effect.flip(using({ url, migrate }, Effect.void))
          assert.strictEqual(error.reason._tag, "ConfigurationInvalid")
          assert.include(error.message, "no connection URL (is DATABASE_URL set?)")
        }
      }
    }))

  it.live("layerConfig: reads its options from configuration", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const provider = silently(PrismaProvider.layerConfig({ url: Config.Redacted("DATABASE_URL") }))
      const config = (env: Record<string, string>) => ConfigProvider.layer(ConfigProvider.fromEnv({ env }))
      yield* Effect.provide(aWholeLife, Layer.provide(provider, config({ DATABASE_URL: url })))
      const error = yield* Effect.flip(Effect.provide(aWholeLife, Layer.provide(provider, config({}))))
      assert.include(String(error), "DATABASE_URL")
    }))

  it.live("the clock of the database decides by default", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const begin = Date.now()
      yield* using(
        { url },
        Effect.flatMap(ProviderDriver, (driver) => driver.enqueueForOrchestrator([Test.message("a")]))
      )
      const [row] = yield* sql<{ at: number }>(
        "SELECT (extract(epoch FROM visible_at) * 1000)::float8 AS at FROM orchestrator_queue"
      )
      // Server and test run on one machine, or close to it.
      assert.approximately(row!.at, begin, 60_000)
    }))
})
