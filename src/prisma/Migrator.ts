/**
 * Brings a schema to the version of this code, or checks that it has it.
 *
 * Applies the migrations of the package as `prisma migrate deploy` does: same table (`_prisma_migrations`), same lock,
 * same checksums, same rules about failures, so that either can carry on where the other stopped. Any number of
 * processes may start at once: one migrates, the others wait and find nothing to do. Each migration and its row commit
 * together: a process killed half way leaves nothing behind.
 *
 * @since 0.1.0
 */
import * as Config from "effect/Config"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { createHash, randomUUID } from "node:crypto"
import { readdir, readFile } from "node:fs/promises"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as pg from "pg"
import * as ProviderError from "../ProviderError.ts"
import * as Connection from "./connection.ts"
import * as MigrationError from "./MigrationError.ts"
import * as SqlFault from "./SqlFault.ts"

/**
 * Which schema to migrate, and how. Everything but `url` has a default.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  /** As for `Database`, but always straight to the server: the lock belongs to the session, which a pooler shares. */
  readonly url: string | Redacted.Redacted<string>
  /** Created when missing. Defaults to the URL's `schema` parameter, then to `public`. */
  readonly schema?: string | undefined
  /** Longest wait for another process that migrates. Defaults to 1 minute. */
  readonly lockTimeout?: Duration.Input | undefined
  /** Accept a schema of a newer release, for the time of a rolling update. Defaults to false. */
  readonly allowAhead?: boolean | undefined
  /** The folder with the migrations. Defaults to the package's own. */
  readonly directory?: string | undefined
}

/**
 * Applies what is pending and returns the names of the applied migrations, oldest first; none when nothing was pending.
 *
 * **Details**
 *
 * Fails with `MigrationError`. When nothing is pending, no lock is taken and no right but reading is needed.
 *
 * @see {@link verify} for roles that may not change tables
 * @category operations
 * @since 0.1.0
 */
export const migrate = Effect.fn("Migrator.migrate")(
  function*(options: Options) {
    const session = yield* open(options)
    const { schema } = session
    if (session.pooled) {
      return yield* new ProviderError.ConfigurationInvalid({
        problem: "migrations need a session of their own; give the server's URL, not the pooler's (pgbouncer=true)"
      })
    }
    const known = yield* readMigrations(options.directory)
    const before = yield* readState(session, known)
    yield* refuseAhead(session, before, options)
    if (before.open === undefined && before.pending.length === 0) return []

    yield* lock(session, Duration.toMillis(Duration.fromInputUnsafe(options.lockTimeout ?? "1 minute")))
    const state = yield* readState(session, known)
    yield* refuseAhead(session, state, options)
    if (state.open !== undefined) return yield* failedEarlier(schema, state.open)
    yield* prepareSchema(session, state)
    for (const migration of state.pending) yield* apply(session, migration)
    return state.pending.map(({ name }) => name)
  },
  Effect.scoped,
  Effect.mapError((reason) => new MigrationError.MigrationError({ operation: "migrate", reason }))
)

/**
 * Checks that the schema has exactly the migrations of this code. Writes nothing and needs no right but reading
 * `_prisma_migrations`.
 *
 * **Details**
 *
 * Fails with `MigrationError`: `SchemaBehind` (lists what is pending, also while another process migrates),
 * `SchemaAhead`, `SchemaOccupied`, `MigrationFailed`, or a reason of the connection.
 *
 * @category operations
 * @since 0.1.0
 */
export const verify = Effect.fn("Migrator.verify")(
  function*(options: Options) {
    const session = yield* open(options)
    const { schema } = session
    const state = yield* readState(session, yield* readMigrations(options.directory))
    yield* refuseAhead(session, state, options)
    if (state.open !== undefined && !(yield* isLocked(session))) return yield* failedEarlier(schema, state.open)
    const pending = state.open === undefined ? [] : [state.open.name]
    for (const { name } of state.pending) pending.push(name)
    if (pending.length > 0) return yield* new MigrationError.SchemaBehind({ schema, pending })
  },
  Effect.scoped,
  Effect.mapError((reason) => new MigrationError.MigrationError({ operation: "verify", reason }))
)

/**
 * Runs `migrate` before whatever is built on top.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options): Layer.Layer<never, MigrationError.MigrationError> =>
  Layer.effectDiscard(migrate(options))

/**
 * As `layer`, with options from configuration.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerConfig = (
  options: Config.Wrap<Options>
): Layer.Layer<never, MigrationError.MigrationError | Config.ConfigError> =>
  Layer.effectDiscard(Effect.flatMap(Config.unwrap(options), migrate))

/**
 * Runs `verify` before whatever is built on top.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerVerify = (options: Options): Layer.Layer<never, MigrationError.MigrationError> =>
  Layer.effectDiscard(verify(options))

// -----------------------------------------------------------------------------
// internal: the session
// -----------------------------------------------------------------------------

type Row = Readonly<Record<string, unknown>>

interface Session extends Connection.Connection {
  readonly run: (
    sql: string,
    values?: ReadonlyArray<unknown>
  ) => Effect.Effect<ReadonlyArray<Row>, ProviderError.Reason>
}

const open = Effect.fnUntraced(
  function*(options: Options): Effect.fn.Return<Session, ProviderError.Reason, Scope.Scope> {
    const connection = yield* Effect.fromResult(Connection.parse(options.url, options.schema))
    const client = yield* Effect.acquireRelease(
      Effect.tryPromise({
        try: async () => {
          const client = new pg.Client({
            connectionString: connection.connectionString,
            application_name: "duroxide-prisma migrator",
            connectionTimeoutMillis: 30_000
          })
          client.on("error", () => {}) // the running query reports it; without a listener it ends the process
          await client.connect()
          return client
        },
        catch: (thrown) => Connection.located(SqlFault.classify(thrown), connection.address)
      }),
      (client) => Effect.promise(() => client.end())
    )
    const run: Session["run"] = (sql, values) =>
      Effect.tryPromise({
        // Without values the text goes as one simple query: a whole file, whatever it contains.
        try: async () => (await client.query<Row>(sql, values === undefined ? undefined : [...values])).rows ?? [],
        catch: SqlFault.classify
      })
    // Names in migrations carry no schema, and stored functions keep the search path they are created under.
    yield* run(`SET search_path = ${Connection.quoted(connection.schema)}; SET statement_timeout = 0`)
    return { ...connection, run }
  }
)

/** The lock of the Prisma CLI, held until the session ends. */
const lockKey = 72707369

const lock = ({ run }: Session, timeoutMs: number) =>
  run(
    `SET lock_timeout = ${Math.max(1, Math.ceil(timeoutMs))}; SELECT pg_advisory_lock(${lockKey}); SET lock_timeout = 0`
  )
    .pipe(
      Effect.catchIf(
        (reason) => reason._tag === "Contention",
        () => Effect.fail(new MigrationError.LockTimeout({ waitedMs: timeoutMs }))
      )
    )

const isLocked = ({ run }: Session) =>
  Effect.map(
    run(
      `SELECT FROM pg_locks
       WHERE locktype = 'advisory' AND granted AND classid = 0 AND objid = ${lockKey}
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
    ),
    (rows) => rows.length > 0
  )

// -----------------------------------------------------------------------------
// internal: what is there, and what is missing
// -----------------------------------------------------------------------------

interface Migration {
  readonly name: string
  readonly sql: string
}

interface State {
  readonly pending: ReadonlyArray<Migration>
  /** Applied, but not in our folder. */
  readonly unknown: ReadonlyArray<string>
  /** Begun and not finished: failed, or being applied. */
  readonly open: { readonly name: string; readonly logs: string | null } | undefined
  readonly none: boolean
}

const readMigrations = (directory = fileURLToPath(new URL("../../prisma/migrations", import.meta.url))) =>
  Effect.tryPromise({
    try: async () => {
      const entries = await readdir(directory, { withFileTypes: true })
      const names = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name).sort()
      return Promise.all(names.map(async (name): Promise<Migration> => ({
        name,
        sql: await readFile(path.join(directory, name, "migration.sql"), "utf8")
      })))
    },
    catch: () => new ProviderError.ConfigurationInvalid({ problem: `no migrations can be read in ${directory}` })
  })

const hasTable = ({ run, schema }: Session, table: string) =>
  Effect.map(
    run(
      "SELECT FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relname = $2",
      [
        schema,
        table
      ]
    ),
    (rows) => rows.length > 0
  )

const readState = Effect.fnUntraced(function*(session: Session, known: ReadonlyArray<Migration>) {
  const rows = (yield* hasTable(session, "_prisma_migrations"))
    ? yield* session.run(
      `SELECT migration_name AS name, finished_at IS NOT NULL AS finished, logs
       FROM _prisma_migrations
       WHERE rolled_back_at IS NULL
       ORDER BY started_at`
    )
    : []
  const names = rows.map(({ name }) => String(name))
  const open = rows.find(({ finished }) => finished !== true)
  const ours = new Set(known.map(({ name }) => name))
  const unknown = names.filter((name) => !ours.has(name))
  if (unknown.length > 0 && unknown.length === names.length) {
    return yield* new MigrationError.SchemaOccupied({
      schema: session.schema,
      problem: `it holds the migrations of another Prisma project (${unknown.slice(0, 3).join(", ")}${
        unknown.length > 3 ? ", …" : ""
      })`
    })
  }
  return {
    pending: known.filter(({ name }) => !names.includes(name)),
    unknown,
    open: open === undefined
      ? undefined
      : { name: String(open.name), logs: typeof open.logs === "string" ? open.logs : null },
    none: names.length === 0
  } satisfies State
})

const refuseAhead = ({ schema }: Session, { unknown }: State, options: Options) =>
  unknown.length > 0 && options.allowAhead !== true
    ? Effect.fail(new MigrationError.SchemaAhead({ schema, unknown }))
    : Effect.void

const failedEarlier = (schema: string, { logs, name }: NonNullable<State["open"]>) =>
  Effect.fail(
    new MigrationError.MigrationFailed({
      schema,
      migration: name,
      problem: `an earlier attempt did not finish${logs === null ? "" : ` (${logs.split("\n")[0]})`}`
    })
  )

// -----------------------------------------------------------------------------
// internal: applying
// -----------------------------------------------------------------------------

const withAdvice = <A>(effect: Effect.Effect<A, ProviderError.Reason>): Effect.Effect<A, ProviderError.Reason> =>
  Effect.mapError(effect, (reason) =>
    reason._tag === "PermissionDenied"
      ? new ProviderError.PermissionDenied({
        problem: `${reason.problem}. Migrate with a role that may create tables; others use Migrator.layerVerify`
      })
      : reason)

/** The bookkeeping table, column by column as the Prisma CLI creates it. */
const bookkeeping = `CREATE TABLE _prisma_migrations (
  id VARCHAR(36) PRIMARY KEY NOT NULL,
  checksum VARCHAR(64) NOT NULL,
  finished_at TIMESTAMPTZ,
  migration_name VARCHAR(255) NOT NULL,
  logs TEXT,
  rolled_back_at TIMESTAMPTZ,
  started_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  applied_steps_count INTEGER NOT NULL DEFAULT 0
)`

const prepareSchema = Effect.fnUntraced(function*(session: Session, state: State) {
  const { run, schema } = session
  // A collision would leave a failed migration behind, for nothing: look first.
  if (state.none) {
    const tables = state.pending.flatMap(({ sql }) =>
      [...sql.matchAll(/^CREATE TABLE (\w+)/gm)].map((found) => found[1])
    )
    const taken = yield* run("SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename = ANY($2)", [
      schema,
      tables
    ])
    if (taken.length > 0) {
      return yield* new MigrationError.SchemaOccupied({
        schema,
        problem: `it already has tables ${taken.map(({ tablename }) => String(tablename)).join(", ")}`
      })
    }
  }
  const existing = yield* run("SELECT FROM pg_namespace WHERE nspname = $1", [schema])
  if (existing.length === 0) yield* withAdvice(run(`CREATE SCHEMA ${Connection.quoted(schema)}`))
  if (!(yield* hasTable(session, "_prisma_migrations"))) yield* withAdvice(run(bookkeeping))
})

/**
 * Runs one file and writes its row, in one transaction unless a statement of the file forbids that. The row of a
 * failure is the one the CLI leaves; what a later attempt can get past leaves none. Not interruptible: a session cut
 * off here might still commit.
 */
const apply = (session: Session, { name, sql }: Migration) => {
  const { run, schema } = session
  const row = randomUUID()
  const inTransaction = !/\bCONCURRENTLY\b/i.test(sql)
  const begin = run(
    "INSERT INTO _prisma_migrations (id, checksum, started_at, migration_name) VALUES ($1, $2, clock_timestamp(), $3)",
    [row, createHash("sha256").update(sql).digest("hex"), name]
  )
  const finish = run(
    "UPDATE _prisma_migrations SET applied_steps_count = 1, finished_at = clock_timestamp() WHERE id = $1",
    [row]
  )
  const fail = Effect.fnUntraced(function*(reason: ProviderError.Reason) {
    if (inTransaction) {
      yield* Effect.ignore(run("ROLLBACK"))
      if (reason.isRetryable || reason._tag === "PermissionDenied") return yield* withAdvice(Effect.fail(reason))
      yield* Effect.ignore(begin)
    }
    yield* Effect.ignore(run("UPDATE _prisma_migrations SET logs = $2 WHERE id = $1", [row, reason.message]))
    return yield* new MigrationError.MigrationFailed({ schema, migration: name, problem: reason.message })
  })
  return Effect.gen(function*() {
    if (inTransaction) yield* run("BEGIN")
    yield* begin
    yield* run(sql)
    yield* finish
    if (inTransaction) yield* run("COMMIT")
    yield* Effect.logInfo(`applied migration ${name}`).pipe(
      Effect.annotateLogs({ package: "duroxide-prisma", module: "Migrator", schema })
    )
  }).pipe(
    Effect.catch(fail),
    Effect.uninterruptible
  )
}
