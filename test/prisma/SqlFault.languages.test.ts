/**
 * Errors of servers that speak other languages than English: the reason is that of the SQLSTATE.
 *
 * On Debian and its relatives a real server speaks German here. Where none is installed, that test says that it did not
 * run.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { spawnSync } from "node:child_process"
import { existsSync, readdirSync } from "node:fs"
import { chown, mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as pg from "pg"
import * as failure from "../../src/cli/internal/failure.ts"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/generated/client.js"
import { ProviderError } from "../../src/provider/ProviderError.ts"
import * as SqlFault from "../../src/provider/SqlFault.ts"
import * as embedded from "../../src/server/internal/embeddedPostgres.ts"
import * as Command from "../utils/command.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/** Error of `pg`. */
const answer = (code: string, message: string, routine: string) =>
  Object.assign(new Error(message), { code, severity: "FEHLER", routine })

/** Error of Prisma's adapter. */
const adapted = (code: string, message: string, routine?: string) => ({
  name: "DriverAdapterError",
  cause: { kind: "postgres", originalCode: code, originalMessage: message, code, message, severity: "ERROR", routine }
})

describe("SqlFault: languages of a server", () => {
  const cancelled = [
    "canceling statement due to statement timeout",
    "canceling statement due to user request",
    "storniere Anfrage wegen Zeitüberschreitung der Anfrage",
    "ステートメントのタイムアウトのためステートメントをキャンセルしています",
    "annulation de la requête à la demande de l'utilisateur"
  ]
  for (const message of cancelled) {
    it(`57014 is unavailability: ${message}`, () => {
      for (const thrown of [answer("57014", message, "ProcessInterrupts"), adapted("57014", message)]) {
        assert.include(SqlFault.classify(thrown), { _tag: "Unavailable", sqlState: "57014", isRetryable: true })
      }
    })
  }

  for (
    const message of [
      "cached plan must not change result type",
      "gecachter Plan darf den Ergebnistyp nicht ändern",
      "キャッシュした実行計画は結果型を変更してはなりません"
    ]
  ) {
    it(`a changed statement plan is contention: ${message}`, () => {
      for (
        const thrown of [
          answer("0A000", message, "RevalidateCachedQuery"),
          adapted("0A000", message, "RevalidateCachedQuery")
        ]
      ) {
        assert.include(SqlFault.classify(thrown), { _tag: "Contention", sqlState: "0A000", isRetryable: true })
      }
    })
  }

  for (
    const message of [
      "database \"nodb\" does not exist",
      "Datenbank »nodb« existiert nicht",
      "la base de données « nodb » n'existe pas",
      "データベース\"nodb\"は存在しません"
    ]
  ) {
    it(`a missing database is named, with what to do: ${message}`, () => {
      for (const thrown of [answer("3D000", message, "InitPostgres"), adapted("3D000", message)]) {
        const reason = SqlFault.classify(thrown)
        assert.strictEqual(reason._tag, "ConfigurationInvalid")
        assert.include(reason.message, "nodb")
        assert.include(reason.message, "or create the database: CREATE DATABASE <name>")
      }
      const error = new ProviderError({ operation: "test", reason: SqlFault.classify(adapted("3D000", message)) })
      const { exitCode, message: line } = failure.ofCause(Cause.fail(error))
      assert.strictEqual(exitCode, failure.exitCodes.usage)
      assert.strictEqual(line.split("CREATE DATABASE").length, 2)
    })
  }

  it("a feature that the server does not have is Unexpected", () => {
    const message = "SELECT DISTINCT FOR UPDATE wird nicht unterstützt"
    for (const thrown of [answer("0A000", message, "CheckSelectLocking"), adapted("0A000", message)]) {
      assert.include(SqlFault.classify(thrown), { _tag: "Unexpected", isRetryable: false })
    }
  })

  for (
    const message of [
      "value \"4711\" is out of range for type integer",
      "invalid input syntax for type integer: \"4711\"",
      "ungültige Eingabesyntax für Typ integer: »4711«",
      "Wert »4711« ist außerhalb des gültigen Bereichs für Typ integer",
      "la valeur « 4711 » est en dehors des limites du type integer",
      "値\"4711\"は型integerの範囲外です",
      // Without the closing mark, since a message is cut at a line break and where it is long.
      `value "4711${"s".repeat(400)}" is out of range for type integer`,
      "value \"4711\ntwo\" is out of range for type integer",
      "型\"integer\"の入力構文が不正です4711"
    ]
  ) {
    it(`refused data is not quoted: ${message.slice(0, 60).replace("\n", " ")}`, () => {
      const reason = SqlFault.classify(adapted("22003", message))
      assert.strictEqual(reason._tag, "DataRefused")
      assert.notInclude(reason.message, "4711")
      assert.notStrictEqual(reason._tag === "DataRefused" ? reason.problem : "", "")
    })
  }
})

// -- a real server -----------------------------------------------------------------------------------

/** Programs of a server whose messages are translated. */
const translated = (): string | undefined => {
  const root = "/usr/lib/postgresql"
  if (!existsSync(root)) return undefined
  const version = readdirSync(root).find((version) =>
    existsSync(`${root}/${version}/bin/initdb`) && existsSync(`/usr/share/locale/de/LC_MESSAGES/postgres-${version}.mo`)
  )
  return version === undefined ? undefined : `${root}/${version}/bin`
}

const bin = translated()

/**
 * One that speaks German, stopped with the scope. Its locale has no language of its own, so that `LANGUAGE` decides.
 */
const germanServer = Effect.fnUntraced(function*(bin: string) {
  const user = yield* embedded.serverUser("")
  const folder = yield* Effect.acquireRelease(
    Effect.promise(async () => {
      const folder = await mkdtemp(path.join(tmpdir(), "german-"))
      if (user !== undefined) await chown(folder, user.uid, user.gid)
      return folder
    }),
    (folder) => Effect.promise(() => rm(folder, { recursive: true, force: true }))
  )
  const run = (program: string, args: ReadonlyArray<string>) => {
    const { status, stderr } = spawnSync(path.join(bin, program), args, {
      ...user,
      cwd: folder,
      env: { ...process.env, LANGUAGE: "de", LC_ALL: "C.UTF-8" },
      stdio: ["ignore", "ignore", "pipe"],
      encoding: "utf8"
    })
    assert.strictEqual(status, 0, `${program}: ${stderr}`)
  }
  const data = path.join(folder, "data")
  run("initdb", [`--pgdata=${data}`, "--username=postgres", "--auth=trust", "--locale=C.UTF-8", "--no-sync"])
  const port = yield* Command.freePort
  const options = `-p ${port} -h 127.0.0.1 -k ${folder} -c lc_messages=C.UTF-8 -c fsync=off`
  yield* Effect.acquireRelease(
    Effect.sync(() => run("pg_ctl", ["-D", data, "-l", path.join(folder, "log"), "-w", "-o", options, "start"])),
    () => Effect.sync(() => run("pg_ctl", ["-D", data, "-m", "immediate", "stop"]))
  )
  const log = Effect.promise(() => readFile(path.join(folder, "log"), "utf8"))
  return { url: `postgresql://postgres@127.0.0.1:${port}/postgres?sslmode=disable`, log }
})

describe("SqlFault: a server that speaks German", () => {
  it.live.skipIf(bin === undefined)(
    `cancels statements by its timeout and by hand, and changes plans${
      bin === undefined ? " (none is installed)" : ""
    }`,
    () =>
      Effect.scoped(Effect.gen(function*() {
        const { log, url } = yield* germanServer(bin!)
        const database = yield* Database.make({ url, statementTimeout: "2 seconds", maxConnections: 1 })
        const admin = new pg.Client(url)
        yield* Effect.acquireRelease(
          Effect.promise(() => admin.connect()),
          () => Effect.promise(() => admin.end())
        )
        const sql = (text: string) => Effect.promise(() => admin.query(text))
        const failure = (text: string) =>
          Effect.map(Effect.flip(database.query("test", Prisma.raw(text))), ({ reason }) => reason)

        const timedOut = yield* failure("SELECT pg_sleep(30)::text")
        assert.include(timedOut, { _tag: "Unavailable", sqlState: "57014" })

        const byHand = yield* Effect.forkChild(failure("SELECT pg_sleep(30)::text AS cancelled"))
        yield* waitUntil(Effect.map(
          sql(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%AS cancelled' AND pid <> pg_backend_pid()"
          ),
          ({ rows }) => rows.length > 0
        ))
        assert.include(yield* Fiber.join(byHand), { _tag: "Unavailable", sqlState: "57014" })

        yield* sql("CREATE FUNCTION dx_test_plan() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
        const call = Prisma.sql`SELECT ${database.schemaSql}.dx_test_plan() AS one`
        yield* database.query("test", call)
        yield* sql("DROP FUNCTION dx_test_plan()")
        yield* sql("CREATE FUNCTION dx_test_plan() RETURNS text LANGUAGE sql AS $$ SELECT '1' $$")
        const changed = yield* Effect.flip(database.query("test", call))
        assert.include(changed.reason, { _tag: "Contention", sqlState: "0A000" })
        assert.deepStrictEqual(yield* database.query("test", call), [{ one: "1" }])
        // It did speak German.
        assert.include(yield* log, "FEHLER:  storniere Anfrage")
      }))
  )
})
