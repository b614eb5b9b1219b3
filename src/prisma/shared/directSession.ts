/**
 * The session a migration or an import runs in: its own connection directly to the server, and the locks it holds.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { ours } from "../../model/shared/logging.ts"
import * as ProviderError from "../../provider/ProviderError.ts"
import * as SqlFault from "../../provider/SqlFault.ts"
import * as Connection from "../internal/connection.ts"
import * as Login from "../internal/login.ts"
import * as ServerProcess from "../internal/serverProcess.ts"
import { isUnsupported } from "../internal/unsupported.ts"
import * as MigrationError from "../MigrationError.ts"

export type Row = Readonly<Record<string, unknown>>

export interface Session extends Login.Login {
  readonly run: (
    sql: string,
    values?: ReadonlyArray<unknown>
  ) => Effect.Effect<ReadonlyArray<Row>, ProviderError.Reason>
  /** Whether another process has answered the login than answers statements: a pooler. */
  readonly isThroughPooler: Effect.Effect<boolean, ProviderError.Reason>
}

/** Open for the current scope, as the server gives it. */
export const connect = Effect.fnUntraced(
  function*(
    options: Login.Options,
    applicationName = "duroxide-prisma migrator"
  ): Effect.fn.Return<Session, ProviderError.Reason, Scope.Scope> {
    const login = yield* Login.make(options)
    const client = yield* Effect.acquireRelease(
      login.onceMore(Effect.tryPromise({
        try: async () => {
          const client = new login.Client({
            application_name: applicationName,
            ...login.config,
            connectionTimeoutMillis: 30_000
          })
          client.on("error", () => {}) // the running query reports the error; unheard, its event would end the process
          await client.connect()
          return client
        },
        catch: (thrown) => Connection.located(SqlFault.classify(thrown), login.address)
      })),
      (client) => Effect.promise(() => client.end())
    )
    const run: Session["run"] = (sql, values) =>
      Effect.tryPromise({
        // Without values, the text is sent as one simple query, which may be a whole file.
        try: async () => (await client.query<Row>(sql, values === undefined ? undefined : [...values])).rows ?? [],
        catch: SqlFault.classify
      })
    const isThroughPooler = Effect.map(run(ServerProcess.query), ([row]) => !ServerProcess.isThat(client, row?.["pid"]))
    return { ...login, run, isThroughPooler }
  }
)

/** Connects, with the schema as the search path. */
export const open = (options: Login.Options) =>
  Effect.tap(connect(options), ({ run, schema }) =>
    // Names in migrations are unqualified, and stored functions keep the search path they are created with.
    run(`SET search_path = ${Connection.quoted(schema)}; SET statement_timeout = 0`))

/** `open` for callers that take locks: these belong to a session, and a pooler shares its sessions. */
export const openDirect = Effect.fnUntraced(function*(options: Login.Options) {
  const session = yield* open(options)
  // A URL says so, a pool does not.
  const isPooled = session.pooled || (options.pool !== undefined && (yield* session.isThroughPooler))
  return isPooled
    ? yield* new ProviderError.ConfigurationInvalid({
      problem: options.pool === undefined
        ? "migrations and imports need a session of their own; give the server's URL, not the pooler's (pgbouncer=true)"
        : "`pool` leads to a pooler, and migrations need a session of their own; set directUrl to the server's address"
    })
    : yield* Effect.as(session.run(givingUpLostHosts), session)
})

/**
 * Lets the server end the session, and its locks, within 50 seconds after the host of this process vanishes. The
 * default is two hours. A server without this ability, and a local socket, ignore it.
 */
const givingUpLostHosts = `SET tcp_keepalives_idle = 20;
   SET tcp_keepalives_interval = 10;
   SET tcp_keepalives_count = 3;
   SET tcp_user_timeout = '50s'`

/** The lock of the Prisma CLI. */
const lockKey = 72707369

/**
 * Takes the locks of the Prisma CLI and of duroxide-pg's own migrations, so that neither sees an unfinished schema.
 * They are held until the session ends. A server that has no such locks gets a warning in the log instead.
 */
export const lock = ({ run, schema }: Session, timeoutMs: number) =>
  run(
    `SET lock_timeout = ${Math.max(1, Math.ceil(timeoutMs))};
     SELECT pg_advisory_lock(${lockKey});
     SELECT pg_advisory_lock(${duroxideLockKey(schema)});
     RESET lock_timeout`
  )
    .pipe(
      Effect.catchIf(
        isLockTimeout,
        () => Effect.fail(new MigrationError.LockTimeout({ waitedMs: timeoutMs }))
      ),
      Effect.catchIf(isUnsupported, ({ message }) =>
        Effect.logWarning("Migrator: the server has no locks of sessions; run one migration at a time").pipe(
          ours({ module: "Migrator", schema, error: message })
        ))
    )

/**
 * Runs the steps in one transaction. It may change tables in use, whose other transactions take locks in another order:
 * as the victim of a deadlock it starts again, until the timeout has passed in all.
 *
 * An attempt is not interruptible: a session that is cut off here might still commit.
 */
export const transaction = Effect.fnUntraced(function*<A, E extends MigrationError.Reason>(
  session: Session,
  timeoutMs: number,
  steps: Effect.Effect<A, E>
) {
  const { run, schema } = session
  const end = (yield* Clock.currentTimeMillis) + timeoutMs
  const left = Effect.map(Clock.currentTimeMillis, (now) => end - now)
  const attempt = Effect.gen(function*() {
    yield* run(`BEGIN; SET LOCAL lock_timeout = ${Math.max(1, Math.ceil(yield* left))}`)
    const result = yield* steps
    yield* run("COMMIT")
    return result
  }).pipe(
    Effect.tapError(() => Effect.ignore(run("ROLLBACK"))),
    Effect.uninterruptible
  )
  return yield* attempt.pipe(
    Effect.retry({
      while: (reason) =>
        reason._tag === "Contention" && !isLockTimeout(reason)
          ? Effect.map(left, (ms) => ms > 0)
          : Effect.succeed(false),
      schedule: Schedule.spaced("100 millis")
    }),
    Effect.catchIf(
      (reason) => reason._tag === "Contention",
      () =>
        Effect.flatMap(
          tablesInUse(session),
          (tables) => Effect.fail(new MigrationError.TablesInUse({ schema, tables, waitedMs: timeoutMs }))
        )
    )
  )
})

const isLockTimeout = (reason: MigrationError.Reason) => reason._tag === "Contention" && reason.sqlState === "55P03"

/** Tables of the oldest transaction that has locked any: the server does not say which lock a statement waited for. */
const tablesInUse = ({ run, schema }: Session) =>
  Effect.map(
    run(
      `WITH held AS (
         SELECT relname::text AS name, virtualtransaction AS holder, xact_start AS since
         FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
         WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND l.pid IS DISTINCT FROM pg_backend_pid()
           AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relkind IN ('r', 'p')
       )
       SELECT DISTINCT name FROM held
       WHERE holder = (SELECT holder FROM held ORDER BY since NULLS FIRST LIMIT 1)
       ORDER BY name`,
      [schema]
    ),
    (rows) => rows.map(({ name }) => String(name))
  )

export const isLocked = ({ run }: Session) =>
  Effect.map(
    run(
      `SELECT FROM pg_locks
       WHERE locktype = 'advisory' AND granted AND classid = 0 AND objid = ${lockKey}
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
    ),
    (rows) => rows.length > 0
  )

/** FNV-1a of 64 bits over the name of the lock, as the signed number PostgreSQL takes. */
export const duroxideLockKey = (schema: string): bigint => {
  let hash = 0xcbf29ce484222325n
  for (const byte of new TextEncoder().encode(`duroxide_pg:migrations:${schema}`)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n)
  }
  return BigInt.asIntN(64, hash)
}

/** Whether the schema exists, empty or not. */
export const hasSchema = ({ run, schema }: Session) =>
  Effect.map(run("SELECT FROM pg_namespace WHERE nspname = $1", [schema]), (rows) => rows.length > 0)

export const hasTable = ({ run, schema }: Session, table: string) =>
  Effect.map(
    run(
      "SELECT FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relname = $2",
      [schema, table]
    ),
    (rows) => rows.length > 0
  )

/** The table in which duroxide-pg records its migrations; a schema that has it is shared with duroxide-pg. */
export const duroxideBooks = "_duroxide_migrations"

/** Adds advice to an error of the server about missing rights. */
export const withAdvice = <A, E extends MigrationError.Reason, R>(effect: Effect.Effect<A, E, R>, advice: string) =>
  Effect.mapError(effect, (reason) =>
    reason._tag === "PermissionDenied"
      ? new ProviderError.PermissionDenied({ problem: `${reason.problem}. ${advice}` })
      : reason)
