/**
 * Ends the claims of activities: by storing an outcome, or by abandoning the activity.
 *
 * Neither needs a slot. The handler has ended, and does not run again because its outcome could not be stored.
 */
import type * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Metrics from "../model/Metrics.ts"
import { seriesOf } from "../model/shared/labelled.ts"
import type { Provider } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { isOfTheCall } from "../provider/shared/isOfTheCall.ts"
import { problem, storeDelayAfter } from "../provider/shared/unstored.ts"
import * as blockReports from "./blockReports.ts"
import * as decide from "./decide.ts"
import type { Completion } from "./decide.ts"
import type { Held, HeldActivities } from "./heldActivities.ts"
import type { StoreOutcome } from "./optimisticTurns.ts"
import { Backoff } from "./policies.ts"

export const component = "Worker dispatcher"

export interface Outcomes {
  /** Repeats until the store has the outcome, or the lock is lost. */
  readonly store: (held: Held, completion: Completion) => Effect.Effect<void>
  /** The transaction of its handler has settled the claim, or the lock is lost. */
  readonly within: (held: Held, outcome: "Stored" | "Lost") => Effect.Effect<void>
  /** Whether its claim is still held. Repeats until the store knows: it may be about to commit. */
  readonly isHeld: (held: Held) => Effect.Effect<boolean, ProviderError>
  readonly abandon: (
    held: Held,
    decision: Pick<decide.Abandon<string>, "counts" | "pause" | "block">
  ) => Effect.Effect<void>
}

export const make = ({ build, clock, heldActivities, provider, storeOutcome }: {
  readonly clock: Clock.Clock
  /** Names the code of this process in the reports of blocks. */
  readonly build: string

  readonly provider: Provider["Service"]
  readonly heldActivities: HeldActivities
  /** How an outcome is stored at the first try. Without it, alone. */
  readonly storeOutcome: StoreOutcome | undefined
}): Outcomes => {
  const backoff = new Backoff()
  const reportBlock = blockReports.make({
    clock,
    log: (cure) => Effect.logError(`${component}: activity is blocked: ${cure}`),
    logAgain: Effect.logDebug(`${component}: activity is blocked`),
    build,
    blocks
  })

  const store = (held: Held, completion: Completion, failures = 0): Effect.Effect<void> => {
    const ack = storeOutcome === undefined || failures > 0
      ? provider.ackWorkItem(held.lockToken, Option.some(completion))
      : storeOutcome(held, completion)
    return Effect.matchEffect(
      heldActivities.isLocked(held) ? ack : Effect.andThen(heldActivities.renew(held), ack),
      {
        onSuccess: () => stored(held, completion._tag === "ActivityCompleted" ? "success" : "app_error"),
        onFailure: (error) => settleUnstored(held, completion, error, failures)
      }
    )
  }

  const settleUnstored = (held: Held, completion: Completion, error: ProviderError, failures: number) => {
    const decision = decide.unstoredOutcome(held.item, completion, error)
    switch (decision._tag) {
      case "Leave":
        return held.isLost ? left(held) : storeIfFree(held, completion)
      case "Fail":
        return Effect.andThen(logRefusal(error), Effect.suspend(() => store(held, decision.completion)))
      case "Abandon":
        return Effect.andThen(logRefusal(error), abandon(held, decision))
      case "Retry":
        return (failures === 0
          ? Effect.logWarning(`${component}: outcome not stored yet`)
          : Effect.logDebug(`${component}: outcome not stored yet`)).pipe(
            problem(error),
            Effect.andThen(
              Effect.raceFirst(Effect.sleep(storeDelayAfter(failures)), lost(held))
            ),
            Effect.andThen(Effect.suspend(() => store(held, completion, failures + 1)))
          )
    }
  }

  /** Its lock may have ended while the outcome was under way, and no other process have taken it. */
  const storeIfFree = (held: Held, completion: Completion): Effect.Effect<void> =>
    Effect.matchEffect(heldActivities.renew(held), {
      onSuccess: () => store(held, completion, 1),
      onFailure: (error) => error.reason._tag === "LockLost" ? left(held) : settleUnstored(held, completion, error, 1)
    })

  const abandon: Outcomes["abandon"] = (held, { block, counts, pause }) =>
    Effect.suspend(() =>
      provider.abandonWorkItem({
        lockToken: held.lockToken,
        delay: pause === "none"
          ? Option.none()
          : Option.some(pause === "growing" ? backoff.next(held.key).delay : pause),
        ignoreAttempt: !counts,
        block: block && { ...block, build }
      })
    ).pipe(
      block === undefined ? (abandoned) => abandoned : Effect.andThen(reportBlock(held.item.name, block)),
      Effect.catch((error) =>
        error.reason._tag === "LockLost"
          ? Effect.void
          : Effect.logWarning(`${component}: activity not abandoned, it is delivered again when its lock expires`).pipe(
            problem(error)
          )
      )
    )

  const isHeld = (held: Held, failures = 0): Effect.Effect<boolean, ProviderError> =>
    Effect.matchEffect(Effect.suspend(() => heldActivities.renew(held)), {
      onSuccess: () => Effect.succeed(true),
      onFailure: (error) =>
        error.reason._tag === "LockLost"
          ? Effect.succeed(false)
          : isOfTheCall(error)
          ? Effect.fail(error)
          : Effect.logDebug(`${component}: end of a transaction not known yet`).pipe(
            problem(error),
            Effect.andThen(Effect.sleep(storeDelayAfter(failures))),
            Effect.andThen(Effect.suspend(() => isHeld(held, failures + 1)))
          )
    })

  return {
    store,
    abandon,
    isHeld,
    within: (held, outcome) => outcome === "Stored" ? stored(held, "success") : left(held)
  }
}

const executions = seriesOf(Metrics.activityExecutions)
const durations = seriesOf(Metrics.activityDuration)
const blocks = seriesOf(Metrics.activityBlocks)

/** Counts an activity whose outcome is stored or no longer wanted. */
export const count = ({ item: { name, tag }, ranMs }: Held, outcome: "success" | "app_error" | "cancelled") =>
  Effect.contextWith((context: Context.Context<never>) => {
    const tagged = tag ?? "default"
    executions(name, outcome, tagged).updateUnsafe(1, context)
    if (ranMs !== undefined) durations(name, outcome, tagged).updateUnsafe(ranMs / 1_000, context)
    return Effect.void
  })

// internal

const stored = (held: Held, outcome: "success" | "app_error") =>
  Effect.andThen(
    count(held, outcome),
    Effect.annotateLogs(Effect.logDebug(`${component}: outcome stored`), {
      outcome,
      duration_ms: Math.round(held.ranMs ?? 0)
    })
  )

/** Its orchestration may give it up while its outcome is on its way, as a race does with the one that comes second. */
const left = (held: Held) =>
  held.isLost ?
    Effect.logDebug(`${component}: outcome not stored, the activity was cancelled`) :
    Effect.logWarning(
      `${component}: outcome not stored, its lock is lost: the activity was cancelled, another process runs it, or an earlier try stored the outcome`
    )

const logRefusal = (error: ProviderError) =>
  problem(error)(Effect.logError(`${component}: activity fails, the database refuses its outcome`))

/** Waits until the lock is lost. */
const lost = (held: Held) =>
  Effect.callback<void>((resume) => {
    if (held.isLost) return resume(Effect.void)
    held.onLost = () => resume(Effect.void)
  })
