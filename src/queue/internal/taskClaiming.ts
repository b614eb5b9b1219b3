/**
 * Claims of one worker: of tasks that wake-ups name, in sets. What a claim without an answer may have taken is given back.
 *
 * A claim leaves out suspects. A second statement claims those, as many as the worker may hold beside the ones it has, so only
 * one of these is under way at a time. Claims of other tasks never wait for each other.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import { suspectGroups } from "../../provider/driver/suspects.ts"
import { makeSuspects } from "../../provider/internal/locks.ts"
import { isLockedElsewhere, isOfOneCall, retried, shared } from "../../provider/internal/statement.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { QueueSignals } from "./signals.ts"
import { Topic } from "./signals.ts"
import type { Watch } from "./taskClaims.ts"
import * as stores from "./taskStore.ts"
import type { Claim, Claimed, Serves, TaskStore, Wakeup } from "./taskStore.ts"

export interface TaskClaiming {
  readonly claimAll: (wakeups: ReadonlyArray<Wakeup>) => Effect.Effect<ReadonlyArray<Exit.Exit<Claim, ProviderError>>>
  /** Gives back, in the background, what a claim without an answer may have taken. */
  readonly returnClaim: (claimId: number) => Effect.Effect<void>
  /** The handler of a claimed task has ended, or will not run. */
  readonly release: (claimed: Claimed) => void
}

export const make = Effect.fnUntraced(function*({ serves, signals, store, watch }: {
  readonly serves: Serves
  readonly signals: QueueSignals["Service"]
  readonly store: TaskStore
  readonly watch: Watch
}): Effect.fn.Return<TaskClaiming, never, Scope.Scope> {
  const scope = yield* Effect.scope
  const suspects = makeSuspects(yield* Clock.Clock, () => {})
  const lane = yield* Semaphore.make(1)

  const returnOnce = (claimId: number) =>
    store.returnClaim(serves.workerId, claimId).pipe(
      Effect.retry({ schedule: Schedule.spaced("1 second"), while: ({ isRetryable }) => isRetryable }),
      Effect.tap((count) => count > 0 ? signals.announce([{ topic: Topic.outbox }]) : Effect.void)
    )

  const returnClaim = (claimId: number) =>
    Effect.gen(function*() {
      // The claim may still be under way at the server.
      for (const pause of returnPauses) {
        yield* Effect.sleep(pause)
        if ((yield* returnOnce(claimId)) > 0) return
      }
    }).pipe(
      Effect.catch((error) =>
        Effect.logWarning("Task worker: a claim without an answer was not given back; its leases must end").pipe(
          Effect.annotateLogs({ error: error.message })
        )
      ),
      Effect.forkIn(scope),
      Effect.asVoid
    )

  /** Repeated with its id: what an earlier statement has claimed is answered again. */
  const claim = (
    wakeups: ReadonlyArray<Wakeup>,
    groups: ReadonlyArray<number>,
    mayRepeat: (error: ProviderError) => boolean
  ) =>
    Effect.suspend(() => {
      const claimId = stores.makeClaimId()
      return store.claim(wakeups, serves, { claimId, suspects: groups }).pipe(
        watch((answers) => answers.some(({ out_outcome }) => out_outcome === "Claimed")),
        (call) => retried(call, mayRepeat),
        Effect.tapError((error) => isOfOneCall(error) ? Effect.void : returnClaim(claimId))
      )
    })

  const claimOne = yield* shared<Wakeup, Claim>(
    "claimTasks",
    (wakeups) =>
      claim(
        wakeups,
        noSuspects,
        (error) => !isLockedElsewhere(error) && (wakeups.length === 1 || !isOfOneCall(error))
      ),
    { lanes: 2, maxBatch: 500, patience: Duration.seconds(30) }
  )

  const claimEach = (wakeups: ReadonlyArray<Wakeup>, groups: ReadonlyArray<number>) =>
    claim(wakeups, groups, (error) => !isOfOneCall(error)).pipe(
      Effect.map((answers) => answers.map((answer) => Exit.succeed(answer))),
      Effect.catch((error) =>
        isOfOneCall(error)
          ? Effect.forEach(wakeups, (wakeup) => Effect.exit(claimOne(wakeup)), { concurrency: "unbounded" })
          : Effect.succeed(wakeups.map(() => Exit.fail(error)))
      )
    )

  /** Those of a set that may run beside the suspects that this worker holds. */
  const claimSuspects = (wakeups: ReadonlyArray<Wakeup>) =>
    lane.withPermits(1)(
      Effect.suspend(() =>
        Effect.tap(claimEach(wakeups, suspects.room()), (answers) =>
          Effect.sync(() => {
            for (const answer of answers) {
              if (Exit.isFailure(answer) || answer.value.out_outcome !== "Claimed") continue
              suspects.lock(keyOf(answer.value), answer.value.out_lost, Infinity)
            }
          }))
      )
    )

  return {
    claimAll: Effect.fnUntraced(function*(wakeups) {
      const answers: Array<Exit.Exit<Claim, ProviderError>> = [...yield* claimEach(wakeups, noSuspects)]
      const refused = answers.flatMap((answer, i) =>
        Exit.isSuccess(answer) && answer.value.out_outcome === "Suspect" ? [i] : []
      )
      if (refused.length === 0) return answers
      const again = yield* claimSuspects(refused.map((i) => wakeups[i]!))
      for (const [j, i] of refused.entries()) answers[i] = again[j]!
      return answers
    }),
    returnClaim,
    release: (claimed) => void suspects.release(keyOf(claimed))
  }
})

// internal

const returnPauses = ["0 seconds", "1 second", "10 seconds"] as const

const noSuspects = suspectGroups.map(() => 0)

const keyOf = ({ out_attempt, out_id }: Claimed) => `${out_id}/${out_attempt}`
