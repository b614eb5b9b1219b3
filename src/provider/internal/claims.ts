/**
 * Makes items of claimed rows, and sets aside rows that cannot be delivered.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Metrics from "../../model/Metrics.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { Claimed } from "../Provider.ts"
import { suspectAfter } from "../ProviderDriver.ts"
import type { ClaimedInstance, ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { measured, retried } from "./calls.ts"
import type { Leases } from "./leases.ts"
import { assemble } from "./orchestrationItem.ts"
import type { Undecoded } from "./orchestrationItem.ts"
import type { Suspects } from "./suspects.ts"
import type * as travelling from "./travelling.ts"

type Driver = ProviderDriver["Service"]
type Calls = Effect.Success<ReturnType<typeof travelling.make>>

export type ClaimedActivity = Claimed<WorkItem.Of<"ActivityExecute">>

export interface Options extends Pick<Calls, "deferMessages" | "abandonTurns" | "abandonActivities"> {
  readonly driver: Driver
  readonly held: Leases
  readonly suspectTurns: Suspects
  readonly suspectActivities: Suspects
}

export const make = (options: Options) => {
  const { abandonActivities, abandonTurns, deferMessages, driver, held, suspectActivities, suspectTurns } = options

  /** An error with one instance of a claim leaves the others alone: its lock expires, and it is claimed again. */
  const setAside = (instanceId: string, lockToken: string, step: Effect.Effect<unknown, ProviderError>) =>
    Effect.catch(
      step,
      (error) =>
        Effect.logWarning("Provider: an instance whose messages cannot be delivered was not abandoned").pipe(
          Effect.annotateLogs({ instanceId, problem: error.message })
        )
    ).pipe(Effect.ensuring(Effect.sync(() => held.release(lockToken))))

  const claimInstances = (
    lockTimeoutMs: number,
    fetch: Effect.Effect<ReadonlyArray<ClaimedInstance>, ProviderError>
  ): Effect.Effect<{ items: ReadonlyArray<Claimed<Undecoded>>; more: boolean }, ProviderError> =>
    Effect.gen(function*() {
      const claims = yield* measured("fetch", Metrics.fetchOrchestrationItemDuration, retried(fetch))
      const items: Array<Claimed<Undecoded>> = []
      let more = false
      for (const claim of claims) {
        const assembled = assemble(claim)
        const { instanceId, lockToken } = claim
        held.hold(lockToken, instanceId)
        if (assembled.unreadable.length > 0) {
          yield* Effect.logError("Provider: a message cannot be read by this version; it is hidden for a while").pipe(
            Effect.annotateLogs({ instanceId, problem: assembled.unreadable[0]!.problem })
          )
        }
        if (assembled._tag === "Item") {
          const { attemptCount, item, unreadable } = assembled
          const ids = unreadable.map(({ id }) => id)
          if (ids.length > 0) {
            yield* Effect.ignore(deferMessages({ lockToken, ids, delayMs: Duration.toMillis(unreadablePause) }))
          }
          if (attemptCount > suspectAfter) suspectTurns.enter(lockToken, lockTimeoutMs)
          items.push({ item, lockToken, attemptCount })
          continue
        }
        more = true
        yield* setAside(
          instanceId,
          lockToken,
          Effect.andThen(
            assembled._tag === "Unreadable"
              ? deferMessages({
                lockToken,
                ids: assembled.unreadable.map(({ id }) => id),
                delayMs: Duration.toMillis(unreadablePause)
              })
              : Effect.void,
            abandonTurns({
              lockToken,
              delayMs: assembled._tag === "Orphan" ? Duration.toMillis(orphanPause) : null,
              ignoreAttempt: true
            })
          )
        )
      }
      return { items, more }
    })

  const claimActivities = (
    request: Parameters<Driver["fetchWorkItems"]>[0]
  ): Effect.Effect<{ items: ReadonlyArray<ClaimedActivity>; more: boolean }, ProviderError> =>
    Effect.gen(function*() {
      const rows = yield* measured("fetch", Metrics.dequeueWorkerDuration, retried(driver.fetchWorkItems(request)))
      const items: Array<ClaimedActivity> = []
      for (const { attemptCount, lockToken, workItem } of rows) {
        const item = WorkItem.decode(workItem)
        if (Result.isSuccess(item) && item.success._tag === "ActivityExecute") {
          if (attemptCount > suspectAfter) suspectActivities.enter(lockToken, request.lockTimeoutMs)
          items.push({ item: item.success, lockToken, attemptCount })
          continue
        }
        const problem = Result.isFailure(item) ? item.failure.problem : `${item.success._tag} is no activity`
        yield* Effect.logError("Provider: an activity cannot be read by this version; it is hidden for a while").pipe(
          Effect.annotateLogs({ problem })
        )
        yield* Effect.ignore(
          abandonActivities({ lockToken, delayMs: Duration.toMillis(unreadablePause), ignoreAttempt: true })
        )
      }
      return { items, more: items.length < rows.length }
    })

  return { claimInstances, claimActivities }
}

// internal

// Rows this version cannot read come back after this pause: long enough not to spin, short enough for a deploy that can.
const unreadablePause = Duration.seconds(60)

// Before an instance is claimed again whose messages do not say which orchestration it is. Only claims without `serves`
// meet such instances.
const orphanPause = Duration.seconds(1)
