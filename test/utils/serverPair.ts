/**
 * A primary and a streaming standby, of the embedded PostgreSQL, behind one address that leads to either.
 *
 * The standby begins as a copy of the primary's files. A commit waits for it, so that a failover loses nothing that was
 * acknowledged.
 */
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as fs from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as pg from "pg"
import * as embedded from "../../src/server/internal/embeddedPostgres.ts"
import * as LatencyProxy from "../programs/latencyProxy.ts"
import * as Command from "./command.ts"

export interface Server {
  readonly port: number
  /** URL of the server itself, whatever the address of the pair leads to. */
  readonly url: string
  /** Runs SQL as an observer, on a connection of its own for each call. */
  readonly sql: <Row = Record<string, unknown>>(
    text: string,
    values?: ReadonlyArray<unknown>
  ) => Effect.Effect<ReadonlyArray<Row>>
  /** SIGSTOP for all its processes: connections stay open, and the system still accepts new ones. */
  readonly freeze: Effect.Effect<void>
  /** SIGCONT. */
  readonly thaw: Effect.Effect<void>
  /** SIGKILL for all its processes. */
  readonly kill: Effect.Effect<void>
  /** Starts it again as a standby, which takes no writes. What it has that its primary lacks stays visible. */
  readonly startAsStandby: Effect.Effect<void>
}

export interface Pair {
  readonly primary: Server
  readonly standby: Server
  /** Leads to the primary, until `pointTo`. */
  readonly url: string
  readonly proxy: LatencyProxy.LatencyProxy
  /** For new connections; open ones stay where they are. */
  readonly pointTo: (server: Server) => void
}

/** Both run, and the standby follows. Killed with the scope. */
export const make: Effect.Effect<Pair, never, Scope.Scope> = Effect.gen(function*() {
  const user = yield* embedded.serverUser("")
  const programs = yield* embedded.programs(user)
  const primaryFolder = yield* folder("primary")
  const standbyFolder = yield* folder("standby")
  const data = path.join(primaryFolder, "data")
  const copy = path.join(standbyFolder, "data")
  const own = (target: string) =>
    user === undefined ? Effect.void : Effect.promise(() => fs.chown(target, user.uid, user.gid))
  yield* Effect.promise(() => fs.mkdir(data, { mode: 0o700 }))
  yield* own(data)
  const log = path.join(primaryFolder, "log")
  yield* ran(
    programs.run("initdb", [
      `--pgdata=${data}`,
      "--username=postgres",
      "--auth=trust",
      "--encoding=UTF8",
      "--locale=C",
      "--no-sync",
      "--wal-segsize=1"
    ], log),
    log
  )

  const place = (data: string, port: number, primaryPort: number): Place => ({ data, port, primaryPort, programs })
  const [primaryPort, standbyPort] = [yield* Command.freePort, yield* Command.freePort]
  yield* Effect.promise(async () => {
    await fs.cp(data, copy, { recursive: true })
    if (user !== undefined) {
      for (const entry of ["", ...await fs.readdir(copy, { recursive: true })]) {
        await fs.chown(path.join(copy, entry), user.uid, user.gid)
      }
    }
  })
  const primary = yield* server(place(data, primaryPort, standbyPort))
  const standby = yield* server(place(copy, standbyPort, primaryPort))
  yield* primary.start({ synchronous_standby_names: "*" })
  yield* standby.startAsStandby
  const proxy = yield* LatencyProxy.proxyFor(primary.url)
  return {
    primary,
    standby,
    url: proxy.through(primary.url),
    proxy,
    pointTo: ({ port }: Server) => void (proxy.state.targetPort = port)
  }
}).pipe(Effect.orDie)

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

interface Place {
  readonly data: string
  readonly port: number
  readonly primaryPort: number
  readonly programs: embedded.Programs
}

const settings = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  max_connections: "100",
  fsync: "off",
  full_page_writes: "off",
  wal_keep_size: "256MB",
  hot_standby: "on",
  shared_preload_libraries: "pg_stat_statements"
}

const server = Effect.fnUntraced(function*({ data, port, primaryPort, programs }: Place) {
  const url = `postgresql://postgres@127.0.0.1:${port}/postgres`
  const log = path.join(path.dirname(data), "log")
  const sql = <Row>(text: string, values?: ReadonlyArray<unknown>) =>
    Effect.promise(async () => {
      const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
      client.on("error", () => {})
      await client.connect()
      try {
        return (await client.query(text, values && [...values])).rows as ReadonlyArray<Row>
      } finally {
        await client.end()
      }
    })

  let stopped: ReadonlyArray<number> = []
  const signal = (pids: ReadonlyArray<number>, name: NodeJS.Signals) => {
    for (const pid of pids) {
      try {
        process.kill(pid, name)
      } catch {
        // it has ended
      }
    }
  }
  const readPid = Effect.promise(async () =>
    Number((await fs.readFile(path.join(data, "postmaster.pid"), "utf8").catch(() => "0")).split("\n")[0])
  )
  /** The parent first: it starts no further ones then. Its open connection still answers. */
  const stopAll = (name: "SIGSTOP" | "SIGKILL") =>
    Effect.gen(function*() {
      const parent = yield* readPid
      const pids = yield* Effect.promise(async () => {
        const client = new pg.Client(url)
        client.on("error", () => {})
        await client.connect()
        signal([parent], "SIGSTOP")
        const { rows } = await client.query<{ pid: number }>("SELECT pid FROM pg_stat_activity")
        client.connection.stream.destroy()
        return rows.map(({ pid }) => pid)
      })
      stopped = [...pids, parent]
      signal(stopped, name)
    })

  const start = (more: Readonly<Record<string, string>>) =>
    Effect.gen(function*() {
      const lines = Object.entries({ ...settings, ...more }).map(([name, value]) => `${name} = '${value}'\n`)
      yield* Effect.promise(() => fs.writeFile(path.join(data, "postgresql.auto.conf"), lines.join("")))
      // The file of a killed server is left over, and its processes may still be about to end.
      yield* Effect.retry(
        Effect.andThen(
          Effect.promise(() => fs.rm(path.join(data, "postmaster.pid"), { force: true })),
          ran(
            programs.run("pg_ctl", ["start", "--wait", "--timeout=60", `--pgdata=${data}`, "-o", `-p ${port}`], log),
            log
          )
        ),
        { times: 20, schedule: Schedule.spaced("50 millis") }
      )
    }).pipe(Effect.orDie)

  yield* Effect.addFinalizer(() =>
    Effect.gen(function*() {
      signal(stopped, "SIGCONT")
      yield* Effect.ignore(programs.run("pg_ctl", ["stop", "--mode=immediate", `--pgdata=${data}`], log))
    })
  )
  const self = {
    port,
    url,
    sql,
    start,
    freeze: stopAll("SIGSTOP"),
    thaw: Effect.sync(() => signal(stopped, "SIGCONT")),
    kill: stopAll("SIGKILL"),
    startAsStandby: Effect.gen(function*() {
      yield* Effect.promise(() => fs.writeFile(path.join(data, "standby.signal"), ""))
      yield* start({ primary_conninfo: `host=127.0.0.1 port=${primaryPort} user=postgres application_name=standby` })
    })
  }
  return self
})

class ProgramFailed extends Data.TaggedError("ProgramFailed")<{ readonly message: string }> {}

const ran = Effect.fnUntraced(function*<E>(program: Effect.Effect<number, E>, log: string) {
  const code = yield* program
  if (code === 0) return
  const text = yield* Effect.promise(() => fs.readFile(log, "utf8"))
  return yield* new ProgramFailed({ message: `exit code ${code}: ${text.trim().split("\n").slice(-8).join("\n")}` })
})

/** Named like the server of all tests, which sweeps what killed runs have left. */
const folder = (name: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const made = await fs.mkdtemp(path.join(tmpdir(), `duroxide-prisma-tests-${process.pid}-${name}-`))
      if (embedded.isRoot) await fs.chmod(made, 0o755)
      return made
    }),
    (made) => Effect.promise(() => fs.rm(made, { recursive: true, force: true, maxRetries: 5 }))
  )
