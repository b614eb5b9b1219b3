/**
 * What a runtime logs at its start.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { ours } from "../model/shared/logging.ts"
import { setting, SettingOrigins, shown } from "../model/shared/settings.ts"
import type { Origins } from "../model/shared/settings.ts"
import type { ActivityCode } from "./handlers.ts"
import { defaults } from "./settings.ts"
import type { Settings } from "./settings.ts"

export const log = (options: {
  readonly orchestrations: ReadonlyArray<string>
  readonly activities: ReadonlyArray<string>
  readonly settings: Settings
}) =>
  Effect.flatMap(SettingOrigins, (origins) =>
    Effect.logInfo("Runtime: started").pipe(ours({
      orchestrations: options.orchestrations.join(", ") || "none",
      activities: options.activities.join(", ") || "none",
      settings: changed(options.settings, origins).join(", ") || "defaults"
    })))

/**
 * Warns of each activity that cannot be delivered again after a crash. The wait for the lock of the dead worker counts
 * towards the limit; if the limit is not longer than the lock, it is over before another worker may begin.
 */
export const warnOfLimits = (handlers: ReadonlyMap<string, ActivityCode>, { workerLockTimeout }: Settings) =>
  Effect.forEach(handlers, ([activity, { limits }]) => {
    const short = Object.entries(limits).flatMap(([option, limitMs]) =>
      limitMs !== undefined && limitMs <= Duration.toMillis(workerLockTimeout)
        ? [[option, Duration.format(Duration.millis(limitMs))] as const]
        : []
    )
    return short.length === 0 ? Effect.void : Effect.logWarning(
      "Runtime: an activity times out after a crash, its limit is no longer than workerLockTimeout"
    ).pipe(ours({
      activity_name: activity,
      ...Object.fromEntries(short),
      workerLockTimeout: Duration.format(workerLockTimeout)
    }))
  }, { discard: true })

// internal

const changed = (settings: Settings, origins: Origins) =>
  (Object.keys(defaults) as ReadonlyArray<keyof Settings>).flatMap((key) => {
    const [value, usual] = [shown(settings[key]), shown(defaults[key])]
    return value === usual ? [] : [setting(key, value, origins)]
  })
