/**
 * Settings as log lines show them.
 */
import * as Duration from "effect/Duration"

/** The value, short. */
export const shown = (value: unknown): string =>
  Duration.isDuration(value)
    ? Duration.format(value)
    : typeof value === "object"
    ? JSON.stringify(value)
    : String(value as string | number | bigint | boolean | undefined)
