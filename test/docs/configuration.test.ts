import { assert, describe, it } from "@effect/vitest"
import { RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Task, TaskWorker } from "duroxide-prisma/queue"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const Resize = Task.make("Resize")

// docs/configuration.md
export const ConfiguredLive = Layer.mergeAll(
  PrismaProvider.layerEnvironment({ schema: "orders" }),
  RuntimeConfig.layerEnvironment({ workerConcurrency: 32 })
)

export const WorkerLive = Layer.unwrap(
  Effect.map(TaskWorker.environment, (options) => TaskWorker.layer({ tasks: [Resize], ...options }))
)
// docs/configuration.md

describe("docs/configuration.md:", () => {
  it("its code is the code of this test", () => {
    const source = Docs.withoutIndentation(Docs.read("test/docs/configuration.test.ts"))
    for (const { code } of Docs.blocks(Docs.read("docs/configuration.md"), "ts")) {
      assert.include(source, Docs.withoutIndentation(code))
    }
  })

  it.live("the environment wins over the options of the application, and these over the defaults", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.emptyDatabase
      yield* Effect.addFinalizer(() => sql("DROP SCHEMA IF EXISTS orders CASCADE"))
      const env = { DATABASE_URL: url, DUROXIDE_WORKER_CONCURRENCY: "64", DUROXIDE_MAX_ATTEMPTS: "3" }
      const settings = yield* Effect.provide(
        RuntimeConfig.RuntimeConfig,
        Layer.provide(ConfiguredLive, [ConfigProvider.layer(ConfigProvider.fromEnv({ env })), Logger.layer([])])
      )
      assert.deepInclude(settings, { workerConcurrency: 64, maxAttempts: 3, orchestrationConcurrency: 16 })
      assert.lengthOf(yield* sql("SELECT FROM pg_namespace WHERE nspname = 'orders'"), 1)
    }))

  it("npm scripts read .env, below what the environment sets, and git ignores the file", () => {
    const clone = mkdtempSync(path.join(tmpdir(), "duroxide-env-"))
    const write = (name: string, text: string) => {
      mkdirSync(path.join(clone, path.dirname(name)), { recursive: true })
      writeFileSync(path.join(clone, name), text)
    }
    try {
      // Nothing to install and nothing to generate.
      for (const name of ["scripts/ready.mjs", "package.json", "prisma/schema.prisma"]) write(name, Docs.read(name))
      for (const name of ["package-lock.json", "node_modules/.package-lock.json"]) write(name, "{\"packages\":{}}")
      write("src/prisma/generated/client.ts", "")
      write(".env", "DATABASE_URL=of the file\nPOSTGRES_MAX_CONNECTIONS=7\n")
      const program = "console.log(process.env.DATABASE_URL, process.env.POSTGRES_MAX_CONNECTIONS)"
      const printed = (env: NodeJS.ProcessEnv) =>
        execFileSync(process.execPath, ["scripts/ready.mjs", "node", "-e", program], {
          cwd: clone,
          env: { PATH: process.env.PATH, ...env },
          encoding: "utf8"
        }).trim()
      assert.strictEqual(printed({}), "of the file 7")
      assert.strictEqual(printed({ DATABASE_URL: "of the environment" }), "of the environment 7")
    } finally {
      rmSync(clone, { recursive: true, force: true })
    }
    assert.include(Docs.read(".gitignore").split("\n"), ".env")
  })
})
