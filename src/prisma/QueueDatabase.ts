/**
 * The database for processes that use queues, outbox or tasks: connection options in, a pool and the wake-ups of other
 * processes out.
 *
 * @since 0.2.0
 */
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import { SettingOrigins } from "../model/shared/settings.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import type { Topics } from "../waking/topics.ts"
import * as Credentials from "./Credentials.ts"
import * as Database from "./Database.ts"
import * as drivers from "./internal/drivers.ts"
import * as notifying from "./internal/notifying.ts"
import * as Preparation from "./internal/preparation.ts"
import * as Environment from "./internal/queue/environment.ts"
import type { MigrationError } from "./MigrationError.ts"
import type * as PrismaProvider from "./PrismaProvider.ts"

/**
 * Everything but `url` has a default.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options
  extends Database.Options, Pick<PrismaProvider.Options, "migrate" | "allowAhead" | "directUrl">
{
  /**
   * False for a process that polls: it opens no connection that listens, and still wakes the others. Defaults to true.
   */
  readonly listens?: boolean | undefined
}

/**
 * What the modules of this entry point need.
 *
 * @category models
 * @since 0.2.0
 */
export type Services = Database.Database | Topics | drivers.Drivers

/**
 * Opens the database for a process without orchestrations. One connection that listens is opened when something of the
 * process first waits for wake-ups.
 *
 * @see {@link layerShared} and {@link layerSharedEnvironment} for a process with a runtime
 * @category layers
 * @since 0.2.0
 */
export const layer = (options: Options): Layer.Layer<Services, ProviderError | MigrationError> =>
  layerShared({ url: options.directUrl ?? options.url, tls: options.tls, listens: options.listens }).pipe(
    Layer.provideMerge(Layer.provideMerge(drivers.layer({}), Database.layer(options))),
    Layer.provide(Preparation.layer(options))
  )

/**
 * As `layer`, with options from configuration, for example `{ url: Config.Redacted("DATABASE_URL") }`.
 *
 * @category layers
 * @since 0.2.0
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
  Environment.databaseConfig<Options>(),
  ({ options }) => options
)

/**
 * As `layer`, with options from `environment`, and `Credentials.layerConfig`. Options that no variable sets are those of `defaults`.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerEnvironment = (
  defaults?: Partial<Options>
): Layer.Layer<Services, ProviderError | MigrationError | Config.ConfigError> =>
  Layer.unwrap(
    Effect.map(Environment.databaseConfig<Options>(defaults), ({ options, origins }) =>
      Layer.provide(layer(options), [Layer.succeed(SettingOrigins, origins), Credentials.layerConfig]))
  )

/**
 * Adds the wake-ups to a `Database` that is open already, such as that of `PrismaProvider.layer`. It uses the schema of that
 * `Database`. `url` is the address of the server itself, for the connection that listens; if it leads to a pooler, the process
 * polls. The connection is that of the provider where both have one address and one user.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerShared = (options: {
  readonly url: string | Redacted.Redacted<string>
  /** As in `Options`. */
  readonly tls?: Database.Tls | undefined
  /** As in `Options`. */
  readonly listens?: boolean | undefined
}): Layer.Layer<Topics, ProviderError, Database.Database> => notifying.layerTopics(options)

/**
 * As `layerShared`, with options from `environment`, and `Credentials.layerConfig`: for a `Database` that
 * `PrismaProvider.layerEnvironment` opens. `url` is that of `DIRECT_URL`, else of `DATABASE_URL`, and `listens` that of
 * `DUROXIDE_LONG_POLLING`. Options that no variable sets are those of `defaults`.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerSharedEnvironment = (
  defaults?: Partial<Pick<Options, "url" | "directUrl" | "tls" | "listens">>
): Layer.Layer<Topics, ProviderError | Config.ConfigError, Database.Database> =>
  Layer.unwrap(
    Effect.map(
      Environment.databaseConfig<Options>(defaults),
      ({ options: { directUrl, listens, tls, url } }) =>
        Layer.provide(layerShared({ url: directUrl ?? url, tls, listens }), Credentials.layerConfig)
    )
  )
