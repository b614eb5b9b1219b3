/**
 * Claims instances, runs one turn of each, stores what the turn decided.
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as References from "effect/References"
import type * as Scope from "effect/Scope"
import * as ErrorDetails from "../../ErrorDetails.ts"
import * as Event from "../../Event.ts"
import * as Metrics from "../../Metrics.ts"
import type { Claimed, OrchestrationItem, Provider, Turn } from "../../Provider.ts"
import type { ProviderError } from "../../ProviderError.ts"
import type { Settings } from "../../RuntimeConfig.ts"
import * as WorkItem from "../../WorkItem.ts"
import { silentWhile } from "../replay/silence.ts"
import * as turns from "../replay/turn.ts"
import * as batches from "./batch.ts"
import * as coreVersion from "./coreVersion.ts"
import { failedStorePause, problem, storeRetries, unregisteredPause } from "./policies.ts"
import type { Registry } from "./registry.ts"
import * as renewal from "./renewal.ts"
import * as slots from "./slots.ts"
import { WarmInstances } from "./warmInstances.ts"

export const run = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly registry: Registry
  readonly settings: Settings
}): Effect.fn.Return<void, never, Scope.Scope> {
  const { provider, registry, settings } = options
  const { verifyReplay } = settings
  const warm = new WarmInstances(settings)
  const verification = { isUnderWay: false }
  const services = hostServices(yield* Effect.context<never>(), verification)

  // Code that goes on outside its turn awaits something that is not durable. It is told once per orchestration.
  const strays = new StrayReport()

  const handle = ({ attemptCount, item, lockToken }: Claimed<OrchestrationItem>): Effect.Effect<void> => {
    const { instanceId } = item
    const kept = warm.take(instanceId)
    const abandon = (delay: Duration.Duration, ignoreAttempt = false) =>
      provider.abandonOrchestrationItem({ lockToken, delay: Option.some(delay), ignoreAttempt }).pipe(
        // Whoever cannot give a lease back only has to wait: it expires.
        Effect.catch((error) => Effect.logWarning("An instance could not be given back").pipe(problem(error)))
      )

    const store = (turn: Turn, onRefusal: (error: ProviderError) => Effect.Effect<void>): Effect.Effect<boolean> =>
      provider.ackOrchestrationItem(lockToken, turn).pipe(
        Effect.retry({ schedule: storeRetries, while: (error) => error.isRetryable }),
        Effect.as(true),
        Effect.catch((error) =>
          Effect.as(
            isRefusedData(error)
              ? onRefusal(error)
              : error.reason._tag === "LockLost"
              ? Effect.logWarning(
                "A turn was not stored: its lease is gone, to another process or with an earlier try that did store it"
              )
              : Effect.andThen(
                Effect.logError("A turn was not stored").pipe(problem(error)),
                abandon(error.isRetryable ? unregisteredPause(settings, attemptCount) : failedStorePause)
              ),
            false
          )
        )
      )

    const commit = (
      name: string,
      ran: turns.Ran,
      batch: batches.Batch,
      onRefusal: (error: ProviderError) => Effect.Effect<void>
    ) =>
      Effect.forEach(ran.warnings, (warning) => Effect.logWarning(warning)).pipe(
        Effect.andThen(store(withRefusals(ran.turn, batch), onRefusal)),
        Effect.flatMap((stored) => {
          if (!stored) return Effect.void
          if (ran.suspended !== undefined) warm.keep(instanceId, ran.suspended)
          return Effect.andThen(report(name, ran), reportWarm(warm))
        })
      )

    /** Goes on with the program as the last turn left it; undefined when the history must be replayed. */
    const goOn = (): Effect.Effect<void> | undefined => {
      if (kept === undefined || !item.isKnownHistory || attemptCount > settings.maxAttempts) return undefined
      const batch = batches.read(item, kept.started)
      const ran = batch._tag === "Run" ? kept.resume({ nowMs: item.nowMs, messages: batch.messages }) : undefined
      // What the database refuses is refused to the replay again, which knows how to fail the instance.
      return ran && commit(kept.started.name, ran, batch, () => replay)
    }

    const replay: Effect.Effect<void> = Effect.suspend(() =>
      item.isKnownHistory
        ? provider.readWithExecution(instanceId, item.executionId).pipe(
          Effect.matchEffect({
            onSuccess: (history) => decide({ ...item, history, isKnownHistory: false }),
            onFailure: (error) =>
              Effect.andThen(
                Effect.logError("The history of an instance could not be read").pipe(problem(error)),
                abandon(failedStorePause, true)
              )
          })
        )
        : decide(item)
    )

    const decide = (item: OrchestrationItem): Effect.Effect<void> => {
      const batch = batches.read(item)
      // The database will never take what this turn wants to store, so running it again would only repeat that.
      const storeRefusal = (error: ProviderError) => {
        const refusal = failedTurn(item, batch, {
          _tag: "Infrastructure",
          operation: error.operation,
          message: error.reason.message,
          retryable: false
        })
        return Effect.logError("An instance fails: the database refuses what its turn stores").pipe(
          problem(error),
          Effect.andThen(provider.ackOrchestrationItem(lockToken, refusal)),
          Effect.catch((second) =>
            Effect.andThen(
              Effect.logError("Its failure was not stored").pipe(problem(second)),
              abandon(failedStorePause)
            )
          )
        )
      }
      // An instance that has ended stays as it ended, however often its messages were delivered.
      if (batch._tag === "Drop") return drop(batch.refusals)
      const program = batch._tag === "Run" ? registry.resolve(batch.started.name, batch.version) : undefined
      const missingHandler = batch._tag === "Run" && program === undefined
        ? `no handler for orchestration "${batch.started.name}" ${batch.started.version} in this process, which has ` +
          registry.known.join(", ")
        : undefined
      if (attemptCount > settings.maxAttempts) {
        const details = poisoned(item, attemptCount, settings.maxAttempts, missingHandler)
        return Effect.logError("An instance is poisoned: it was delivered too often").pipe(
          Effect.annotateLogs({ attemptCount, orchestration: item.orchestrationName }),
          Effect.andThen(store(failedTurn(item, batch, details), storeRefusal)),
          Effect.asVoid
        )
      }
      if (Option.isSome(item.historyError)) {
        return Effect.andThen(
          Effect.logError("The history of an instance cannot be read").pipe(
            Effect.annotateLogs({ problem: item.historyError.value })
          ),
          abandon(unreadableHistoryPause)
        )
      }
      // Messages for an execution whose start is not visible yet wait for it.
      if (batch._tag === "Early") return abandon(unregisteredPause(settings, attemptCount), true)
      if (program === undefined) {
        return Effect.andThen(Effect.logWarning(missingHandler), abandon(unregisteredPause(settings, attemptCount)))
      }
      const ran = turns.run({
        instanceId,
        executionId: batch.executionId,
        nowMs: item.nowMs,
        history: batch.history,
        started: { ...batch.started, version: program.version },
        messages: batch.messages,
        keyValues: item.keyValues,
        version: coreVersion.current,
        code: program.code,
        services,
        onStray: () => strays.add(program.name)
      })
      return Effect.andThen(
        batch.history.length === 0
          ? Effect.void
          : Metric.update(Metric.withAttributes(Metrics.orchestrationReplays, { orchestration_name: program.name }), 1),
        commit(program.name, verifyReplay ? verified(ran, item, batch.messages) : ran, batch, storeRefusal)
      )
    }

    /** What the turn comes to when the program that was kept has to agree with its replay. */
    const verified = (replayed: turns.Ran, item: OrchestrationItem, messages: ReadonlyArray<WorkItem.WorkItem>) => {
      if (kept === undefined || !kept.isSound() || !sameEnd(item.history, kept)) return replayed
      verification.isUnderWay = true
      const ran = kept.resume({ nowMs: item.nowMs, messages })
      verification.isUnderWay = false
      // A program that was kept says nothing of failures.
      if (ran === undefined && replayed.outcome._tag === "Failed") return replayed
      if (ran !== undefined && sameDecisions(ran, replayed)) return ran
      return {
        ...turns.fail(
          { ...item, executionId: kept.executionId, started: kept.started, version: coreVersion.current },
          ErrorDetails.nondeterminism(notReproduced(kept.started.name)),
          { unreadable: false }
        ),
        suspended: undefined
      }
    }

    const drop = (refusals: ReadonlyArray<WorkItem.WorkItem>) =>
      Effect.logDebug("Messages for an instance that has ended are dropped").pipe(
        // Sent again when the process dies in between; a parent takes the first answer only.
        Effect.andThen(Effect.forEach(refusals, (refusal) => provider.enqueueForOrchestrator(refusal, Option.none()))),
        Effect.andThen(provider.dropOrchestrationItem(lockToken)),
        Effect.catch((error) => Effect.logWarning("They could not be dropped yet").pipe(problem(error)))
      )

    return Effect.raceFirst(
      Effect.suspend(() => goOn() ?? replay),
      Effect.andThen(
        renewal.untilLost(
          settings.orchestrationLockTimeout,
          provider.renewOrchestrationItemLock({ lockToken, extendFor: settings.orchestrationLockTimeout })
        ),
        // The turn finds out at its commit.
        Effect.never
      )
    ).pipe(
      Effect.catchDefect((defect) =>
        Effect.andThen(Effect.logError("A turn broke", defect), abandon(failedStorePause))
      ),
      // Shutdown: if the turn was stored all the same, there is nothing left to give back.
      Effect.onInterrupt(() =>
        Effect.ignore(provider.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: true }))
      ),
      Effect.annotateLogs({ instanceId, executionId: item.executionId })
    )
  }

  const usesWarm = settings.warmInstances > 0 && settings.warmInstanceBytes > 0
  yield* slots.run({
    name: "orchestration-dispatcher",
    concurrency: settings.orchestrationConcurrency,
    shutdownTimeout: settings.shutdownTimeout,
    claim: provider.fetchOrchestrationItem({
      lockTimeout: settings.orchestrationLockTimeout,
      pollTimeout: settings.pollTimeout,
      versions: Option.some(coreVersion.supported),
      isKnown: usesWarm && !verifyReplay ? (end) => warm.isKnown(end) : undefined
    }),
    handle: (claimed) => Effect.andThen(handle(claimed), strays.flush)
  })
})

// internal

const unreadableHistoryPause = Duration.seconds(1)

// Only the payload can be at fault here; a schema that does not fit or a missing right is the operator's to mend.
const isRefusedData = ({ reason }: ProviderError) => reason._tag === "DataRefused" || reason._tag === "InvalidInput"

/** What code under replay inherits from its host: where logs go, nothing else. */
const hostServices = (
  context: Context.Context<never>,
  verification: { readonly isUnderWay: boolean }
): Context.Context<never> => {
  const loggers = Context.get(context, References.CurrentLoggers)
  return Context.empty().pipe(
    Context.add(References.CurrentLoggers, silentWhile(loggers, () => verification.isUnderWay)),
    Context.add(References.MinimumLogLevel, Context.get(context, References.MinimumLogLevel))
  )
}

/** Whether the stored history is the one the program has seen. */
const sameEnd = (history: ReadonlyArray<Event.Event>, { executionId, lastEvent }: turns.Suspended) => {
  const last = history.at(-1)
  return last !== undefined && last.executionId === executionId && Event.encode(last) === Event.encode(lastEvent)
}

const sameDecisions = (a: turns.Result, b: turns.Result) =>
  JSON.stringify([a.outcome, a.turn]) === JSON.stringify([b.outcome, b.turn])

const notReproduced = (name: string) =>
  `orchestration "${name}" is not deterministic: replayed, it decides otherwise than when it went on in memory. ` +
  `Time, chance and everything outside must come from Effect's Clock and Random, or from activities`

const poisoned = (
  item: OrchestrationItem,
  attemptCount: number,
  maxAttempts: number,
  missingHandler: string | undefined
): ErrorDetails.ErrorDetails => ({
  _tag: "Poison",
  attemptCount,
  maxAttempts,
  messageType: Option.isSome(item.historyError)
    ? {
      FailedDeserialization: {
        instance: item.instanceId,
        execution_id: item.executionId,
        error: item.historyError.value
      }
    }
    : { Orchestration: { instance: item.instanceId, execution_id: item.executionId } },
  message: Option.getOrElse(
    item.historyError,
    () => missingHandler ?? `[${item.messages.map(WorkItem.encode).join(",")}]`
  )
})

/** An execution that fails without its code being run. */
const failedTurn = (item: OrchestrationItem, batch: batches.Batch, details: ErrorDetails.ErrorDetails): Turn =>
  withRefusals(
    turns.fail(
      {
        ...item,
        ...(batch._tag === "Run" ? batch : { started: batches.unknownStart(item) }),
        version: coreVersion.current
      },
      details,
      { unreadable: Option.isSome(item.historyError) }
    ).turn,
    batch
  )

const withRefusals = (turn: Turn, batch: batches.Batch): Turn =>
  batch._tag === "Run" ? { ...turn, orchestratorItems: [...turn.orchestratorItems, ...batch.refusals] } : turn

const reportWarm = (warm: WarmInstances) =>
  Effect.andThen(
    Metric.update(Metrics.warmInstances, warm.count),
    Metric.update(Metrics.warmInstanceBytes, warm.bytes)
  )

const report = (name: string, { outcome, turn }: turns.Result) => {
  const labels = { orchestration_name: name }
  const started = turn.historyDelta[0]?._tag === "OrchestrationStarted"
    ? Metric.update(Metric.withAttributes(Metrics.orchestrationStarts, labels), 1)
    : Effect.void
  const turned = Metric.update(Metric.withAttributes(Metrics.orchestrationTurns, labels), 1)
  const both = Effect.andThen(started, turned)
  if (outcome._tag === "Waiting") return both
  const status = outcome._tag === "Completed" ? "success" : outcome._tag === "Failed" ? "failed" : "continuedAsNew"
  return both.pipe(
    Effect.andThen(Metric.update(Metric.withAttributes(Metrics.orchestrationCompletions, { ...labels, status }), 1)),
    Effect.andThen(
      outcome._tag !== "Failed"
        ? Effect.logDebug(`Orchestration "${name}" ${outcome._tag === "Completed" ? "completed" : "continues as new"}`)
        : isExpected(outcome.details)
        ? Effect.logDebug(`Orchestration "${name}" failed with an error of its own`)
        : Effect.logWarning(`Orchestration "${name}" failed: ${failureKind(outcome.details)}`)
    ),
    Effect.annotateLogs({ events: turn.historyDelta.length })
  )
}

// What a program fails with by its own Schema, and cancellation, are outcomes somebody asked for.
const isExpected = (details: ErrorDetails.ErrorDetails) => details._tag === "Application" && details.kind !== "Panicked"

// The message of an application error is a payload.
const failureKind = (details: ErrorDetails.ErrorDetails) =>
  details._tag === "Application"
    ? typeof details.kind === "string" ? details.kind : "Cancelled"
    : ErrorDetails.display(details)

class StrayReport {
  private readonly told = new Set<string>()
  private readonly pending: Array<string> = []
  add(name: string) {
    if (this.told.has(name)) return
    this.told.add(name)
    this.pending.push(name)
  }
  readonly flush: Effect.Effect<void> = Effect.suspend(() =>
    Effect.forEach(this.pending.splice(0), (name) =>
      Effect.logError(
        `Orchestration "${name}" goes on outside its turn: it awaits something that is not durable. Put it into an activity`
      ), { discard: true })
  )
}
