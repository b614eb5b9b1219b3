/**
 * Migrates a schema to the version of this code, checks that it has this version, or removes what migrations created.
 *
 * Applies the migrations, which are part of the code, as `prisma migrate deploy` does: same table
 * (`_prisma_migrations`), same lock, same checksums, same rules about failures, so that either can carry on where the
 * other stopped. Any number of processes may start at the same time: one migrates, the others wait and find nothing to
 * do. Each migration commits together with its row, so a killed process leaves nothing half done.
 *
 * @since 0.1.0
 */
import * as Config from "effect/Config"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { randomUUID } from "node:crypto"
import { wholeMs } from "../model/shared/durations.ts"
import { ours } from "../model/shared/logging.ts"
import type { Pool, Tls } from "./Database.ts"
import { nameEventTypes, routeQueued, setStatuses } from "./internal/adoptedRows.ts"
import * as Adoption from "./internal/adoption.ts"
import * as Connection from "./internal/connection.ts"
import type { Migration } from "./internal/migration.ts"
import { release } from "./internal/migrations.generated.ts"
import { checksum, created, Migrations } from "./internal/migrations.ts"
import * as Reduced from "./internal/reduced.ts"
import * as Reset from "./internal/reset.ts"
import * as MigrationError from "./MigrationError.ts"
import * as Session from "./shared/directSession.ts"

/**
 * Which schema to migrate, and how. Everything but `url` has a default.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  /** `url` of `Database`, of the server itself: the lock belongs to the session, which a pooler shares. */
  readonly url: string | Redacted.Redacted<string>
  /** `tls` of `Database`. */
  readonly tls?: Tls | undefined
  /** Created when missing. Defaults to the URL's `schema` parameter, then to `public`. */
  readonly schema?: string | undefined
  /**
   * Longest wait for another process that is migrating, and then, per migration, for transactions that hold the tables
   * it changes. Defaults to 1 minute.
   */
  readonly lockTimeout?: Duration.Input | undefined
  /** Accept a schema of a newer release, as during a rolling update. Defaults to false. */
  readonly allowAhead?: boolean | undefined
  /** Another way to reach it: `PoolOptions`. */
  readonly pool?: undefined
}

/**
 * Which schema to migrate where a pool of the application leads to. Everything but `pool` has a default.
 *
 * @category options
 * @since 0.3.0
 */
export interface PoolOptions extends Pick<Options, "schema" | "lockTimeout" | "allowAhead"> {
  /** The pool whose options say how to log in. The migration has a connection of its own. */
  readonly pool: Pool
  readonly url?: undefined
}

/**
 * The tables of this package, each with its schema, such as `duroxide.instances`, for `tables.external` of an
 * application's `prisma.config.ts`: its migrations leave them alone.
 *
 * @category models
 * @since 0.3.0
 */
export const tables = (schema: string): Array<string> =>
  [...created("tables", release.migrations), "_prisma_migrations"].map((table) => `${schema}.${table}`)

/**
 * Applies the pending migrations and returns their names, oldest first; none if nothing was pending.
 *
 * **Details**
 *
 * Fails with `MigrationError`. If nothing is pending, it takes no lock and needs no right but to read. It recognises
 * applied migrations by name and checksum.
 *
 * @see {@link verify} for roles that may not change tables
 * @category operations
 * @since 0.1.0
 */
export const migrate = Effect.fn("Migrator.migrate")(
  function*(options: Options | PoolOptions) {
    const session = yield* Session.openDirect(options)
    const { migrations: known } = yield* Migrations
    const before = yield* readOurs(session, known, options)
    if (before.open === undefined && before.pending.length === 0) return []

    yield* Session.lock(session, lockTimeoutMs(options))
    const state = yield* readOurs(session, known, options)
    if (state.open !== undefined) return yield* failedEarlier(session.schema, state.open)
    yield* prepareSchema(session, state)
    const textOf = yield* Reduced.make(session, state.pending, state.none)
    for (const migration of state.pending) {
      yield* apply(session, migration, {
        lockTimeoutMs: lockTimeoutMs(options),
        steps: textOf(migration),
        advice: migrateAdvice
      })
    }
    return state.pending.map(({ name }) => name)
  },
  Effect.scoped,
  Effect.mapError((reason) => new MigrationError.MigrationError({ operation: "migrate", reason }))
)

/**
 * Checks that the schema has exactly the migrations of this code. Writes nothing and needs no right but to read
 * `_prisma_migrations`.
 *
 * **Details**
 *
 * Fails with `MigrationError`: `SchemaBehind` (lists what is pending, also while another process migrates),
 * `SchemaAhead`, `SchemaOccupied`, `MigrationsDiffer`, `MigrationFailed`, or a reason of the connection.
 *
 * @category operations
 * @since 0.1.0
 */
export const verify = Effect.fn("Migrator.verify")(
  function*(options: Options | PoolOptions) {
    const session = yield* Session.open(options)
    const { schema } = session
    const state = yield* readOurs(session, (yield* Migrations).migrations, options)
    if (state.open !== undefined && !(yield* Session.isLocked(session))) return yield* failedEarlier(schema, state.open)
    const pending = state.open === undefined ? [] : [state.open.name]
    for (const { name } of state.pending) pending.push(name)
    if (pending.length > 0) return yield* new MigrationError.SchemaBehind({ schema, pending })
  },
  Effect.scoped,
  Effect.mapError((reason) => new MigrationError.MigrationError({ operation: "verify", reason }))
)

/**
 * Extends a schema that duroxide-pg made, so that processes of both languages can work on it, and returns the names of
 * the applied migrations; none when nothing was pending.
 *
 * **When to use**
 *
 * Use instead of `migrate` where duroxide-pg owns the tables. Later releases extend such a schema by `adopt` or
 * `migrate` alike.
 *
 * **Details**
 *
 * Each call checks every column first. It adds our functions, our indexes, storage parameters of tables that have none,
 * and the rows of `_prisma_migrations`. It changes no row, column or function of duroxide-pg, and only reads
 * `_duroxide_migrations`; it holds the migration lock of duroxide-pg meanwhile. Work that is queued gets its route, and
 * runs like work that is queued later.
 *
 * Fails with `MigrationError`: `LayoutMismatch`, which lists the differences, or a reason of `migrate`. If the columns
 * fit but duroxide-pg is newer than this code knows, it logs a warning.
 *
 * **Gotchas**
 *
 * Needs the role that owns the tables. Writes to a table wait while its indexes are built: less than a second for a
 * queue of 400,000 rows. Setting their routes takes 20 seconds, and nothing waits for it.
 *
 * @category operations
 * @since 0.1.0
 */
export const adopt = Effect.fn("Migrator.adopt")(
  function*(options: Options | PoolOptions) {
    const session = yield* Session.openDirect(options)
    const { schema } = session
    const { migrations: known, shared } = yield* Migrations
    const [createShared] = known
    const before = yield* readOurs(session, known, options)
    const { unknown } = yield* Adoption.examine(session, shared)
    if (unknown.length > 0) {
      yield* Effect.logWarning(
        `Migrator: schema ${schema} has migrations of a newer duroxide-pg (${unknown.join(", ")}); its tables fit`
      ).pipe(annotated(schema))
    }
    if (before.open === undefined && before.pending.length === 0) return []

    yield* Session.lock(session, lockTimeoutMs(options))
    const state = yield* readOurs(session, known, options)
    if (state.open !== undefined) return yield* failedEarlier(session.schema, state.open)
    const { extension } = yield* Adoption.examine(session, shared)
    yield* ensureBooks(session, adoptAdvice)
    for (const migration of state.pending) {
      const timeoutMs = lockTimeoutMs(options)
      if (migration.manifest.triggers.includes("dx_set_status")) {
        yield* Session.withAdvice(setStatuses(session, timeoutMs), adoptAdvice)
      }
      if (migration.manifest.locks.includes("orchestrator_queue")) {
        const rows = Effect.andThen(nameEventTypes(session, timeoutMs), routeQueued(session, timeoutMs))
        yield* Session.withAdvice(rows, adoptAdvice)
      }
      yield* apply(session, migration, {
        lockTimeoutMs: timeoutMs,
        steps: migration === createShared ? extension : migration.sql,
        advice: adoptAdvice
      })
    }
    return state.pending.map(({ name }) => name)
  },
  Effect.scoped,
  Effect.mapError((reason) => new MigrationError.MigrationError({ operation: "adopt", reason }))
)

/**
 * How to reset.
 *
 * @category options
 * @since 0.1.0
 */
export interface ResetOptions extends Options {
  /** Reset even while processes hold locks; their calls then fail. Defaults to false. */
  readonly force?: boolean | undefined
}

/**
 * The names of what a reset removed.
 *
 * @category models
 * @since 0.1.0
 */
export interface Removed extends Reset.Removed {}

/**
 * Removes what `migrate` or `adopt` created, and nothing else.
 *
 * **Details**
 *
 * In a schema of our own: the tables with all data, the functions, our rows of `_prisma_migrations`, and the schema
 * itself if it is then empty and is not `public`. In an adopted schema: functions, indexes, our columns, rows of
 * `_prisma_migrations`, and the tables that duroxide-pg does not have, with their data; its tables and data stay. One
 * transaction removes all or nothing. In a schema without our migrations it removes nothing and returns nothing.
 *
 * Fails with `MigrationError`: `LocksLive` unless `force`; `ObjectsDepend` if a view or another object depends on our
 * tables; `SchemaAhead` if a newer release migrated the schema, as only that release knows what it created
 * (`allowAhead` leaves those objects in place); or a reason of `migrate`, except `MigrationsDiffer`, which a reset
 * resolves.
 *
 * @category operations
 * @since 0.1.0
 */
export const reset = Effect.fn("Migrator.reset")(
  function*(options: ResetOptions): Effect.fn.Return<Removed, MigrationError.Reason, Scope.Scope> {
    const session = yield* Session.openDirect(options)
    const release = yield* Migrations
    yield* Session.lock(session, lockTimeoutMs(options))
    const state = yield* readState(session, release.migrations)
    if (state.none) return Reset.nothing
    yield* refuseAhead(session, state, options)
    const removed = yield* Reset.remove(session, {
      ...release,
      lockTimeoutMs: lockTimeoutMs(options),
      force: options.force ?? false
    })
    yield* Effect.logInfo(
      `Migrator: removed ${removed.tables.length} tables, ${removed.indexes.length} indexes, ` +
        `${removed.functions.length} functions${removed.schema ? ", and the schema" : ""}`
    ).pipe(annotated(session.schema))
    return removed
  },
  Effect.scoped,
  Effect.mapError((reason) => new MigrationError.MigrationError({ operation: "reset", reason }))
)

/**
 * Runs `migrate` before the layers built on top.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options | PoolOptions): Layer.Layer<never, MigrationError.MigrationError> =>
  Layer.effectDiscard(migrate(options))

/**
 * `layer` with options from configuration.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerConfig = (
  options: Config.Wrap<Options>
): Layer.Layer<never, MigrationError.MigrationError | Config.ConfigError> =>
  Layer.effectDiscard(Effect.flatMap(Config.unwrap(options), migrate))

/**
 * Runs `verify` before the layers built on top.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerVerify = (options: Options | PoolOptions): Layer.Layer<never, MigrationError.MigrationError> =>
  Layer.effectDiscard(verify(options))

/**
 * Runs `adopt` before the layers built on top.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerAdopt = (options: Options | PoolOptions): Layer.Layer<never, MigrationError.MigrationError> =>
  Layer.effectDiscard(adopt(options))

// -----------------------------------------------------------------------------
// internal: what is there, and what is missing
// -----------------------------------------------------------------------------

/** PostgreSQL takes at most 2^31 - 1 milliseconds. */
const lockTimeoutMs = ({ lockTimeout }: Options | PoolOptions) => {
  const ms = wholeMs(lockTimeout ?? "1 minute")
  if (ms === undefined) throw new RangeError("lockTimeout must be a duration such as \"1 minute\"")
  return Math.min(ms, 2 ** 31 - 1)
}

const annotated = (schema: string) => ours({ module: "Migrator", schema })

interface State {
  readonly pending: ReadonlyArray<Migration>
  /** Applied, but not part of this release. */
  readonly unknown: ReadonlyArray<string>
  /** Applied with the name of one of our migrations, but with another text. */
  readonly differing: ReadonlyArray<string>
  /** Begun but not finished: failed, or in progress. */
  readonly open: { readonly name: string; readonly logs: string | null } | undefined
  readonly none: boolean
}

const readState = Effect.fnUntraced(function*(session: Session.Session, known: ReadonlyArray<Migration>) {
  const rows = (yield* Session.hasTable(session, "_prisma_migrations"))
    ? yield* Session.withAdvice(
      // Without USAGE on the schema, an unqualified name is a table that does not exist.
      session.run(
        `SELECT migration_name AS name, checksum, finished_at IS NOT NULL AS finished, logs
         FROM ${Connection.quoted(session.schema)}._prisma_migrations
         WHERE rolled_back_at IS NULL
         ORDER BY started_at`
      ),
      readAdvice
    )
    : []
  const names = rows.map(({ name }) => String(name))
  const open = rows.find(({ finished }) => finished !== true)
  const checksums = new Map(known.map((migration) => [migration.name, checksum(migration)]))
  const unknown = names.filter((name) => !checksums.has(name))
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
    differing: rows
      .filter((row) => row.finished === true && checksums.get(String(row.name)) !== row.checksum)
      .map(({ name }) => String(name))
      .filter((name) => checksums.has(name)),
    open: open === undefined
      ? undefined
      : { name: String(open.name), logs: typeof open.logs === "string" ? open.logs : null },
    none: names.length === 0
  } satisfies State
})

const refuseAhead = ({ schema }: Session.Session, { unknown }: State, options: Options | PoolOptions) =>
  unknown.length > 0 && options.allowAhead !== true
    ? Effect.fail(new MigrationError.SchemaAhead({ schema, unknown }))
    : Effect.void

/** Fails if the schema has migrations that are not those of this release. */
const readOurs = Effect.fnUntraced(function*(
  session: Session.Session,
  known: ReadonlyArray<Migration>,
  options: Options | PoolOptions
) {
  const state = yield* readState(session, known)
  yield* refuseAhead(session, state, options)
  if (state.differing.length === 0) return state
  return yield* new MigrationError.MigrationsDiffer({ schema: session.schema, migrations: state.differing })
})

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

const readAdvice = "Grant this login one of the roles of docs/postgresql.md, and apply the roles after each migration"

const migrateAdvice =
  "Migrate with a role that may create tables; others only verify: Migrator.layerVerify, or migrate --verify"

const adoptAdvice =
  "Adopt with the role that owns the tables; others only verify: Migrator.layerVerify, or migrate --verify"

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

const prepareSchema = Effect.fnUntraced(function*(session: Session.Session, state: State) {
  const { run, schema } = session
  // Check first, as a collision would leave a failed migration behind.
  if (state.none) {
    const tables = created("tables", state.pending)
    const taken = yield* run("SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename = ANY($2)", [
      schema,
      tables
    ])
    if (taken.length > 0) {
      return yield* new MigrationError.SchemaOccupied({
        schema,
        problem: (yield* Session.hasTable(session, Session.duroxideBooks))
          ? "its tables are duroxide-pg's, which Migrator.adopt (migrate: \"adopt\") can share"
          : `it already has tables ${taken.map(({ tablename }) => String(tablename)).join(", ")}`
      })
    }
  }
  const existing = yield* run("SELECT FROM pg_namespace WHERE nspname = $1", [schema])
  if (existing.length === 0) {
    yield* Session.withAdvice(run(`CREATE SCHEMA ${Connection.quoted(schema)}`), migrateAdvice)
  }
  yield* ensureBooks(session, migrateAdvice)
})

const ensureBooks = Effect.fnUntraced(function*(session: Session.Session, advice: string) {
  if (yield* Session.hasTable(session, "_prisma_migrations")) return
  yield* Session.withAdvice(session.run(bookkeeping), advice)
})

/**
 * Runs one file and writes its row, in one transaction unless a statement of the file forbids that. A failure leaves
 * the row that the CLI would leave; a failure that a later attempt can overcome leaves none.
 */
const apply = (
  session: Session.Session,
  migration: Migration,
  { advice, lockTimeoutMs, steps = migration.sql }: {
    readonly advice: string
    readonly lockTimeoutMs: number
    readonly steps?: string
  }
) => {
  const { run, schema } = session
  const { name } = migration
  const row = randomUUID()
  const begin = run(
    "INSERT INTO _prisma_migrations (id, checksum, started_at, migration_name) VALUES ($1, $2, clock_timestamp(), $3)",
    [row, checksum(migration), name]
  )
  const finish = run(
    "UPDATE _prisma_migrations SET applied_steps_count = 1, finished_at = clock_timestamp() WHERE id = $1",
    [row]
  )
  const all = Effect.andThen(begin, Effect.andThen(run(steps), finish))
  const fail = Effect.fnUntraced(function*(reason: MigrationError.Reason) {
    // The message of a `SchemaMismatch` advises to migrate.
    const problem = reason._tag === "SchemaMismatch" ? `${reason.problem} (${reason.sqlState})` : reason.message
    yield* Effect.ignore(run("UPDATE _prisma_migrations SET logs = $2 WHERE id = $1", [row, problem]))
    return yield* new MigrationError.MigrationFailed({ schema, migration: name, problem })
  })
  const applied: Effect.Effect<unknown, MigrationError.Reason> = migration.manifest.isTransactional
    ? Effect.catch(
      Session.transaction(session, lockTimeoutMs, all),
      (reason): typeof applied =>
        reason.isRetryable || reason._tag === "PermissionDenied"
          ? Session.withAdvice(Effect.fail(reason), advice)
          : Effect.uninterruptible(Effect.andThen(Effect.ignore(begin), fail(reason)))
    )
    : Effect.uninterruptible(Effect.catch(all, fail))
  return Effect.andThen(applied, Effect.logInfo(`Migrator: applied migration ${name}`).pipe(annotated(schema)))
}
