/**
 * What happens in the store, for all pages that look at it.
 *
 * Every two seconds it reads what `top` reads, which costs the same however many instances there are; less often what
 * changes slowly. A store that answers slowly is asked less often: reads take a fiftieth of the time at most.
 */
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Option from "effect/Option"
import { shownTarget } from "../../model/shared/pauses.ts"
import { age, counted } from "../../model/shared/quantities.ts"
import { takeoverMs } from "../../observability/shared/late.ts"
import * as Backlogs from "../../operating/backlogs.ts"
import * as Live from "../../operating/live.ts"
import { OutboxDriver } from "../../outbox/OutboxDriver.ts"
import type * as LiveReport from "../../prisma/shared/liveReport.ts"
import * as QueueReport from "../../prisma/shared/queueReport.ts"
import { Admin } from "../../provider/Admin.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { definitionOf } from "../../provider/shared/unserved.ts"
import { RuntimeConfig } from "../../RuntimeConfig.ts"
import { TaskDriver } from "../../tasks/TaskDriver.ts"
import type * as Api from "../Api.ts"
import * as Failures from "./failures.ts"
import { storeNowMs } from "./now.ts"
import * as Schedules from "./schedules.ts"
import * as Shapes from "./shapes.ts"

type Overview = typeof Api.Overview.Type
type Attention = typeof Api.Attention.Type
type Pace = typeof Api.Pace.Type

/**
 * Reads again and again, and at once after an action of this page; `publish` gets each overview. A failed read is tried
 * again, and nothing is published.
 */
export const watch = Effect.fnUntraced(function*(
  past: Past,
  acted: Latch.Latch,
  publish: (overview: Overview) => Effect.Effect<void>
) {
  let slow: Slow | undefined
  let slowAtMs = Number.NEGATIVE_INFINITY
  const look = Effect.gen(function*() {
    const nowMs = yield* Clock.currentTimeMillis
    if (nowMs - slowAtMs > slowEveryMs) {
      slow = yield* readSlow
      slowAtMs = nowMs
    }
    past.last = yield* readOnce(past, slow!)
    past.failure = undefined
    yield* publish(past.last)
  })
  return yield* Effect.forever(
    look.pipe(
      Effect.catch((error) => {
        past.failure = Failures.of(error)
        return Effect.andThen(
          Effect.logDebug("Dashboard: the store did not answer", error),
          past.last === undefined ? Effect.void : publish({ ...past.last, problem: past.failure.message })
        )
      }),
      Effect.timed,
      Effect.flatMap(([took]) => Effect.timeoutOption(acted.await, pauseAfter(Duration.toMillis(took)))),
      Effect.tap((woken) => {
        if (Option.isNone(woken)) return Effect.void
        slowAtMs = Number.NEGATIVE_INFINITY
        return acted.close
      })
    )
  )
})

/** What was seen while someone looked. */
export interface Past {
  /** What the reads of the last minute have counted. */
  readonly minute: Array<Omit<LiveReport.Pace, "orchestration"> & { readonly fromMs: number; readonly toMs: number }>
  readonly paces: Array<Pace>
  lastMs: number | undefined
  last: Overview | undefined
  /** Why the read after that has failed. */
  failure: Failures.Failure | undefined
}

export const makePast = (): Past => ({ minute: [], paces: [], lastMs: undefined, last: undefined, failure: undefined })

// internal

/** Reads take a fiftieth of the time, so that work hardly notices; but operators soon see what they have done. */
const pauseAfter = (tookMs: number) => Math.min(Math.max(everyMs, tookMs * 50), longestPauseMs)
const everyMs = 2_000
const longestPauseMs = 10_000
const slowEveryMs = 15_000
const minuteMs = 60_000

/** One pace in half a minute is kept, for an hour. */
const keepEveryMs = 30_000
const hourMs = 3_600_000

/** Most instances that are counted one by one. */
const mostListed = 100

/** Most overdue schedules that are named one by one. */
const mostNamed = 5

interface Slow {
  readonly attention: ReadonlyArray<Attention>
  readonly tasks: Overview["tasks"]
  readonly outbox: Overview["outbox"]
}

const readOnce = Effect.fnUntraced(function*(past: Past, slow: Slow) {
  const live = yield* Live.read(past.lastMs === undefined ? { agoMs: minuteMs } : { atMs: past.lastMs })
  const { counts, pauses, processes } = live
  const paces = remember(past, live)
  const due = Live.dueOf(live)
  const overview: Overview = {
    nowMs: live.nowMs,
    counts: counts.map(Shapes.count),
    blocked: live.blocked,
    paces,
    due: due.map((one) => ({
      kind: one.kind,
      name: one.name,
      version: one.version,
      tag: one.tag,
      waiting: one.waiting,
      running: one.running,
      oldestAgeMs: one.oldestAgeMs,
      isMore: one.isMore,
      servedBy: one.servedBy,
      isPaused: one.paused
    })),
    pauses: pauses.targets.map(Shapes.pause),
    pausedInstances: pauses.instances,
    processes: processes.map(Shapes.process),
    attention: [
      ...some("blocked", live.blocked, (number) => `${number} blocked: no process could run the next turn`),
      ...waitsOf(due, yield* RuntimeConfig),
      ...pauses.targets.map((one): Attention => ({
        kind: "paused",
        text: `${shownTarget(one.target)} is paused${one.reason === null ? "" : `: ${one.reason}`}`,
        name: Shapes.target(one.target).name,
        count: null
      })),
      ...some("paused", pauses.instances, (number) => `${number} paused individually`),
      ...some(
        "deadProcesses",
        processes.filter(({ isAlive }) => !isAlive).length,
        (number) => `${number} died within a day`,
        ["process", "processes"]
      ),
      ...slow.attention
    ],
    tasks: slow.tasks,
    outbox: slow.outbox,
    problem: null
  }
  return overview
})

/** What changes slowly, or costs more to read. */
const readSlow = Effect.gen(function*() {
  const admin = yield* Admin
  const failed = yield* admin.list({
    status: "Failed",
    updatedFromMs: (yield* storeNowMs) - hourMs,
    limit: mostListed
  })
  const retrying = yield* admin.list({ isRetrying: true, limit: mostListed })
  const letters = yield* QueueReport.countDeadByQueue
  const tasks = yield* orNull((yield* TaskDriver).readBacklog)
  const outbox = yield* orNull((yield* OutboxDriver).readBacklog)
  const overdue = (yield* orNull(Schedules.overdue)) ?? []
  const orMore = ({ instances, next }: typeof failed, number: string) =>
    next !== null && instances.length === mostListed ? `${number} or more` : number
  const slow: Slow = {
    attention: [
      ...some("failed", failed.instances.length, (number) => `${orMore(failed, number)} failed within the last hour`),
      ...some("retrying", retrying.instances.length, (number) => `${orMore(retrying, number)} try an activity again`),
      ...some("deadTasks", tasks?.dead ?? 0, (number) => `${number} dead`, ["task", "tasks"]),
      ...letters.map(({ dead, queue }): Attention => ({
        kind: "deadLetters",
        text: `${counted(dead, "dead letter")} in the queue ${queue}`,
        name: queue,
        count: dead
      })),
      ...(overdue.length > mostNamed ?
        some("overdueSchedules", overdue.length, (number) => `${number} overdue`, [
          "schedule",
          "schedules"
        ]) :
        overdue.map((name): Attention => ({
          kind: "overdueSchedules",
          text: `schedule ${name} is overdue`,
          name,
          count: 1
        })))
    ],
    tasks: tasks === null ? null : Backlogs.tasksOf(tasks),
    outbox: outbox === null ? null : Backlogs.outboxOf(outbox)
  }
  return slow
})

/** The rest is shown without it. */
const orNull = <A, R>(read: Effect.Effect<A, ProviderError, R>) => Effect.catch(read, () => Effect.succeed(null))

/** Work that no process serves, and work that waits longer than another process takes to take over from a dead one. */
const waitsOf = (
  due: ReturnType<typeof Live.dueOf>,
  { orchestrationLockTimeout, workerLockTimeout }: Context.Service.Shape<typeof RuntimeConfig>
): ReadonlyArray<Attention> => {
  const limits = { orchestration: takeoverMs(orchestrationLockTimeout), activity: takeoverMs(workerLockTimeout) }
  return due.flatMap((one): ReadonlyArray<Attention> => {
    const { kind, name, oldestAgeMs, paused, servedBy, waiting } = one
    if (paused || oldestAgeMs === null) return []
    if (servedBy === 0) {
      const text = `no living process serves ${definitionOf(one)}: ${
        counted(waiting, "waits", "wait")
      }, the oldest for ${age(oldestAgeMs)}`
      return [{ kind: "unserved", text, name, count: waiting }]
    }
    if (oldestAgeMs <= limits[kind]) return []
    return [{ kind: "late", text: `${definitionOf(one)} has waited for ${age(oldestAgeMs)}`, name, count: waiting }]
  })
}

/** Nothing for none. */
const some = (
  kind: Attention["kind"],
  count: number,
  text: (number: string) => string,
  [one, many]: readonly [string, string] = ["instance", "instances"]
): ReadonlyArray<Attention> => count === 0 ? [] : [{ kind, text: text(counted(count, one, many)), name: null, count }]

/** The pace of the last minute, after those that were kept. */
const remember = (past: Past, live: Live.Report): ReadonlyArray<Pace> => {
  const fromMs = past.lastMs ?? live.nowMs - minuteMs
  past.lastMs = live.nowMs
  // After a pause, the first answer is about all of it.
  if (live.nowMs - fromMs > minuteMs) past.minute.length = 0
  const sum = (field: "started" | "completed" | "failed" | "cancelled") =>
    live.paces.reduce((sum, one) => sum + one[field], 0)
  past.minute.push({
    fromMs,
    toMs: live.nowMs,
    started: sum("started"),
    completed: sum("completed"),
    failed: sum("failed"),
    cancelled: sum("cancelled")
  })
  while (past.minute[0]!.toMs <= live.nowMs - minuteMs) past.minute.shift()
  const perMinute = (field: "started" | "completed" | "failed" | "cancelled") =>
    past.minute.reduce((sum, one) => sum + one[field], 0) * minuteMs / Math.max(1, live.nowMs - past.minute[0]!.fromMs)
  const pace: Pace = {
    atMs: live.nowMs,
    started: perMinute("started"),
    completed: perMinute("completed"),
    failed: perMinute("failed"),
    cancelled: perMinute("cancelled"),
    blocked: live.blocked
  }
  const lastKeptMs = past.paces.at(-1)?.atMs ?? Number.NEGATIVE_INFINITY
  if (pace.atMs - lastKeptMs < keepEveryMs) return [...past.paces, pace]
  past.paces.push(pace)
  while (past.paces[0]!.atMs < live.nowMs - hourMs) past.paces.shift()
  return [...past.paces]
}
