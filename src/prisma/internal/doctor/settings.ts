/**
 * Settings of the server, of the database and of the login that decide how a store works.
 */
import * as Effect from "effect/Effect"
import { count, counted } from "../../../model/shared/quantities.ts"
import { quoted } from "../connection.ts"
import type { Examined } from "./examined.ts"
import { advice, ok, problem, unknown } from "./finding.ts"
import type { Answer } from "./finding.ts"

export const examine = Effect.fnUntraced(function*(examined: Examined) {
  const { used: { one } } = examined
  const rows = yield* one.run(
    "SELECT name, setting, unit FROM pg_settings WHERE name = ANY ($1)",
    [Object.values(names)]
  )
  const settings = new Map(rows.map(({ name, setting, unit }) => [String(name), valueOf(setting, unit)]))
  const of = (name: keyof typeof names) => settings.get(names[name])
  return [
    durability(of),
    ...times(of, examined),
    isolation(of, examined),
    ...statistics(of),
    autovacuum(of)
  ]
})

/** Connections that the server allows, and those that processes open. */
export const connections = Effect.fnUntraced(
  function*({ direct: { one }, isMigrated, maxConnections, schema }: Examined) {
    const name = "connections"
    const [row] = yield* one.run(
      `SELECT current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
         - COALESCE(current_setting('reserved_connections', true)::integer, 0) AS allowed,
       (SELECT count(*)::integer FROM pg_stat_activity WHERE backend_type = 'client backend') AS open,
       (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user) AS "ofRole",
       (SELECT datconnlimit FROM pg_database WHERE datname = current_database()) AS "ofDatabase"`
    )
    const limits = [row!["allowed"], row!["ofRole"], row!["ofDatabase"]].map(Number).filter((limit) => limit >= 0)
    const allowed = Math.min(...limits)
    const open = Number(row!["open"])
    const each = maxConnections + besidePool
    const [alive] = isMigrated
      ? yield* one.run(
        `SELECT count(*) FILTER (WHERE out_is_alive)::integer AS processes FROM ${quoted(schema)}.dx_read_processes()`
      )
      : []
    const processes = Number(alive?.["processes"] ?? 0)
    const found = `${count(open)} of ${count(allowed)} open; ${
      processes === 0 ? "a process opens" : counted(processes, "alive process opens", "alive processes open")
    } up to ${count(Math.max(processes, 1) * each)} with maxConnections ${maxConnections}`
    return each > allowed
      ? problem(name, found, "Lower maxConnections, or raise max_connections of the server or the limit of the role")
      : processes * each > allowed || open > 0.9 * allowed
      ? advice(name, found, "Lower maxConnections, raise max_connections, or put a pooler in between")
      : ok(name, found)
  }
)

// internal

const names = {
  fsync: "fsync",
  fullPageWrites: "full_page_writes",
  synchronousCommit: "synchronous_commit",
  statementTimeout: "statement_timeout",
  lockTimeout: "lock_timeout",
  idleInTransaction: "idle_in_transaction_session_timeout",
  transactionTimeout: "transaction_timeout",
  isolation: "default_transaction_isolation",
  autovacuum: "autovacuum",
  naptime: "autovacuum_naptime",
  trackCounts: "track_counts",
  trackActivities: "track_activities",
  trackIo: "track_io_timing"
} as const

/** Times in milliseconds. */
type Read = (name: keyof typeof names) => string | number | undefined

/** Beside its pool, a process has one connection that listens and one that renews locks. */
const besidePool = 2

const valueOf = (setting: unknown, unit: unknown): string | number => {
  const text = String(setting)
  return unit === "ms" ? Number(text) : unit === "s" ? Number(text) * 1000 : text
}

const durability = (of: Read): Answer => {
  const name = "durability"
  const commit = of("synchronousCommit")
  if (of("fsync") === undefined) return unknown(name, "the server does not say")
  const off = [
    ...(of("fsync") === "off" ? ["fsync"] : []),
    ...(of("fullPageWrites") === "off" ? ["full_page_writes"] : []),
    ...(commit === "off" ? ["synchronous_commit"] : [])
  ]
  return off.length > 0
    ? advice(
      name,
      `${off.join(", ")} off: a crash of the server loses acknowledged work`,
      "Set to on, unless the data may be lost; locks and leases commit without the disk anyway"
    )
    : commit === "local"
    ? advice(name, "synchronous_commit is local: a failover loses acknowledged work", "Set it to on for the role")
    : ok(name, `synchronous_commit ${commit ?? "unknown"}`)
}

const times = (of: Read, { used: { one: { pooled } } }: Examined): ReadonlyArray<Answer> => {
  const lock = Number(of("lockTimeout"))
  const idle = Number(of("idleInTransaction"))
  const statement = Number(of("statementTimeout"))
  const transaction = Number(of("transactionTimeout") ?? 0)
  return [
    lock === 0
      ? ok("lock_timeout", "0: each statement sets its own")
      : advice(
        "lock_timeout",
        `${shown(lock)} in place of the short waits of our statements`,
        "RESET lock_timeout for the roles of workers and clients; a migrator may have one"
      ),
    statement === 0 || !pooled
      ? ok("statement_timeout", `${shown(statement)}${pooled ? "" : "; processes set their own (statementTimeout)"}`)
      : statement < shortestMs
      ? advice(
        "statement_timeout",
        `${shown(statement)}, and behind a pooler processes cannot set their own`,
        "Allow statements 30 seconds: claims of large histories take long"
      )
      : ok("statement_timeout", shown(statement)),
    idle === 0
      ? advice(
        "idle transactions",
        "idle_in_transaction_session_timeout is 0: a transaction left open keeps dead rows",
        "Set it to 10 minutes for the server, to 1 minute for the roles (docs/deployment.md)"
      )
      : ok("idle transactions", `ended after ${shown(idle)}`),
    ...(transaction > 0 && transaction < shortestMs
      ? [advice(
        "transaction_timeout",
        `${shown(transaction)}: a longer statement ends with its connection`,
        "RESET transaction_timeout for the roles of processes"
      )]
      : [])
  ]
}

const isolation = (of: Read, { used: { one: { pooled } } }: Examined): Answer => {
  const name = "isolation"
  const level = String(of("isolation"))
  return level === "read committed" || !pooled
    ? ok(name, level === "read committed" ? level : `${level}; processes set read committed`)
    : advice(
      name,
      `${level}: statements that conflict fail with 40001, and are repeated`,
      "ALTER ROLE … SET default_transaction_isolation = 'read committed'"
    )
}

const statistics = (of: Read): ReadonlyArray<Answer> => {
  const name = "statistics"
  const counts = of("trackCounts")
  const activities = of("trackActivities")
  const io = of("trackIo")
  const found = `track_counts ${counts}, track_activities ${activities}, track_io_timing ${io}`
  if (counts === undefined) return []
  return [
    counts === "off"
      ? problem(name, found, "Set track_counts to on: without it autovacuum does not run")
      : activities === "off"
      ? advice(name, found, "Set track_activities to on: it shows which transaction keeps dead rows")
      : io === "off"
      ? advice(name, found, "Set track_io_timing to on: it shows in pg_stat_statements what waits for storage")
      : ok(name, found)
  ]
}

const autovacuum = (of: Read): Answer => {
  const name = "autovacuum"
  const naptime = Number(of("naptime"))
  return of("autovacuum") === undefined
    ? unknown(name, "the server has none, or does not say")
    : of("autovacuum") !== "on"
    ? problem(name, "off: dead rows of the queues stay, and claims get slower and slower", "Set autovacuum to on")
    : naptime > longestNapMs
    ? advice(name, `on, every ${shown(naptime)}`, "Set autovacuum_naptime to 15 seconds: claims read past dead rows")
    : ok(name, `on, every ${shown(naptime)}`)
}

/** The default of `statementTimeout`. */
const shortestMs = 30_000

const longestNapMs = 30_000

const shown = (ms: number): string =>
  ms === 0 ? "0" : ms % 60_000 === 0 ? `${ms / 60_000} min` : ms % 1000 === 0 ? `${ms / 1000} s` : `${ms} ms`
