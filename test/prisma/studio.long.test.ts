import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/generated/client.js"
import * as Command from "../utils/command.ts"
import * as PgServer from "../utils/PgServer.ts"
import { prismaCli } from "../utils/prismaCli.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const schemaFile = readFileSync(new URL("../../prisma/schema.prisma", import.meta.url), "utf8")
const tables = [...schemaFile.matchAll(/@@map\("(\w+)"\)/g)].map((found) => String(found[1])).sort()

const status = (url: string) => Effect.promise(() => fetch(url).then((response) => response.status, () => 0))

it.live("prisma studio: serves the database without downloading an engine", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.database
    const target = new URL(url)
    target.searchParams.delete("schema") // Studio shows every schema
    const port = yield* Command.freePort
    const studio = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(
          process.execPath,
          ["node_modules/prisma/build/index.js", "studio", "--port", String(port), "--browser", "none"],
          { cwd: root, env: { ...process.env, PRISMA_OFFLINE: "1", DATABASE_URL: target.toString() } }
        )
      ),
      (child) =>
        Effect.promise(() =>
          new Promise<void>((resolve) => {
            if (child.exitCode !== null) resolve()
            child.once("exit", () => resolve())
            child.kill()
          })
        )
    )
    let output = ""
    for (const stream of [studio.stdout, studio.stderr]) {
      stream.on("data", (data: Buffer) => (output += data.toString()))
    }
    yield* waitUntil(
      Effect.map(status(`http://127.0.0.1:${port}/`), (code) => code === 200 || studio.exitCode !== null)
    )
    assert.isNull(studio.exitCode, output)
  }))

for (
  const [command, expected] of [
    [["version"], "@prisma/client"],
    [["validate"], "is valid"],
    [["format", "--check"], "formatted"],
    [["migrate", "status"], "up to date"],
    [["db", "pull", "--print"], "model Instance {"]
  ] as const
) {
  it.live(`prisma ${command.join(" ")}: works without downloading an engine`, () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const { exitCode, output } = yield* prismaCli(url, ...command)
      assert.include(output, expected)
      assert.strictEqual(exitCode, 0, output)
    }))
}

it.live("the generated client: has a model for every table, and every model finds its table", () =>
  Effect.gen(function*() {
    const { schema, sql, url } = yield* PgServer.database
    const found = yield* sql<{ tablename: string }>(
      "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename NOT LIKE '\\_%' ORDER BY 1",
      [schema]
    )
    assert.deepStrictEqual(found.map(({ tablename }) => tablename), tables)
    const models = Object.keys(Prisma.ModelName)
    assert.lengthOf(models, tables.length)
    const { client } = yield* Database.make({ url })
    for (const model of models) {
      const name = `${model.charAt(0).toLowerCase()}${model.slice(1)}` as "session"
      assert.strictEqual(yield* Effect.promise(() => client[name].count()), 0)
    }
  }))
