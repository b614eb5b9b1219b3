/**
 * The log line at the start of a runtime.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { defaults } from "./settings.ts"
import type { Settings } from "./settings.ts"

export const log = (options: {
  readonly orchestrations: ReadonlyArray<string>
  readonly activities: ReadonlyArray<string>
  readonly settings: Settings
}) =>
  Effect.logInfo("Runtime: started").pipe(Effect.annotateLogs({
    package: "duroxide-prisma",
    orchestrations: options.orchestrations.join(", ") || "none",
    activities: options.activities.join(", ") || "none",
    settings: changed(options.settings).join(", ") || "defaults"
  }))

// internal

const changed = (settings: Settings) =>
  (Object.keys(defaults) as ReadonlyArray<keyof Settings>).flatMap((key) => {
    const [value, usual] = [shown(settings[key]), shown(defaults[key])]
    return value === usual ? [] : [`${key}=${value}`]
  })

const shown = (value: Settings[keyof Settings]) =>
  Duration.isDuration(value)
    ? Duration.format(value)
    : typeof value === "object"
    ? JSON.stringify(value)
    : String(value)
