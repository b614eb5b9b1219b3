/**
 * The settings of a runtime, and their limits.
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Hash from "effect/Hash"
import type { TagFilter } from "../model/Instance.ts"
import * as dashboardUrl from "../model/shared/dashboardUrl.ts"
import { durationOf } from "../model/shared/durations.ts"
import { maxGivenIdBytes, problemOfName, problemOfTag } from "../model/shared/identifiers.ts"
import * as renewal from "../waking/renewal.ts"

/**
 * All settings of a runtime.
 *
 * @category models
 * @since 0.1.0
 */
export interface Settings {
  /**
   * Turns of claimed instances that run at once in this process. First turns that are stored with their start, and
   * turns that outcomes of activities lead to, are not counted. Defaults to 40.
   */
  readonly orchestrationConcurrency: number
  /**
   * Activities that run at once in this process; short ones that wait for a slot here are not counted. Where results
   * take megabytes, fewer run: as many as have 64 MiB of them together, but at least 16. Defaults to 40.
   */
  readonly workerConcurrency: number
  /**
   * Lock duration of a claimed instance, renewed at half this interval. After a crash, another process takes over once
   * it expires. Defaults to 5 seconds.
   */
  readonly orchestrationLockTimeout: Duration.Duration
  /** How long the lock of a claimed activity lasts without a renewal. Defaults to 30 seconds. */
  readonly workerLockTimeout: Duration.Duration
  /** How long a claim waits for work before it is repeated. Defaults to 30 seconds. */
  readonly pollTimeout: Duration.Duration
  /**
   * Deliveries without an outcome after which work is poison: its activity or instance fails for good. A delivery
   * counts if the process died, the lock expired or the handler interrupted itself; see `docs/outcomes.md`. Defaults to
   * 10.
   */
  readonly maxAttempts: number
  /**
   * How long messages for an id without an instance wait for an instance with that id. After that they are deleted.
   * Defaults to 7 days.
   */
  readonly orphanRetention: Duration.Duration
  /** How long a shutdown waits for turns and activities to end before it interrupts them. Defaults to 10 seconds. */
  readonly shutdownTimeout: Duration.Duration
  /** How long an interrupted activity may run its finalizers before its slot is freed. Defaults to 10 seconds. */
  readonly activityGracePeriod: Duration.Duration
  /**
   * How soon a running activity learns that another process cancelled it, if that process does not announce it: one
   * statement at this interval checks all activities that run for longer, and renews their locks. While processes
   * notify each other (`docs/architecture.md`), only activities of Rust's orchestrations are checked that often: the
   * others learn within milliseconds, and are checked at half of `workerLockTimeout`. A cancellation by this process is
   * noticed at once. With `Infinity` only these renewals check. Defaults to 1 second.
   */
  readonly cancellationCheckInterval: Duration.Duration
  /**
   * Which activities this process claims, by tag: `{ _tag: "DefaultOnly" }` activities without a tag, `Tags` those with
   * one of 1 to 5 `tags`, `DefaultAnd` both, `Any` all, `None` no activities. Defaults to `DefaultOnly`.
   */
  readonly tags: TagFilter
  /**
   * Owner of the sessions of this process, at most 1,024 bytes. A process that starts again with the same id within
   * `sessionLockTimeout` finds its sessions again. Two processes with one id share their sessions. Defaults to
   * undefined: each runtime gets an id of its own, and its sessions are free as soon as it is shut down.
   */
  readonly workerId: string | undefined
  /**
   * Lock duration of a session, renewed at half this interval. After a crash the session is free once it expires.
   * Defaults to 30 seconds.
   */
  readonly sessionLockTimeout: Duration.Duration
  /**
   * A session without activities for this time is released. Must be more than the smaller of
   * `cancellationCheckInterval` and half of `workerLockTimeout`, so that a session with a running activity is not
   * released. Defaults to 5 minutes.
   */
  readonly sessionIdleTimeout: Duration.Duration
  /** Time between two cleanups of sessions that have neither a lock nor activities. Defaults to 5 minutes. */
  readonly sessionCleanupInterval: Duration.Duration
  /**
   * Most sessions that may have activities running in this process. At the limit it claims only activities without a
   * session; with 0 it never claims others. Defaults to 10.
   */
  readonly maxSessions: number
  /**
   * Most waiting instances that stay warm: their programs wait in memory and resume at the next turn, without replaying
   * the history. The least recently used are discarded first; 0 replays every turn. Defaults to 10,000.
   */
  readonly warmInstances: number
  /** Most memory of warm instances, in bytes, estimated from above. Defaults to 67,108,864 (64 MiB). */
  readonly warmInstanceBytes: number
  /**
   * Replays every turn, also of warm instances. An instance is blocked, or fails (`onMismatch`), when its replay
   * decides otherwise than its warm program, because the program is not deterministic. For tests: it costs what warm
   * instances save. Defaults to false.
   */
  readonly verifyReplay: boolean
  /**
   * What happens to an instance of this package whose code does not fit what is stored, awaits what is not durable, or
   * never rests: it is blocked until fitting code is deployed, or fails for good. Instances pinned to Duroxide always
   * fail. Defaults to undefined: `block`, and `fail` in a `TestRuntime`.
   */
  readonly onMismatch: "block" | "fail" | undefined
  /**
   * How long a signal that no process can read blocks its instance. After that it is set aside, and the instance
   * continues; `Client.redrive` sends the signal again. 0 sets it aside at once, `Infinity` never. Defaults to 1 hour:
   * a rolling deploy ends sooner, and a wrong one is rolled back.
   */
  readonly unreadableSignalTimeout: Duration.Duration
  /**
   * Names the code of this process for operators, such as a commit: in reports of blocked instances, and in the list of
   * processes. At most 1,024 bytes. Defaults to undefined: a hash of what the process serves.
   */
  readonly build: string | undefined
  /**
   * Runs turns before they are claimed, and stores them with what leads to them: the start of an instance, or outcomes
   * of its activities. Without it every turn costs a claim and a statement of its own. A process that verifies replays
   * claims every turn, one that keeps no instance warm every turn after the first. Defaults to true.
   */
  readonly optimisticTurns: boolean
  /**
   * Where a dashboard is mounted, such as `https://shop.example/duroxide`: log lines and spans about an instance carry
   * the address of its page. An absolute http or https URL without credentials, query and fragment; a slash at its end
   * is dropped. Defaults to undefined: they carry none.
   */
  readonly dashboardUrl: string | undefined
}

/** `onMismatch` where it is not set. In virtual time a test would wait forever for an instance that is blocked. */
export const UnsetOnMismatch = Context.Reference<"block" | "fail">("duroxide-prisma/internal/UnsetOnMismatch", {
  defaultValue: () => "block"
})

/** Settings with nothing left open. */
export interface Complete extends Settings {
  readonly onMismatch: "block" | "fail"
  readonly build: string
}

/** Names the code of a process that has no name of its own. Another list of definitions has another one. */
export const fingerprint = (served: ReadonlyArray<string>): string =>
  (Hash.string([...served].sort().join("\n")) >>> 0).toString(16).padStart(8, "0")

/** The settings of a runtime that is given none. */
export const defaults: Settings = {
  orchestrationConcurrency: 40,
  workerConcurrency: 40,
  orchestrationLockTimeout: Duration.seconds(5),
  workerLockTimeout: Duration.seconds(30),
  pollTimeout: Duration.seconds(30),
  maxAttempts: 10,
  orphanRetention: Duration.days(7),
  shutdownTimeout: Duration.seconds(10),
  activityGracePeriod: Duration.seconds(10),
  cancellationCheckInterval: Duration.seconds(1),
  tags: { _tag: "DefaultOnly" },
  workerId: undefined,
  sessionLockTimeout: Duration.seconds(30),
  sessionIdleTimeout: Duration.minutes(5),
  sessionCleanupInterval: Duration.minutes(5),
  maxSessions: 10,
  warmInstances: 10_000,
  warmInstanceBytes: 67_108_864,
  verifyReplay: false,
  onMismatch: undefined,
  unreadableSignalTimeout: Duration.hours(1),
  build: undefined,
  optimisticTurns: true,
  dashboardUrl: undefined
}

/**
 * Settings as an application writes them: durations in any form that Effect accepts.
 *
 * @category models
 * @since 0.1.0
 */
export type Options = {
  readonly [K in keyof Settings]?: Settings[K] extends Duration.Duration ? Duration.Input : Settings[K]
}

/**
 * Completes `options` with the defaults. Throws a `RangeError` on an invalid setting: an unknown name, a count below 1,
 * a lock timeout of zero, an empty tag, a URL with a query.
 *
 * @category configuration
 * @since 0.1.0
 */
export const makeUnsafe = (options: Options = {}): Settings => {
  const settings: Record<string, unknown> = { ...defaults }
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined) continue
    if (!Object.hasOwn(defaults, key)) {
      return invalid(key, `is not an option. There are: ${Object.keys(defaults).join(", ")}`)
    }
    settings[key] = key === "tags"
      ? checkedTags(value as TagFilter)
      : key === "onMismatch"
      ? checkedWord(key, value as string, ["block", "fail"])
      : key === "workerId" || key === "build"
      ? checkedText(key, value as string, (text) => problemOfName(text, maxGivenIdBytes))
      : key === "dashboardUrl"
      ? dashboardUrl.read(value as string) ?? invalid(key, `must be ${dashboardUrl.allowed}`)
      : typeof value === "boolean"
      ? value
      : checkedAmount(key, value as Duration.Input)
  }
  const complete = settings as unknown as Settings
  const renewalMs = Duration.toMillis(activityRenewal(complete).interval)
  const idleMs = Duration.toMillis(complete.sessionIdleTimeout)
  if (!(idleMs > renewalMs)) {
    return invalid(
      "sessionIdleTimeout",
      `is ${idleMs} milliseconds; running activities are renewed every ${renewalMs} milliseconds, and it must be more ` +
        "than that, or their sessions would be given up"
    )
  }
  return complete
}

/** When the locks of running activities are renewed. Each renewal also checks whether they were cancelled. */
export const activityRenewal = (settings: Settings): renewal.Pace =>
  renewal.pace(settings.workerLockTimeout, settings.cancellationCheckInterval)

/**
 * Pace of renewals while other processes announce which activities they cancel: whenever half of the lock is left,
 * unless that is too seldom for sessions.
 */
export const announcedRenewal = (settings: Settings): renewal.Pace => {
  const pace = renewal.pace(settings.workerLockTimeout)
  return Duration.isLessThan(pace.interval, settings.sessionIdleTimeout) ? pace : activityRenewal(settings)
}

// internal

const mayBeZero: ReadonlySet<string> = new Set([
  "pollTimeout",
  "shutdownTimeout",
  "activityGracePeriod",
  "unreadableSignalTimeout",
  "maxSessions",
  "warmInstances",
  "warmInstanceBytes"
])

/** The store refuses longer ones, and a fiber waits in each slot of orchestrations. Others may be infinite. */
const century = Duration.toMillis(Duration.days(36_500))
const mostOf: { readonly [key: string]: number } = {
  orchestrationConcurrency: 100_000,
  orchestrationLockTimeout: century,
  workerLockTimeout: century,
  sessionLockTimeout: century,
  sessionIdleTimeout: century,
  orphanRetention: century
}

const invalid = (key: string, problem: string): never => {
  throw new RangeError(`RuntimeConfig.${key} ${problem}`)
}

const checkedAmount = (key: string, value: Duration.Input): unknown => {
  const isDuration = Duration.isDuration(defaults[key as keyof Settings])
  const setting = isDuration ? durationOf(value) : value
  if (setting === undefined) return invalid(key, "is not a duration")
  if (!isDuration && setting !== Infinity && !Number.isInteger(setting)) {
    return invalid(key, `is ${Number(setting)}; it must be a whole number`)
  }
  const amount = Duration.isDuration(setting) ? Duration.toMillis(setting) : Number(setting)
  if (amount > (mostOf[key] ?? Infinity)) {
    return invalid(key, isDuration ? "is longer than 100 years" : `is ${amount}; it must be at most ${mostOf[key]}`)
  }
  const least = mayBeZero.has(key) ? 0 : 1
  return amount >= least
    ? setting
    : invalid(key, `is ${amount}${Duration.isDuration(setting) ? " milliseconds" : ""}; it must be at least ${least}`)
}

const checkedTags = (filter: TagFilter): TagFilter => {
  if (!("tags" in filter)) return filter
  const { length } = filter.tags
  if (length < 1 || length > 5) invalid("tags", `has ${length} tags; it must have 1 to 5`)
  for (const tag of filter.tags) checkedText("tags", tag, problemOfTag)
  return filter
}

const checkedWord = (key: string, word: string, allowed: ReadonlyArray<string>): string =>
  allowed.includes(word) ? word : invalid(key, `must be one of ${allowed.join(", ")}`)

const checkedText = (key: string, text: string, problemOf: (text: string) => string | undefined): string => {
  const problem = problemOf(text)
  return problem === undefined ? text : invalid(key, `cannot be used: ${problem}`)
}
