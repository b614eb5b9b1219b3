/**
 * The claimed activities of this process: how they learn that they were cancelled, and how they keep their locks.
 *
 * When a turn that this process stores cancels activities, the provider announces them at once. All other cancellations
 * are found by a check: once an activity has been held for the check interval, one statement renews the locks of all held
 * activities. While no activity is held that long, no statement is sent.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { monotonicMs } from "../model/internal/monotonic.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import * as renewal from "../provider/internal/renewal.ts"
import type { Claimed, Provider } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { problem } from "./policies.ts"
import { activityRenewal } from "./settings.ts"
import type { Settings } from "./settings.ts"
import type { Supervisor } from "./supervisor.ts"

type Service = Provider["Service"]

export interface HeldActivities {
  /** Until `leave`, its lock is renewed and its cancellation is noticed. */
  readonly enter: (held: Held) => void
  readonly leave: (held: Held) => void
  /** Whether its lock is certain to be live. */
  readonly isLocked: (held: Held) => boolean
  /** Revives its lock, unless another process has taken it. */
  readonly renew: (held: Held) => Effect.Effect<void, ProviderError>
  /**
   * Waits while no lock can be renewed. Otherwise the first claim after an outage would take activities that still run
   * here under an expired lock.
   */
  readonly inTouch: Effect.Effect<void>
}

/** A claimed activity. */
export class Held {
  readonly item: WorkItem.Of<"ActivityExecute">
  readonly lockToken: string
  readonly attemptCount: number
  readonly key: string
  /** The activity was cancelled, or its lock is lost. */
  isLost = false
  /** Called when it is lost. */
  onLost: () => void = () => {}
  /** Monotonic milliseconds. */
  checkedAtMs = 0
  /** Monotonic milliseconds until which its lock is certain to be live. */
  lockedUntilMs = 0
  /** How long its handler ran, milliseconds; undefined while it has not ended. */
  ranMs: number | undefined

  constructor({ attemptCount, item, lockToken }: Claimed<WorkItem.Of<"ActivityExecute">>) {
    this.item = item
    this.lockToken = lockToken
    this.attemptCount = attemptCount
    this.key = keyOf(item.instance, item.executionId, item.id)
  }
}

/** Renews the locks of held activities until its scope is closed. */
export const make = Effect.fnUntraced(function*(
  provider: Service,
  settings: Settings,
  supervisor: Supervisor
): Effect.fn.Return<HeldActivities, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  // In order of `checkedAtMs`: a check stamps all of them, and activities that come later are stamped later.
  const all = new Set<Held>()
  const occupied = Latch.makeUnsafe()
  const inTouch = Latch.makeUnsafe(true)
  const pace = activityRenewal(settings)
  const intervalMs = Duration.toMillis(pace.interval)
  const lockTimeoutMs = Duration.toMillis(settings.workerLockTimeout)
  // A lock that a check does not extend must outlast the next check by half of its length.
  const sufficientMs = Math.min(lockTimeoutMs, lockTimeoutMs / 2 + intervalMs)

  const lose = (held: Held): undefined => {
    if (held.isLost) return
    held.isLost = true
    held.onLost()
  }

  const renew = (held: Held) =>
    Effect.suspend(() => {
      const untilMs = monotonicMs(clock) + sufficientMs
      return Effect.map(
        provider.renewWorkItemLock({
          lockToken: held.lockToken,
          extendFor: settings.workerLockTimeout,
          sufficient: Duration.millis(sufficientMs)
        }),
        () => void (held.lockedUntilMs = untilMs)
      )
    })

  /**
   * Returns the error when the store did not answer. Then the lock may still be live, and the activity keeps running.
   */
  const checkOne = (held: Held): Effect.Effect<ProviderError | undefined> =>
    Effect.match(renew(held), {
      onSuccess: () => undefined,
      onFailure: (error) => {
        if (error.reason._tag !== "LockLost") return error
        return lose(held)
      }
    })

  /** Fails when the store did not answer for one of them. */
  const check = Effect.gen(function*() {
    const now = monotonicMs(clock)
    for (const held of all) held.checkedAtMs = now
    const answers = yield* Effect.forEach([...all], checkOne, { concurrency: "unbounded" })
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
    const [oldest] = all
    if (oldest === undefined) {
      occupied.closeUnsafe()
      return Effect.andThen(occupied.await, untilDue)
    }
    const pauseMs = oldest.checkedAtMs + intervalMs - monotonicMs(clock)
    return pauseMs > 0 ? Effect.andThen(Effect.sleep(pauseMs), untilDue) : Effect.void
  })

  yield* provider.onCancelled((activities) => {
    if (all.size === 0) return
    const keys = new Set(
      activities.map(({ activityId, executionId, instanceId }) => keyOf(instanceId, executionId, activityId))
    )
    for (const held of all) {
      if (keys.has(held.key)) lose(held)
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
    enter: (held) => {
      const now = monotonicMs(clock)
      held.checkedAtMs = now
      held.lockedUntilMs = now + lockTimeoutMs
      all.add(held)
      occupied.openUnsafe()
    },
    leave: (held) => {
      all.delete(held)
      if (all.size === 0) inTouch.openUnsafe()
    },
    isLocked: (held) => monotonicMs(clock) < held.lockedUntilMs,
    renew,
    inTouch: inTouch.await
  }
})

// internal

const keyOf = (instanceId: string, executionId: number, activityId: number) =>
  `${executionId}/${activityId}/${instanceId}`
