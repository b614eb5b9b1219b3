import { assert, describe, it } from "@effect/vitest"
import * as Config from "effect/Config"
import * as Data from "effect/Data"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as TestClock from "effect/testing/TestClock"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { inspect } from "node:util"
import { Credentials, layer, layerFile } from "../../src/prisma/Credentials.ts"
import type { Options } from "../../src/prisma/Credentials.ts"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/internal/client.ts"
import * as DirectUrl from "../../src/prisma/internal/directUrl.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { ProviderError } from "../../src/provider/ProviderError.ts"
import * as Cli from "../cli/cli.ts"
import { loginRole } from "../utils/loginRole.ts"
import * as PgServer from "../utils/PgServer.ts"
import { Collector } from "../utils/traces.ts"
import { waitUntil } from "../utils/waitUntil.ts"

class VaultError extends Data.TaggedError("VaultError")<{ readonly message: string }> {}

const request = { host: "h", port: 1, user: "u", database: "d" }

/** A function that issues "password 1", "password 2", …, unless it fails. */
const issuer = () => {
  const state = { calls: 0, fails: false }
  const password = Effect.suspend(() => {
    state.calls++
    return state.fails ?
      new VaultError({ message: `no answer from https://vault/secret?sig=hunter2` }) :
      Effect.succeed(
        Redacted.make(`password ${state.calls}`)
      )
  })
  return { state, password }
}

const ask = (refused?: string) =>
  Effect.flatMap(Credentials, ({ password }) =>
    Effect.map(
      password(refused === undefined ? request : { ...request, refused: Redacted.make(refused) }),
      (password) => Redacted.value(password)
    ))

/** Log lines as they would be printed. */
const collector = () => {
  const lines: Array<string> = []
  return {
    lines,
    layer: Logger.layer([Logger.make((options) => {
      const { logLevel, message } = options
      lines.push(`${logLevel} ${String(message)} ${inspect(Logger.formatStructured.log(options), { depth: 10 })}`)
    })])
  }
}

/** Also if the server has said why, before the statement was sent. */
const isConnectionEnded = ({ reason }: ProviderError) =>
  reason._tag === "ConnectionLost" || (reason._tag === "Unavailable" && reason.sqlState === "57P01")

describe("layer:", () => {
  const hour = 3_600_000

  it.effect("one call serves all connections, until half of the time is over", () => {
    const { password, state } = issuer()
    return Effect.gen(function*() {
      assert.deepStrictEqual(
        yield* Effect.all(Array.from({ length: 10 }, () => ask()), { concurrency: "unbounded" }),
        Array.from({ length: 10 }, () => "password 1")
      )
      yield* TestClock.adjust(hour / 2 - 1)
      assert.strictEqual(yield* ask(), "password 1")
      assert.strictEqual(state.calls, 1)

      // The connection that finds it due does not wait for the new one.
      yield* TestClock.adjust(1)
      assert.strictEqual(yield* ask(), "password 1")
      yield* Effect.yieldNow
      assert.strictEqual(yield* ask(), "password 2")
      assert.strictEqual(state.calls, 2)
    }).pipe(Effect.provide(layer({ password })))
  })

  it.effect("connections that wait for one call share it, and one that is given up does not take it away", () =>
    Effect.gen(function*() {
      const answer = yield* Deferred.make<Redacted.Redacted<string>>()
      let calls = 0
      const password = Effect.suspend(() => {
        calls++
        return Deferred.await(answer)
      })
      yield* Effect.gen(function*() {
        const first = yield* Effect.forkChild(ask(), { startImmediately: true })
        const second = yield* Effect.forkChild(ask(), { startImmediately: true })
        yield* Fiber.interrupt(first)
        yield* Deferred.succeed(answer, Redacted.make("late"))
        assert.strictEqual(yield* Fiber.join(second), "late")
        assert.strictEqual(calls, 1)
      }).pipe(Effect.provide(layer({ password })))
    }))

  it.effect("while calls fail, the old password is used until its time is over; then the error says why", () => {
    const { password, state } = issuer()
    const logs = collector()
    return Effect.gen(function*() {
      yield* ask()
      state.fails = true
      yield* TestClock.adjust(hour - 60_000)
      assert.strictEqual(yield* ask(), "password 1")
      yield* Effect.yieldNow
      for (let i = 0; i < 5; i++) assert.strictEqual(yield* ask(), "password 1")
      assert.strictEqual(state.calls, 2, "no call for each connection")
      yield* TestClock.adjust(5000)
      assert.strictEqual(yield* ask(), "password 1")
      yield* Effect.yieldNow
      assert.strictEqual(state.calls, 3)

      yield* TestClock.adjust(55_000)
      const error = yield* Effect.flip(ask())
      assert.instanceOf(error, ProviderError)
      assert.strictEqual(error.reason._tag, "Unavailable")
      assert.isTrue(error.isRetryable)
      assert.strictEqual(
        error.message,
        "connect: the database cannot be used now: the function for the password failed: no answer from <url>"
      )

      state.fails = false
      assert.strictEqual(yield* ask(), "password 5")
      assert.deepStrictEqual(logs.lines.map((line) => line.split(" {")[0]), [
        "Warn Credentials: no new password; it is tried again",
        "Info Credentials: passwords are issued again"
      ])
      assert.notInclude(logs.lines.join(), "hunter2")
    }).pipe(Effect.provide(Layer.provideMerge(layer({ password }), logs.layer)))
  })

  it.effect("a connection waits eight seconds for a call, and one that never answers is given up after a minute", () => {
    let calls = 0
    return Effect.gen(function*() {
      const asking = yield* Effect.forkChild(Effect.flip(ask()), { startImmediately: true })
      yield* TestClock.adjust("8 seconds")
      assert.include((yield* Fiber.join(asking)).message, "no answer came within 8 seconds")
      assert.strictEqual(calls, 1)
      const another = yield* Effect.forkChild(Effect.flip(ask()), { startImmediately: true })
      yield* TestClock.adjust("8 seconds")
      yield* Fiber.join(another)
      assert.strictEqual(calls, 1)
      yield* TestClock.adjust("44 seconds")
      yield* Effect.forkChild(ask(), { startImmediately: true })
      yield* Effect.yieldNow
      assert.strictEqual(calls, 2)
    }).pipe(Effect.provide(layer({
      password: Effect.suspend(() => {
        calls++
        return Effect.never
      })
    })))
  })

  it.effect("a refused password is replaced once, not again and again", () => {
    const { password, state } = issuer()
    return Effect.gen(function*() {
      const old = yield* ask()
      assert.deepStrictEqual(yield* Effect.all([ask(old), ask(old)], { concurrency: "unbounded" }), [
        "password 2",
        "password 2"
      ])
      assert.strictEqual(yield* ask(old), "password 2", "another connection has replaced it")
      assert.strictEqual(yield* ask("password 2"), "password 2", "the login is refused for another reason")
      assert.strictEqual(state.calls, 2)
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(yield* ask("password 2"), "password 3")
    }).pipe(Effect.provide(layer({ password })))
  })

  it.effect("a missing variable of the environment, a defect and a bad setting are named", () =>
    Effect.gen(function*() {
      const failure = <E>(options: Options<E>) =>
        Effect.map(Effect.flip(Effect.provide(ask(), layer(options))), (error) => [error.reason._tag, error.message])
      const [tag, message] = yield* failure({ password: Config.Redacted("NO_SUCH_PASSWORD") })
      assert.strictEqual(tag, "ConfigurationInvalid")
      assert.include(message, "NO_SUCH_PASSWORD")
      assert.include((yield* failure({ password: Effect.die(new Error("broken")) }))[1], "broken")
      const { password } = issuer()
      assert.include((yield* failure({ password, timeToLive: 0 }))[1], "timeToLive")
      assert.include((yield* failure({ password, refreshBefore: "Infinity" }))[1], "refreshBefore")
    }))

  it.effect("a value that cannot be a password is one error that does not show it, and the next connection asks again", () =>
    Effect.gen(function*() {
      const right = Redacted.make("right")
      for (const wrong of noPasswords) {
        let calls = 0
        yield* Effect.gen(function*() {
          const { reason } = yield* Effect.flip(ask())
          assert.strictEqual(reason._tag, "ConfigurationInvalid")
          assert.include(reason.message, "the application's function is not a Redacted string that is not empty")
          assert.notInclude(reason.message, "hunter2")
          assert.strictEqual(yield* ask(), "right")
        }).pipe(Effect.provide(layer({ password: Effect.sync(() => calls++ === 0 ? wrong as typeof right : right) })))
      }
    }))
})

/** What functions of applications may return, whatever their types say. */
const noPasswords: ReadonlyArray<unknown> = [undefined, null, "hunter2", Redacted.make(undefined), Redacted.make("")]

/** A file with a password, as a platform mounts it. */
const passwordFile = Effect.gen(function*() {
  const folder = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "duroxide-prisma-credentials-"))),
    (folder) => Effect.promise(() => rm(folder, { recursive: true }))
  )
  const file = path.join(folder, "password")
  return { file, write: (text: string) => writeFile(file, text) }
})

describe("layerFile:", () => {
  it.live("new connections use the new password, old ones stay open", () =>
    Effect.gen(function*() {
      const role = yield* loginRole("one")
      const { url } = yield* PgServer.database
      const { file, write } = yield* passwordFile
      yield* Effect.promise(() => write("one\n"))
      const session = Effect.gen(function*() {
        const { query } = yield* Database.Database
        const pid = query<{ pid: number }>("pid", Prisma.sql`SELECT pg_backend_pid() AS pid, pg_sleep(0.02)::text`)
        const [[first]] = yield* Effect.all([pid])
        yield* Effect.promise(() => write("two\n"))
        yield* Effect.promise(() => role.setPassword("two"))
        const both = yield* Effect.all([pid, pid], { concurrency: "unbounded" })
        assert.include(both.map(([row]) => row!.pid), first!.pid)
        assert.notStrictEqual(both[0][0]!.pid, both[1][0]!.pid)
      })
      yield* session.pipe(
        // The password of the URL is not used.
        Effect.provide(Layer.provide(
          Database.layer({ url: role.at(url, "hunter2"), maxConnections: 2 }),
          layerFile(file)
        ))
      )
    }))

  it.live("a missing and an empty file are one clear error", () =>
    Effect.gen(function*() {
      const { file, write } = yield* passwordFile
      const failure = Effect.flip(Effect.scoped(Database.make({ url: PgServer.server().url }))).pipe(
        Effect.provide(layerFile(file))
      )
      const missing = yield* failure
      assert.strictEqual(missing.reason._tag, "ConfigurationInvalid")
      assert.include(missing.message, `${file} cannot be read (ENOENT)`)
      yield* Effect.promise(() => write("\n"))
      assert.include((yield* failure).message, `${file} is empty`)
    }))
})

describe("every connection logs in with them:", () => {
  it.live("those of the command line", () =>
    Effect.gen(function*() {
      const role = yield* loginRole("right")
      const { url } = yield* PgServer.database
      const { file, write } = yield* passwordFile
      yield* Effect.promise(() => write("right"))
      const env = { DATABASE_URL: role.at(url, "wrong") }
      assert.strictEqual((yield* Cli.run("status", { env })).exitCode, 3)
      const status = yield* Cli.run("status", { env: { ...env, DUROXIDE_PG_PASSWORD_FILE: file } })
      assert.deepStrictEqual([status.exitCode, status.stderr], [0, ""])
      const bad = yield* Cli.run("status", { env: { ...env, DUROXIDE_PG_CREDENTIALS: "vault" } })
      assert.strictEqual(bad.exitCode, 2)
      assert.include(bad.stderr, "DUROXIDE_PG_CREDENTIALS must be one of url, file, entra, rds")
    }))

  it.live("migrations, reset, the check of directUrl, the listener and the pool", () =>
    Effect.gen(function*() {
      const role = yield* loginRole("right")
      const test = yield* PgServer.emptyDatabase
      const url = role.at(test.url)
      let calls = 0
      const credentials = layer({
        password: Effect.sync(() => {
          calls++
          return Redacted.make("right")
        })
      })
      const refused = yield* Effect.flip(Migrator.migrate({ url }))
      assert.strictEqual(refused.reason._tag, "AuthenticationFailed")

      yield* Effect.gen(function*() {
        assert.isUndefined(yield* Effect.scoped(DirectUrl.problemOf({ url, directUrl: url })))
        yield* Effect.scoped(Effect.andThen(
          Layer.build(PrismaProvider.layer({ url, directUrl: url })),
          waitUntil(Effect.map(
            test.sql("SELECT FROM pg_stat_activity WHERE usename = $1 AND application_name LIKE '%listener%'", [
              role.name
            ]),
            (rows) => rows.length === 1
          ))
        ))
        assert.isNotEmpty((yield* Migrator.reset({ url })).tables)
      }).pipe(Effect.provide(credentials))
      assert.strictEqual(calls, 1)
    }))

  it.live("a password that was changed early is asked for again, without a failed statement", () =>
    Effect.gen(function*() {
      const role = yield* loginRole("old")
      const test = yield* PgServer.database
      let current = "old"
      let calls = 0
      yield* Effect.gen(function*() {
        const { query } = yield* Database.Database
        const sleep = query("sleep", Prisma.sql`SELECT pg_sleep(0.02)::text`)
        yield* sleep
        yield* Effect.promise(() => role.setPassword("new"))
        current = "new"
        yield* Effect.all(Array.from({ length: 8 }, () => sleep), { concurrency: "unbounded" })
        assert.strictEqual(calls, 2)
      }).pipe(
        Effect.provide(Layer.provide(
          Database.layer({ url: role.at(test.url), maxConnections: 8 }),
          layer({
            password: Effect.sync(() => {
              calls++
              return Redacted.make(current)
            })
          })
        ))
      )
    }))

  it.live("a login that is refused while a password is changed is retryable, and works when the new one is there", () =>
    Effect.gen(function*() {
      const role = yield* loginRole("old")
      const test = yield* PgServer.database
      let current = "old"
      yield* Effect.gen(function*() {
        const { query } = yield* Database.Database
        const one = query("one", Prisma.sql`SELECT 1`)
        yield* one
        yield* Effect.promise(() => role.setPassword("new"))
        yield* test.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", [role.name])
        const refused = yield* Effect.flip(Effect.forever(Effect.catchIf(one, isConnectionEnded, () => Effect.void)))
        assert.strictEqual(refused.reason._tag, "Unavailable")
        assert.isTrue(refused.isRetryable)
        assert.include(refused.message, "the database refused the login")
        current = "new"
        yield* Effect.retry(one, { while: ({ isRetryable }) => isRetryable })
      }).pipe(
        Effect.provide(Layer.provide(
          Database.layer({ url: role.at(test.url), maxConnections: 1 }),
          layer({ password: Effect.sync(() => Redacted.make(current)) })
        ))
      )
    }))

  it.live("a password that stays wrong is AuthenticationFailed after two logins; a source that fails is its own error", () =>
    Effect.gen(function*() {
      const role = yield* loginRole("right")
      const test = yield* PgServer.database
      let calls = 0
      const open = (password: Effect.Effect<Redacted.Redacted<string>, VaultError>) =>
        Effect.flip(Effect.scoped(Database.make({ url: role.at(test.url) }))).pipe(
          Effect.provide(layer({ password })),
          Effect.map(({ reason }) => reason)
        )
      const wrong = yield* open(Effect.sync(() => Redacted.make(`wrong ${++calls}`)))
      assert.strictEqual(wrong._tag, "AuthenticationFailed")
      assert.strictEqual(calls, 2)
      const failed = yield* open(new VaultError({ message: "the vault is sealed" }))
      assert.strictEqual(failed._tag, "Unavailable")
      assert.include(failed.message, "the vault is sealed")
      // The connection that got no password is closed: the server need not wait for it.
      yield* waitUntil(Effect.map(
        test.sql(
          "SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND query = '' AND datname IS NULL"
        ),
        (rows) => rows.length === 0
      ))
    }))

  it.live("a service of the application that returns no password, or throws, is a typed error", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const open = (password: () => unknown) =>
        Effect.flip(Effect.scoped(Database.make({ url }))).pipe(
          Effect.provideService(Credentials, {
            kind: "a password",
            password: password as Credentials["Service"]["password"]
          }),
          Effect.map(({ reason }) => reason)
        )
      for (const wrong of noPasswords) {
        const reason = yield* open(() => Effect.succeed(wrong))
        assert.strictEqual(reason._tag, "ConfigurationInvalid")
        assert.notInclude(reason.message, "hunter2")
      }
      const broken = (): never => {
        throw new Error("the vault is sealed")
      }
      for (const password of [broken, () => Effect.promise(() => Promise.reject(new Error("the vault is sealed")))]) {
        const reason = yield* open(password)
        assert.strictEqual(reason._tag, "Unavailable")
        assert.include(reason.message, "the vault is sealed")
      }
    }))

  it.live("through the Prisma client, too, a source that fails is its own error", () =>
    Effect.gen(function*() {
      const role = yield* loginRole("right")
      const test = yield* PgServer.database
      let fails = false
      yield* Effect.gen(function*() {
        const { query } = yield* Database.Database
        fails = true
        const error = yield* Effect.flip(
          Effect.all(Array.from({ length: 2 }, () => query("sleep", Prisma.sql`SELECT pg_sleep(0.1)::text`)), {
            concurrency: "unbounded"
          })
        )
        assert.strictEqual(error.reason._tag, "Unavailable")
        assert.include(error.message, "the vault is sealed")
      }).pipe(
        Effect.provide(Layer.provide(
          Database.layer({ url: role.at(test.url), maxConnections: 2 }),
          layer({
            timeToLive: 1,
            password: Effect.suspend(() =>
              fails ? new VaultError({ message: "the vault is sealed" }) : Effect.succeed(Redacted.make("right"))
            )
          })
        ))
      )
    }))

  it.live("no database, log, span or error shows the password", () =>
    Effect.gen(function*() {
      const role = yield* loginRole("hunter2")
      const test = yield* PgServer.database
      const logs = collector()
      const spans = new Collector()
      const shown = yield* Effect.gen(function*() {
        const database = yield* Database.Database
        const credentials = yield* Credentials
        yield* database.query("one", Prisma.sql`SELECT 1 AS one`)
        yield* Effect.promise(() => role.setPassword("another"))
        const error = yield* Effect.flip(Migrator.migrate({ url: role.at(test.url, "hunter2") }))
        return inspect([{ ...database }, credentials, error, spans.spans], { depth: 6 })
      }).pipe(
        Effect.provide(
          Database.layer({ url: role.at(test.url, "hunter2") }).pipe(
            Layer.provideMerge(layer({ password: Effect.succeed(Redacted.make("hunter2")) })),
            Layer.provideMerge(logs.layer)
          )
        ),
        Effect.withTracer(spans.tracer("one"))
      )
      assert.include(shown, "Database.make", "the spans")
      assert.include(shown, "maxLifetimeSeconds", "the pool")
      assert.notInclude(shown, "hunter2")
      assert.notInclude(logs.lines.join(), "hunter2")
    }))
})
