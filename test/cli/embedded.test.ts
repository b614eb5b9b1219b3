/**
 * The embedded server of the current folder, where no database is named.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { embedded, folder } from "../server/embedded.ts"
import * as Cli from "./cli.ts"

it.live("commands use the embedded server of their folder, and say so", () =>
  Effect.gen(function*() {
    const application = yield* folder
    yield* Effect.promise(() => fs.chmod(application, 0o755))
    const directory = path.join(application, ".duroxide/postgres")
    const run = (args: string, options: Cli.Options = {}) => Cli.run(args, { ...options, folder: application })
    const refusal = (args: string, options?: Cli.Options) =>
      Effect.map(run(`${args} --json`, options), ({ exitCode, stderr, stdout }) => {
        assert.strictEqual(stdout, "")
        return { exitCode, ...JSON.parse(stderr).error }
      })
    assert.deepInclude(yield* refusal("list"), { exitCode: 2, code: "NoDatabase" })

    yield* Effect.scoped(Effect.gen(function*() {
      const { description } = yield* embedded({ directory })
      assert.include(description, directory)
      const migrated = yield* run("migrate")
      assert.deepStrictEqual([migrated.exitCode, migrated.stderr], [0, `using the ${description}\n`])
      const listed = yield* run("list --json", { env: { DATABASE_URL: "" } })
      assert.deepStrictEqual(JSON.parse(listed.stderr), { server: description })
      assert.deepStrictEqual(JSON.parse(listed.stdout).instances, [])
      assert.strictEqual((yield* run("list --help")).stderr, "")

      // Whatever names a database comes first.
      const other = "postgresql://127.0.0.1:1/other"
      assert.include((yield* refusal(`list --url ${other}`)).message, "127.0.0.1:1/other")
      assert.include((yield* refusal("list", { env: { DATABASE_URL: other } })).message, "127.0.0.1:1/other")
      yield* Effect.promise(() => fs.writeFile(path.join(application, ".env"), `DATABASE_URL=${other}\n`))
      assert.include((yield* refusal("list")).message, "127.0.0.1:1/other")
      yield* Effect.promise(() => fs.rm(path.join(application, ".env")))
    }))

    const stopped = yield* run("list")
    assert.deepStrictEqual([stopped.exitCode, stopped.stdout], [3, ""])
    assert.match(stopped.stderr, /^error: the embedded PostgreSQL in \S+ is stopped: .* Start the application, .*\n$/)
    assert.include(stopped.stderr, directory)
    // As it begins to start.
    yield* Effect.promise(() => fs.writeFile(path.join(directory, "data/postmaster.pid"), ""))
    assert.deepInclude(yield* refusal("list"), { exitCode: 4, code: "ServerStarting" })
  }))

it.live.skipIf(process.getuid?.() !== 0)(
  "also that of root, whose data are in the temporary folder",
  () =>
    Effect.gen(function*() {
      const application = yield* folder
      const directory = yield* Effect.scoped(Effect.gen(function*() {
        const { description } = yield* embedded({ directory: path.join(application, ".duroxide/postgres") })
        const { stderr } = yield* Cli.run("migrate", { folder: application })
        assert.strictEqual(stderr, `using the ${description}\n`)
        return description.split("data in ")[1]!
      }))
      assert.notInclude(directory, application)
      yield* Effect.promise(() => fs.rm(directory, { recursive: true }))
    })
)
