/**
 * What every command has in common: help, errors, exit codes, secrets.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Writable } from "node:stream"
import { streamOf } from "../../src/cli/internal/io.ts"
import * as Cli from "./cli.ts"

/** No server listens there. */
const nowhere = "postgresql://someone:sesame@127.0.0.1:1/nothing"

describe("a value that begins with a dash", () => {
  it.effect("is not read as flags of one letter: nothing is done, and the error says how to write it", () =>
    Effect.gen(function*() {
      for (
        const args of [["terminate", "a", "--reason", "-very wrong"], ["list", "--created-before", "-1h"], [
          "show",
          "-dash"
        ]]
      ) {
        const { exitCode, stderr, stdout } = yield* Cli.run([...args, "--json"])
        assert.deepStrictEqual([exitCode, stdout], [2, ""], args[0])
        assert.strictEqual(JSON.parse(stderr).error.code, "Usage")
        assert.include(stderr, `--flag=${args.at(-1)}`)
      }
      const given = yield* Cli.run(["terminate", "--reason=-very wrong", "--url", nowhere, "--", "-a"])
      assert.strictEqual(given.exitCode, 3, "it goes to the database")
    }))
})

describe("bad usage", () => {
  it.effect("names the command or the flag that was probably meant", () =>
    Effect.gen(function*() {
      const says = (args: string) =>
        Effect.map(Cli.run(args, { env: { DATABASE_URL: nowhere } }), ({ exitCode, stderr }) => {
          assert.strictEqual(exitCode, 2, args)
          return stderr
        })
      assert.include(yield* says("shwo order-1"), ": did you mean show? See: duroxide-prisma --help")
      assert.include(yield* says("list --stauts failed"), ": did you mean --status? See: duroxide-prisma list --help")
      assert.notInclude(yield* says("qqqq"), "did you mean")
    }))
})

describe("help", () => {
  it.effect("lists the commands and the flags of all commands, in lines of 80 columns", () =>
    Effect.gen(function*() {
      const { exitCode, stderr, stdout } = yield* Cli.run("--help")
      assert.deepStrictEqual([exitCode, stderr], [0, ""])
      for (const text of ["migrate", "--url", "--schema", "--env-file", "--json", "--completions <shell>"]) {
        assert.include(stdout, text)
      }
      assert.deepStrictEqual(stdout.split("\n").filter((line) => line.length > 80), [])
    }))

  it.effect("fits a terminal that does not know its width", () =>
    Effect.gen(function*() {
      const env = { NO_COLOR: "1" }
      for (const args of ["--help", "list --help"]) {
        assert.strictEqual((yield* Cli.run(args, { terminal: 0, env })).stdout, (yield* Cli.run(args)).stdout)
      }
    }))

  it.effect("is coloured on a terminal, and not with NO_COLOR or TERM=dumb", () =>
    Effect.gen(function*() {
      assert.include((yield* Cli.run("--help", { terminal: 80 })).stdout, "\u001b[")
      for (const env of [{ NO_COLOR: "1" }, { TERM: "dumb" }]) {
        assert.notInclude((yield* Cli.run("--help", { terminal: 80, env })).stdout, "\u001b[")
      }
    }))

  it.effect("--version and --completions print their answer", () =>
    Effect.gen(function*() {
      assert.match((yield* Cli.run("--version")).stdout, /^duroxide-prisma v\d+\.\d+\.\d+\n$/)
      for (const shell of ["bash", "zsh", "fish", "powershell"]) {
        assert.include((yield* Cli.run(`--completions ${shell}`)).stdout, "migrate", shell)
      }
    }))
})

describe("errors", () => {
  it.effect("bad usage is one line that leads to the help, exit code 2", () =>
    Effect.gen(function*() {
      for (
        const args of [[], ["migrat"], ["migrate", "--no-such-flag"], ["migrate", "surplus"], ["migrate", "--url"]]
      ) {
        const { exitCode, stderr, stdout } = yield* Cli.run(args)
        assert.deepStrictEqual([exitCode, stdout], [2, ""], args.join(" "))
        assert.match(stderr, /^error: .*See: duroxide-prisma( migrate)? --help\n$/)
      }
    }))

  it.effect("--json makes them one JSON object on standard error, also before anything is parsed", () =>
    Effect.gen(function*() {
      for (const [args, code] of [["migrate --no-such-flag", "Usage"], ["migrate", "NoDatabase"]] as const) {
        const { exitCode, stderr, stdout } = yield* Cli.run(`${args} --json`)
        assert.deepStrictEqual([exitCode, stdout], [2, ""])
        assert.strictEqual(JSON.parse(stderr).error.code, code)
      }
    }))

  it.effect("a server that does not answer: its address, without user and password, exit code 3", () =>
    Effect.gen(function*() {
      const { exitCode, stderr } = yield* Cli.run("migrate", { env: { DATABASE_URL: nowhere } })
      assert.strictEqual(exitCode, 3)
      assert.match(stderr, /^error: .*127\.0\.0\.1:1\/nothing.*Check that the server runs/)
      assert.notMatch(stderr, /someone|sesame/)
    }))

  it.effect("a flag that must be a number says so", () =>
    Effect.gen(function*() {
      const env = { DATABASE_URL: nowhere }
      for (const args of ["list --limit abc", "list --limit 1.5", "list --limit NaN", "show x --events many"]) {
        const { exitCode, stderr } = yield* Cli.run(args, { env })
        assert.strictEqual(exitCode, 2, args)
        assert.match(stderr, /^error: Invalid value for flag --\w+: "\S+"\. Expected: a whole number\. See: /, args)
      }
      assert.include((yield* Cli.run("list --limit 0", { env })).stderr, "Expected: a number from 1 to 1000, not 0")
    }))

  it.effect("a URL in the wrong place is quoted without its password", () =>
    Effect.gen(function*() {
      const { stderr } = yield* Cli.run(["migrate", "postgresql://someone:se@s/ame@host/db?password=sesame"])
      assert.include(stderr, "host/db")
      assert.notMatch(stderr, /someone|se@s|ame@|sesame/)
    }))
})

describe("the connection URL", () => {
  it.effect("in the help of an error is whole", () =>
    Effect.gen(function*() {
      const env = { DATABASE_URL: nowhere, DIRECT_URL: "no url" }
      const { exitCode, stderr } = yield* Cli.run("migrate", { env })
      assert.strictEqual(exitCode, 2)
      assert.include(stderr, "DIRECT_URL must be a URL such as postgresql://user:password@host:5432/database")
      // That of a database that has these credentials is not.
      const { stderr: other } = yield* Cli.run(["migrate", "postgresql://user:password@host:5432/database?x=se@same"])
      assert.notMatch(other, /password|se@/)
    }))

  it.effect("with a port out of range says so, exit code 2", () =>
    Effect.gen(function*() {
      for (const port of ["99999", "0"]) {
        const url = `postgresql://someone:sesame@127.0.0.1:${port}/nothing`
        for (const [args, env] of [[["--url", url], {}], [[], { DATABASE_URL: url }]] as const) {
          const { exitCode, stderr } = yield* Cli.run(["migrate", ...args], { env })
          assert.strictEqual(exitCode, 2)
          assert.match(stderr, /^error: (DATABASE_URL cannot be used: )?the port .*1 to 65535/)
        }
      }
    }))

  it.effect("with an unknown sslmode is bad usage, exit code 2", () =>
    Effect.gen(function*() {
      const url = `${nowhere}?sslmode=bogus`
      for (const args of ["list", "migrate", `status --url ${url}`]) {
        const { exitCode, stderr } = yield* Cli.run(args, { env: { DATABASE_URL: url } })
        assert.strictEqual(exitCode, 2, args)
        assert.match(stderr, /^error: .*sslmode is one of .* not bogus/)
      }
      const direct = yield* Cli.run("migrate", { env: { DATABASE_URL: nowhere, DIRECT_URL: url } })
      assert.strictEqual(direct.exitCode, 2)
      assert.match(direct.stderr, /^error: DIRECT_URL cannot be used: sslmode/)
    }))
})

describe("standard output", () => {
  it.effect("lost: one line on standard error, exit code 74", () =>
    Effect.gen(function*() {
      const lost = new Error("ENOSPC: no space left on device, write")
      for (const args of ["--help", "--version"]) {
        const { exitCode, stderr } = yield* Cli.run(args, { lost })
        assert.strictEqual(exitCode, 74)
        assert.match(stderr, /^error: standard output cannot be written.*ENOSPC.*\n$/)
      }
      const { exitCode, stderr } = yield* Cli.run("--version --json", { lost })
      assert.deepStrictEqual([exitCode, JSON.parse(stderr).error.code], [74, "OutputLost"])
    }))

  it.live("is lost if a write fails, and not if its reader has closed the pipe", () =>
    Effect.promise(async () => {
      const failing = (code: string) =>
        streamOf(
          new Writable({ write: (_chunk, _encoding, done) => done(Object.assign(new Error(code), { code })) })
        )
      for (const [code, isLost] of [["ENOSPC", true], ["EIO", true], ["EPIPE", false]] as const) {
        const stream = failing(code)
        stream.write("answer")
        assert.strictEqual(await stream.written().then(() => false, () => true), isLost, code)
      }
    }))
})

describe("the connection", () => {
  it.live("is that of --url, else of the environment, else of the file of --env-file", () =>
    Effect.gen(function*() {
      const folder = yield* Effect.acquireRelease(
        Effect.promise(() => mkdtemp(join(tmpdir(), "duroxide-prisma-cli-"))),
        (folder) => Effect.promise(() => rm(folder, { recursive: true }))
      )
      const file = join(folder, "settings")
      yield* Effect.promise(() => writeFile(file, `DATABASE_URL="${nowhere.replace("nothing", "file")}"\n`))
      const env = { DATABASE_URL: nowhere.replace("nothing", "environment") }
      const addressOf = (args: ReadonlyArray<string>, options?: Cli.Options) =>
        Effect.map(Cli.run(["migrate", ...args], options), ({ stderr }) => /:1\/(\w+)/.exec(stderr)?.[1])
      const fromFile = ["--env-file", file]
      const fromFlag = ["--url", nowhere.replace("nothing", "flag")]
      assert.strictEqual(yield* addressOf([...fromFile, ...fromFlag], { env }), "flag")
      assert.strictEqual(yield* addressOf(fromFile, { env }), "environment")
      assert.strictEqual(yield* addressOf(fromFile), "file")
      // That of the server itself, unless the flag names another database.
      const direct = { ...env, DIRECT_URL: nowhere.replace("nothing", "direct") }
      assert.strictEqual(yield* addressOf([], { env: direct }), "direct")
      assert.strictEqual(yield* addressOf(fromFlag, { env: direct }), "flag")
    }))

  it.effect("logs in as the variables say: with a password file, also with --url", () =>
    Effect.gen(function*() {
      const env = { DATABASE_URL: nowhere, DUROXIDE_PG_PASSWORD_FILE: "/no/such/password" }
      for (const args of ["migrate", "migrate --verify", "list", `status --url ${nowhere}`]) {
        assert.include((yield* Cli.run(args, { env })).stderr, "/no/such/password", args)
      }
      const { exitCode, stderr } = yield* Cli.run("list", { env: { ...env, DUROXIDE_PG_CREDENTIALS: "magic" } })
      assert.strictEqual(exitCode, 2)
      assert.include(stderr, "DUROXIDE_PG_CREDENTIALS must be")
    }))

  it.effect("missing, unreadable or to something else: exit code 2, and what to do", () =>
    Effect.gen(function*() {
      const cases: ReadonlyArray<readonly [ReadonlyArray<string>, string]> = [
        [[], "Set DATABASE_URL"],
        [["--env-file", "/no/such/file"], "/no/such/file"],
        [["--url", "mysql://host/db"], "must start with postgresql://"],
        [["--url", "no url"], "cannot be read"],
        [["--url", nowhere, "--schema", "pg_mine"], "reserved"]
      ]
      for (const [args, text] of cases) {
        const { exitCode, stderr } = yield* Cli.run(["migrate", ...args])
        assert.strictEqual(exitCode, 2, text)
        assert.include(stderr, text)
      }
      const env = { DATABASE_URL: nowhere, DUROXIDE_PG_SCHEMA: "pg_mine", POSTGRES_MAX_CONNECTIONS: "many" }
      const { exitCode, stderr } = yield* Cli.run("list --json", { env })
      assert.strictEqual(exitCode, 2)
      const { code, message } = JSON.parse(stderr).error
      assert.strictEqual(code, "ConfigError")
      assert.match(message, /^DUROXIDE_PG_SCHEMA must be .*; POSTGRES_MAX_CONNECTIONS must be /)
    }))
})
