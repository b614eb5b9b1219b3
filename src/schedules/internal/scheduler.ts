/**
 * The scheduler of a process: claims schedules that have something to do, decides, and fires.
 *
 * It sleeps until the store says that something is due. Changes by other processes reach it as hints of a topic; what
 * no hint announces, and what becomes due because the clock of the store was set, a look each minute finds, or every
 * five seconds without a connection for hints.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FiberMap from "effect/FiberMap"
import * as Metric from "effect/Metric"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { InBackground } from "../../model/shared/inBackground.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import { ours } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as trouble from "../../model/shared/trouble.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { retried, shared } from "../../provider/shared/statement.ts"
import * as dueLoop from "../../waking/dueLoop.ts"
import { Topic, Topics } from "../../waking/Topics.ts"
import { ScheduleDriver } from "../ScheduleDriver.ts"
import type { Claimed, ClaimedSchedule, Fire, RunningRun } from "../ScheduleDriver.ts"
import type { Ends } from "./ends.ts"
import * as firing from "./firing.ts"
import { sealing } from "./made.ts"
import type { PayloadOf } from "./made.ts"

export interface Passed {
  readonly waiting: Claimed["waiting"]
  /** Milliseconds until the next look: 0 if there may be more now, null if nothing is due. */
  readonly nextInMs: number | null
  /** Occurrences that have started something. */
  readonly started: number
}

/** Claims a set of schedules once, and fires them. */
export const makePass = Effect.fnUntraced(function*(
  codes: ReadonlyMap<string, PayloadOf>
): Effect.fn.Return<Effect.Effect<Passed, ProviderError>, never, ScheduleDriver | Topics | Scope.Scope> {
  const driver = yield* ScheduleDriver
  const topics = yield* Topics
  // A schedule that cannot be stored holds no other one up.
  const fire = yield* shared("fireSchedules", driver.fire, {
    lanes: 2,
    maxBatch: 50,
    patience: Duration.seconds(2),
    sizeOf: (fire: Fire) => fire.runs.reduce((sum, { start }) => sum + sizeOf(start), 0)
  })
  const known = [...codes.keys()]
  const { seal } = yield* sealing

  /** What was stored; undefined if nothing was. */
  const settle = Effect.fnUntraced(function*(claimed: ClaimedSchedule, nowMs: number) {
    const { name } = claimed
    const decided = yield* firing.decide(claimed, nowMs, codes, seal)
    if (Result.isFailure(decided)) {
      yield* log(Effect.logError("Schedules: a schedule cannot be fired"), name, { error: decided.failure })
      return undefined
    }
    return yield* Effect.matchEffect(fire(decided.success), {
      // It is claimed again when the hold of this claim has ended.
      onFailure: (error) =>
        Effect.as(
          log(Effect.logWarning("Schedules: a schedule was not fired; it is tried again"), name, {
            error: error.message
          }),
          undefined
        ),
      onSuccess: (isSettled) =>
        isSettled ? Effect.as(report(decided.success), decided.success) : Effect.succeed(undefined)
    })
  })

  return Effect.gen(function*() {
    const claimed = yield* retried(driver.claim({ codes: known, limit, holdMs }))
    const { nextMs, nowMs, waiting } = claimed
    const settled = yield* Effect.forEach(claimed.schedules, (one) => settle(one, nowMs), {
      concurrency: "unbounded"
    })
    const runs = settled.flatMap((fire) => fire?.runs ?? [])
    const started = runs.filter(({ start }) => start !== null)
    const hints = started.some(({ start }) => start!._tag === "Task") ? [{ topic: Topic.outbox }] : []
    // Others wait for the end of the last run as well: this process may not live to see it.
    if (runs.some(({ outcome }) => outcome === "Queued")) yield* topics.announce([{ topic: Topic.schedules }, ...hints])
    else if (hints.length > 0) yield* topics.announce(hints)
    const nextLookMs = Math.min(
      nextMs ?? Infinity,
      ...settled.map((fire) => fire === undefined ? nowMs + holdMs : fire.lookMs ?? Infinity)
    )
    return {
      waiting,
      nextInMs: claimed.isFull || runs.length > 0
        ? 0
        : nextLookMs === Infinity
        ? null
        : Math.max(0, nextLookMs - nowMs),
      started: started.length
    }
  })
})

/** Runs until the scope is closed. */
export const run = Effect.fnUntraced(function*(
  codes: ReadonlyMap<string, PayloadOf>,
  ends: Ends
): Effect.fn.Return<void, never, ScheduleDriver | Topics | Scope.Scope> {
  const topics = yield* Topics
  const clock = yield* Clock.Clock
  const pass = yield* makePass(codes)
  const store = trouble.make(clock)
  const watched = yield* FiberMap.make<string>()
  /** Monotonic milliseconds. */
  let nextMs = 0
  let isHinted = false

  const loop = yield* dueLoop.make({
    nextMs: () => nextMs,
    act: Effect.suspend(() => {
      isHinted = false
      return Effect.matchEffect(pass, {
        onFailure: (error) => {
          const failures = store.failed()
          nextMs = monotonicMs(clock) + trouble.growingMs(firstPauseMs, longestPauseMs, failures)
          return failures > 0 ?
            Effect.void :
            Effect.logWarning("Schedules: cannot look for what is due; it tries again")
              .pipe(ours({ error: error.message }))
        },
        onSuccess: ({ nextInMs, waiting }) => {
          const fallbackMs = waiting.some((run) => ends(run) === undefined)
            ? blindPollMs
            : topics.isConnected()
            ? fallbackPollMs
            : disconnectedPollMs
          nextMs = monotonicMs(clock) + (isHinted ? 0 : Math.min(nextInMs ?? Infinity, fallbackMs))
          const ended = store.ended()
          return Effect.andThen(
            ended === undefined ? Effect.void : Effect.logInfo("Schedules: the store answers again").pipe(
              ours({ duration_ms: ended.lastedMs })
            ),
            watch(waiting)
          )
        }
      })
    })
  }).pipe(Effect.provideService(InBackground, true))

  const look = () => {
    isHinted = true
    nextMs = 0
    loop.wake()
  }

  const watch = (waiting: ReadonlyArray<RunningRun>) =>
    Effect.gen(function*() {
      const keys = new Set(waiting.map(keyOf))
      for (const [key] of watched) if (!keys.has(key)) yield* FiberMap.remove(watched, key)
      yield* Effect.forEach(waiting, (run) => {
        const end = ends(run)
        return end === undefined ? Effect.void : FiberMap.run(
          watched,
          keyOf(run),
          Effect.provideService(Effect.andThen(end, Effect.sync(look)), InBackground, true),
          { onlyIfMissing: true }
        )
      }, { discard: true })
    })

  yield* topics.subscribe(Topic.schedules, { received: look, connected: look, disconnected: look })
})

// internal

const limit = 250

/**
 * How long other schedulers leave a claimed schedule to this process. If it dies meanwhile, that is how late an
 * occurrence becomes; if it takes longer, others do the same work once more, and one of them fires.
 */
const holdMs = 5_000

const fallbackPollMs = 60_000

const disconnectedPollMs = 5_000

/** While a run continues whose end this process does not learn. */
const blindPollMs = 1_000

const firstPauseMs = 1_000

const longestPauseMs = 30_000

const keyOf = ({ instanceId, name, taskId }: RunningRun) => `${name}\n${instanceId ?? taskId}`

const sizeOf = (start: Fire["runs"][number]["start"]): number =>
  start === null ? 0 : start._tag === "Task" ? start.task.payload.length : start.start.input.length

const runsBy = seriesOf(Metrics.scheduleRuns)

const log = (line: Effect.Effect<void>, schedule: string, annotations: Readonly<Record<string, unknown>>) =>
  line.pipe(ours({ schedule, ...annotations }))

/** Counts what was settled, and says what an operator should know. */
const report = ({ name, runs }: Fire) =>
  Effect.forEach(runs, ({ kind, missedSinceMs, note, occurrenceMs, outcome }) =>
    Effect.andThen(
      Metric.update(runsBy(outcome), 1),
      outcome === "Refused"
        ? log(Effect.logError("Schedules: a payload could not be made; nothing was started"), name, {
          occurrence: new Date(occurrenceMs).toISOString(),
          kind,
          error: note
        })
        : outcome === "Missed"
        ? log(Effect.logWarning("Schedules: occurrences were missed and are left out"), name, {
          since: new Date(missedSinceMs!).toISOString(),
          until: new Date(occurrenceMs).toISOString()
        })
        : Effect.void
    ), { discard: true })
