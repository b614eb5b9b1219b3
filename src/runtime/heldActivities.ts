/**
 * The claimed activities of this process: how they learn that they were cancelled, and how they keep their locks.
 *
 * When a turn that this process stores cancels activities, the provider announces them at once. When another process
 * announces a change of an instance, one statement renews the locks of its activities, and so learns which of them were
 * cancelled. All other cancellations are found by a check: once an activity has been held for the check interval, one
 * statement renews the locks of all held activities. While no activity is held that long, no statement is sent. While
 * other processes announce what they cancel, only activities of Rust's orchestrations are checked that often, the
 * others when half of their lock is left.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import type * as Semaphore from "effect/Semaphore"
import { monotonicMs } from "../model/shared/monotonic.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { Claimed, Provider } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { problem } from "../provider/shared/unstored.ts"
import type { AppendedChunk } from "../replay/context.ts"
import * as renewal from "../waking/renewal.ts"
import { activityRenewal, announcedRenewal } from "./settings.ts"
import type { Settings } from "./settings.ts"
import type { Supervisor } from "./supervisor.ts"

type Service = Provider["Service"]

export interface HeldActivities {
  /**
   * Until `leave`, its lock is renewed and its cancellation is noticed. Its lock counts from `askedAtMs`, the monotonic
   * time at which the store was asked for it: when the answer arrives, it may be over.
   */
  readonly enter: (held: Held, askedAtMs: number) => void
  readonly leave: (held: Held) => void
  /** Whether its lock is certain to be live. */
  readonly isLocked: (held: Held) => boolean
  /** Whether at least half of its lock is certain to be left. */
  readonly isFresh: (held: Held) => boolean
  /** Revives its lock, unless another process has taken it. */
  readonly renew: (held: Held) => Effect.Effect<void, ProviderError>
  /**
   * Waits while no lock can be renewed. Otherwise the first claim after an outage would take activities that still run
   * here under an expired lock.
   */
  readonly inTouch: Effect.Effect<void>
}

/** What the handler of a claimed activity has appended to a stream. */
export interface Writing {
  readonly turn: Semaphore.Semaphore
  readonly writer: string
  /** Number of the first unsettled chunk. */
  next: number
  /** Chunks that may not be stored. */
  unsettled: Array<AppendedChunk>
  /** Whether an earlier statement may have stored some of them. */
  isRepeat: boolean
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
  /** What its handler has appended, by stream; undefined if nothing. */
  writings: Map<string, Writing> | undefined
  /** How long its handler ran, milliseconds; undefined while it has not ended. */
  ranMs: number | undefined

  constructor({ attemptCount, item, lockToken }: Claimed<WorkItem.Of<"ActivityExecute">>) {
    this.item = item
    this.lockToken = lockToken
    this.attemptCount = attemptCount
    this.key = keyOf(item.instance, item.executionId, item.id)
  }
}

/** The activity was cancelled, or taken over by another process. */
export const lose = (held: Held): undefined => {
  if (held.isLost) return
  held.isLost = true
  held.onLost()
}

/** Renews the locks of held activities until its scope is closed. */
export const make = Effect.fnUntraced(function*(
  provider: Service,
  settings: Settings,
  supervisor: Supervisor
): Effect.fn.Return<HeldActivities, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const all = new Set<Held>()
  /** Activities of instances that another process has changed, and activities for which the store has not answered. */
  const toCheck = new Set<Held>()
  const bell = Latch.makeUnsafe()
  const inTouch = Latch.makeUnsafe(true)
  const lockTimeoutMs = Duration.toMillis(settings.workerLockTimeout)
  const pace = activityRenewal(settings)
  const frequent = checks(pace, lockTimeoutMs)
  const rare = checks(announcedRenewal(settings), lockTimeoutMs)
  /** Monotonic milliseconds. */
  let wakesAtMs = Infinity

  /** How often it is checked now. Rust's orchestrations announce no cancellation. */
  const checksOf = ({ item }: Held) => item.startedAtMs !== undefined && provider.isNotified() ? rare : frequent

  const renew = (held: Held) =>
    Effect.suspend(() => {
      const { sufficientMs } = checksOf(held)
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

  /** Those to check; and if one is due, all that will be due before long. */
  const next = (): ReadonlyArray<Held> => {
    const now = monotonicMs(clock)
    const isDue = (held: Held) => held.checkedAtMs + checksOf(held).intervalMs <= now
    const willBeDue = (held: Held) => {
      const { intervalMs } = checksOf(held)
      return intervalMs === frequent.intervalMs || held.checkedAtMs + intervalMs / 2 <= now
    }
    const held = [...all]
    return held.some(isDue) ? held.filter((held) => toCheck.has(held) || willBeDue(held)) : [...toCheck]
  }

  /** Fails when the store did not answer for one of them. */
  const check = Effect.gen(function*() {
    const now = monotonicMs(clock)
    const asked = next()
    for (const held of asked) {
      held.checkedAtMs = now
      toCheck.delete(held)
    }
    const answers = yield* Effect.forEach(asked, checkOne, { concurrency: "unbounded" })
    const errors = answers.filter((answer) => answer !== undefined)
    const unanswered = errors.filter(({ reason }) => reason._tag !== "Contention")
    if (unanswered.length > 0 && unanswered.length === answers.length) inTouch.closeUnsafe()
    else inTouch.openUnsafe()
    if (errors.length === 0) return
    asked.forEach((held, i) => answers[i] !== undefined && all.has(held) && toCheck.add(held))
    return yield* Effect.fail(errors[0]!)
  }).pipe(
    Effect.tapError((error) =>
      Effect.logDebug("Worker dispatcher: locks of running activities not renewed yet").pipe(problem(error))
    )
  )

  /** Waits until an activity is to be checked. */
  const untilDue: Effect.Effect<void> = Effect.suspend(() => {
    bell.closeUnsafe()
    if (toCheck.size > 0) return Effect.void
    wakesAtMs = Infinity
    for (const held of all) wakesAtMs = Math.min(wakesAtMs, held.checkedAtMs + checksOf(held).intervalMs)
    const pauseMs = wakesAtMs - monotonicMs(clock)
    if (pauseMs <= 0) return Effect.void
    const wait = pauseMs === Infinity ? bell.await : Effect.raceFirst(bell.await, Effect.sleep(pauseMs))
    return Effect.andThen(wait, untilDue)
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

  yield* provider.onChanged((hasChanged) => {
    for (const held of all) if (hasChanged(held.item.instance)) toCheck.add(held)
    if (toCheck.size > 0) bell.openUnsafe()
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
    enter: (held, askedAtMs) => {
      held.checkedAtMs = askedAtMs
      held.lockedUntilMs = askedAtMs + lockTimeoutMs
      all.add(held)
      if (askedAtMs + checksOf(held).intervalMs < wakesAtMs) bell.openUnsafe()
    },
    leave: (held) => {
      all.delete(held)
      toCheck.delete(held)
      if (all.size === 0) inTouch.openUnsafe()
    },
    isLocked: (held) => monotonicMs(clock) < held.lockedUntilMs,
    isFresh: (held) => monotonicMs(clock) + lockTimeoutMs / 2 <= held.lockedUntilMs,
    renew,
    inTouch: inTouch.await
  }
})

// internal

/**
 * When a lock is checked: at this interval, and left as it is if it lasts until half of it is left at the next check.
 */
const checks = ({ interval }: renewal.Pace, lockTimeoutMs: number) => {
  const intervalMs = Duration.toMillis(interval)
  return { intervalMs, sufficientMs: Math.min(lockTimeoutMs, lockTimeoutMs / 2 + intervalMs) }
}

const keyOf = (instanceId: string, executionId: number, activityId: number) =>
  `${executionId}/${activityId}/${instanceId}`
