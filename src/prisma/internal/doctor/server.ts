/**
 * Which server it is and how the URLs lead to it, whether it takes writes, what its clock says, and which migrations
 * the schema has.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { monotonicMs } from "../../../model/shared/monotonic.ts"
import { counted } from "../../../model/shared/quantities.ts"
import * as Migrator from "../../Migrator.ts"
import * as DirectUrl from "../directUrl.ts"
import { Migrations } from "../migrations.ts"
import { problemOf, unlessLost } from "../probes/probe.ts"
import type { Pair } from "../probes/probe.ts"
import { oldestServer } from "../serverVersion.ts"
import type { Examined } from "./examined.ts"
import { advice, ok, problem, refusalOf, unknown } from "./finding.ts"

export const version = Effect.fnUntraced(function*({ direct: { one } }: Examined) {
  const name = "version"
  const [row] = yield* one.run(
    `SELECT version() AS text, current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS number,
       to_regproc('pg_catalog.aurora_version') IS NOT NULL AS "isAurora",
       EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') AS "hasCitus"`
  )
  const spoken = String(row!["version"]).split(/[ -]/)[0]!
  const text = String(row!["text"])
  const yugabyte = /-YB-(\d+(?:\.\d+)*)/.exec(text)?.[1]
  const [other = ""] = /^(?!PostgreSQL )\S+/.exec(text) ?? []
  const found = yugabyte !== undefined
    ? `YugabyteDB ${yugabyte}, which speaks PostgreSQL ${spoken}`
    : other !== ""
    ? `${other}, which speaks PostgreSQL ${spoken}`
    : `${row!["isAurora"] === true ? "Aurora " : ""}PostgreSQL ${spoken}${
      row!["hasCitus"] === true ? " with Citus" : ""
    }`
  return Number(row!["number"]) < oldestServer * 10_000
    ? problem(name, found, `Use PostgreSQL ${oldestServer} or newer`)
    : yugabyte !== undefined || other !== ""
    ? advice(name, found, "Read docs/postgresql.md, and measure: this package is tested on PostgreSQL alone")
    : row!["hasCitus"] === true
    ? advice(name, found, "Distribute none of our tables: a claim cannot run across nodes (docs/postgresql.md)")
    : ok(name, found)
})

export const writes = Effect.fnUntraced(function*({ isStandby, used: { one } }: Examined) {
  const name = "writes"
  const [row] = yield* one.run("SELECT current_setting('default_transaction_read_only') = 'on' AS \"isReadOnly\"")
  return isStandby
    ? problem(name, "the server is a standby, which takes none", "Give processes the address of the primary")
    : row?.["isReadOnly"] === true
    ? problem(
      name,
      "default_transaction_read_only is on: processes take the server for a standby",
      "ALTER ROLE … or ALTER DATABASE … RESET default_transaction_read_only"
    )
    : ok(name, "the server takes writes")
})

/**
 * Two sessions of one URL that the same process of the server answers share it: by transactions. A pooler that is busy
 * may give them one each.
 */
export const pooler = Effect.fnUntraced(function*({ direct, used }: Examined) {
  const name = "pooler"
  const declare = "add pgbouncer=true to DATABASE_URL"
  const setDirect = "set DIRECT_URL to the address of the server"
  const isDeclared = used.one.pooled
  const isPooled = yield* isShared(used)
  if (!isPooled) {
    return ok(name, isDeclared ? "the URL says so, with pgbouncer=true" : "none that shares sessions")
  }
  const isDirect = direct !== used && !(yield* isShared(direct))
  const found = `the URL leads to a pooler that shares sessions${isDirect ? "" : ", and there is no direct one"}`
  return !isDeclared
    ? problem(
      name,
      found,
      `${isDirect ? "A" : `S${setDirect.slice(1)}, and a`}${declare.slice(1)}: prepared statements fail there`
    )
    : isDirect
    ? ok(name, "in transaction mode, as the URL says; migrations and hints go straight to the server")
    : advice(name, found, `S${setDirect.slice(1)}: through a pooler nothing migrates or listens`)
})

export const directUrl = (urls: DirectUrl.Urls) => {
  const name = "direct URL"
  return Effect.map(Effect.scoped(DirectUrl.problemOf(urls)), (reason) =>
    reason === undefined
      ? ok(name, "leads to the database of the URL")
      : problem(name, problemOf(reason), "Correct DIRECT_URL: migrations and hints use it"))
}

export const clock = Effect.fnUntraced(function*({ direct: { one } }: Examined) {
  const name = "clock"
  const clock = yield* Clock.Clock
  let best = { roundTripMs: Number.POSITIVE_INFINITY, aheadMs: 0 }
  // The first answers may be slow; the fastest one is the most precise.
  for (let i = 0; i < 5; i++) {
    const sentMs = monotonicMs(clock)
    const [row] = yield* one.run("SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS ms")
    const roundTripMs = monotonicMs(clock) - sentMs
    const halfWayMs = clock.currentTimeMillisUnsafe() - roundTripMs / 2
    if (roundTripMs < best.roundTripMs) best = { roundTripMs, aheadMs: Number(row!["ms"]) - halfWayMs }
  }
  const differsMs = Math.abs(best.aheadMs)
  const isSame = differsMs <= Math.max(best.roundTripMs, 1)
  const found = `${
    isSame ? "that of this process" : `${shown(differsMs)} ${best.aheadMs > 0 ? "ahead of" : "behind"} this process`
  }, within a round trip of ${shown(best.roundTripMs)}`
  return differsMs > mostDifferenceMs + best.roundTripMs / 2
    ? advice(name, found, "Synchronise the clocks (NTP): times in logs differ from those in the tables")
    : ok(name, found)
})

export const migrations = Effect.fnUntraced(function*(
  { isShared }: Examined,
  options: Migrator.Options,
  migrateCommand: string
) {
  const name = "migrations"
  const all = (yield* Migrations).migrations.length
  const verified = Effect.mapError(Migrator.verify(options), ({ reason }) => reason)
  return yield* unlessLost(Effect.as(verified, ok(name, "up to date")), (reason) => {
    switch (reason._tag) {
      case "SchemaBehind":
        return reason.pending.length < all
          ? problem(
            name,
            `schema ${reason.schema} lacks ${counted(reason.pending.length, "migration")}`,
            `Apply: ${migrateCommand}`
          )
          // Before the first migration there is nothing wrong with that.
          : isShared
          ? advice(name, `schema ${reason.schema} is one of duroxide-pg alone`, "Extend it: migrate --adopt")
          : advice(name, `schema ${reason.schema} has no tables of ours yet`, `Create them: ${migrateCommand}`)
      case "SchemaAhead":
        return advice(
          name,
          `${counted(reason.unknown.length, "migration")} of a newer release`,
          "Update duroxide-prisma here; meanwhile processes that start need allowAhead"
        )
      case "SchemaOccupied":
      case "MigrationsDiffer":
      case "MigrationFailed":
        return problem(name, reason.message, "Resolve this before processes start")
      default:
        return unknown(name, refusalOf(reason))
    }
  })
})

// internal

const mostDifferenceMs = 1000

const shown = (ms: number) =>
  ms < 10_000 ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : `${Math.round(ms / 1000)} s`

/** A pooler gives the session that it used last, so the second client gets that of the first. */
const isShared = Effect.fnUntraced(function*({ one, other }: Pair) {
  const pid = "SELECT pg_backend_pid() AS pid"
  const [first] = yield* one.run(pid)
  const [second] = yield* other.run(pid)
  return first?.["pid"] === second?.["pid"]
})
