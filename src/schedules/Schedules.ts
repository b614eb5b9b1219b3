/**
 * Orchestrations and tasks that start at certain times.
 *
 * A schedule is a row of the database: when it is due, what it starts, and the rules for late and overlapping
 * occurrences. Code defines it, or a program creates it at run time. Any number of processes with `Schedules.layer`
 * fire what is due; each occurrence fires once.
 *
 * Not Effect's `Schedule`, which repeats an effect in its fiber and ends with its process.
 *
 * @since 0.3.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Attribute from "../model/Attribute.ts"
import type { ServedBy } from "../model/shared/definitions.ts"
import { withHarmlessLoggers } from "../model/shared/logging.ts"
import type { Payload as Codec, PayloadMismatch, PayloadSchema, PayloadTooLarge } from "../model/shared/payload.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { Topics } from "../waking/Topics.ts"
import type { Service } from "./internal/api.ts"
import * as checks from "./internal/check.ts"
import * as endsOf from "./internal/ends.ts"
import * as made from "./internal/made.ts"
import type { Occurrence, Schedule } from "./internal/made.ts"
import * as scheduler from "./internal/scheduler.ts"
import * as service from "./internal/service.ts"
import type { Timing } from "./internal/timing.ts"
import { ScheduleDriver } from "./ScheduleDriver.ts"
import type { Overlap } from "./ScheduleDriver.ts"

export type { RunInfo, ScheduleInfo } from "./internal/info.ts"
export type { Occurrence, Schedule } from "./internal/made.ts"
export type { Definition, Overlap, RunKind, RunOutcome, Target, Timing } from "./ScheduleDriver.ts"

// -----------------------------------------------------------------------------
// timings
// -----------------------------------------------------------------------------

/**
 * Due at the times of a cron expression.
 *
 * **Details**
 *
 * The expression has five fields, or six with seconds in front. `timeZone` is a name such as `Europe/Berlin`, and
 * defaults to UTC. When its clocks go forward by an hour, a time that does not exist is due an hour later; of several
 * such times, only the first is due. When they go back, a time that comes twice is due the first time, or both times if
 * the field of hours begins with `*`. Throws a `RangeError` if the expression or the time zone is not valid, or if no
 * date fits.
 *
 * @category timings
 * @since 0.3.0
 */
export const cron = (expression: string, options?: { readonly timeZone?: string | undefined }): Timing =>
  checks.cron(expression, options?.timeZone ?? "UTC")

/**
 * Due at intervals, counted from midnight UTC of 1970-01-01, or `offset` later: so all processes agree, and a restart
 * changes nothing. `every` is 1 second to 10 years; `offset` is shorter than `every`. Throws a `RangeError` otherwise.
 *
 * @category timings
 * @since 0.3.0
 */
export const every = (
  every: Duration.Input,
  options?: { readonly offset?: Duration.Input | undefined }
): Timing => checks.interval(every, options?.offset)

/**
 * Due on certain dates: at most 1,000, as `Date`, or as texts of ISO 8601. A text without an offset, such as
 * `2026-12-24T18:00`, is a time in `timeZone`, which defaults to UTC. Throws a `RangeError` if a date cannot be
 * read, or does not exist in the zone because the clocks go forward.
 *
 * @category timings
 * @since 0.3.0
 */
export const dates = (
  at: ReadonlyArray<Date | string>,
  options?: { readonly timeZone?: string | undefined }
): Timing => checks.dates(at, options?.timeZone ?? "UTC")

// -----------------------------------------------------------------------------
// definitions
// -----------------------------------------------------------------------------

/**
 * What an occurrence can start. Its type has no result and no error: editors would show both wherever a schedule is
 * defined.
 */
type Startable<P extends PayloadSchema> =
  | {
    readonly name: string
    readonly version: string
    readonly servedBy: ServedBy
    readonly payload: P
    readonly codecs: { readonly payload: Codec<P["Type"]> }
  }
  | {
    readonly name: string
    readonly queue: string
    readonly maxAttempts: number
    readonly payload: P
    readonly codecs: { readonly payload: Codec<P["Type"]> }
    readonly wakeupKind?: string
  }

/**
 * When a schedule is due, and what happens to an occurrence that comes late or while the last run continues.
 *
 * @category models
 * @since 0.3.0
 */
export interface Rules {
  readonly timing: Timing
  /**
   * What happens to an occurrence while the last run continues. `skip`: it is skipped. `queue`: it starts when that run
   * has ended; further occurrences until then are skipped. `allow`: it starts at once. `interrupt`: the run is
   * interrupted as by `Client.interrupt`, or its task is cancelled, and the newest occurrence starts when it has ended.
   * Defaults to `skip`.
   */
  readonly overlap?: Overlap | undefined
  /**
   * The longest delay of an occurrence, so that schedules with the same timing do not all start at once. The delay
   * follows from name and time, so it is the same in every process. Defaults to none; at most a day.
   */
  readonly jitter?: Duration.Input | undefined
  /**
   * Which occurrences start of those that are more than a minute late, because no scheduler ran: the `last` of them,
   * `none`, or all that are not older than `within`, which is at most 10 years. Defaults to `last`.
   */
  readonly catchUp?: "none" | "last" | { readonly within: Duration.Input } | undefined
  /** Attributes of the instances that it starts. Defaults to none; a task has none. */
  readonly attributes?: Attribute.Attributes | undefined
  /**
   * Which version of an orchestration starts, as for `Client.start`: that of the definition (`own`), or the newest one
   * that is served where it runs. Defaults to `own`.
   */
  readonly version?: "own" | "newest" | undefined
}

type PayloadOption<P, A> = [P] extends [void] ? { readonly payload?: undefined } : {
  /**
   * One payload for all occurrences, or a function that makes it. Then only processes with this code fire the schedule.
   */
  readonly payload: A | ((occurrence: Occurrence) => A)
}

/**
 * Defines a schedule.
 *
 * **Details**
 *
 * `name` has at most 200 bytes. `start` is an orchestration or a task. An occurrence starts the instance
 * `schedule/<name>/<time>`, or the task with this key; an `instanceId` of the orchestration is not used. Throws a
 * `RangeError` if the name or a rule is not valid.
 *
 * **Example** (A report every night)
 *
 * ```ts
 * import { Schedules } from "duroxide-prisma/schedules"
 *
 * const Nightly = Schedules.make("nightly-report", {
 *   timing: Schedules.cron("0 4 * * *", { timeZone: "Europe/Berlin" }),
 *   start: Report,
 *   payload: ({ at }) => ({ day: at.toISOString().slice(0, 10) })
 * })
 * ```
 *
 * @category constructors
 * @since 0.3.0
 */
export const make = <
  P extends PayloadSchema,
  const A extends P["Type"]
>(
  name: string,
  options: Rules & { readonly start: Startable<P> } & PayloadOption<P["Type"], A>
): Schedule => {
  checks.name(name)
  const { start } = options
  const definition = checks.definition(name, options, start)
  const given: unknown = options.payload
  return {
    name,
    definition,
    code: typeof given === "function" ? made.codeOf(name, definition) : undefined,
    payload: (occurrence) =>
      Effect.suspend(() =>
        start.codecs.payload.encode(typeof given === "function" ? given(occurrence) : given as P["Type"])
      )
  }
}

// -----------------------------------------------------------------------------
// service
// -----------------------------------------------------------------------------

export {
  /**
   * Another schedule has this name; nothing was stored.
   *
   * @category errors
   * @since 0.3.0
   */
  ScheduleExists,
  /**
   * No schedule has this name.
   *
   * @category errors
   * @since 0.3.0
   */
  ScheduleNotFound
} from "./internal/errors.ts"

export type { Page, Service } from "./internal/api.ts"

/**
 * Creates, reads and changes schedules.
 *
 * **Details**
 *
 * Every method fails with `ProviderError` when the database fails, and with the reason `InvalidInput` for bad input. A
 * change reaches all schedulers within milliseconds, or within 5 seconds without the connection that listens.
 *
 * @category services
 * @since 0.3.0
 */
export class Schedules extends Context.Service<Schedules, Service>()("duroxide-prisma/schedules/Schedules") {}

/**
 * The service without a scheduler, for processes that only look at schedules and change them.
 *
 * @category layers
 * @since 0.3.0
 */
export const layerClient: Layer.Layer<Schedules, never, ScheduleDriver | Topics> = Layer.effect(
  Schedules,
  Effect.gen(function*() {
    return Schedules.of(service.make(yield* ScheduleDriver, yield* Topics, yield* made.sealing))
  })
)

/**
 * Provides the service, and runs a scheduler in this process. The scheduler stores the given definitions, then fires
 * every schedule that is due, including those that programs have created, until the layer is closed. Any number of
 * processes may have a scheduler.
 *
 * **Details**
 *
 * A definition replaces the stored one of its name if it differs; a pause stays. Fails if the definitions cannot be
 * stored. While nothing is due, the scheduler sends one statement a minute. It runs nothing itself: orchestrations
 * need a `Runtime`, tasks need a `TaskWorker` and an `Outbox.publisher`, in any process.
 *
 * With `overlap` `queue` or `interrupt`, the `Provider` in the context notifies it of the end of an instance, and the
 * database of tasks notifies it of the end of a task. Without these it looks each second.
 *
 * **Gotchas**
 *
 * A schedule whose definition you remove from the code stays: delete it with the service or the command line.
 *
 * @category layers
 * @since 0.3.0
 */
export const layer = (
  schedules: ReadonlyArray<Schedule> = []
): Layer.Layer<Schedules, PayloadMismatch | PayloadTooLarge | ProviderError, ScheduleDriver | Topics> =>
  Layer.merge(
    layerClient,
    Layer.effectDiscard(withHarmlessLoggers(Effect.gen(function*() {
      const codes = yield* service.storeAll(schedules)
      yield* scheduler.run(codes, yield* endsOf.make)
    })))
  )

/**
 * Stores the given definitions, then fires what is due now, once. Returns how many occurrences have started something,
 * and when the next one is due; `nextAt` is undefined if no occurrence follows.
 *
 * **When to use**
 *
 * Use in a function that a platform calls, for example each minute, instead of a long-running process.
 *
 * **Gotchas**
 *
 * An occurrence starts with the first call after it; one that waits for the end of a run, with the first call after
 * that.
 *
 * @category operations
 * @since 0.3.0
 */
export const runDue = (
  schedules: ReadonlyArray<Schedule> = []
): Effect.Effect<
  { readonly started: number; readonly nextAt: Date | undefined },
  PayloadMismatch | PayloadTooLarge | ProviderError,
  ScheduleDriver | Topics
> =>
  Effect.scoped(withHarmlessLoggers(Effect.gen(function*() {
    const pass = yield* scheduler.makePass(yield* service.storeAll(schedules))
    let started = 0
    while (true) {
      const passed = yield* pass
      started += passed.started
      if (passed.nextInMs === 0) continue
      const nowMs = yield* Clock.currentTimeMillis
      return { started, nextAt: passed.nextInMs === null ? undefined : new Date(nowMs + passed.nextInMs) }
    }
  })))
