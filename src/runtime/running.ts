/**
 * The activities running in this process: how they learn that they were cancelled, and how they keep their locks.
 *
 * When a turn that this process stores cancels activities, the provider announces them at once. All other cancellations
 * are found by a check: once an activity has run for the check interval, one statement renews the locks of all running
 * activities. While no activity runs that long, no statement is sent.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { monotonicMs } from "../model/internal/monotonic.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import * as renewal from "../provider/internal/renewal.ts"
import type { Provider } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { problem } from "./policies.ts"
import { activityRenewal } from "./settings.ts"
import type { Settings } from "./settings.ts"
import type { Supervisor } from "./supervisor.ts"

type Service = Provider["Service"]

export interface RunningActivities {
  /** Until `leave`, its lock is renewed and its cancellation is noticed. */
  readonly enter: (item: WorkItem.Of<"ActivityExecute">, lockToken: string) => Running
  readonly leave: (running: Running) => void
  /** Revives its lock if it may have expired, unless another process has taken it. */
  readonly holdLock: (running: Running) => Effect.Effect<void, ProviderError>
  /**
   * Waits while no lock can be renewed. Otherwise the first claim after an outage would take activities that still run
   * here under an expired lock.
   */
  readonly inTouch: Effect.Effect<void>
  /** Names of all running activities, for logs. */
  readonly names: () => Iterable<string>
}

export interface Running {
  readonly key: string
  /** For logs. */
  readonly name: string
  readonly lockToken: string
  /** Done when the activity is cancelled, or its lock is lost. */
  readonly lost: Deferred.Deferred<void>
  /** Monotonic milliseconds. */
  checkedAtMs: number
  /** Monotonic milliseconds until which its lock is certain to be live. */
  lockedUntilMs: number
}

/** Renews the locks of running activities until its scope is closed. */
export const make = Effect.fnUntraced(function*(
  provider: Service,
  settings: Settings,
  supervisor: Supervisor
): Effect.fn.Return<RunningActivities, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  // In order of `checkedAtMs`: a check stamps all of them, and activities that start later are stamped later.
  const running = new Set<Running>()
  const occupied = Latch.makeUnsafe()
  const inTouch = Latch.makeUnsafe(true)
  const pace = activityRenewal(settings)
  const intervalMs = Duration.toMillis(pace.interval)
  const lockTimeoutMs = Duration.toMillis(settings.workerLockTimeout)
  // A lock that a check does not extend must outlast the next check by half of its length.
  const sufficientMs = Math.min(lockTimeoutMs, lockTimeoutMs / 2 + intervalMs)

  const renew = (one: Running) =>
    Effect.suspend(() => {
      const untilMs = monotonicMs(clock) + sufficientMs
      return Effect.map(
        provider.renewWorkItemLock({
          lockToken: one.lockToken,
          extendFor: settings.workerLockTimeout,
          sufficient: Duration.millis(sufficientMs)
        }),
        () => void (one.lockedUntilMs = untilMs)
      )
    })

  /**
   * Returns the error when the store did not answer. Then the lock may still be live, and the activity keeps running.
   */
  const checkOne = (one: Running): Effect.Effect<ProviderError | undefined> =>
    Effect.matchEffect(renew(one), {
      onSuccess: () => Effect.undefined,
      onFailure: (error) =>
        error.reason._tag === "LockLost"
          ? Effect.as(Deferred.succeed(one.lost, undefined), undefined)
          : Effect.succeed(error)
    })

  /** Fails when the store did not answer for one of them. */
  const check = Effect.gen(function*() {
    const now = monotonicMs(clock)
    for (const one of running) one.checkedAtMs = now
    const answers = yield* Effect.forEach([...running], checkOne, { concurrency: "unbounded" })
    const errors = answers.filter((answer) => answer !== undefined)
    if (errors.length > 0 && errors.length === answers.length) inTouch.closeUnsafe()
    else inTouch.openUnsafe()
    if (errors.length > 0) return yield* Effect.fail(errors[0]!)
  }).pipe(
    Effect.tapError((error) =>
      Effect.logDebug("Worker dispatcher: locks of running activities not renewed yet").pipe(problem(error))
    )
  )

  /** Waits until the activity that was checked longest ago is due. */
  const untilDue: Effect.Effect<void> = Effect.suspend(() => {
    const [oldest] = running
    if (oldest === undefined) {
      occupied.closeUnsafe()
      return Effect.andThen(occupied.await, untilDue)
    }
    const pauseMs = oldest.checkedAtMs + intervalMs - monotonicMs(clock)
    return pauseMs > 0 ? Effect.andThen(Effect.sleep(pauseMs), untilDue) : Effect.void
  })

  yield* provider.onCancelled((activities) => {
    if (running.size === 0) return
    const keys = new Set(
      activities.map(({ activityId, executionId, instanceId }) => keyOf(instanceId, executionId, activityId))
    )
    for (const one of running) {
      if (keys.has(one.key)) Deferred.doneUnsafe(one.lost, Effect.void)
    }
  })

  yield* Effect.andThen(untilDue, renewal.untilAnswered(check, pace)).pipe(
    Effect.catchDefect((defect) =>
      Effect.andThen(
        Effect.logError("Worker dispatcher: renewal of running activities broke, it is repeated", defect),
        Effect.sleep(pace.retryInterval)
      )
    ),
    Effect.forever,
    (loop) => supervisor.watch("renewal of running activities", loop),
    Effect.forkScoped
  )

  return {
    enter: ({ executionId, id, instance, name: activity }, lockToken) => {
      const key = keyOf(instance, executionId, id)
      const name = `${activity} of ${instance}`
      const now = monotonicMs(clock)
      const lost = Deferred.makeUnsafe<void>()
      const one = { key, name, lockToken, lost, checkedAtMs: now, lockedUntilMs: now + lockTimeoutMs }
      running.add(one)
      occupied.openUnsafe()
      return one
    },
    leave: (one) => {
      running.delete(one)
      if (running.size === 0) inTouch.openUnsafe()
    },
    holdLock: (one) => Effect.suspend(() => monotonicMs(clock) < one.lockedUntilMs ? Effect.void : renew(one)),
    inTouch: inTouch.await,
    names: () => [...running].map(({ name }) => name)
  }
})

// internal

const keyOf = (instanceId: string, executionId: number, activityId: number) =>
  `${executionId}/${activityId}/${instanceId}`
