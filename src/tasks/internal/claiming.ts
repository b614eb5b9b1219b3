/**
 * Claims, in sets, the tasks that wake-ups name, for one worker. Tasks that a claim without an answer may have taken
 * are abandoned.
 *
 * A claim leaves out suspects. A second statement claims as many of them as the worker may still hold, so only one such
 * statement is under way at a time. Claims of other tasks never wait for each other. The wake-up of a postponed suspect
 * comes again after a pause, or as soon as the worker has room for it: when another suspect has ended, or has proved
 * itself.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberSet from "effect/FiberSet"
import type * as Scope from "effect/Scope"
import * as Semaphore from "effect/Semaphore"
import { randomInt } from "node:crypto"
import { InBackground } from "../../model/shared/inBackground.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import { makeAdmission, suspectAfter, suspectGroups } from "../../provider/driver/suspects.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { isAnswerLost, isOfOneCall, mayRepeatSet, retried, shared } from "../../provider/shared/statement.ts"
import { makeSuspects } from "../../provider/shared/suspects.ts"
import type { Topics } from "../../waking/Topics.ts"
import type { Claim, Claimed, Serves, TaskDriver } from "../TaskDriver.ts"
import type { Watch } from "./claimRights.ts"
import * as lostClaims from "./lostClaims.ts"

/** Unique among the claims of a worker. */
export const makeClaimId = () => randomInt(2 ** 31)

type ClaimSet = (
  taskIds: ReadonlyArray<string>
) => Effect.Effect<ReadonlyArray<Exit.Exit<Claim, ProviderError>>>

/** The wake-up of a suspect, given back. */
export interface Postponed {
  /** Attempts of its task that were lost one after another. */
  readonly lost: number
  /** How long until it comes again by itself. */
  readonly delay: Duration.Duration
  /** Lets it come at once. */
  readonly recall: Effect.Effect<void>
}

export interface TaskClaiming {
  /** Claims no suspects: their wake-ups are answered so. */
  readonly claimAll: ClaimSet
  /** Claims those of a set that may run beside the suspects that this worker holds. */
  readonly claimSuspects: ClaimSet
  readonly postponed: (wakeup: Postponed) => void
  /** Gives back, in the background, what a claim may have taken whose answer is lost. */
  readonly returnClaim: (claimId: number) => Effect.Effect<void>
  /** The handler of a claimed task has ended, or will not run. */
  readonly release: (claimed: Claimed) => void
}

export const make = Effect.fnUntraced(function*({ driver, serves, topics, watch }: {
  readonly driver: Pick<TaskDriver["Service"], "claim" | "returnClaims">
  readonly serves: Serves
  readonly topics: Topics["Service"]
  readonly watch: Watch
}): Effect.fn.Return<TaskClaiming, never, Scope.Scope> {
  const clock = yield* Clock.Clock
  const run = yield* FiberSet.makeRuntime<never, void, never>()
  const lane = yield* Semaphore.make(1)
  const returnClaim = yield* lostClaims.make({
    returnClaims: (claimIds) => driver.returnClaims(serves.workerId, claimIds),
    topics
  })

  // -- suspects ----------------------------------------------------------------------------------

  const waiting: Array<Postponed & { readonly untilMs: number }> = []

  /** Those that the worker has room for come again, in their order. */
  const recall = () => {
    const nowMs = monotonicMs(clock)
    const admits = makeAdmission(suspects.room())
    while (waiting.length > 0) {
      const [{ lost, recall, untilMs }] = waiting as [typeof waiting[number]]
      if (untilMs > nowMs) {
        if (!admits(lost)) return
        run(recall)
      }
      waiting.shift()
    }
  }

  const suspects = makeSuspects(clock, (forMs) => {
    // A timer may be early.
    run(Effect.provideService(Effect.delay(Effect.sync(recall), forMs + 1), InBackground, true))
  })

  const postponed = (wakeup: Postponed) => {
    // No process may hold more suspects than this.
    if (waiting.length < suspectGroups[0]!) {
      waiting.push({ ...wakeup, untilMs: monotonicMs(clock) + Duration.toMillis(wakeup.delay) })
    }
    // Others may have ended since it was given back.
    recall()
  }

  // -- claims ------------------------------------------------------------------------------------

  /** Repeated with its id: what an earlier statement has claimed is answered again. */
  const claim = (
    taskIds: ReadonlyArray<string>,
    groups: ReadonlyArray<number>,
    mayRepeat: (error: ProviderError) => boolean
  ) =>
    Effect.suspend(() => {
      const claimId = makeClaimId()
      /** Whether the answer of any of its statements is lost. */
      let isLost = false
      return driver.claim(taskIds, serves, { claimId, suspects: groups }).pipe(
        watch((answers) => answers.some(({ outcome }) => outcome === "Claimed")),
        Effect.tapError((error) => Effect.sync(() => (isLost ||= isAnswerLost(error)))),
        (call) => retried(call, mayRepeat),
        Effect.tapError(() => isLost ? returnClaim(claimId) : Effect.void)
      )
    })

  const claimOne = yield* shared<string, Claim>(
    "claimTasks",
    (taskIds) => claim(taskIds, noSuspects, mayRepeatSet(taskIds)),
    { lanes: 2, maxBatch: 500, patience: Duration.seconds(30) }
  )

  /** Fails only if one of them may be why. */
  const claimSet = (taskIds: ReadonlyArray<string>, groups: ReadonlyArray<number>) =>
    claim(taskIds, groups, (error) => !isOfOneCall(error)).pipe(
      Effect.map((answers) => answers.map((answer) => Exit.succeed(answer))),
      Effect.catch((error) =>
        isOfOneCall(error) ? Effect.fail(error) : Effect.succeed(taskIds.map(() => Exit.fail(error)))
      )
    )

  /** One by one, if the set fails: each beside those before it. */
  const claimBeside: ClaimSet = (taskIds) =>
    Effect.suspend(() => claimSet(taskIds, suspects.room())).pipe(
      Effect.tap((answers) =>
        Effect.sync(() => {
          for (const answer of answers) {
            if (Exit.isFailure(answer) || answer.value.outcome !== "Claimed") continue
            suspects.lock(keyOf(answer.value), answer.value.lost, Infinity)
          }
        })
      ),
      Effect.catch((error) =>
        taskIds.length === 1
          ? Effect.succeed([Exit.fail(error)])
          : Effect.map(Effect.forEach(taskIds, (taskId) => claimBeside([taskId])), (answers) => answers.flat())
      )
    )

  return {
    claimAll: (taskIds) =>
      Effect.catch(
        claimSet(taskIds, noSuspects),
        () => Effect.forEach(taskIds, (taskId) => Effect.exit(claimOne(taskId)), { concurrency: "unbounded" })
      ),
    claimSuspects: (taskIds) => lane.withPermits(1)(claimBeside(taskIds)),
    postponed,
    returnClaim,
    release: (claimed) => {
      if (claimed.lost >= suspectAfter && suspects.release(keyOf(claimed))) recall()
    }
  }
})

// internal

const noSuspects = suspectGroups.map(() => 0)

const keyOf = ({ attempt, id }: Claimed) => `${id}/${attempt}`
