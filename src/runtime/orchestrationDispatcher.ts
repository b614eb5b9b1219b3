/**
 * Claims instances, runs a turn of each, and stores what the turn decides.
 *
 * `decide.ts` says what a delivery comes to; this module carries it out.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Metrics from "../model/Metrics.ts"
import * as coreVersion from "../model/shared/coreVersion.ts"
import { logDeath } from "../model/shared/defect.ts"
import { seriesOf } from "../model/shared/labelled.ts"
import { aboutInstance } from "../model/shared/logging.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import type { Claimed, OrchestrationItem, Provider, Turn } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { problem } from "../provider/shared/unstored.ts"
import * as turns from "../replay/turn.ts"
import * as renewal from "../waking/renewal.ts"
import type * as batches from "./batch.ts"
import * as blockReports from "./blockReports.ts"
import type { ReportBlock } from "./blockReports.ts"
import * as claims from "./claims.ts"
import * as decide from "./decide.ts"
import type { EventLoop } from "./eventLoop.ts"
import { withRejections } from "./failing.ts"
import * as optimistic from "./optimisticTurns.ts"
import type { Pauses } from "./pauses.ts"
import { Backoff, UnstoredTurns } from "./policies.ts"
import type { Registry } from "./registry.ts"
import { component, countTurn, executionOf, report, reportWarm } from "./reports.ts"
import type { Complete } from "./settings.ts"
import * as settlements from "./settlement.ts"
import type { Dispatcher } from "./shutdown.ts"
import * as slots from "./slots.ts"
import * as spans from "./spans.ts"
import type { Supervisor } from "./supervisor.ts"
import * as turnRunners from "./turnRunner.ts"
import type { TurnRunner } from "./turnRunner.ts"
import { WarmInstances } from "./warmInstances.ts"

export interface OrchestrationDispatcher extends Dispatcher {
  readonly optimisticTurns: optimistic.OptimisticTurns
  /** Slots of claimed turns. */
  readonly slotsInUse: () => number
}

/** Most first turns that wait for the store with their start. They have run; their programs stay in memory. */
export const MostFirstTurns = Context.Reference<number>("duroxide-prisma/internal/MostFirstTurns", {
  defaultValue: () => 1_000
})

export const make = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly registry: Registry
  readonly settings: Complete
  /** What may be claimed. */
  readonly paused: Pauses
  readonly eventLoop: EventLoop
  readonly supervisor: Supervisor
}): Effect.fn.Return<OrchestrationDispatcher, never, Scope.Scope> {
  const { paused, provider, registry, settings, supervisor } = options
  const looks = claims.looks(yield* Clock.Clock)
  const warm = new WarmInstances(settings)
  const runner = turnRunners.make(yield* Effect.context<never>(), options)
  const usesWarm = settings.warmInstances > 0 && settings.warmInstanceBytes > 0 && !settings.verifyReplay
  const backoff = new Backoff()
  const unstored = new UnstoredTurns()
  const reportBlock = blockReports.make({
    clock: yield* Clock.Clock,
    log: (cure) => Effect.logError(`${component}: instance is blocked: ${cure}`),
    logAgain: Effect.logDebug(`${component}: instance is blocked`),
    build: settings.build,
    blocks
  })
  paused.onAnswer(() => looks.answered())
  const parts: Parts = {
    provider,
    registry,
    isPaused: paused.isOrchestrationPaused,
    settings,
    warm,
    runner,
    backoff,
    unstored,
    reportBlock
  }
  const dispatcher = yield* slots.make({
    name: component,
    concurrency: settings.orchestrationConcurrency,
    looks,
    claim: paused.claiming(
      () => paused.serves().length > 0,
      Effect.suspend(() =>
        provider.fetchOrchestrationItem({
          lockTimeout: settings.orchestrationLockTimeout,
          pollTimeout: settings.pollTimeout,
          versions: Option.some(coreVersion.supported),
          serves: paused.serves(),
          isKnown: usesWarm ? (end) => warm.hasSeen(end) : undefined,
          onLook: looks.answered
        })
      )
    ).pipe(Effect.map(Option.map((claimed) => handle(parts, claimed))))
  }, supervisor)
  const mostFirstTurns = yield* MostFirstTurns
  const optimisticTurns = yield* optimistic.make({
    ...parts,
    mayRunFirstTurn: (firstTurns) => firstTurns < mostFirstTurns && !Deferred.isDoneUnsafe(supervisor.stopping)
  })
  return {
    ...dispatcher,
    optimisticTurns,
    slotsInUse: dispatcher.underWay
  }
})

// internal

const blocks = seriesOf(Metrics.orchestrationBlocks)

/** Shared by all deliveries. */
interface Parts {
  readonly provider: Provider["Service"]
  readonly registry: Registry
  readonly isPaused: Pauses["isOrchestrationPaused"]
  readonly settings: Complete
  readonly warm: WarmInstances
  readonly runner: TurnRunner
  readonly backoff: Backoff
  readonly unstored: UnstoredTurns
  readonly reportBlock: ReportBlock
}

/** Handles a delivery, and settles its claim whatever happens. */
const handle = (parts: Parts, claimed: Claimed<OrchestrationItem>): Effect.Effect<void> => {
  const { backoff, provider, runner, settings, unstored } = parts
  const { item: { executionId, instanceId }, lockToken } = claimed
  const settlement = settlements.make({ provider, backoff, unstored, instanceId, lockToken, build: settings.build })
  const renewed = renewal.untilLost(
    settings.orchestrationLockTimeout,
    provider.renewOrchestrationItemLock({ lockToken, extendFor: settings.orchestrationLockTimeout }),
    `${component}: lock of an instance not renewed yet`
  )
  // The turn learns at its ack that the lock is lost.
  return Effect.raceFirst(deliver(parts, claimed, settlement), Effect.andThen(renewed, Effect.never)).pipe(
    Effect.catchDefect((defect) =>
      Effect.andThen(Effect.logError(`${component}: turn broke`, defect), settlement.abandon(decide.broken))
    ),
    // Shutdown. If the turn was stored nevertheless, the store ignores this.
    Effect.onInterrupt(() => settlement.release),
    aboutInstance({ instance_id: instanceId, execution_id: executionId }),
    Effect.andThen(runner.reportPrograms),
    timed
  )
}

const timed = (delivery: Effect.Effect<void>): Effect.Effect<void> =>
  Effect.clockWith((clock) => {
    const begunMs = monotonicMs(clock)
    return Effect.ensuring(
      delivery,
      Effect.suspend(() => Metric.update(Metrics.orchestrationProcessingDuration, monotonicMs(clock) - begunMs))
    )
  })

/** Decides what the delivery comes to, and carries it out. */
const deliver = (
  parts: Parts,
  claimed: Claimed<OrchestrationItem>,
  settlement: settlements.Settlement
): Effect.Effect<void> => {
  const { isPaused, provider, registry, runner, settings } = parts
  const { maxAttempts } = settings
  const { attemptCount, item: claimedItem } = claimed
  const { instanceId } = claimedItem
  const warm = parts.warm.take(instanceId)
  let turnSpan: spans.TurnSpan

  /** `ran` is the turn that the warm program has already run, if it has. */
  const proceed = (item: OrchestrationItem, ran?: turns.Ran): Effect.Effect<void> =>
    Effect.suspend(() => {
      const decision = decide.instance({ attemptCount, item }, { registry, isPaused, maxAttempts, warm })
      switch (decision._tag) {
        case "Resume": {
          const { batch, warm } = decision
          return Effect.flatMap(runner.resume(warm, item, batch), (resumed) =>
            resumed._tag === "Ran"
              ? commit(
                executionOf(warm.started.name, warm.started, resumed.ran.turn),
                resumed.ran,
                item,
                batch,
                "Resume"
              )
              : readHistory(resumed.ran))
        }
        case "ReadHistory":
          return readHistory(ran)
        case "Replay": {
          const { batch, registration } = decision
          const replay = (setsAside?: number): Effect.Effect<void> =>
            Effect.flatMap(runner.replay({ item, batch, registration, warm, ran, setsAside }), (turn) => {
              if (!(turn instanceof turns.Blocked)) {
                return commit(executionOf(registration.name, batch.history[0], turn.turn), turn, item, batch, "Replay")
              }
              const { newSignal } = turn
              if (newSignal === undefined) return block(registration.name, turn)
              const blocks = Effect.suspend(() => block(registration.name, turn, decide.untilSetAside(settings)))
              return setsAside !== undefined ? blocks : Effect.flatMap(
                mayContinueWithout(newSignal, item),
                (mayContinue) => mayContinue ? replay(newSignal.eventId) : blocks
              )
            })
          return replay()
        }
        case "FailAsPoison":
          return Effect.logError(`${component}: instance fails as poison, no delivery ended with a stored turn`).pipe(
            Effect.annotateLogs({ attempts: decision.deliveries, orchestration_name: item.orchestrationName }),
            Effect.andThen(storeFailure(decision.turn, item, "Replay"))
          )
        case "Drop":
          return Effect.logDebug(`${component}: messages for an instance that has ended are dropped`).pipe(
            Effect.andThen(settlement.drop(decision.rejections)),
            Effect.catch((error) =>
              error.reason._tag === "LockLost"
                ? Effect.void
                : settlement.abandon(decide.postponed("MessagesNotDropped", error.message))
            )
          )
        case "Abandon":
          return settlement.abandon(decision)
      }
    })

  /** Whether the instance has waited long enough for a build that reads this signal. */
  const mayContinueWithout = (
    { eventId, message }: NonNullable<turns.Blocked["newSignal"]>,
    { enqueuedAtMs, history, messages, nowMs }: OrchestrationItem
  ): Effect.Effect<boolean> =>
    provider.readInstance(instanceId).pipe(
      Effect.map(Option.match({ onNone: () => null, onSome: ({ block }) => block })),
      // The next try asks again.
      Effect.orElseSucceed(() => null),
      Effect.map((block) => {
        const arrivedAtMs = message === undefined
          ? history.find((event) => event.eventId === eventId)?.timestampMs
          : enqueuedAtMs[messages.indexOf(message)]
        return decide.maySetAside({ eventId, arrivedAtMs: arrivedAtMs ?? nowMs }, block, nowMs, settings)
      })
    )

  const traced = (item: OrchestrationItem) =>
    spans.inTurn(spans.causeOf({ ...claimed, item }, warm), (span) => {
      turnSpan = span
      return proceed(item)
    })

  const readHistory = (ran?: turns.Ran, next = proceed) =>
    Effect.matchEffect(provider.readWithExecution(instanceId, claimedItem.executionId), {
      onSuccess: (history) => next({ ...claimedItem, history, isKnownHistory: false }, ran),
      onFailure: (error) => settlement.abandon(decide.postponed("HistoryNotRead", error.message))
    })

  const commit = (
    execution: Parameters<typeof report>[0],
    ran: turns.Ran,
    item: OrchestrationItem,
    batch: batches.Run,
    origin: decide.TurnOrigin
  ): Effect.Effect<void> => {
    turnSpan.ran(ran)
    return Effect.forEach(ran.warnings, (warning) => Effect.logWarning(`${component}: ${warning}`)).pipe(
      Effect.andThen(store(withRejections(ran.turn, batch), item, origin, () => {
        if (ran.warm !== undefined) parts.warm.add(instanceId, ran.warm, provider.storedText)
        return Effect.andThen(turnSpan.stored(ran), Effect.andThen(report(execution, ran), reportWarm(parts.warm)))
      }))
    )
  }

  const block = (orchestrationName: string, blocked: turns.Blocked, outlook = ""): Effect.Effect<void> => {
    turnSpan.blocked(blocked)
    const { diedOf, eventId, reason } = blocked
    const report = { reason, eventId, problem: blocked.problem + outlook }
    const why = diedOf && logDeath(`${component}: program died, its instance is blocked`, Cause.squash(diedOf))
    return Effect.andThen(
      Effect.annotateLogs(parts.reportBlock(orchestrationName, report, why), { orchestration_name: orchestrationName }),
      settlement.abandon(decide.blocked(report))
    )
  }

  /** Stores a turn that fails the instance without running its program. */
  const storeFailure = (turn: Turn, item: OrchestrationItem, origin: decide.TurnOrigin): Effect.Effect<void> =>
    store(
      turn,
      item,
      origin,
      () => countTurn(executionOf(item.orchestrationName, item.history[0], turn), turn)
    )

  const store = (
    turn: Turn,
    item: OrchestrationItem,
    origin: decide.TurnOrigin,
    onStored: () => Effect.Effect<void>
  ): Effect.Effect<void> =>
    Effect.matchEffect(settlement.ack(turn), {
      onSuccess: onStored,
      onFailure: (error) => settleUnstored(error, item, origin)
    })

  const settleUnstored = (error: ProviderError, item: OrchestrationItem, origin: decide.TurnOrigin) => {
    const decision = decide.unstoredTurn(error, origin, item)
    switch (decision._tag) {
      case "Replay":
        return readHistory()
      case "Fail":
        return Effect.logError(`${component}: instance fails, the database refuses what its turn stores`).pipe(
          problem(error),
          Effect.andThen(storeFailure(decision.turn, item, "Refusal"))
        )
      case "Release":
        return Effect.andThen(
          Effect.logWarning(
            `${component}: turn not stored, its lock is lost: another process has the instance, an operator has paused it, or an earlier try stored the turn`
          ),
          settlement.release
        )
      case "Abandon":
        return settlement.abandon(decision, error)
    }
  }

  // The history names the trace, unless the program waits here.
  return claimedItem.isKnownHistory && warm === undefined
    ? readHistory(undefined, traced)
    : traced(claimedItem)
}
