/**
 * The environment variables of a runtime.
 */
import * as Config from "effect/Config"
import * as Effect from "effect/Effect"
import type { TagFilter } from "../model/Instance.ts"
import * as dashboardUrl from "../model/shared/dashboardUrl.ts"
import * as Environment from "../model/shared/environment.ts"
import type { Origins } from "../model/shared/settings.ts"
import { makeUnsafe, type Options, type Settings } from "./settings.ts"

/** Tags of these names can be served only by options in code. */
const words = ["default", "any", "none"]

const tags: Environment.Kind<TagFilter> = {
  allowed:
    "default, any, none, or 1 to 5 tags with commas between them, default among them for activities without a tag",
  read: (text) => {
    const parts = text.split(",").map((part) => part.trim())
    const tags = parts.filter((part) => part !== "default")
    if (tags.length === 0) return { _tag: "DefaultOnly" }
    if (text === "any") return { _tag: "Any" }
    if (text === "none") return { _tag: "None" }
    return tags.some((tag) => tag === "" || words.includes(tag))
      ? undefined
      : { _tag: tags.length < parts.length ? "DefaultAnd" : "Tags", tags }
  }
}

const own = <A>(option: string, kind: Environment.Kind<A>) => Environment.variable("DUROXIDE_", option, kind)

const atLeastOne = Environment.count(1)
const lock = Environment.duration(1)
const locks: Environment.Variable<Settings["workerLockTimeout"]> = {
  name: "POSTGRES_LOCK_TIMEOUT_SECS",
  ...Environment.seconds
}

export const variables: Environment.Table<Settings> = {
  orchestrationConcurrency: own("orchestrationConcurrency", atLeastOne),
  workerConcurrency: own("workerConcurrency", atLeastOne),
  orchestrationLockTimeout: [...own("orchestrationLockTimeout", lock), locks],
  workerLockTimeout: [...own("workerLockTimeout", lock), locks],
  pollTimeout: own("pollTimeout", Environment.duration(0)),
  maxAttempts: own("maxAttempts", atLeastOne),
  orphanRetention: own("orphanRetention", Environment.duration(1)),
  shutdownTimeout: own("shutdownTimeout", Environment.duration(0)),
  activityGracePeriod: own("activityGracePeriod", Environment.duration(0)),
  cancellationCheckInterval: own("cancellationCheckInterval", Environment.durationOrInfinity(1)),
  tags: own("tags", tags),
  workerId: own("workerId", Environment.text),
  sessionLockTimeout: own("sessionLockTimeout", lock),
  sessionIdleTimeout: own("sessionIdleTimeout", Environment.duration(1)),
  sessionCleanupInterval: own("sessionCleanupInterval", Environment.duration(1)),
  maxSessions: own("maxSessions", Environment.count(0)),
  warmInstances: own("warmInstances", Environment.count(0)),
  warmInstanceBytes: own("warmInstanceBytes", Environment.count(0)),
  verifyReplay: own("verifyReplay", Environment.flag),
  onMismatch: own("onMismatch", Environment.choice("block", "fail")),
  unreadableSignalTimeout: own("unreadableSignalTimeout", Environment.durationOrInfinity(0)),
  build: own("build", Environment.text),
  optimisticTurns: own("optimisticTurns", Environment.flag),
  dashboardUrl: own("dashboardUrl", { allowed: dashboardUrl.allowed, read: dashboardUrl.read })
}

/** The settings, and the variable that set each. `defaults` are valid. */
export const config = (
  defaults: Options
): Config.Config<{ readonly settings: Settings; readonly origins: Origins }> =>
  Config.mapEffect(Environment.config(variables), ({ options, origins }) => {
    try {
      return Effect.succeed({ settings: makeUnsafe({ ...defaults, ...options }), origins })
    } catch (thrown) {
      if (thrown instanceof RangeError) return Environment.refused([named(thrown.message, origins)])
      throw thrown
    }
  })

// internal

/** A limit that concerns two settings, or a text: the message names the option, and an operator knows the variable. */
const named = (message: string, origins: Origins) =>
  message.replace(
    /^RuntimeConfig\.(\w+)/,
    (_, option: keyof Settings) => origins.get(option) ?? variables[option][0]!.name
  )
