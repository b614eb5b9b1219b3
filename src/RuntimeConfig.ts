/**
 * Every knob of the runtime, with unit and default.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Layer from "effect/Layer"

/**
 * @category models
 * @since 0.1.0
 */
export interface Settings {
  /** Turns of different instances under way at once in this process. Defaults to 16. */
  readonly orchestrationConcurrency: number
  /** Activities running at once in this process. Defaults to 16. */
  readonly workerConcurrency: number
  /**
   * How long a claimed instance stays ours without a renewal; after a crash it waits so long for another process.
   * Renewed every half of it. Defaults to 5 seconds.
   */
  readonly orchestrationLockTimeout: Duration.Duration
  /** The same for a claimed activity. Defaults to 30 seconds. */
  readonly workerLockTimeout: Duration.Duration
  /** Longest wait for work of one claim, before it begins anew. Defaults to 30 seconds. */
  readonly pollTimeout: Duration.Duration
  /** Deliveries after which a message is poison: its activity or instance fails for good. Defaults to 10. */
  readonly maxAttempts: number
  /** First pause before work without a handler in this process is offered again; doubles. Defaults to 1 second. */
  readonly unregisteredBackoff: Duration.Duration
  /** Longest such pause. Defaults to 60 seconds. */
  readonly unregisteredBackoffMax: Duration.Duration
  /** On shutdown, time for turns and activities to end by themselves before they are interrupted. Defaults to 10 seconds. */
  readonly shutdownTimeout: Duration.Duration
  /** Time for an interrupted activity to run its finalizers before it is left alone. Defaults to 10 seconds. */
  readonly activityGracePeriod: Duration.Duration
}

/**
 * @category configuration
 * @since 0.1.0
 */
export const defaults: Settings = {
  orchestrationConcurrency: 16,
  workerConcurrency: 16,
  orchestrationLockTimeout: Duration.seconds(5),
  workerLockTimeout: Duration.seconds(30),
  pollTimeout: Duration.seconds(30),
  maxAttempts: 10,
  unregisteredBackoff: Duration.seconds(1),
  unregisteredBackoffMax: Duration.seconds(60),
  shutdownTimeout: Duration.seconds(10),
  activityGracePeriod: Duration.seconds(10)
}

/**
 * The settings in force; the defaults unless a layer says otherwise.
 *
 * @category services
 * @since 0.1.0
 */
export const RuntimeConfig: Context.Reference<Settings> = Context.Reference<Settings>("duroxide-prisma/RuntimeConfig", {
  defaultValue: () => defaults
})

/**
 * Settings as a user writes them: durations in any form Effect takes.
 *
 * @category models
 * @since 0.1.0
 */
export type Options = {
  readonly [K in keyof Settings]?: Settings[K] extends Duration.Duration ? Duration.Input : Settings[K]
}

/**
 * Completes `options` with the defaults. Throws on a setting that cannot work: a count below 1, a lock of no length.
 *
 * @category configuration
 * @since 0.1.0
 */
export const makeUnsafe = (options: Options = {}): Settings => {
  const settings: Record<string, unknown> = { ...defaults }
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined) continue
    const setting = Duration.isDuration(defaults[key as keyof Settings]) ? Duration.fromInputUnsafe(value) : value
    const amount = Duration.isDuration(setting) ? Duration.toMillis(setting) : Number(setting)
    const mayBeZero = key === "pollTimeout" || key === "shutdownTimeout" || key === "activityGracePeriod"
    if (!(amount >= (mayBeZero ? 0 : 1))) {
      throw new RangeError(
        `RuntimeConfig.${key} is ${amount}${Duration.isDuration(setting) ? " milliseconds" : ""}; it must be at least ${
          mayBeZero ? 0 : 1
        }`
      )
    }
    settings[key] = setting
  }
  return settings as unknown as Settings
}

/**
 * Sets what `options` names, keeps the defaults for the rest.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options: Options): Layer.Layer<never> => Layer.succeed(RuntimeConfig, makeUnsafe(options))
