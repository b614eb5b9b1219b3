/**
 * Sessions of one process: how many of them it serves at once, and how they stay with it.
 *
 * The store binds a session to its owner when the owner claims an activity of it. Here its lease is renewed as long as
 * it is used, and sessions nobody holds or needs are swept. Nothing is renewed before a session was claimed.
 */
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { Claimed, Provider } from "../../Provider.ts"
import type { ProviderError } from "../../ProviderError.ts"
import type { Settings } from "../../RuntimeConfig.ts"
import type * as WorkItem from "../../WorkItem.ts"
import { problem } from "./policies.ts"

type Activity = WorkItem.Of<"ActivityExecute">

export interface Sessions {
  readonly ownerId: string
  /** One activity this process may run now; `none` when there was none, or when it has to be asked for anew. */
  readonly claim: Effect.Effect<Option.Option<Claimed<Activity>>, ProviderError>
  /** A claimed activity has ended. */
  readonly leave: (item: Activity) => Effect.Effect<void>
}

export const make = Effect.fnUntraced(function*(
  provider: Provider["Service"],
  settings: Settings
): Effect.fn.Return<Sessions, never, Scope.Scope> {
  const ownerId = settings.workerNodeId ?? globalThis.crypto.randomUUID()
  /** Sessions with claimed activities, and how many of these. */
  const underWay = new Map<string, number>()
  /** Done, and made anew, whenever the limit is reached or left. */
  let limitCrossed = Deferred.makeUnsafe<void>()
  const owning = Latch.makeUnsafe()
  const isFull = () => underWay.size >= settings.maxSessions

  const change = (sessionId: string, by: 1 | -1) => {
    const wasFull = isFull()
    const count = (underWay.get(sessionId) ?? 0) + by
    if (count > 0) underWay.set(sessionId, count)
    else underWay.delete(sessionId)
    if (isFull() === wasFull) return
    const crossed = limitCrossed
    // Whoever is woken waits for the next time.
    limitCrossed = Deferred.makeUnsafe()
    Deferred.doneUnsafe(crossed, Effect.void)
  }

  /**
   * Of several activities claimed together, those above the limit go back at once: we do not ask for them again before
   * there is room, and nobody else can, because their sessions are ours now.
   */
  const admit = (claimed: Claimed<Activity>) => {
    const { sessionId } = claimed.item
    if (sessionId === undefined) return Effect.succeed(Option.some(claimed))
    owning.openUnsafe()
    if (!isFull() || underWay.has(sessionId)) {
      change(sessionId, 1)
      return Effect.succeed(Option.some(claimed))
    }
    return Effect.as(
      Effect.ignore(
        provider.abandonWorkItem({ lockToken: claimed.lockToken, delay: Option.none(), ignoreAttempt: true })
      ),
      Option.none()
    )
  }

  const renew = Effect.gen(function*() {
    const half = Duration.divideUnsafe(settings.sessionLockTimeout, 2)
    const soon = Duration.divideUnsafe(settings.sessionLockTimeout, 10)
    // What a process of this name left behind is ours at once.
    let pause = settings.workerNodeId === undefined ? half : Duration.zero
    if (settings.workerNodeId !== undefined) owning.openUnsafe()
    while (true) {
      yield* owning.await
      yield* Effect.sleep(pause)
      // Closed before the statement: a session claimed during it opens the latch again.
      owning.closeUnsafe()
      pause = yield* Effect.matchEffect(
        provider.renewSessionLock({
          ownerIds: [ownerId],
          extendFor: settings.sessionLockTimeout,
          idleTimeout: settings.sessionIdleTimeout
        }),
        {
          onSuccess: (renewed) => {
            if (renewed > 0) owning.openUnsafe()
            return Effect.succeed(half)
          },
          onFailure: (error) => {
            owning.openUnsafe()
            return Effect.as(Effect.logWarning("Sessions could not be renewed yet").pipe(problem(error)), soon)
          }
        }
      )
    }
  })

  const sweep = Effect.forever(
    Effect.andThen(
      Effect.sleep(settings.sessionCleanupInterval),
      Effect.catch(
        provider.cleanupOrphanedSessions,
        (error) => Effect.logWarning("Sessions could not be swept yet").pipe(problem(error))
      )
    )
  )

  // A name nobody else will ever have is of no use to sessions that wait.
  yield* Effect.addFinalizer(() =>
    settings.workerNodeId !== undefined || !owning.isOpen() ? Effect.void : provider.renewSessionLock({
      ownerIds: [ownerId],
      extendFor: Duration.millis(1),
      idleTimeout: settings.sessionIdleTimeout
    }).pipe(Effect.timeoutOption(releaseTimeout), Effect.ignore)
  )
  yield* Effect.all([renew, sweep], { concurrency: "unbounded", discard: true }).pipe(
    Effect.annotateLogs({ package: "duroxide-prisma", fiber: "sessions" }),
    Effect.forkScoped
  )

  return {
    ownerId,
    claim: Effect.suspend(() =>
      Effect.raceFirst(
        provider.fetchWorkItem({
          lockTimeout: settings.workerLockTimeout,
          pollTimeout: settings.pollTimeout,
          tags: settings.tags,
          session: isFull()
            ? Option.none()
            : Option.some({ ownerId, lockTimeout: settings.sessionLockTimeout })
        }),
        Effect.as(Deferred.await(limitCrossed), Option.none<Claimed<Activity>>())
      )
    ).pipe(Effect.flatMap(Option.match({ onNone: () => Effect.succeedNone, onSome: admit }))),
    leave: ({ sessionId }) => sessionId === undefined ? Effect.void : Effect.sync(() => change(sessionId, -1))
  }
})

// internal

/** A shutdown does not wait longer for the store to let go of sessions; their leases run out. */
const releaseTimeout = Duration.seconds(2)
