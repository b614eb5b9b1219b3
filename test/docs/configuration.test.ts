import { assert, describe, it } from "@effect/vitest"
import { RuntimeConfig } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { Credentials, PgQueue, PrismaProvider, ReadReplica } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { execFileSync } from "node:child_process"
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { type AddressInfo, connect, createServer, type Socket } from "node:net"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as Docs from "../utils/docs.ts"
import { loginRole } from "../utils/loginRole.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Resize = Task.make("Resize")

// docs/configuration.md
export const ConfiguredLive = PrismaProvider.layerEnvironment({ schema: "orders" }).pipe(
  Layer.provideMerge(RuntimeConfig.layerEnvironment({ workerConcurrency: 32 }))
)

export const WorkerLive = Layer.unwrap(
  Effect.map(TaskWorker.environment, (options) => TaskWorker.layer({ tasks: [Resize], ...options }))
)

const ReplicaLive = ReadReplica.layerConfig({ url: Config.Redacted("READ_DATABASE_URL") }).pipe(
  Layer.provide(Credentials.layerConfig)
)

export const StoreLive = PrismaProvider.layerEnvironment().pipe(Layer.provide(ReplicaLive))
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
      assert.deepInclude(settings, { workerConcurrency: 64, maxAttempts: 3, orchestrationConcurrency: 40 })
      assert.lengthOf(yield* sql("SELECT FROM pg_namespace WHERE nspname = 'orders'"), 1)
    }))

  it.live("a wrong setting of the runtime is refused before the first connection", () =>
    Effect.gen(function*() {
      const server = createServer((socket) => socket.destroy())
      const connections: Array<Socket> = []
      server.on("connection", (socket) => connections.push(socket))
      yield* Effect.acquireRelease(
        Effect.callback<void>((resume) => void server.listen(0, "127.0.0.1", () => resume(Effect.void))),
        () => Effect.callback<void>((resume) => void server.close(() => resume(Effect.void)))
      )
      const { port } = server.address() as AddressInfo
      const env = { DATABASE_URL: `postgresql://anna@127.0.0.1:${port}/app`, DUROXIDE_WORKER_CONCURRENCY: "none" }
      const { message } = yield* Effect.flip(
        Effect.scoped(Layer.build(
          Layer.provide(ConfiguredLive, [ConfigProvider.layer(ConfigProvider.fromEnv({ env })), Logger.layer([])])
        ))
      )
      assert.include(message, "DUROXIDE_WORKER_CONCURRENCY must be")
      // The server accepts connections in their order: an earlier one would be there before this one has ended.
      yield* Effect.callback<void>((resume) => {
        connect(port, "127.0.0.1").on("error", () => {}).on("close", () => resume(Effect.void))
      })
      assert.lengthOf(connections, 1)
    }).pipe(Effect.scoped))

  it.live(
    "all connections of one process log in with the credentials of the environment",
    () =>
      Effect.gen(function*() {
        const role = yield* loginRole("right")
        const { sql, url } = yield* PgServer.database
        const folder = mkdtempSync(path.join(tmpdir(), "duroxide-env-"))
        yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(folder, { recursive: true })))
        const file = path.join(folder, "password")
        writeFileSync(file, "right\n")
        const env = { DATABASE_URL: role.at(url), READ_DATABASE_URL: role.at(url), DUROXIDE_PG_PASSWORD_FILE: file }
        const listeners = Effect.map(
          sql("SELECT FROM pg_stat_activity WHERE usename = $1 AND application_name LIKE 'duroxide-prisma listener%'", [
            role.name
          ]),
          ({ length }) => length
        )
        const process = (env: Record<string, string>) =>
          TaskWorker.layer({ tasks: [Resize] }).pipe(
            Layer.provide(Resize.toLayer(() => Effect.void)),
            Layer.merge(Outbox.publisher()),
            Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
            Layer.provideMerge(Tasks.layer),
            Layer.provideMerge(StoreLive),
            Layer.provide([ConfigProvider.layer(ConfigProvider.fromEnv({ env })), Logger.layer([])])
          )
        const work = Effect.gen(function*() {
          const tasks = yield* Tasks.Tasks
          yield* tasks.wait(Resize, yield* tasks.create(Resize, {}))
          // Answered by the replica, which has no fallback.
          assert.lengthOf((yield* (yield* Admin.Admin).list()).instances, 0)
        })
        yield* Effect.andThen(work, waitUntil(Effect.map(listeners, (count) => count === 1))).pipe(
          Effect.provide(process(env))
        )
        yield* waitUntil(Effect.map(listeners, (count) => count === 0))
        // Work is found, and nothing listens.
        yield* Effect.gen(function*() {
          yield* work
          assert.strictEqual(yield* listeners, 0)
        }).pipe(Effect.provide(process({ ...env, DUROXIDE_LONG_POLLING: "false" })))
      }).pipe(Effect.scoped)
  )

  it("npm scripts read .env, below what the environment sets, and git ignores the file", () => {
    const clone = mkdtempSync(path.join(tmpdir(), "duroxide-env-"))
    const write = (name: string, text: string) => {
      mkdirSync(path.join(clone, path.dirname(name)), { recursive: true })
      writeFileSync(path.join(clone, name), text)
    }
    try {
      // Nothing to install and nothing to generate.
      for (const name of ["scripts/ready.mjs", "package.json"]) write(name, Docs.read(name))
      for (const name of ["scripts/prisma", "prisma"]) {
        cpSync(fileURLToPath(new URL(`../../${name}`, import.meta.url)), path.join(clone, name), { recursive: true })
      }
      for (const name of ["package-lock.json", "node_modules/.package-lock.json"]) write(name, "{\"packages\":{}}")
      write("src/prisma/generated/client.ts", "")
      // The page is newer than what it is built from.
      for (const name of ["src/dashboard/Api.ts", "src/dashboard/Model.ts", "ui/dist/index.html"]) write(name, "")
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
