/**
 * One PostgreSQL for all tests: `DATABASE_URL`, else a container, else (also if none can be started) the embedded
 * server; says which.
 *
 * Migrates once into a template, which each test file clones (`PgServer`). Where the role may not create databases, a
 * schema per file replaces them. In the template, a role has the rights of `prisma/roles/worker.sql` alone.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { randomUUID } from "node:crypto"
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as pg from "pg"
import type { TestProject } from "vitest/node"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as Roles from "../../src/prisma/Roles.ts"
import * as DatabaseServer from "../../src/server/DatabaseServer.ts"
import * as BareServer from "./bareServer.ts"
import * as ContainerServer from "./containerServer.ts"

/** What tests know about the server. */
export interface ProvidedServer {
  /** Superuser of our own server, or the role of `DATABASE_URL`. */
  readonly url: string
  readonly source: "DATABASE_URL" | "container" | "embedded"
  /** A migrated database to clone; null where databases cannot be created. */
  readonly template: string | null
  /** A database without our tables to clone. */
  readonly emptyTemplate: string
  /** A login with the rights of a worker in the template and its clones; null where roles cannot be created. */
  readonly worker: { readonly user: string; readonly password: string } | null
  /** The server's log, if it can be read. */
  readonly logFile: string | null
}

declare module "vitest" {
  export interface ProvidedContext {
    server: ProvidedServer
  }
}

const settings = {
  fsync: "off",
  synchronous_commit: "off",
  full_page_writes: "off",
  max_connections: "500",
  shared_preload_libraries: "pg_stat_statements",
  log_lock_waits: "on", // see serverLog.ts
  // Hundreds of databases with statements of their own: with the usual 5,000, those of a running test are forgotten.
  "pg_stat_statements.max": "50000"
}

export default async function setup(project: TestProject) {
  const scope = Scope.makeUnsafe()
  const started = await Effect.runPromise(
    Effect.gen(function*() {
      const found = yield* findServer
      const server = BareServer.isWanted ? { ...found, url: yield* BareServer.inFrontOf(found.url) } : found
      const made = yield* makeTemplate(server.url)
      return { ...server, ...made }
    }).pipe(Scope.provide(scope), Effect.provide(Logger.layer([])), Effect.exit)
  )
  if (Exit.isFailure(started)) {
    await Effect.runPromise(Scope.close(scope, started))
    return Effect.runPromise(started)
  }
  const { source, template, url } = started.value
  console.log(
    `[tests] PostgreSQL from ${source} (${new URL(url).host})${template === null ? ", a schema per test file" : ""}`
  )
  project.provide("server", started.value)
  return () => Effect.runPromise(Scope.close(scope, Exit.void))
}

type Server = Omit<ProvidedServer, "template" | "emptyTemplate" | "worker">

const findServer: Effect.Effect<Server, unknown, Scope.Scope> = Effect.suspend(() => {
  const url = process.env.DATABASE_URL
  return url === undefined || url === ""
    ? Effect.flatMap(
      container,
      Option.match({
        onNone: () => embedded,
        onSome: (url) => Effect.succeed<Server>({ url, source: "container", logFile: null })
      })
    )
    : Effect.succeed({ url, source: "DATABASE_URL", logFile: null })
})

const container = ContainerServer.make(
  ContainerServer.testcontainers(settings),
  (problem) => console.warn(`[tests] no container, the embedded server takes its place: ${problem}`)
)

const embedded: Effect.Effect<Server, unknown, Scope.Scope> = Effect.gen(function*() {
  yield* Effect.promise(sweep)
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), `duroxide-prisma-tests-${process.pid}-`))),
    (directory) => Effect.promise(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }))
  )
  const { url } = yield* DatabaseServer.makeEmbedded({ directory, settings })
  return { url: Redacted.value(url), source: "embedded", logFile: path.join(directory, "log") }
})

/** Stops and removes the servers of runs that were killed. */
async function sweep() {
  for (const name of await readdir(tmpdir())) {
    const runner = /^duroxide-prisma-tests-(\d+)-/.exec(name)?.[1]
    if (runner === undefined || isAlive(Number(runner))) continue
    const directory = path.join(tmpdir(), name)
    const pid = Number(
      (await readFile(path.join(directory, "data/postmaster.pid"), "utf8").catch(() => "")).split("\n")[0]
    )
    if (
      pid > 0 && isAlive(pid) && (await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")).includes(directory)
    ) {
      process.kill(pid, "SIGQUIT")
    }
    await rm(directory, { recursive: true, force: true, maxRetries: 5 }).catch(() => {}) // another user's
  }
}

function isAlive(pid: number) {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM"
  }
}

const makeTemplate = Effect.fnUntraced(function*(serverUrl: string) {
  const unique = `${process.pid}_${Date.now().toString(36)}`
  const template = `duroxide_template_${unique}`
  const connected = async (url: string, use: (client: pg.Client) => Promise<unknown>) => {
    const client = new pg.Client(url)
    await client.connect()
    try {
      await use(client)
    } finally {
      await client.end()
    }
  }
  const admin = (sql: string) => connected(serverUrl, (client) => client.query(sql))
  const urlOf = (database: string) => {
    const url = new URL(serverUrl)
    url.pathname = `/${database}`
    return url.toString()
  }
  /** Dropped with the run; whether the role of the server's URL may do it at all. */
  const acquire = (create: string, drop: string) =>
    Effect.acquireRelease(
      Effect.promise(() =>
        admin(create).then(() => true, (error: pg.DatabaseError) => {
          if (error.code === "42501") return false
          throw error
        })
      ),
      (created) => created ? Effect.promise(() => admin(drop)) : Effect.void
    )
  const user = `duroxide_worker_${unique}`
  const password = randomUUID()
  // Before the template, whose rights name it.
  const hasWorker = yield* acquire(`CREATE ROLE ${user} LOGIN PASSWORD '${password}'`, `DROP ROLE IF EXISTS ${user}`)
  const emptyTemplate = BareServer.isWanted ? `duroxide_bare_${unique}` : "template0"
  if (BareServer.isWanted) {
    yield* acquire(`CREATE DATABASE ${emptyTemplate}`, `DROP DATABASE IF EXISTS ${emptyTemplate} WITH (FORCE)`)
    yield* Effect.promise(() =>
      connected(urlOf(emptyTemplate), (client) => Effect.runPromise(BareServer.strip(client)))
    )
  }
  const hasTemplate = yield* acquire(
    `CREATE DATABASE ${template} TEMPLATE ${emptyTemplate}`,
    `DROP DATABASE IF EXISTS ${template} WITH (FORCE)`
  )
  if (!hasTemplate) return { template: null, emptyTemplate, worker: null }
  const url = urlOf(template)
  yield* Migrator.migrate({ url, schema: "public" })
  if (!hasWorker) return { template, emptyTemplate, worker: null }
  yield* Roles.apply({ url, schema: "public", roles: { worker: user } })
  return { template, emptyTemplate, worker: { user, password } }
})
