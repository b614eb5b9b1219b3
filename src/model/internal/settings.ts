/**
 * Settings as log lines show them.
 */
import * as Duration from "effect/Duration"

/** The value, short. */
export const shown = (value: unknown): string => {
  if (Duration.isDuration(value)) return Duration.format(value)
  return typeof value === "object" ? JSON.stringify(value) : `${value as string | number | bigint | boolean}`
}
