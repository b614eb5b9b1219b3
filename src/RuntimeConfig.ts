/**
 * The settings of the runtime, with units and defaults.
 *
 * @since 0.1.0
 */
import type * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { DashboardUrl } from "./model/shared/dashboardUrl.ts"
import { SettingOrigins } from "./model/shared/settings.ts"
import * as environment from "./runtime/environment.ts"
import { defaults, makeUnsafe } from "./runtime/settings.ts"
import type { Options, Settings } from "./runtime/settings.ts"

export type { Options, Settings } from "./runtime/settings.ts"

/**
 * The settings in force: the defaults, unless `layer` changes them.
 *
 * @category services
 * @since 0.1.0
 */
export const RuntimeConfig: Context.Reference<Settings> = Context.Reference<Settings>("duroxide-prisma/RuntimeConfig", {
  defaultValue: () => defaults
})

/**
 * Sets the given options, and keeps the defaults of the others. Throws a `RangeError` on an invalid one.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options): Layer.Layer<never> => Layer.succeedContext(inForce(makeUnsafe(options)))

/**
 * Sets the options that environment variables give, as `docs/configuration.md` lists them. Options that no variable
 * sets are those of `defaults`, then the defaults.
 *
 * Fails with one error that names each variable that cannot be used and what it may be, never its value. Throws a
 * `RangeError` if one of `defaults` is invalid.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerEnvironment = (defaults: Options = {}): Layer.Layer<never, Config.ConfigError> =>
  Layer.effectContext(
    Effect.map(environment.config(makeUnsafe(defaults)), ({ origins, settings }) =>
      Context.add(inForce(settings), SettingOrigins, origins))
  )

// internal

/** Log lines and spans of all rooms read where the dashboard is. */
const inForce = (settings: Settings) =>
  Context.add(Context.make(RuntimeConfig, settings), DashboardUrl, settings.dashboardUrl)
