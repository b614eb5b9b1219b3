/**
 * `import sqlite` and `verify sqlite`.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { copyFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import * as Files from "../sqlite/files.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"

const prepared = Effect.gen(function*() {
  const target = yield* PgServer.database
  const file = yield* Files.make()
  Files.addEverything(file)
  const run = (command: string, ...flags: ReadonlyArray<string>) =>
    Cli.run([...command.split(" "), file.path, "--url", target.url, ...flags])
  return { target, file, run }
})

describe("import sqlite", () => {
  it.live("imports once, and says what; verify exits with 0, and with 1 after a change", () =>
    Effect.gen(function*() {
      const { run, target } = yield* prepared
      const first = yield* run("import sqlite", "--batch", "2")
      assert.strictEqual(first.exitCode, 0, first.stderr)
      assert.match(first.stdout, /^imported 6 instances, 19 events, 5 messages, 3 activities into 127/)
      const second = yield* run("import sqlite", "--json")
      assert.strictEqual(second.exitCode, 0, second.stderr)
      assert.deepInclude(JSON.parse(second.stdout), { outcome: "alreadyImported", served: 0 })

      const equal = yield* run("verify sqlite")
      assert.strictEqual(equal.exitCode, 0, equal.stderr)
      assert.match(equal.stdout, /: equal\n[\s\S]*history +19 +19 +equal/)
      yield* target.sql("DELETE FROM history WHERE instance_id = 'child' AND event_id = 2")
      const different = yield* run("verify sqlite", "--json")
      assert.strictEqual(different.exitCode, 1)
      const { differences, isEqual } = JSON.parse(different.stdout)
      assert.deepStrictEqual([isEqual, differences.length, differences[0].instanceId], [false, 1, "child"])
    }))

  it.live("warns of a file without its write-ahead log", () =>
    Effect.gen(function*() {
      const whole = yield* prepared
      assert.notInclude((yield* whole.run("import sqlite")).stdout, "-wal")
      const { file, target } = yield* prepared
      file.sql("PRAGMA wal_checkpoint(TRUNCATE)")
      const copy = join(dirname(file.path), "copy.db")
      yield* Effect.promise(() => copyFile(file.path, copy))
      const run = (...flags: ReadonlyArray<string>) =>
        Cli.run(["import", "sqlite", copy, "--url", target.url, ...flags])
      const { exitCode, stdout } = yield* run()
      assert.strictEqual(exitCode, 0)
      assert.match(stdout, /^incomplete\? .* has no -wal file beside it/m)
    }))

  it.live("--serve, repeated, pins running instances to this package", () =>
    Effect.gen(function*() {
      const { file, run } = yield* prepared
      Files.addWaiting(file, "other", { name: "Other" })
      const { exitCode, stdout } = yield* run("import sqlite", "--serve", "Errand", "--serve", "Other", "--json")
      assert.strictEqual(exitCode, 0)
      assert.strictEqual(JSON.parse(stdout).served, 5) // parent, child, eternal, unread and other
      assert.strictEqual((yield* run("verify sqlite")).exitCode, 0)
    }))

  it.live("both connect to DIRECT_URL where DATABASE_URL leads to a pooler", () =>
    Effect.gen(function*() {
      const { file, target } = yield* prepared
      const env = { DATABASE_URL: `${target.url}?pgbouncer=true`, DIRECT_URL: target.url }
      for (const command of ["import", "verify"]) {
        const { exitCode, stderr } = yield* Cli.run([command, "sqlite", file.path], { env })
        assert.strictEqual(exitCode, 0, stderr)
      }
      const pooled = yield* Cli.run(["verify", "sqlite", file.path], { env: { DATABASE_URL: env.DATABASE_URL } })
      assert.include(pooled.stderr, "migrations and imports need a session of their own")
    }))

  it.live("says which running instances only Duroxide continues; --serve of a later call changes that", () =>
    Effect.gen(function*() {
      const { file, run, target } = yield* prepared
      for (const id of ["others", "held"]) Files.addWaiting(file, id, { name: "Other" })
      const first = yield* run("import sqlite")
      assert.include(
        first.stdout,
        "only processes of Duroxide continue 6 running instances (Errand 4, Other 2). " +
          "To continue them with this package, run this again with --serve <name>"
      )
      const shown = yield* Cli.run(`show others --url ${target.url}`)
      assert.match(shown.stdout, /^pinned to +Duroxide 0\.1\.30: only its processes run it$/m)
      assert.match((yield* Cli.run(`show done --url ${target.url}`)).stdout, /^pinned to +Duroxide 0\.1\.30$/m)

      yield* target.sql("INSERT INTO instance_locks VALUES ('held', 'token', 4000000000000, 1)")
      const second = yield* run("import sqlite", "--serve", "Other")
      assert.strictEqual(second.exitCode, 0, second.stderr)
      assert.include(second.stdout, "imported already, nothing to copy")
      assert.include(second.stdout, "this package continues 1 running instance\n")
      assert.include(second.stdout, "a process of Duroxide is working on 1 running instance (Other 1)")
      assert.include(second.stdout, "only processes of Duroxide continue 4 running instances (Errand 4)")

      assert.notInclude((yield* Cli.run(`show others --url ${target.url}`)).stdout, "pinned to")
      const { pinnedVersion } = JSON.parse((yield* Cli.run(`show held --json --url ${target.url}`)).stdout)
      assert.strictEqual(pinnedVersion, "0.1.30")
    }))

  it.live("a problem with an option names its flag, and exits with 2", () =>
    Effect.gen(function*() {
      const { run } = yield* prepared
      for (
        const [command, flag, value, message] of [
          ["import sqlite", "--batch", "0", "error: invalid --batch: it must be a whole number from 1 to 10,000\n"],
          ["import sqlite", "--serve", "", "error: invalid --serve: a name is empty\n"],
          [
            "import sqlite",
            "--serve",
            "Erand",
            "error: invalid --serve: the file has no execution of Erand; orchestrations of the file: Errand\n"
          ],
          ["verify sqlite", "--max-differences", "-1", "error: invalid --max-differences: it must be a whole number\n"]
        ] as const
      ) {
        const { exitCode, stderr } = yield* run(command, `${flag}=${value}`)
        assert.deepStrictEqual([exitCode, stderr], [2, message])
      }
    }))

  it.live("--discard-unfinished says when there was nothing to remove", () =>
    Effect.gen(function*() {
      const { run } = yield* prepared
      yield* run("import sqlite")
      const { exitCode, stdout } = yield* run("import sqlite", "--discard-unfinished")
      assert.strictEqual(exitCode, 0)
      assert.include(stdout, "--discard-unfinished removed nothing")
    }))

  it.live("shows its progress on a terminal, with percent and numbers", () =>
    Effect.gen(function*() {
      const { file, target } = yield* prepared
      const { stderr } = yield* Cli.run(["import", "sqlite", file.path, "--url", target.url], { terminal: 100 })
      assert.match(stderr, /reading: \d+ %, \d+ of 45 rows/)
    }))

  it.live("a schema that does not exist, and one that lacks migrations: how to create it", () =>
    Effect.gen(function*() {
      const { file, target } = yield* prepared
      for (const command of ["import", "verify"]) {
        const run = (schema: string) => Cli.run([command, "sqlite", file.path, "--url", target.url, "--schema", schema])
        const { exitCode, stderr } = yield* run("nowhere")
        assert.strictEqual(exitCode, 1)
        assert.match(
          stderr,
          /schema nowhere does not exist in .*: duroxide-prisma migrate --schema nowhere, with the same --url/
        )
        yield* target.sql("CREATE SCHEMA IF NOT EXISTS bare")
        assert.match(
          (yield* run("bare")).stderr,
          /schema bare lacks \d+ migrations.*: duroxide-prisma migrate --schema bare/
        )
      }
    }))

  it.live("exits with 1 for ids that are taken, 2 for a bad file, 4 for locks of the file, and names the flags", () =>
    Effect.gen(function*() {
      const { file, run, target } = yield* prepared
      yield* target.sql(
        "INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ('done', 'x', now(), now())"
      )
      const taken = yield* run("import sqlite")
      assert.strictEqual(taken.exitCode, 1)
      assert.match(taken.stderr, /already has 1 id.*: done.*--on-conflict keep/)
      assert.strictEqual((yield* run("import sqlite", "--on-conflict", "both")).exitCode, 2)
      const missing = yield* Cli.run(["import", "sqlite", "/nowhere.db", "--url", target.url])
      assert.strictEqual(missing.exitCode, 2)
      assert.include(missing.stderr, "/nowhere.db: there is no such file")
      const foreign = yield* Cli.run(["import", "sqlite", "package.json", "--url", target.url])
      assert.strictEqual(foreign.exitCode, 2)
      assert.include(foreign.stderr, "package.json: file is not a database")
      file.sql("UPDATE sessions SET locked_until = 4000000000000")
      const used = yield* run("import sqlite", "--on-conflict", "keep")
      assert.strictEqual(used.exitCode, 4)
      const ignored = yield* run("import sqlite", "--on-conflict", "keep", "--ignore-locks")
      assert.match(ignored.stdout, /imported 5 instances[\s\S]*left out 1 id that/)
    }))
})
