/**
 * Turns that are stored without a claim: with the results that lead to them, or with the start of their instance.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { CoreVersion } from "../../model/Instance.ts"
import * as Metrics from "../../model/Metrics.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import { goingOn } from "../../waking/storeClock.ts"
import type { StoreClock } from "../../waking/storeClock.ts"
import type { Claimed, FirstTurn, OptimisticAnswer, Provider, Turn } from "../Provider.ts"
import * as drivers from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { shared } from "../shared/statement.ts"
import type { Sharing } from "../shared/statement.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import { encodeEvent, encodeItem, encodeUnclaimedTurn, sizeOfAck, sizeOfItem } from "./encoding.ts"
import { measured } from "./gate.ts"
import type { Wakeups } from "./wakeups.ts"

type Service = Provider["Service"]
type Activity = WorkItem.Of<"ActivityExecute">

/** The first turns that the runtimes of this process run. */
export interface FirstTurns extends Pick<Service, "onStart"> {
  /** Undefined when no runtime here begins it. */
  readonly begin: (start: WorkItem.Of<"StartOrchestration">, pinnedVersion: CoreVersion) => BegunTurn | undefined
}

export interface BegunTurn extends FirstTurn {
  /** The clock that gave the turn its time. */
  readonly clockMs: () => number
}

/**
 * `askClock` makes `storeNowMs` known before a runtime serves: else its first starts, a thousand perhaps, would have no
 * first turn, and wait for claims while later ones overtake them.
 */
export const makeFirstTurns = (
  storeNowMs: StoreClock["nowMs"],
  clock: Clock.Clock,
  askClock: Effect.Effect<void>
): FirstTurns => {
  const runtimes = new Set<{ readonly begin: Parameters<Service["onStart"]>[0] }>()
  return {
    begin: (start, pinnedVersion) => {
      const nowMs = runtimes.size === 0 ? undefined : storeNowMs()
      if (nowMs === undefined) return undefined
      const clockMs = goingOn(nowMs, clock)
      for (const { begin } of runtimes) {
        const firstTurn = begin(start, nowMs, pinnedVersion)
        if (firstTurn !== undefined) return { ...firstTurn, clockMs }
      }
      return undefined
    },
    onStart: (begin) =>
      Effect.andThen(
        askClock,
        Effect.acquireRelease(
          Effect.sync(() => {
            const runtime = { begin }
            runtimes.add(runtime)
            return runtime
          }),
          (runtime) => Effect.sync(() => runtimes.delete(runtime))
        )
      ).pipe(Effect.asVoid)
  }
}

export const encodeHandOver = (handOver: FirstTurn["handOver"]): drivers.HandOver | null =>
  handOver === undefined ? null : {
    limit: handOver.limit,
    spare: handOver.spare ?? 0,
    lockTimeoutMs: check.wholeMillis(handOver.lockTimeout),
    activities: handOver.activities,
    tags: handOver.tags
  }

/** What was handed over, as if it had been claimed. */
export const claimedOf = (
  turn: Turn,
  handedOver: ReadonlyArray<drivers.HandedOver>,
  wakeups?: Pick<Wakeups, "slotTaken">
): ReadonlyArray<Claimed<Activity>> =>
  handedOver.map(({ index, isLimited, lockToken }) => {
    const item = turn.workerItems[index]!
    if (isLimited === true) wakeups?.slotTaken(lockToken, item)
    return { item, lockToken, attemptCount: 1 }
  })

export const make = Effect.fnUntraced(function*(
  driver: drivers.ProviderDriver["Service"],
  wakeups: Wakeups,
  storeClock: StoreClock,
  ackWorkItem: Service["ackWorkItem"],
  options: Sharing
): Effect.fn.Return<Pick<Service, "advanceOrchestration">, never, Scope.Scope> {
  const { advanceOrchestrations } = driver
  if (advanceOrchestrations === undefined) return { advanceOrchestration: queueResults(ackWorkItem) }
  const clock = yield* Clock.Clock
  const send = yield* shared<drivers.OptimisticTurn, drivers.OptimisticAnswer>(
    "advanceOrchestration",
    advanceOrchestrations,
    {
      ...options,
      // The results can be stored without the turn, so there is no need to wait for what another transaction locks.
      patience: Duration.zero,
      sizeOf: ({ results, turn }) => sizeOfAck(turn) + results.reduce((size, result) => size + sizeOfItem(result), 0)
    }
  )
  let sent = 0
  return {
    advanceOrchestration: (optimistic) =>
      checked("advanceOrchestration", [
        check.id("instanceId", optimistic.instanceId),
        check.whole("lastEvent", optimistic.lastEvent.eventId, 1),
        ...optimistic.results.map(({ lockToken }) => check.text("lockToken", lockToken)),
        ...check.turn(optimistic.turn),
        ...check.handOver(optimistic.handOver)
      ], () => {
        const { clockMs, instanceId, lastEvent, results, turn } = optimistic
        const { eventData, eventId } = encodeEvent(lastEvent)
        const encoded = encodeUnclaimedTurn(turn, goingOn(clockMs, clock))
        const encodedResults = results.map(({ completion, lockToken }) => ({
          lockToken,
          workItem: encodeItem(completion)
        }))
        const tooBig = check.turnSize(encoded)
        if (tooBig !== undefined) return check.refused("advanceOrchestration", tooBig)
        // Wake-ups for the instance are kept meanwhile, as during a turn that holds its lock: a claim would skip it.
        const token = `optimistic ${++sent}`
        wakeups.locked.lock(token, instanceId)
        return measured(
          Metrics.ackOrchestrationItemDuration,
          send({
            instanceId,
            lastEventId: eventId,
            lastEvent: eventData,
            results: encodedResults,
            turn: encoded,
            handOver: encodeHandOver(optimistic.handOver)
          })
        ).pipe(
          Effect.map((answer): OptimisticAnswer => {
            if (answer._tag === "Queued") {
              if (answer.nowMs !== undefined) storeClock.corrected(answer.nowMs)
              wakeups.messageSent(instanceId, null)
              return { _tag: "Queued", results: answer.results }
            }
            storeClock.heard(answer.nowMs)
            wakeups.turnStored(turn, answer.handedOver.length)
            return { _tag: "Advanced", handedOver: claimedOf(turn, answer.handedOver, wakeups) }
          }),
          Effect.onExit((exit) =>
            Effect.sync(() => {
              wakeups.released(token)
              if (Exit.isSuccess(exit)) { for (const { lockToken } of results) wakeups.slotFreed(lockToken) }
            })
          )
        )
      })
  }
})

// internal

/** For a driver that stores results and turns one after another. */
const queueResults = (ackWorkItem: Service["ackWorkItem"]): Service["advanceOrchestration"] => ({ results }) =>
  Effect.map(
    Effect.forEach(results, ({ completion, lockToken }) =>
      ackWorkItem(lockToken, Option.some(completion)).pipe(
        Effect.as("Done" as const),
        Effect.catchIf(
          (error: ProviderError) => error.reason._tag === "LockLost",
          () => Effect.succeed("LockLost" as const)
        )
      ), { concurrency: "unbounded" }),
    (results) => ({ _tag: "Queued", results })
  )
