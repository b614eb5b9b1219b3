/**
 * Settings as log lines show them.
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"

/** The value, short. */
export const shown = (value: unknown): string => {
  if (Duration.isDuration(value)) return Duration.format(value)
  return typeof value === "object" ? JSON.stringify(value) : `${value as string | number | bigint | boolean}`
}

/** By option: the environment variable it comes from. */
export type Origins = ReadonlyMap<string, string>

/** Where the settings of the layers built on it come from. An option without a variable was set by the application. */
export const SettingOrigins: Context.Reference<Origins> = Context.Reference<Origins>(
  "duroxide-prisma/model/SettingOrigins",
  { defaultValue: () => new Map() }
)

/** One setting: `maxConnections=20 (POSTGRES_MAX_CONNECTIONS)`. */
export const setting = (name: string, value: string, origins: Origins): string => {
  const origin = origins.get(name)
  return `${name}=${value}${origin === undefined ? "" : ` (${origin})`}`
}
