/**
 * Finds lost workers and lost wake-ups, deletes ended tasks after their retention, and counts.
 *
 * The first sweep also wakes the tasks that no worker has served before; it is repeated while others hold some of them.
 * Later sweeps do not look for tasks that another worker does not serve: this worker takes them, or gets their
 * wake-ups.
 *
 * A sweep says when the next task needs a look. Tasks claimed after it need one at the end of their lease at the
 * earliest; while no task has come since, the next sweep is a minute later.
 *
 * Ended tasks are deleted each ten minutes, and with one statement some seconds after the start: processes that live
 * shorter must delete some, too, and many that start together must not delete all at once.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Random from "effect/Random"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { InBackground } from "../../model/shared/inBackground.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import { ours } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import * as dueLoop from "../../waking/dueLoop.ts"
import { Topic, Topics } from "../../waking/Topics.ts"
import type { Swept, TaskBacklog, TaskDriver } from "../TaskDriver.ts"

export const run = Effect.fnUntraced(
  function*({ driver, inTouch, isBusy, keeping, lateMs = 0, names, queues, shortestLease }: {
    readonly driver: Pick<TaskDriver["Service"], "sweep" | "clean" | "readBacklog">
    /** Names of the tasks that this process serves. */
    readonly names: ReadonlyArray<string>
    /** Queues in which wake-ups may be stored without a row of the outbox. */
    readonly queues: ReadonlyArray<string>
    readonly shortestLease: Duration.Duration
    /** How long ended tasks are kept; undefined for a process that deletes none. */
    readonly keeping: { readonly endedMs: number; readonly deadMs: number } | undefined
    /** How much later than others this process sweeps, so that it finds only what they have missed. */
    readonly lateMs?: number
    /** Whether handlers run in this process. */
    readonly isBusy: () => boolean
    /** Waits while this process cannot renew its leases. */
    readonly inTouch: Effect.Effect<void>
  }): Effect.fn.Return<void, never, Topics | Scope.Scope> {
    const topics = yield* Topics
    const clock = yield* Clock.Clock
    const leaseMs = Duration.toMillis(shortestLease)
    /** Monotonic milliseconds. */
    let nextMs = lateMs === 0 ? 0 : monotonicMs(clock) + lateMs
    let nextCleanMs = keeping === undefined ? Infinity : monotonicMs(clock) + (yield* firstCleanMs)
    let isFirstClean = true
    let isOutage = false
    let isFull = false
    let isStarting = names.length > 0
    /** Start of the first sweep that was answered, monotonic milliseconds. */
    let servingMs: number | undefined
    let wakeups = limit
    const sweep = Effect.suspend(() => {
      const startMs = monotonicMs(clock)
      // A sweep that continues the last one must not find this worker busy with the tasks that the last one woke. Tasks
      // that no worker has served wait for this one, however busy it is.
      if (!isFull) wakeups = isBusy() && !isStarting ? mostWakeups : limit
      const serving = isStarting ? { names, sinceMs: Math.round(startMs - (servingMs ?? startMs)) } : undefined
      return Effect.matchEffect(driver.sweep(limit, wakeups, serving), {
        onFailure: (error) => {
          isFull = false
          isOutage = true
          nextMs = monotonicMs(clock) + retryMs
          return Effect.logWarning("Tasks: cannot look for lost work; it tries again").pipe(
            ours({ error: error.message })
          )
        },
        onSuccess: (swept) => {
          servingMs ??= startMs
          isFull = swept.isFull
          // Those that another transaction holds are tried again soon.
          isStarting = isStarting && (isFull || swept.hasUnserved)
          const isIdle = swept.nextMs === null && topics.isConnected()
          nextMs = startMs + Math.max(
            isFull ? 0 : betweenMs,
            Math.min((swept.nextMs ?? Infinity) + lateMs, isStarting ? heldMs : isIdle ? idleMs : leaseMs + lateMs)
          )
          return Effect.andThen(count(swept.backlog), found(swept, topics))
        }
      })
    })

    const cleanSome: Effect.Effect<unknown, ProviderError> = Effect.suspend(() => {
      if (keeping === undefined) return driver.readBacklog
      const some = driver.clean(keeping.endedMs, keeping.deadMs, cleanLimit)
      if (!isFirstClean) return Effect.repeat(some, { until: (deleted) => deleted < cleanLimit })
      return Effect.gen(function*() {
        const isDone = (yield* some) < cleanLimit
        isFirstClean = false
        if (!isDone) nextCleanMs = monotonicMs(clock) + (yield* firstCleanMs)
      })
    })
    const clean = cleanSome.pipe(
      Effect.andThen(Effect.sync(() => {
        if (isOutage) nextMs = monotonicMs(clock) + afterOutageMs
        isOutage = false
      })),
      Effect.catch((error) =>
        Effect.logWarning("Tasks: cannot delete ended tasks; it tries again").pipe(
          ours({ error: error.message })
        )
      )
    )

    const loop = yield* dueLoop.make({
      nextMs: () => isOutage ? nextMs : Math.min(nextMs, nextCleanMs),
      act: Effect.suspend(() => {
        const nowMs = monotonicMs(clock)
        // After an outage it cleans first: holders may be about to renew leases that have ended.
        if (nowMs < nextCleanMs && !isOutage) return Effect.andThen(inTouch, sweep)
        nextCleanMs = nowMs + cleanMs
        nextMs = Math.max(nextMs, nowMs + (isOutage ? retryMs : 0))
        return clean
      })
    }).pipe(Effect.provideService(InBackground, true))

    // A task was created, or has failed.
    const received = () => {
      nextMs = Math.min(nextMs, monotonicMs(clock) + leaseMs + graceMs + lateMs)
      loop.wake(nextMs)
    }
    for (const topic of [Topic.outbox, ...queues.map(Topic.messages)]) {
      yield* topics.subscribe(topic, { received, connected: received })
    }
  }
)

// internal

const found = ({ lost, woken }: Swept, { announce }: Topics["Service"]) =>
  lost + woken === 0 ? Effect.void : Effect.logInfo("Tasks: woken again").pipe(
    ours({ lost_attempts: lost, waiting_tasks: woken }),
    Effect.andThen(announce([{ topic: Topic.outbox }]))
  )

const limit = 1000

/**
 * Most waiting tasks that a busy worker wakes: if there are more, the other workers are busy too, and no wake-up was
 * lost.
 */
const mostWakeups = 100

/** The database looks half a second after the end of a lease. */
const graceMs = 500

const betweenMs = 250

const idleMs = 60_000

/** From a first sweep that could not reach all tasks to the next one. */
const heldMs = 1_000

const retryMs = 5_000

/** From the first answer after an outage to the next sweep. Holders renew each second. */
const afterOutageMs = 2_000

const cleanMs = 600_000

/** From the start to the first deletion. */
const firstCleanMs = Random.nextBetween(1_000, 10_000)

const cleanLimit = 500

const tasks = seriesOf(Metrics.tasks)

const count = ({ dead, oldestAgeMs, pending, running }: TaskBacklog) =>
  Effect.all([
    Metric.update(tasks("pending"), pending),
    Metric.update(tasks("running"), running),
    Metric.update(tasks("dead"), dead),
    Metric.update(Metrics.taskOldestAge, oldestAgeMs / 1000)
  ], { discard: true })
