/**
 * The connection to PostgreSQL: a bounded pool, the Prisma client over it, and the one way to send a statement.
 *
 * Opening it checks that the server answers, that the login works and that the server is recent enough; each failure is
 * one typed error. Every wait has a limit: for a connection, for a statement, and for running statements on release.
 *
 * @since 0.1.0
 */
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Predicate from "effect/Predicate"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { createHash } from "node:crypto"
import type * as pg from "pg"
import * as closedTogether from "../model/shared/closedTogether.ts"
import { wholeMs } from "../model/shared/durations.ts"
import { ours } from "../model/shared/logging.ts"
import * as ProviderError from "../provider/ProviderError.ts"
import * as SqlFault from "../provider/SqlFault.ts"
import { Prisma, PrismaClient, withoutCompiler } from "./internal/client.ts"
import * as Connection from "./internal/connection.ts"
import * as Listening from "./internal/listening.ts"
import * as Login from "./internal/login.ts"
import * as PoolGauges from "./internal/poolGauges.ts"
import { ReadOnly } from "./internal/readOnly.ts"
import * as Retirement from "./internal/retirement.ts"
import * as Sending from "./internal/sending.ts"
import { oldestServer } from "./internal/serverVersion.ts"
import * as SharedPool from "./internal/sharedPool.ts"
import * as SharedSession from "./internal/sharedSession.ts"
import * as StartLine from "./internal/startLine.ts"
import type * as Protection from "./internal/tls.ts"
import { isUnsupported } from "./internal/unsupported.ts"

/**
 * Certificates and keys for TLS, instead of files that the URL names (`sslrootcert`, `sslcert`, `sslkey`). Any of these
 * asks for TLS. `sslmode` of the URL says whether the server's certificate is verified.
 *
 * @category options
 * @since 0.2.0
 */
export interface Tls extends Protection.Options {}

/**
 * A `pg.Pool` of the application.
 *
 * @category models
 * @since 0.3.0
 */
export interface Pool extends SharedPool.ApplicationPool {}

/**
 * How to reach the database. Everything but `url` has a default.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  /**
   * `postgresql://user:password@host:port/database`. Prisma's `schema` and `pgbouncer` parameters are understood. With
   * `Credentials` in the context, its password is not used.
   */
  readonly url: string | Redacted.Redacted<string>
  /** Certificates for TLS that are not in files. Defaults to those of the URL. */
  readonly tls?: Tls | undefined
  /**
   * The schema that holds the tables, 1 to 63 bytes, any character but NUL. Defaults to the URL's `schema` parameter,
   * then to `public`.
   */
  readonly schema?: string | undefined
  /**
   * Most connections open at once, at least 1, beside the one that listens. Defaults to 10. When they do not answer a
   * renewal of locks or leases for a second, one more renews them.
   */
  readonly maxConnections?: number | undefined
  /** Longest wait for a connection, more than 0. Defaults to 30 seconds. */
  readonly checkoutTimeout?: Duration.Input | undefined
  /**
   * Longest run of one statement, more than 0. Defaults to 30 seconds. The server then cancels the statement; if the
   * server does not answer, the connection is closed 5 seconds later. Behind a pooler only the latter applies.
   */
  readonly statementTimeout?: Duration.Input | undefined
  /**
   * A connection that no statement has used for this time is closed; more than 0. Defaults to 10 minutes: a login costs
   * much more than an idle connection, but a quiet night should free memory of the server.
   */
  readonly idleTimeout?: Duration.Input | undefined
  /**
   * A connection this old is closed after its statement, and replaced when it is needed; more than 0. Defaults to 30
   * minutes: so new passwords and a changed address of the server come into use, and its sessions release what they
   * have cached.
   */
  readonly maxLifetime?: Duration.Input | undefined
  /** Shown in `pg_stat_activity`. Defaults to `duroxide-prisma`. */
  readonly applicationName?: string | undefined
  /**
   * Whether our own statements are prepared once per connection. Set to false behind a pooler that shares connections
   * between clients, such as PgBouncer in transaction mode. Defaults to true, and to false if the URL has
   * `pgbouncer=true`.
   */
  readonly preparedStatements?: boolean | undefined
  /** Another way to reach it: `PoolOptions`. */
  readonly pool?: undefined
}

/**
 * How to use a pool of the application. Everything but `pool` has a default.
 *
 * **Details**
 *
 * All statements run on its connections. Its sessions are left as they are, and it is never ended. Logins, TLS, limits
 * and lifetimes are those that it was made with.
 *
 * @category options
 * @since 0.3.0
 */
export interface PoolOptions extends Pick<Options, "checkoutTimeout"> {
  /**
   * A `Pool` of the package `pg`, with its JavaScript client. It must have room for all that the process does at once:
   * renewals of locks and leases wait for a connection behind the statements of the application.
   */
  readonly pool: Pool
  /** The schema that holds the tables. Defaults to the parameter of the pool's connection string, then to `public`. */
  readonly schema?: string | undefined
  /**
   * How long one of our statements may take, more than 0. Defaults to 30 seconds. 5 seconds later it is given up. The
   * server cancels it earlier if its `statement_timeout`, a setting of the application, is shorter.
   */
  readonly statementTimeout?: Duration.Input | undefined
  /**
   * Whether our own statements are prepared once per connection. Defaults to true, and to false if the connections lead
   * to a pooler.
   */
  readonly preparedStatements?: boolean | undefined
  readonly url?: undefined
}

/**
 * The open database.
 *
 * @category services
 * @since 0.1.0
 */
export class Database extends Context.Service<Database, {
  /** Name of the schema that holds the tables, unquoted. */
  readonly schema: string
  /** The schema's quoted name, to be put before `.dx_…` in a statement. */
  readonly schemaSql: Prisma.Sql
  /** `host:port/database`, fit for messages. */
  readonly address: string
  /** How its connections are protected. `authority only`: the certificate may be that of any host. */
  readonly tls: Protection.Protection["name"]
  /**
   * Whether the server takes notifications of this login. Without them processes poll, and functions and triggers leave
   * them out.
   */
  readonly notifies: boolean
  /** For queries through the Prisma models. The first one loads Prisma's query compiler, some hundred milliseconds. */
  readonly client: PrismaClient
  /**
   * Sends one statement and returns its rows.
   *
   * **Details**
   *
   * `operation` names the call in errors and counts. Fails with `ProviderError`; `SqlFault` decides the reason. The
   * statement is its own transaction. Columns must have types that the Prisma adapter can read (cast others, such as
   * `void`, to `text`); `bigint` arrives as `bigint`. A statement that keeps what this process holds (`isRenewal`) may
   * be sent twice, the second time on a connection in reserve.
   *
   * **Gotchas**
   *
   * An interruption returns immediately and drops the result. The statement itself still runs, so it is unknown whether
   * a write took effect.
   */
  readonly query: <Row>(
    operation: string,
    sql: Prisma.Sql,
    isRenewal?: boolean
  ) => Effect.Effect<ReadonlyArray<Row>, ProviderError.ProviderError>
  /** Statements sent by `query` since the start, by operation. */
  readonly statementCounts: Effect.Effect<Readonly<Record<string, number>>>
  /**
   * Calls `listener`, until the scope is closed, each time that all open connections are given up because one of them
   * failed: its server takes no writes any longer (25006), shuts down, has ended it or does not answer.
   */
  readonly onRetired: (listener: () => void) => Effect.Effect<void, never, Scope.Scope>
  /**
   * Listens on the connection that this process has for that.
   *
   * @internal
   */
  readonly listen: Listening.Listen
}>()("duroxide-prisma/prisma/Database") {}

/**
 * Opens the database for the current scope.
 *
 * **Details**
 *
 * Fails with `ProviderError`, operation `connect`: `ConnectionLost` when no server answers, `AuthenticationFailed`,
 * `ConfigurationInvalid` for settings that cannot work (URL, schema name, missing database, TLS, sessions of a pool, a
 * server older than PostgreSQL 14), `Unavailable` while the server starts. Closing the scope waits up to 2 seconds for
 * running statements and closes the connections. A pool of the application stays open.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = Effect.fn("Database.make")(
  function*(options: Options | PoolOptions): Effect.fn.Return<
    Database["Service"],
    ProviderError.ProviderError,
    Scope.Scope
  > {
    const isReadOnly = yield* ReadOnly
    const listeners = new Set<() => void>()
    const retired = () => {
      for (const listener of listeners) listener()
    }
    const { main, pools, reserve, settings, ...opened } = options.pool === undefined
      ? yield* openOwn(yield* readSettings(options), isReadOnly, retired)
      : yield* openShared(options, yield* readSettings(options), retired)
    if (!isReadOnly) yield* PoolGauges.register(pools)

    /** The first login has worked: a password that is refused now is being changed, and one side knows it first. */
    const whileOpen = (reason: ProviderError.Reason) =>
      settings.hasCredentials && reason._tag === "AuthenticationFailed"
        ? new ProviderError.Unavailable({ sqlState: null, problem: reason.message })
        : reason

    const onRetired = (listener: () => void) =>
      Effect.asVoid(Effect.acquireRelease(
        Effect.sync(() => listeners.add(listener)),
        () => Effect.sync(() => listeners.delete(listener))
      ))
    let client: PrismaClient | undefined
    yield* Effect.addFinalizer(() => client === undefined ? Effect.void : disconnect(client))
    return Database.of({
      schema: settings.schema,
      schemaSql: Prisma.raw(Connection.quoted(settings.schema)),
      address: settings.address,
      tls: opened.tls,
      notifies: opened.notifies,
      get client() {
        return client ??= makeClient(main.adapter)
      },
      ...Sending.make({ main, reserve, whileOpen }),
      onRetired,
      listen: Listening.make(onRetired)
    })
  }
)

/**
 * Opens a connection pool and closes it with the scope, or uses one of the application. Logs one line with the address
 * and the settings.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options | PoolOptions): Layer.Layer<Database, ProviderError.ProviderError> =>
  Layer.effect(Database, logged(options))

/**
 * Reads the options from configuration, for example `{ url: Config.Redacted("DATABASE_URL") }`.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerConfig = (
  options: Config.Wrap<Options>
): Layer.Layer<Database, ProviderError.ProviderError | Config.ConfigError> =>
  Layer.effect(Database, Effect.flatMap(Config.unwrap(options), logged))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const logged = (options: Options | PoolOptions) =>
  Effect.tap(make(options), (database) => Effect.logInfo("Database: open").pipe(StartLine.annotated(database, options)))

interface Settings extends Login.Login {
  readonly maxConnections: number
  readonly checkoutTimeoutMs: number
  readonly statementTimeoutMs: number
  readonly idleTimeoutMs: number
  readonly maxLifetimeMs: number
  readonly applicationName: string
  readonly preparedStatements: boolean
}

/** How long after the timeout of the server we close a connection that does not answer. */
const answerGraceMs = 5000

/** Idle time of a connection until the system probes it each second; it ends one that does not answer ten probes. */
const keepAliveInitialDelayMillis = 10_000

/**
 * While the database is silent, closing may take ten seconds. The other waits take seven, and one is left to spare:
 * two each for interrupted work (`runtime/shutdown.ts`), for sessions (`runtime/sessions.ts`) and for claims
 * (`model/shared/underWay.ts`), half a second each for the row of the process (`provider/internal/processes.ts`) and
 * for hints (`waking/hints.ts`).
 */
const releaseTimeout = Duration.seconds(2)

const connectFailure = (reason: ProviderError.Reason) =>
  new ProviderError.ProviderError({ operation: "connect", reason })

const readSettings = Effect.fnUntraced(
  function*(given: Options | PoolOptions): Effect.fn.Return<Settings, ProviderError.ConfigurationInvalid> {
    const login = yield* Login.make(given)
    const options: Omit<Partial<Options>, "url" | "pool"> = given
    const maxConnections = options.maxConnections ?? 10
    if (!Number.isInteger(maxConnections) || maxConnections < 1) {
      return yield* new ProviderError.ConfigurationInvalid({
        problem: `maxConnections must be a whole number of at least 1, not ${maxConnections}`
      })
    }
    return {
      ...login,
      maxConnections,
      checkoutTimeoutMs: yield* milliseconds("checkoutTimeout", options.checkoutTimeout ?? "30 seconds"),
      statementTimeoutMs: yield* milliseconds("statementTimeout", options.statementTimeout ?? "30 seconds"),
      idleTimeoutMs: yield* milliseconds("idleTimeout", options.idleTimeout ?? "10 minutes"),
      maxLifetimeMs: yield* milliseconds("maxLifetime", options.maxLifetime ?? "30 minutes"),
      applicationName: options.applicationName ?? "duroxide-prisma",
      preparedStatements: options.preparedStatements ?? !login.pooled
    }
  },
  Effect.mapError(connectFailure)
)

/** Timers of Node have 31 bits, and `pg` would take 0 as "no timeout". */
const milliseconds = (name: string, input: Duration.Input) => {
  const millis = wholeMs(input)
  return millis !== undefined && millis >= 1 && millis < 2 ** 31 - answerGraceMs
    ? Effect.succeed(millis)
    : Effect.fail(
      new ProviderError.ConfigurationInvalid({
        problem: `${name} must be a duration of more than 0 and less than 24 days`
      })
    )
}

interface Opened {
  readonly settings: Settings
  readonly main: Sending.Pool
  readonly reserve: Sending.Pool
  /** For the gauges. */
  readonly pools: ReadonlyArray<PoolGauges.Pool>
  readonly tls: Protection.Protection["name"]
  readonly notifies: boolean
}

const openOwn = Effect.fnUntraced(function*(
  settings: Settings,
  isReadOnly: boolean,
  retired: () => void
): Effect.fn.Return<Opened, ProviderError.ProviderError, Scope.Scope> {
  let notifies = true
  const onConnect = () => sessionSettings(settings, isReadOnly) + (notifies ? "" : withoutNotifications)
  const open = Effect.fnUntraced(function*(maxConnections: number) {
    const pool = yield* acquirePool(settings, onConnect, maxConnections)
    return { pool, ...(yield* connected(pool, settings)) }
  }, yield* closedTogether.make)
  const main = yield* open(settings.maxConnections)
  // Renews locks while reads of large histories, or other long work, keep the pool busy. It connects when it is
  // needed.
  const reserve = yield* open(1)
  const { pool } = main
  const pools = [pool, reserve.pool]
  Retirement.watch(pools, retired)
  yield* checkServer(pool, settings.address)
  yield* withoutCompiler(main.client, reserve.client)
  if (!isReadOnly && !(yield* canNotify(pool))) {
    notifies = false
    // The one connection that is open; those to come begin so.
    yield* Effect.mapError(ask(pool, onConnect(), settings.address), connectFailure)
  }
  return { settings, main, reserve, pools, tls: settings.protection ?? "off", notifies }
})

/** Renewals have no connection in reserve: the application decides how many connections there are. */
const openShared = Effect.fnUntraced(function*(
  { pool, preparedStatements }: PoolOptions,
  settings: Settings,
  onRetired: () => void
): Effect.fn.Return<Opened, ProviderError.ProviderError, Scope.Scope> {
  const run = Effect.runForkWith(yield* Effect.context<never>())
  const shared = yield* Effect.acquireRelease(
    Effect.sync(() =>
      new SharedPool.SharedPool({
        pool,
        checkoutTimeoutMs: settings.checkoutTimeoutMs,
        answerTimeoutMs: settings.statementTimeoutMs + answerGraceMs,
        onRetired,
        onEnded: () =>
          run(
            Effect.logError(
              "Database: the application has ended its pool, and this package has stopped. End it after the layer"
            )
              .pipe(
                ours({ address: settings.address })
              )
          )
      })
    ),
    (shared) => Effect.sync(() => shared.close())
  )
  yield* checkServer(shared, settings.address)
  const session = yield* Effect.mapError(SharedSession.examine(shared), connectFailure)
  const notifies = yield* canNotify(shared)
  if (!notifies && session.notifies) return yield* connectFailure(SharedSession.mustNotNotify)
  if (Predicate.hasProperty(pool.options, "max") && pool.options.max === 1) {
    yield* Effect.logWarning(
      "Database: the pool has one connection, so renewals of locks wait for other statements; give it a larger max"
    ).pipe(
      ours({ address: settings.address })
    )
  }
  const main = yield* connected(shared, {
    ...settings,
    preparedStatements: preparedStatements ?? (settings.preparedStatements && !session.isThroughPooler)
  })
  yield* withoutCompiler(main.client)
  return { settings, main, reserve: main, pools: [pool], tls: session.tls, notifies }
})

/** The client over a pool. */
const connected = Effect.fnUntraced(function*(
  pool: pg.Pool,
  { preparedStatements, schema }: Pick<Settings, "schema" | "preparedStatements">
) {
  const adapter = new Sending.TextAdapter(pool, {
    // The adapter quotes the name without escaping it.
    schema: schema.replaceAll("\"", "\"\""),
    ...(preparedStatements ? { statementNameGenerator: statementNames(schema) } : {})
  })
  const client = makeClient(adapter)
  yield* Effect.addFinalizer(() => disconnect(client))
  return { adapter, client }
})

/** Makes a client, which loads what it needs, and connects, with its first statement. */
const makeClient = (adapter: Sending.TextAdapter) =>
  // Other formats read source files to decorate the message of every failed statement.
  new PrismaClient({ adapter, errorFormat: "minimal" })

const disconnect = (client: PrismaClient) => Effect.ignore(Effect.tryPromise(() => client.$disconnect()))

const acquirePool = (settings: Settings, onConnect: () => string, maxConnections: number) =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        const pool = new settings.Pool({
          application_name: settings.applicationName,
          max: maxConnections,
          connectionTimeoutMillis: settings.checkoutTimeoutMs,
          query_timeout: settings.statementTimeoutMs + answerGraceMs,
          ...settings.config,
          idleTimeoutMillis: settings.idleTimeoutMs,
          maxLifetimeSeconds: settings.maxLifetimeMs / 1000,
          keepAlive: true,
          keepAliveInitialDelayMillis,
          Client: settings.Client,
          onConnect: (client) => client.query(onConnect())
        })
        // The next query replaces a connection that dies while idle. Unheard, its error event would end the process.
        pool.on("error", () => {})
        return pool
      },
      catch: (thrown) => connectFailure(SqlFault.classify(thrown))
    }),
    (pool) => Effect.ignore(Effect.timeout(Effect.promise(() => pool.end()), releaseTimeout))
  )

/**
 * The adapter misreads `timestamptz` in every session time zone except UTC. A pooler shares the connection with other
 * clients: it tracks the time zone per client, but would leak our statement timeout and isolation level to them.
 */
const sessionSettings = (settings: Settings, isReadOnly: boolean) =>
  settings.preparedStatements
    // The functions read again after taking a lock; only this isolation level shows them what was committed meanwhile.
    ? `SET TIME ZONE 'UTC'; SET statement_timeout = ${settings.statementTimeoutMs}; ` +
      // A role may have it lower, which would round numbers and times.
      `SET default_transaction_isolation = 'read committed'; SET extra_float_digits = 1; ${fastCompression}` +
      (isReadOnly ? "; SET default_transaction_read_only = on" : "")
    : "SET TIME ZONE 'UTC'"

/**
 * Large texts are compressed with LZ4, where the server was built with it and no other method is set: PostgreSQL's own
 * method takes ten times as long. A setting of the column would do the same for all sessions, but a dump of the schema
 * could then not be restored on every server.
 */
const fastCompression = `SELECT set_config(name, 'lz4', false) FROM pg_settings ` +
  `WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals) AND source = 'default'`

/** What functions and triggers obey. */
const withoutNotifications = "; SET duroxide.notify = off"

/** A server or a role that may not notify would fail each statement of a function that does. */
const canNotify = (pool: pg.Pool) =>
  Effect.tryPromise({
    // A standby may be promoted.
    try: () => pool.query("SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_notify('duroxide_prisma', '')::text END"),
    catch: SqlFault.classify
  }).pipe(
    Effect.as(true),
    Effect.catch((reason) => Effect.succeed(!(isUnsupported(reason) || reason._tag === "PermissionDenied")))
  )

/**
 * Names only calls of our own stored functions, a bounded set of texts; other statements stay unnamed. A connection may
 * be shared with another database layer, so a name means one text.
 */
const statementNames = (schema: string) => {
  const ours = `${Connection.quoted(schema)}.dx_`
  const names = new Map<string, string>()
  return ({ sql }: { readonly sql: string }): string => {
    const known = names.get(sql)
    if (known !== undefined) return known
    if (names.size >= 100 || !sql.includes(ours)) return "" // unnamed
    const name = `dx_${createHash("sha256").update(sql).digest("hex").slice(0, 32)}`
    names.set(sql, name)
    return name
  }
}

const ask = (pool: pg.Pool, text: string, address: string) =>
  Effect.tryPromise({
    try: () => pool.query<{ readonly version?: number }>(text),
    catch: (thrown) => Connection.located(SqlFault.classify(thrown), address)
  })

const checkServer = Effect.fnUntraced(
  function*(pool: pg.Pool, address: string) {
    const { rows } = yield* ask(pool, "SELECT current_setting('server_version_num')::int AS version", address)
    const major = Math.floor((rows[0]?.version ?? 0) / 10_000)
    if (major < oldestServer) {
      return yield* new ProviderError.ConfigurationInvalid({
        problem: `the server is PostgreSQL ${major}; ${oldestServer} or newer is needed`
      })
    }
  },
  Effect.mapError(connectFailure)
)
