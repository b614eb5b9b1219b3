/**
 * Settings as log lines show them.
 */
import * as Duration from "effect/Duration"

/** The value, short. */
export const shown = (value: unknown): string => {
  if (Duration.isDuration(value)) return Duration.format(value)
  return typeof value === "string" ? value : typeof value === "bigint" ? `${value}` : JSON.stringify(value)
}
