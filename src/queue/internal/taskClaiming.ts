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
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import { suspectGroups } from "../../provider/driver/suspects.ts"
import { makeSuspects } from "../../provider/internal/locks.ts"
import { isAnswerLost, isLockedElsewhere, isOfOneCall, retried, shared } from "../../provider/internal/statement.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type { QueueSignals } from "./signals.ts"
import type { Watch } from "./taskClaims.ts"
import * as returns from "./taskReturns.ts"
import * as stores from "./taskStore.ts"
import type { Claim, Claimed, Serves, TaskStore, Wakeup } from "./taskStore.ts"

export interface TaskClaiming {
  readonly claimAll: (wakeups: ReadonlyArray<Wakeup>) => Effect.Effect<ReadonlyArray<Exit.Exit<Claim, ProviderError>>>
  /** Gives back, in the background, what a claim may have taken whose answer is lost. */
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
  const suspects = makeSuspects(yield* Clock.Clock, () => {})
  const lane = yield* Semaphore.make(1)

  const returnClaim = yield* returns.make({
    returnClaims: (claimIds) => store.returnClaims(serves.workerId, claimIds),
    signals
  })

  /** Repeated with its id: what an earlier statement has claimed is answered again. */
  const claim = (
    wakeups: ReadonlyArray<Wakeup>,
    groups: ReadonlyArray<number>,
    mayRepeat: (error: ProviderError) => boolean
  ) =>
    Effect.suspend(() => {
      const claimId = stores.makeClaimId()
      /** That of any of its statements. */
      let isLost = false
      return store.claim(wakeups, serves, { claimId, suspects: groups }).pipe(
        watch((answers) => answers.some(({ out_outcome }) => out_outcome === "Claimed")),
        Effect.tapError((error) => Effect.sync(() => (isLost ||= isAnswerLost(error)))),
        (call) => retried(call, mayRepeat),
        Effect.tapError(() => isLost ? returnClaim(claimId) : Effect.void)
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

const noSuspects = suspectGroups.map(() => 0)

const keyOf = ({ out_attempt, out_id }: Claimed) => `${out_id}/${out_attempt}`
