/**
 * Examines whether a server can carry a store, and is set up for it: for operators. Writes nothing that lasts.
 *
 * Opens four sessions, six where `directUrl` is another address.
 */
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type * as ProviderError from "../../provider/ProviderError.ts"
import * as DirectUrl from "../internal/directUrl.ts"
import type { Examined } from "../internal/doctor/examined.ts"
import * as Features from "../internal/doctor/features.ts"
import { check } from "../internal/doctor/finding.ts"
import type { Answer, Area, Finding } from "../internal/doctor/finding.ts"
import * as Indexes from "../internal/doctor/indexes.ts"
import * as Listening from "../internal/doctor/listening.ts"
import * as Rights from "../internal/doctor/rights.ts"
import * as Server from "../internal/doctor/server.ts"
import * as Settings from "../internal/doctor/settings.ts"
import * as Vacuum from "../internal/doctor/vacuum.ts"
import { Migrations } from "../internal/migrations.ts"
import { storageParameters } from "../internal/probes/optional.ts"
import type { Pair } from "../internal/probes/probe.ts"
import type * as Tls from "../internal/tls.ts"
import * as Session from "./directSession.ts"

export type { Area, Finding }

export interface Options {
  /** The URL that processes connect with. */
  readonly url: string | Redacted.Redacted<string>
  /** The address of the server itself. */
  readonly directUrl: string | Redacted.Redacted<string>
  readonly tls?: Tls.Options | undefined
  readonly schema: string
  /** Size of the pool of each process. Defaults to 10. */
  readonly maxConnections?: number | undefined
  readonly allowAhead?: boolean | undefined
  /** For advice. */
  readonly migrateCommand: string
}

/**
 * All findings, area by area. What the login may not see is `unknown`; only a connection that fails fails.
 */
export const examine = Effect.fnUntraced(
  function*(options: Options): Effect.fn.Return<ReadonlyArray<Finding>, ProviderError.Reason, Scope.Scope> {
    const { allowAhead, directUrl, migrateCommand, schema, tls, url } = options
    const { migrations } = yield* Migrations
    const examined = yield* open(options)
    const { isMigrated } = examined
    const findings: Array<Finding> = []
    const add = (area: Area, answers: ReadonlyArray<Answer>) =>
      void findings.push(...answers.map((answer): Finding => ({ area, ...answer })))
    const look = (area: Area, name: string, answers: Parameters<typeof check<never>>[1]) =>
      Effect.map(check(name, answers), (found) => add(area, found))

    yield* look("server", "version", Server.version(examined))
    yield* look(
      "server",
      "migrations",
      Server.migrations(examined, { url: directUrl, tls, schema, allowAhead }, migrateCommand)
    )
    yield* look("server", "writes", Server.writes(examined))
    yield* look("server", "pooler", Server.pooler(examined))
    if (url !== directUrl) yield* look("server", "direct URL", Server.directUrl({ url, directUrl, tls }))
    yield* look("server", "clock", Server.clock(examined))

    const features = yield* Features.examine(examined.direct)
    add("needed", features.needed)
    add("optional", features.optional)

    yield* look("rights", "role", isMigrated ? Rights.examine(examined) : Rights.mayMigrate(examined))
    yield* look("rights", "observing", Rights.observing(examined))

    yield* look("settings", "connections", Settings.connections(examined))
    yield* look("settings", "settings", Settings.examine(examined))

    if (isMigrated) {
      const hasStorage = features.optional.every(({ name, result }) =>
        name !== storageParameters.name || result !== "advice"
      )
      if (hasStorage) yield* look("vacuum", "table settings", Vacuum.storage(examined, migrations))
      yield* look("vacuum", "dead rows", Vacuum.tables(examined))
      yield* look("vacuum", "oldest transaction", Vacuum.horizon(examined))
    }
    yield* look("vacuum", "replication slots", Vacuum.slots(examined))
    yield* look("vacuum", "wraparound", Vacuum.wraparound(examined))

    if (isMigrated) yield* look("indexes", "indexes", Indexes.examine(examined, migrations))

    yield* look("listening", "notifications", Listening.notifications(examined))
    yield* look("listening", "notification queue", Listening.queue(examined))
    if (isMigrated) yield* look("listening", "processes", Listening.processes(examined))
    return findings
  }
)

// internal

/** The name in `pg_stat_activity`. */
const name = "duroxide-prisma doctor"

const open = Effect.fnUntraced(function*({ directUrl, maxConnections = 10, schema, tls, url }: Options) {
  const pair = (url: Options["url"]): Effect.Effect<Pair, ProviderError.Reason, Scope.Scope> =>
    Effect.all({
      one: Session.connect({ url, schema, tls }, name),
      other: Session.connect({ url, schema, tls }, name)
    })
  const used = yield* pair(url)
  const direct = url === directUrl ? used : yield* Effect.mapError(pair(directUrl), DirectUrl.named)
  const [row] = yield* direct.one.run("SELECT pg_is_in_recovery() AS \"isStandby\"")
  return {
    used,
    direct,
    schema,
    maxConnections,
    isMigrated: (yield* Session.hasTable(direct.one, "instances")) &&
      (yield* Session.hasTable(direct.one, "_prisma_migrations")),
    isShared: yield* Session.hasTable(direct.one, Session.duroxideBooks),
    isStandby: row?.["isStandby"] === true
  } satisfies Examined
})
