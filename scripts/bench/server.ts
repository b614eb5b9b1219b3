/** The PostgreSQL of the bench: databases for contenders, and what the server has counted and used. */
import { DatabaseServer } from "duroxide-prisma/server"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { readdirSync, readFileSync } from "node:fs"
import * as pg from "pg"

/** Counters that only grow. Null where the server does not say. */
export interface Counters {
  /** Statements that clients sent, `BEGIN` and the like among them. */
  readonly statements: number | null
  readonly transactions: number
  /** Bytes of WAL of the whole server. */
  readonly walBytes: number
  /** User and system time of all processes of the server, milliseconds; null unless it runs on this machine. */
  readonly cpuMs: number | null
}

/** What the end of a minute shows. */
export interface Reading extends Pick<Counters, "cpuMs"> {
  /** Time in statements of clients, milliseconds; only grows. Null without `pg_stat_statements`. */
  readonly statementMs: number | null
  /** Dead rows of all tables of the database, as its statistics know them. */
  readonly deadRows: number
}

/** What sessions did that had a statement under way: `running`, or what they waited for. */
export interface Waits {
  readonly looks: number
  /** Sessions that were seen, of all looks together, by the server's type and name of the wait. */
  readonly seen: Readonly<Record<string, number>>
}

export interface Server {
  readonly description: string
  /** Creates an empty database; returns its URL. */
  readonly create: (name: string) => Promise<string>
  readonly counters: (database: string) => Promise<Counters>
  readonly read: (url: string) => Promise<Reading>
  /** Looks at the sessions of a database 20 times a second, until the promise it returns is asked for. */
  readonly watch: (database: string) => () => Promise<Waits>
  /** Begins a transaction that keeps every row that dies from now on; returns what ends it. */
  readonly hold: (url: string) => Promise<() => Promise<void>>
  /** Terminates the sessions that listen in a database. */
  readonly endListeners: (database: string) => Promise<void>
  /** Runs statements in a database, one after another. */
  readonly fill: (url: string, statements: ReadonlyArray<string>) => Promise<void>
  /** Drops the databases and stops the server. */
  readonly close: () => Promise<void>
}

/**
 * Opens the server of `DATABASE_URL`, whose role may create databases; else an embedded one, durable as production is.
 */
export const open = async (): Promise<Server> => {
  const scope = Scope.makeUnsafe()
  const { description, url } = await Effect.runPromise(
    Scope.provide(
      DatabaseServer.make({
        directory: ".duroxide/bench",
        settings: { max_connections: "300", shared_preload_libraries: "pg_stat_statements" }
      }),
      scope
    )
  )
  const client = new pg.Client(Redacted.value(url))
  await client.connect()
  await sweep(client)
  const postmaster = await postmasterOf(client)
  const created = new Set<string>()
  const create = async (name: string) => {
    await client.query(`CREATE DATABASE ${pg.escapeIdentifier(name)}`)
    created.add(name)
    const own = new URL(Redacted.value(url))
    own.pathname = `/${name}`
    return own.toString()
  }
  // An extension is not left behind in a database of others.
  const onlooker = new pg.Client(await create(`bench_${process.pid}_counters`))
  await onlooker.connect()
  const counted = await countsStatements(onlooker)
  const connected = async (to: string) => {
    const one = new pg.Client(to)
    await one.connect()
    return one
  }
  const cpuMs = () => postmaster === undefined ? null : cpuOf(postmaster)
  return {
    description,
    create,
    counters: async (database) => {
      const { rows: [row] } = await onlooker.query<Omit<Counters, "cpuMs">>(counted ? sqlWithStatements : sql, [
        database
      ])
      return { ...row!, cpuMs: cpuMs() }
    },
    read: async (of) => {
      const reader = await connected(of)
      const { rows: [row] } = await reader.query<Pick<Reading, "deadRows">>(deadRows)
      await reader.end()
      const { rows: [time] } = counted
        ? await onlooker.query<Pick<Reading, "statementMs">>(statementMs, [new URL(of).pathname.slice(1)])
        : { rows: [{ statementMs: null }] }
      return { ...row!, ...time, cpuMs: cpuMs() }
    },
    watch: (database) => {
      const seen: Record<string, number> = {}
      let looks = 0
      const look = async () => {
        const { rows } = await onlooker.query<{ wait: string; sessions: number }>(sessionsByWait, [database])
        looks++
        for (const { sessions, wait } of rows) seen[wait] = (seen[wait] ?? 0) + sessions
      }
      let last = Promise.resolve()
      const timer = setInterval(() => last = last.then(look), 50)
      return async () => {
        clearInterval(timer)
        await last
        return { looks, seen }
      }
    },
    hold: async (of) => {
      const holder = await connected(of)
      await holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
      await holder.query("SELECT 1") // takes the snapshot
      return () => holder.end()
    },
    endListeners: async (database) => {
      await onlooker.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = $1 AND application_name LIKE 'duroxide-prisma listener%'`,
        [database]
      )
    },
    fill: async (of, statements) => {
      const filler = await connected(of)
      for (const statement of statements) await filler.query(statement)
      await filler.end()
    },
    close: async () => {
      await onlooker.end()
      for (const name of created) await client.query(`DROP DATABASE ${pg.escapeIdentifier(name)} WITH (FORCE)`)
      await client.end()
      await Effect.runPromise(Scope.close(scope, Exit.void))
    }
  }
}

// internal

const select = (statements: string) =>
  `SELECT ${statements} AS statements,
    (xact_commit + xact_rollback)::float8 AS transactions,
    (pg_current_wal_insert_lsn() - '0/0')::float8 AS "walBytes"
  FROM pg_stat_database WHERE datname = $1`
const sql = select("NULL")
const sqlWithStatements = select(
  "(SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_statements AS s WHERE s.dbid = datid AND s.toplevel)"
)

const sessionsByWait =
  `SELECT coalesce(wait_event_type || ' ' || wait_event, 'running') AS wait, count(*)::int AS sessions
   FROM pg_stat_activity WHERE datname = $1 AND state = 'active' GROUP BY 1`
const deadRows = "SELECT coalesce(sum(n_dead_tup), 0)::float8 AS \"deadRows\" FROM pg_stat_user_tables"
const statementMs = `SELECT coalesce(sum(s.total_exec_time), 0) AS "statementMs"
  FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid WHERE d.datname = $1 AND s.toplevel`

/**
 * Drops what runs that were killed have left; the name of a database begins with `bench_` and the id of its process.
 */
const sweep = async (client: pg.Client) => {
  const { rows } = await client.query<{ name: string }>(
    "SELECT datname AS name FROM pg_database WHERE datname ~ '^bench_[0-9]+_' AND datname NOT IN (SELECT datname FROM pg_stat_activity WHERE datname IS NOT NULL)"
  )
  for (const { name } of rows) {
    if (statOf(Number(name.split("_")[1])) === undefined) {
      await client.query(`DROP DATABASE ${pg.escapeIdentifier(name)}`)
    }
  }
}

/** Whether the extension is loaded, and can be created. */
const countsStatements = (client: pg.Client) =>
  client.query("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    .then(() => client.query(sqlWithStatements, ["postgres"]))
    .then(() => true, () => false)

/** The parent of our own backend, if the server shares this machine's process table. */
const postmasterOf = async (client: pg.Client): Promise<number | undefined> => {
  const { rows: [row] } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid")
  const backend = statOf(row!.pid)
  return backend?.name === "postgres" ? backend.parent : undefined
}

/** Clock ticks of Linux: 100 per second on every platform Node supports. */
const msPerTick = 10

/** The postmaster counts its ended processes among its own. */
const cpuOf = (postmaster: number): number => {
  const processes = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map((name) => statOf(Number(name)))
  const ticks = processes.map((stat) => stat?.parent === postmaster ? stat.own : 0)
  const root = statOf(postmaster)
  return ((root?.own ?? 0) + (root?.ended ?? 0) + ticks.reduce((all, some) => all + some, 0)) * msPerTick
}

const statOf = (pid: number) => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8")
    const name = text.slice(text.indexOf("(") + 1, text.lastIndexOf(")"))
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ").map(Number)
    const [own, ended] = [fields[11]! + fields[12]!, fields[13]! + fields[14]!]
    return { name, parent: fields[1]!, own, ended }
  } catch {
    return undefined // it has ended, or this is not Linux
  }
}
