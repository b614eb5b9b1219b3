/**
 * Options from environment variables: what each gives, what is refused and how, and that no secret is shown.
 */
import { assert, describe, it } from "@effect/vitest"
import { RuntimeConfig } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { TaskWorker } from "duroxide-prisma/tasks"
import type * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { inspect } from "node:util"
import { DashboardUrl } from "../../src/model/shared/dashboardUrl.ts"
import * as Runtime from "../../src/Runtime.ts"
import * as ApplicationPool from "../utils/applicationPool.ts"
import * as Listening from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"

type Env = Readonly<Record<string, string>>

const within = (env: Env) => Effect.provide(ConfigProvider.layer(ConfigProvider.fromEnv({ env })))

const url = "postgresql://anna:hunter2@db.example.org:5433/app"

const reading = <A>(config: Config.Config<A>) => Effect.flatMap(Effect.void, () => config)

const provider = (env: Env) => within({ DATABASE_URL: url, ...env })(reading(PrismaProvider.environment))

const runtime = (env: Env, defaults?: RuntimeConfig.Options) =>
  Effect.provide(RuntimeConfig.RuntimeConfig, RuntimeConfig.layerEnvironment(defaults)).pipe(within(env))

const problem = <A>(effect: Effect.Effect<A, Config.ConfigError>) =>
  Effect.map(Effect.flip(effect), ({ message }) => message)

describe("Options from the environment:", () => {
  it.effect("each variable sets its option", () =>
    Effect.gen(function*() {
      const options = yield* provider({
        DIRECT_URL: "postgresql://direct/app",
        DUROXIDE_PG_SCHEMA: "duroxide",
        POSTGRES_MAX_CONNECTIONS: "20",
        DUROXIDE_PG_CHECKOUT_TIMEOUT: "2s",
        DUROXIDE_PG_STATEMENT_TIMEOUT: "1.5 minutes",
        DUROXIDE_PG_APPLICATION_NAME: "orders worker",
        DUROXIDE_PG_PREPARED_STATEMENTS: "off",
        DUROXIDE_PG_MIGRATE: "verify",
        DUROXIDE_LANES: "4",
        DUROXIDE_MAX_BATCH: "32",
        DUROXIDE_LONG_POLLING: "true",
        DUROXIDE_LONG_POLLING_MAX_WAIT_TIME: "500ms"
      })
      const { directUrl, url: given, ...others } = options
      assert.strictEqual(Redacted.value(given as Redacted.Redacted), url)
      assert.strictEqual(Redacted.value(directUrl as Redacted.Redacted), "postgresql://direct/app")
      assert.deepStrictEqual(others, {
        schema: "duroxide",
        maxConnections: 20,
        checkoutTimeout: Duration.millis(2_000),
        statementTimeout: Duration.millis(90_000),
        applicationName: "orders worker",
        preparedStatements: false,
        migrate: "verify",
        lanes: 4,
        maxBatch: 32,
        longPolling: { enabled: true, maxWaitTime: Duration.millis(500) }
      })
      assert.deepInclude(
        yield* runtime({
          DUROXIDE_TAGS: "default, gpu",
          DUROXIDE_WORKER_ID: "w-1",
          DUROXIDE_CANCELLATION_CHECK_INTERVAL: "infinity",
          DUROXIDE_MAX_SESSIONS: "0",
          DUROXIDE_VERIFY_REPLAY: "1",
          DUROXIDE_DASHBOARD_URL: "https://shop.example/duroxide/"
        }),
        {
          tags: { _tag: "DefaultAnd", tags: ["gpu"] },
          workerId: "w-1",
          cancellationCheckInterval: Duration.infinity,
          maxSessions: 0,
          verifyReplay: true,
          dashboardUrl: "https://shop.example/duroxide"
        }
      )
      for (
        const [text, tags] of [
          ["default", { _tag: "DefaultOnly" }],
          ["any", { _tag: "Any" }],
          ["none", { _tag: "None" }],
          ["gpu,eu", { _tag: "Tags", tags: ["gpu", "eu"] }]
        ] as const
      ) assert.deepStrictEqual((yield* runtime({ DUROXIDE_TAGS: text })).tags, tags)
      yield* Effect.gen(function*() {
        assert.deepStrictEqual(yield* PgQueue.environment, { pollInterval: Duration.millis(50) })
        assert.deepStrictEqual(yield* Outbox.environment, { keepSent: Duration.days(2) })
        assert.deepStrictEqual(yield* TaskWorker.environment, { concurrency: 7 })
        assert.deepInclude(yield* PrismaProvider.databaseEnvironment, {
          maxConnections: 3,
          longPolling: { enabled: false }
        })
      }).pipe(within({
        DATABASE_URL: url,
        DUROXIDE_PG_POOL_MAX: "3",
        DUROXIDE_LONG_POLLING: "no",
        DUROXIDE_QUEUE_POLL_INTERVAL: "50ms",
        DUROXIDE_OUTBOX_KEEP_SENT: "2d",
        DUROXIDE_TASK_CONCURRENCY: "7"
      }))
    }))

  it.effect("a dashboard is known to all that is built on the settings, until others replace them", () =>
    Effect.gen(function*() {
      const known = RuntimeConfig.layerEnvironment()
      const env = { DUROXIDE_DASHBOARD_URL: "http://localhost:4983/" }
      assert.strictEqual(yield* within(env)(Effect.provide(DashboardUrl, known)), "http://localhost:4983")
      const others = Layer.provideMerge(RuntimeConfig.layer({ maxAttempts: 3 }), known)
      assert.isUndefined(yield* within(env)(Effect.provide(DashboardUrl, others)))
      assert.include(
        yield* problem(runtime({ DUROXIDE_DASHBOARD_URL: "https://anna:hunter2@shop.example" })),
        "DUROXIDE_DASHBOARD_URL must be an absolute http or https URL without credentials, query and fragment"
      )
      assert.notInclude(yield* problem(runtime({ DUROXIDE_DASHBOARD_URL: "https://anna:hunter2@a" })), "hunter2")
    }))

  it.effect("POSTGRES_LOCK_TIMEOUT_SECS sets both locks of a runtime, and no other", () =>
    Effect.gen(function*() {
      const settings = yield* runtime({ POSTGRES_LOCK_TIMEOUT_SECS: "12" })
      const usual = yield* runtime({})
      const locks = { orchestrationLockTimeout: Duration.seconds(12), workerLockTimeout: Duration.seconds(12) }
      assert.deepStrictEqual(settings, { ...usual, ...locks })
    }))

  it.effect("empty variables are not set, and what no variable sets stays that of the application", () =>
    Effect.gen(function*() {
      const settings = yield* runtime({ DUROXIDE_WORKER_CONCURRENCY: "", DUROXIDE_MAX_ATTEMPTS: "4" }, {
        workerConcurrency: 9,
        maxAttempts: 2
      })
      assert.deepInclude(settings, { workerConcurrency: 9, maxAttempts: 4 })
    }))

  it.effect("two variables of one option are refused with different values, and accepted with one", () =>
    Effect.gen(function*() {
      const same = yield* provider({ POSTGRES_MAX_CONNECTIONS: "20", DUROXIDE_PG_POOL_MAX: "20" })
      assert.strictEqual(same.maxConnections, 20)
      assert.include(
        yield* problem(provider({ POSTGRES_MAX_CONNECTIONS: "20", DUROXIDE_PG_POOL_MAX: "10" })),
        "POSTGRES_MAX_CONNECTIONS and DUROXIDE_PG_POOL_MAX set the same option to different values; set one of them"
      )
      assert.include(
        yield* problem(runtime({ DUROXIDE_WORKER_LOCK_TIMEOUT: "10s", POSTGRES_LOCK_TIMEOUT_SECS: "20" })),
        "DUROXIDE_WORKER_LOCK_TIMEOUT and POSTGRES_LOCK_TIMEOUT_SECS"
      )
    }))

  it.effect("one error names each wrong variable and what it may be", () =>
    Effect.gen(function*() {
      const wrong = {
        POSTGRES_MAX_CONNECTIONS: ["0", "a whole number of at least 1"],
        DUROXIDE_PG_STATEMENT_TIMEOUT: ["30", "a number and a unit, such as 500ms, 30s"],
        DUROXIDE_PG_CHECKOUT_TIMEOUT: ["30d", "at most 24d"],
        DUROXIDE_PG_PREPARED_STATEMENTS: ["perhaps", "true, on, yes, 1, false, off, no or 0"],
        DUROXIDE_PG_MIGRATE: ["Apply", "one of apply, verify, adopt, none"],
        DUROXIDE_PG_SCHEMA: ["pg_own", "the name of a schema"],
        DIRECT_URL: ["mysql://db/app", "a URL such as postgresql://user:password@host:5432/database"],
        DUROXIDE_LONG_POLLING_MAX_WAIT_TIME: ["-1s", "a number and a unit"]
      } as const
      const message = yield* problem(
        provider(Object.fromEntries(Object.entries(wrong).map(([name, [value]]) => [name, value])))
      )
      for (const [name, [, allowed]] of Object.entries(wrong)) {
        const said = message.split("; ").find((one) => one.includes(`${name} must be `))
        assert.include(said, allowed)
      }
      for (
        const [name, value, said] of [
          ["DUROXIDE_WORKER_CONCURRENCY", "1.5", "must be a whole number of at least 1"],
          ["DUROXIDE_TAGS", "gpu,,eu", "must be default, any, none, or 1 to 5 tags"],
          ["DUROXIDE_TAGS", "a,b,c,d,e,f", "has 6 tags; it must have 1 to 5"],
          ["POSTGRES_LOCK_TIMEOUT_SECS", "30s", "must be a number of seconds of more than 0, without a unit"],
          ["DUROXIDE_SESSION_IDLE_TIMEOUT", "1ms", "it must be more than that"]
        ] as const
      ) {
        const message = yield* problem(runtime({ [name]: value }))
        assert.include(message, name)
        assert.include(message, said)
      }
      assert.include(
        yield* problem(within({})(reading(PrismaProvider.environment))),
        "DATABASE_URL is not set; it must be a URL such as"
      )
    }))

  it.effect("no error shows a value, wherever a secret stands", () =>
    Effect.gen(function*() {
      const secret = "hunter2"
      const names = [
        "DATABASE_URL",
        "DIRECT_URL",
        "DUROXIDE_PG_SCHEMA",
        "POSTGRES_MAX_CONNECTIONS",
        "DUROXIDE_PG_MIGRATE",
        "DUROXIDE_PG_STATEMENT_TIMEOUT",
        "DUROXIDE_LONG_POLLING"
      ]
      const values = [`pg_${secret}`, `${secret}://${secret}@db`, `postgresql://a:${secret}%@db`]
      for (const name of names) {
        // Almost any text is the name of a schema.
        for (const value of name === "DUROXIDE_PG_SCHEMA" ? values.slice(0, 1) : values) {
          const error = yield* Effect.flip(provider({ [name]: value }))
          assert.include(error.message, name)
          assert.notInclude(inspect(error, { depth: 20 }) + JSON.stringify(error) + String(error), secret)
        }
      }
    }))

  it.live("the lines at the start say which variable set what, and show no secret", () =>
    Effect.gen(function*() {
      const { schema, url } = yield* PgServer.database
      const password = new URL(url).password
      const env = {
        DATABASE_URL: url,
        DIRECT_URL: url,
        DUROXIDE_PG_SCHEMA: schema,
        POSTGRES_MAX_CONNECTIONS: "3",
        DUROXIDE_PG_MIGRATE: "verify",
        DUROXIDE_LONG_POLLING_MAX_WAIT_TIME: "2s",
        DUROXIDE_MAX_ATTEMPTS: "4",
        POSTGRES_LOCK_TIMEOUT_SECS: "20"
      }
      const log = Listening.logging()
      const started = Runtime.layer({}).pipe(
        Layer.provide(RuntimeConfig.layerEnvironment({ maxSessions: 2 })),
        Layer.provide(PrismaProvider.layerEnvironment({ lanes: 3 })),
        Layer.merge(PrismaProvider.layerDatabaseEnvironment())
      )
      yield* log.into(within(env)(Layer.build(started)))
      const settings = (line: string) => log.lines.find(({ text }) => text === line)?.annotations["settings"]
      assert.strictEqual(
        settings("Provider: open"),
        "lanes=3, maxConnections=3 (POSTGRES_MAX_CONNECTIONS), migrate=verify (DUROXIDE_PG_MIGRATE), " +
          "directUrl=given (DIRECT_URL), longPolling.maxWaitTime=2s (DUROXIDE_LONG_POLLING_MAX_WAIT_TIME)"
      )
      assert.strictEqual(
        settings("Runtime: started"),
        "orchestrationLockTimeout=20s (POSTGRES_LOCK_TIMEOUT_SECS), workerLockTimeout=20s (POSTGRES_LOCK_TIMEOUT_SECS), " +
          "maxAttempts=4 (DUROXIDE_MAX_ATTEMPTS), maxSessions=2"
      )
      assert.include(settings("Database: open"), "maxConnections=3 (POSTGRES_MAX_CONNECTIONS)")
      assert.lengthOf(log.lines.filter(({ text }) => text.endsWith(": open")), 2)
      if (password !== "") assert.notInclude(JSON.stringify(log.lines), password)
    }))

  it.live("with a pool of the application, those of the URL and of our own pool are not read", () =>
    Effect.gen(function*() {
      const { schema, url } = yield* PgServer.database
      const env = {
        DATABASE_URL: "postgresql://someone@127.0.0.1:1/other",
        POSTGRES_MAX_CONNECTIONS: "3",
        DUROXIDE_PG_IDLE_TIMEOUT: "1 minute",
        DUROXIDE_PG_SCHEMA: schema,
        DUROXIDE_PG_MIGRATE: "verify"
      }
      const pool = yield* ApplicationPool.open({ connectionString: url })
      const log = Listening.logging()
      yield* log.into(within(env)(Layer.build(PrismaProvider.layerEnvironment({ pool, lanes: 3 }))))
      yield* log.into(within(env)(Layer.build(PrismaProvider.layerDatabaseEnvironment({ pool }))))
      assert.deepStrictEqual(
        log.lines.filter(({ text }) => text.endsWith(": open")).map(({ annotations }) => annotations["settings"]),
        [
          "lanes=3, migrate=verify (DUROXIDE_PG_MIGRATE), pool=given",
          "migrate=verify (DUROXIDE_PG_MIGRATE), pool=given"
        ]
      )
    }))
})
