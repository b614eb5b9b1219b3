/**
 * The sessions of one process: how many it serves at once, and how it keeps them.
 *
 * When a process claims an activity of a session, the store binds the session to that process. This module renews the
 * locks of sessions in use, and deletes sessions that have neither a lock nor activities. It renews nothing before the
 * first session is claimed.
 */
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type * as WorkItem from "../model/WorkItem.ts"
import type { Provider, SessionConfig } from "../provider/Provider.ts"
import * as renewal from "../waking/renewal.ts"
import { unlessQuiet } from "./housekeeping.ts"
import type { Settings } from "./settings.ts"
import type { Supervisor } from "./supervisor.ts"

type Activity = WorkItem.Of<"ActivityExecute">

export interface Sessions {
  readonly workerId: string
  /** The sessions that the next claim may bind; `none` at the limit: it asks for activities without a session. */
  readonly forClaim: () => Option.Option<SessionConfig>
  /** Waits until the limit is reached, or no longer reached: a claim that waits must ask for other sessions. */
  readonly limitCrossed: Effect.Effect<void>
  /**
   * Whether this process may run a claimed activity now; until `leave` it counts for its session.
   *
   * A claim binds no more new sessions than there is room for. But several sessions of this process may get work at the
   * same time: work beyond the limit is to be abandoned, and not claimed again until there is room.
   */
  readonly admit: (item: Activity) => boolean
  /** A claimed activity has ended. */
  readonly leave: (item: Activity) => void
}

export const make = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly settings: Settings
  readonly supervisor: Supervisor
}): Effect.fn.Return<Sessions, never, Scope.Scope> {
  const { provider, settings, supervisor } = options
  const workerId = settings.workerId ?? globalThis.crypto.randomUUID()
  /** Sessions with claimed activities, and the number of these. */
  const underWay = new Map<string, number>()
  /** Done, and replaced, whenever the limit is reached or no longer reached. */
  let limitCrossed = Deferred.makeUnsafe<void>()
  const owning = Latch.makeUnsafe()
  const freeSessions = () => Math.max(0, settings.maxSessions - underWay.size)
  const isFull = () => freeSessions() === 0

  const change = (sessionId: string, by: 1 | -1) => {
    const wasFull = isFull()
    const count = (underWay.get(sessionId) ?? 0) + by
    if (count > 0) underWay.set(sessionId, count)
    else underWay.delete(sessionId)
    if (isFull() === wasFull) return
    const crossed = limitCrossed
    // Replaced first: those that are woken may wait again at once.
    limitCrossed = Deferred.makeUnsafe()
    Deferred.doneUnsafe(crossed, Effect.void)
  }

  const cleanupUnlessQuiet = yield* unlessQuiet(
    provider,
    Effect.catchCause(
      provider.cleanupOrphanedSessions,
      (cause) => Effect.logDebug("Worker dispatcher: sessions not cleaned up yet", cause)
    )
  )
  const cleanup = Effect.forever(
    Effect.andThen(Effect.sleep(settings.sessionCleanupInterval), cleanupUnlessQuiet)
  )

  // No other process will have this id, so its sessions must not wait for one.
  yield* Effect.addFinalizer(() =>
    settings.workerId !== undefined || !owning.isOpen() ? Effect.void : provider.renewSessionLock({
      workerIds: [workerId],
      extendFor: Duration.millis(1),
      idleTimeout: settings.sessionIdleTimeout
    }).pipe(Effect.timeoutOption(releaseTimeout), Effect.ignore)
  )
  yield* Effect.forkScoped(supervisor.watch("renewal of sessions", renewals({ provider, settings, workerId, owning })))
  yield* Effect.forkScoped(supervisor.watch("cleanup of sessions", cleanup))

  return {
    workerId,
    forClaim: () =>
      isFull()
        ? Option.none()
        : Option.some({ workerId, lockTimeout: settings.sessionLockTimeout, maxNew: freeSessions }),
    limitCrossed: Effect.suspend(() => Deferred.await(limitCrossed)),
    admit: ({ sessionId }) => {
      if (sessionId === undefined) return true
      owning.openUnsafe()
      if (isFull() && !underWay.has(sessionId)) return false
      change(sessionId, 1)
      return true
    },
    leave: ({ sessionId }) => {
      if (sessionId !== undefined) change(sessionId, -1)
    }
  }
})

// internal

/** Renews the locks of all sessions of this process, while it has any. */
const renewals = ({ owning, provider, settings, workerId }: {
  readonly provider: Provider["Service"]
  readonly settings: Settings
  readonly workerId: string
  /** Open while this process may have sessions. */
  readonly owning: Latch.Latch
}): Effect.Effect<void> => {
  const renew = Effect.suspend(() => {
    // Closed before the statement: a session claimed during it opens the latch again.
    owning.closeUnsafe()
    return provider.renewSessionLock({
      workerIds: [workerId],
      extendFor: settings.sessionLockTimeout,
      idleTimeout: settings.sessionIdleTimeout
    })
  }).pipe(
    Effect.map((renewed) => renewed > 0),
    Effect.onExit((exit) =>
      Effect.sync(() => {
        if (Exit.isFailure(exit) || exit.value) owning.openUnsafe()
      })
    )
  )
  const pace = renewal.pace(settings.sessionLockTimeout)
  const renewWhileOwning = (firstInterval: Duration.Duration) =>
    renewal.whileHeld({
      pace,
      firstInterval,
      renew,
      onUnanswered: (cause) => Effect.logDebug("Worker dispatcher: sessions not renewed yet", cause)
    })
  return Effect.andThen(
    // The sessions of an earlier process with this id belong to this process from the start.
    settings.workerId === undefined ? Effect.void : renewWhileOwning(Duration.zero),
    Effect.forever(Effect.andThen(owning.await, renewWhileOwning(pace.interval)))
  )
}

/** How long a shutdown waits for the store to release sessions; after that, their locks expire. */
const releaseTimeout = Duration.seconds(2)
