/**
 * The provider on PostgreSQL as one layer: connection options in, `Provider` and `Admin` out, and over the same pool
 * what queues, outbox and tasks need.
 *
 * It only composes layers: the migrator before the database, the notifier and the drivers on the database, the services
 * on these.
 *
 * @since 0.1.0
 */
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import { SettingOrigins } from "../model/shared/settings.ts"
import type * as Admin from "../provider/Admin.ts"
import * as FromDriver from "../provider/FromDriver.ts"
import * as Provider from "../provider/Provider.ts"
import type { ProviderDriver } from "../provider/ProviderDriver.ts"
import { ProviderError } from "../provider/ProviderError.ts"
import * as DatabaseServer from "../server/DatabaseServer.ts"
import type { DatabaseServerError } from "../server/DatabaseServerError.ts"
import { Notifier } from "../waking/Notifier.ts"
import type { Listener } from "../waking/Notifier.ts"
import { Topics } from "../waking/Topics.ts"
import * as Credentials from "./Credentials.ts"
import * as Database from "./Database.ts"
import * as DirectUrl from "./internal/directUrl.ts"
import * as Environment from "./internal/environment.ts"
import * as Horizon from "./internal/horizon.ts"
import * as notifying from "./internal/notifying.ts"
import * as Preparation from "./internal/preparation.ts"
import * as StartLine from "./internal/startLine.ts"
import type { MigrationError } from "./MigrationError.ts"
import * as PgNotifier from "./PgNotifier.ts"
import * as PrismaAdmin from "./PrismaAdmin.ts"
import * as PrismaDriver from "./PrismaDriver.ts"
import * as ReadReplica from "./ReadReplica.ts"

/**
 * Options of `layer`. Everything but `url` has a default.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options extends Database.Options, PrismaDriver.Options, FromDriver.Options {
  /**
   * What to do with the schema before the first statement: migrate it to the version of this code (`apply`), fail if it
   * has another version (`verify`, for roles that may not change tables), extend a schema that duroxide-pg made
   * (`adopt`), or trust it (`none`). Defaults to `apply`.
   */
  readonly migrate?: "apply" | "verify" | "adopt" | "none" | undefined
  /**
   * Accept a schema of a newer release, as during a rolling update, where processes of the older release may start
   * anew. Defaults to false.
   */
  readonly allowAhead?: boolean | undefined
  /**
   * The address of the server itself, for migrations and for the connection that listens, if `url` leads to a pooler.
   * Unless `migrate` is `none`, it is refused if it leads to another database than `url`. Defaults to `url`.
   */
  readonly directUrl?: string | Redacted.Redacted<string> | undefined
}

/**
 * Options of `layer` for a pool of the application. Everything but `pool` has a default.
 *
 * **Details**
 *
 * The connection that listens, and that of a migration, stand beside the pool and log in as it does. `directUrl` is the
 * address of the server itself if the pool leads to a pooler; `tls` and `Credentials` are used there alone.
 *
 * @category options
 * @since 0.3.0
 */
export interface PoolOptions
  extends
    Database.PoolOptions,
    PrismaDriver.Options,
    FromDriver.Options,
    Pick<Options, "migrate" | "allowAhead" | "directUrl" | "tls">
{}

/**
 * Options of `layerDatabase`. Everything but `url` has a default.
 *
 * @category options
 * @since 0.2.0
 */
export interface DatabaseOptions extends Database.Options, Pick<Options, "migrate" | "allowAhead" | "directUrl"> {
  /**
   * Whether it is woken by hints. A process that polls opens no connection that listens, and still wakes the others.
   * Defaults to on.
   */
  readonly longPolling?: Pick<FromDriver.LongPolling, "enabled"> | undefined
}

/**
 * Options of `layerDatabase` for a pool of the application. Everything but `pool` has a default.
 *
 * @category options
 * @since 0.3.0
 */
export interface DatabasePoolOptions
  extends
    Database.PoolOptions,
    Pick<DatabaseOptions, "longPolling">,
    Pick<PoolOptions, "migrate" | "allowAhead" | "directUrl" | "tls">
{}

/**
 * What `layerDatabase` provides, for queues, outbox and tasks: a pool, the hints of other processes, and drivers.
 *
 * @category models
 * @since 0.2.0
 */
export type DatabaseServices = Database.Database | Topics | PrismaDriver.TaskDrivers

/**
 * What the layers of the provider provide.
 *
 * @category models
 * @since 0.1.0
 */
export type Services = Provider.Provider | Admin.Admin | ProviderDriver | DatabaseServices

/**
 * The provider and its database, released with the layer; a pool of the application stays open.
 *
 * Fails with `MigrationError` if the schema does not have the version of this code or cannot be migrated to it, and
 * with `ProviderError` if the database cannot be opened.
 *
 * Other processes wake it through the `Notifier` in the context, or else by LISTEN and NOTIFY. Reads of `Admin` go to
 * the `ReadReplica` in the context, if there is one.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (
  options: Options | PoolOptions
): Layer.Layer<Services, ProviderError | MigrationError> =>
  ReadReplica.layerAdmin.pipe(
    Layer.provideMerge(FromDriver.layer(options)),
    Layer.provide(Layer.effectDiscard(logSettings(options))),
    Layer.provide(PrismaAdmin.layer(options)),
    Layer.provideMerge(PrismaDriver.layer(options)),
    Layer.provide(notifier(options)),
    Layer.provide(watchHorizon),
    Layer.provideMerge(opened(options, Layer.effect(Database.Database, Database.make(options))))
  )

/**
 * `layer` with options from configuration, for example `{ url: Config.Redacted("DATABASE_URL") }`.
 *
 * @category layers
 * @since 0.1.0
 */
export const layerConfig = (
  options: Config.Wrap<Options>
): Layer.Layer<Services, ProviderError | MigrationError | Config.ConfigError> =>
  Layer.unwrap(Effect.map(Config.unwrap(options), layer))

/**
 * The options of `layer`, by the environment variables of `docs/configuration.md`. Only `DATABASE_URL` must be set. One
 * error names each variable that cannot be used and what it may be, never its value.
 *
 * @category configuration
 * @since 0.2.0
 */
export const environment: Config.Config<Options> = Config.map(
  Environment.providerConfig<Options>(),
  ({ options }) => options
)

/**
 * `layer` with options from `environment`, and `Credentials.layerConfig`. Options that no variable sets are those
 * of `defaults`. With a pool of the application, variables of the URL and of our own pool are not read.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerEnvironment = (
  defaults?: Partial<Options> | PoolOptions
): Layer.Layer<Services, ProviderError | MigrationError | Config.ConfigError> =>
  Layer.unwrap(
    Effect.map(Environment.providerConfig<Options | PoolOptions>(defaults), ({ options, origins }) =>
      Layer.provide(layer(options), [Layer.succeed(SettingOrigins, origins), Credentials.layerConfig]))
  )

/**
 * The provider for `DATABASE_URL` or, if that is not set, for an embedded PostgreSQL in the folder of the project.
 *
 * **When to use**
 *
 * Use for examples, development and tests. In production, name the database with `layer` or `layerConfig`.
 *
 * @see {@link DatabaseServer.layer} for where the embedded server keeps its data
 * @category layers
 * @since 0.1.0
 */
export const layerDefault = (
  options?: Omit<Options, "url" | "directUrl">
): Layer.Layer<
  Services | DatabaseServer.DatabaseServer,
  ProviderError | MigrationError | DatabaseServerError
> =>
  Layer.unwrap(Effect.map(DatabaseServer.DatabaseServer, ({ url }) => layer({ ...options, url }))).pipe(
    Layer.provideMerge(DatabaseServer.layer())
  )

/**
 * The database alone, for a process without orchestrations that uses queues, outbox or tasks; `layer` contains it. One
 * connection that listens is opened when something of the process first waits for hints.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerDatabase = (
  options: DatabaseOptions | DatabasePoolOptions
): Layer.Layer<DatabaseServices, ProviderError | MigrationError> => opened(options, Database.layer(options))

/**
 * The options of `layerDatabase`, by the environment variables of `docs/configuration.md`, as `environment`.
 *
 * @category configuration
 * @since 0.2.0
 */
export const databaseEnvironment: Config.Config<DatabaseOptions> = Config.map(
  Environment.databaseConfig<DatabaseOptions>(),
  ({ options }) => options
)

/**
 * `layerDatabase` with options from `databaseEnvironment`, and `Credentials.layerConfig`. Options that no variable
 * sets are those of `defaults`, as in `layerEnvironment`.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerDatabaseEnvironment = (
  defaults?: Partial<DatabaseOptions> | DatabasePoolOptions
): Layer.Layer<DatabaseServices, ProviderError | MigrationError | Config.ConfigError> =>
  Layer.unwrap(
    Effect.map(Environment.databaseConfig<DatabaseOptions | DatabasePoolOptions>(defaults), ({ options, origins }) =>
      Layer.provide(layerDatabase(options), [Layer.succeed(SettingOrigins, origins), Credentials.layerConfig]))
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** All that one pool carries but orchestrations. */
const opened = <E>(
  options: (DatabaseOptions | DatabasePoolOptions) & PrismaDriver.Options,
  database: Layer.Layer<Database.Database, E>
): Layer.Layer<DatabaseServices, E | ProviderError | MigrationError> =>
  Layer.effect(Topics, listening(options, notifying.makeTopics)).pipe(
    Layer.merge(PrismaDriver.layerTasks(options)),
    Layer.provideMerge(database),
    Layer.provide(Preparation.layer(options))
  )

/** What listens at `directUrl`, if there is one: its faults name the option. */
const listening = <A, R>(
  { directUrl, longPolling, pool, tls, url }: DatabaseOptions | DatabasePoolOptions,
  make: (options: PgNotifier.Options | PgNotifier.PoolOptions) => Effect.Effect<A, ProviderError, R>
): Effect.Effect<A, ProviderError, R> =>
  Effect.mapError(
    make(
      pool !== undefined && directUrl === undefined
        ? { pool, listens: longPolling?.enabled }
        : { url: (directUrl ?? url)!, tls, listens: longPolling?.enabled }
    ),
    ({ operation, reason }) =>
      new ProviderError({ operation, reason: directUrl === undefined ? reason : DirectUrl.named(reason) })
  )

const watchHorizon = Layer.effectDiscard(
  Effect.flatMap(Database.Database, (database) => Effect.forkScoped(Horizon.watch(database)))
)

const logSettings = (options: Options | PoolOptions) =>
  Effect.flatMap(
    Database.Database,
    (database) => Effect.logInfo("Provider: open").pipe(StartLine.annotated(database, options))
  )

const notifier = (options: Options | PoolOptions) =>
  Layer.effect(
    Notifier,
    Effect.flatMap(
      Effect.serviceOption(Notifier),
      Option.match({ onNone: () => listener(options), onSome: Effect.succeed })
    )
  )

const listener = (options: Options | PoolOptions) => {
  const made = listening(options, PgNotifier.make)
  return options.directUrl === undefined ? made : Effect.map(made, (notifier) => ({
    ...notifier,
    listen: (listener: Listener) => Effect.annotateLogs(notifier.listen(listener), { option: "directUrl" })
  }))
}
