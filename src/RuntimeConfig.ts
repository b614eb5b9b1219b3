/**
 * The settings of the runtime, with units and defaults.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Layer from "effect/Layer"
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
export const layer = (options: Options): Layer.Layer<never> => Layer.succeed(RuntimeConfig, makeUnsafe(options))
