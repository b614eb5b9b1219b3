/**
 * Ends the claim of an instance: by storing a turn, by deleting its messages, or by abandoning it.
 */
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Metrics from "../model/Metrics.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { Provider, Turn } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { problem, storeDelayAfter } from "../provider/shared/unstored.ts"
import type { Abandon, InstanceAbandoned } from "./decide.ts"
import { skippedWhenHeld } from "./policies.ts"
import type { Backoff, UnstoredTurns } from "./policies.ts"
import { component } from "./reports.ts"

export interface Settlement {
  readonly ack: (turn: Turn) => Effect.Effect<void, ProviderError>
  /** Notifies parents, and deletes the messages. */
  readonly drop: (rejections: ReadonlyArray<WorkItem.WorkItem>) => Effect.Effect<void, ProviderError>
  /** Repeats until the store answers: otherwise the lock would expire, and the delivery would count. */
  readonly abandon: (decision: Abandon<InstanceAbandoned>, cause?: ProviderError) => Effect.Effect<void>
  /** Abandons the claim, in one try. */
  readonly release: Effect.Effect<void>
}

export const make = ({ backoff, build, instanceId, lockToken, provider, unstored }: {
  /** Names the code of this process in the reports of blocks. */
  readonly build: string
  readonly provider: Provider["Service"]
  /** Covers all instances. */
  readonly backoff: Backoff
  readonly unstored: UnstoredTurns
  readonly instanceId: string
  readonly lockToken: string
}): Settlement => {
  const forget = Effect.sync(() => backoff.forget(instanceId))

  const abandon = (
    options: Omit<Parameters<Provider["Service"]["abandonOrchestrationItem"]>[0], "lockToken">,
    failures = 0
  ): Effect.Effect<void> =>
    provider.abandonOrchestrationItem({ lockToken, ...options }).pipe(
      Effect.catch((error) =>
        error.reason._tag === "LockLost"
          ? Effect.logDebug(`${component}: instance not abandoned, its lock is lost`)
          : Effect.logDebug(`${component}: instance not abandoned yet`).pipe(
            problem(error),
            Effect.andThen(Effect.sleep(storeDelayAfter(failures))),
            Effect.andThen(Effect.suspend(() => abandon(options, failures + 1)))
          )
      )
    )

  return {
    ack: (turn) =>
      Effect.suspend(() => {
        const ack = provider.ackOrchestrationItem(lockToken, turn)
        return unstored.has(instanceId) ? Effect.andThen(Metric.update(Metrics.ackOrchestrationRetries, 1), ack) : ack
      }).pipe(
        Effect.tapError(({ reason }) =>
          Effect.sync(() => reason._tag === "LockLost" ? unstored.delete(instanceId) : unstored.add(instanceId))
        ),
        Effect.andThen(Effect.sync(() => unstored.delete(instanceId))),
        Effect.andThen(forget)
      ),
    // A notice is sent again when the process dies before the drop. A parent takes the first one only.
    drop: (rejections) =>
      Effect.forEach(
        rejections,
        (rejection) => provider.enqueueForOrchestrator({ message: rejection, delay: Option.none() })
      ).pipe(
        Effect.andThen(provider.dropOrchestrationItem(lockToken)),
        Effect.andThen(forget)
      ),
    abandon: ({ because, beginsFirst, block, counts, pause, problem }, cause) =>
      Effect.suspend(() => {
        const { delay, isFirst } = pause === "growing"
          ? backoff.next(instanceId, cause?.reason._tag === "Contention" ? skippedWhenHeld : 0)
          : { isFirst: false, delay: pause === "none" ? undefined : pause }
        const log = lines[because](isFirst)
        return Effect.andThen(
          problem === undefined ? log : Effect.annotateLogs(log, { error: problem }),
          abandon({
            delay: Option.fromUndefinedOr(delay),
            ignoreAttempt: !counts,
            beginsFirst,
            block: block && { ...block, build }
          })
        )
      }),
    release: Effect.ignore(
      provider.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: true })
    )
  }
}

// internal

type Log = (isFirst: boolean) => Effect.Effect<void>

/** An error at the first failure of an instance, until one of its turns is stored. */
const errorOnce = (what: string): Log => (isFirst) => {
  const line = `${component}: ${what}`
  return isFirst ? Effect.logError(line) : Effect.logDebug(line)
}

const debug = (what: string): Log => () => Effect.logDebug(`${component}: ${what}`)

const lines: { readonly [B in InstanceAbandoned]: Log } = {
  HistoryUnreadable: errorOnce("history cannot be read"),
  HistoryNotRead: errorOnce("history not read"),
  TurnNotStored: errorOnce("turn not stored"),
  MessagesNotDropped: errorOnce("messages not dropped"),
  Early: debug("messages wait for the start of their execution"),
  Unserved: debug("instance abandoned, its version is not served here"),
  Paused: debug("instance abandoned, an operator has paused its orchestration"),
  // Logged before, once for many instances.
  Blocked: debug("instance is blocked"),
  // Logged before, with its cause.
  Broke: debug("instance abandoned, its turn broke")
}
