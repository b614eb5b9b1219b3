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
import * as Metrics from "../../Metrics.ts"
import type { Claimed, OrchestrationItem, Provider, Turn } from "../../Provider.ts"
import type { ProviderError } from "../../ProviderError.ts"
import type { Settings } from "../../RuntimeConfig.ts"
import * as WorkItem from "../../WorkItem.ts"
import * as turns from "../replay/turn.ts"
import * as batches from "./batch.ts"
import * as coreVersion from "./coreVersion.ts"
import { failedStorePause, problem, storeRetries, unregisteredPause } from "./policies.ts"
import type { Registry } from "./registry.ts"
import * as renewal from "./renewal.ts"
import * as slots from "./slots.ts"

export const run = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly registry: Registry
  readonly settings: Settings
}): Effect.fn.Return<void, never, Scope.Scope> {
  const { provider, registry, settings } = options
  const services = hostServices(yield* Effect.context<never>())

  const handle = ({ attemptCount, item, lockToken }: Claimed<OrchestrationItem>): Effect.Effect<void> => {
    const { instanceId } = item
    const batch = batches.read(item)
    const abandon = (delay: Duration.Duration, ignoreAttempt = false) =>
      provider.abandonOrchestrationItem({ lockToken, delay: Option.some(delay), ignoreAttempt }).pipe(
        // Whoever cannot give a lease back only has to wait: it expires.
        Effect.catch((error) => Effect.logWarning("An instance could not be given back").pipe(problem(error)))
      )

    const store = (turn: Turn): Effect.Effect<boolean> =>
      provider.ackOrchestrationItem(lockToken, turn).pipe(
        Effect.retry({ schedule: storeRetries, while: (error) => error.isRetryable }),
        Effect.as(true),
        Effect.catch((error) =>
          Effect.as(
            isRefusedData(error)
              ? storeRefusal(error)
              : error.reason._tag === "LockLost"
              ? Effect.logWarning(
                "A turn was not stored: its lease is gone, to another process or with an earlier try that did store it"
              )
              : Effect.andThen(
                Effect.logError("A turn was not stored").pipe(problem(error)),
                abandon(failedStorePause)
              ),
            false
          )
        )
      )

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
          Effect.andThen(Effect.logError("Its failure was not stored").pipe(problem(second)), abandon(failedStorePause))
        )
      )
    }

    const decide = Effect.suspend((): Effect.Effect<void> => {
      // An instance that has ended stays as it ended, however often its messages were delivered.
      if (batch._tag === "Drop") return drop(batch.refusals)
      if (attemptCount > settings.maxAttempts) return poison()
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
      const program = registry.resolve(batch.started.name, batch.version)
      if (program === undefined) {
        return Effect.andThen(Effect.logWarning(missingHandler()), abandon(unregisteredPause(settings, attemptCount)))
      }
      const result = turns.run({
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
      return Effect.forEach(result.warnings, (warning) => Effect.logWarning(warning)).pipe(
        Effect.andThen(store(withRefusals(result.turn, batch))),
        Effect.flatMap((stored) => stored ? report(program.name, result) : Effect.void)
      )
    })

    const drop = (refusals: ReadonlyArray<WorkItem.WorkItem>) =>
      Effect.logDebug("Messages for an instance that has ended are dropped").pipe(
        // Sent again when the process dies in between; a parent takes the first answer only.
        Effect.andThen(Effect.forEach(refusals, (refusal) => provider.enqueueForOrchestrator(refusal, Option.none()))),
        Effect.andThen(provider.dropOrchestrationItem(lockToken)),
        Effect.catch((error) => Effect.logWarning("They could not be dropped yet").pipe(problem(error)))
      )

    const missingHandler = () =>
      batch._tag !== "Run" || registry.resolve(batch.started.name, batch.version) !== undefined
        ? undefined
        : `no handler for orchestration "${batch.started.name}" ${batch.started.version} in this process, which has ` +
          registry.known.join(", ")

    const poison = () => {
      const details: ErrorDetails.ErrorDetails = {
        _tag: "Poison",
        attemptCount,
        maxAttempts: settings.maxAttempts,
        messageType: Option.isSome(item.historyError)
          ? {
            FailedDeserialization: {
              instance: instanceId,
              execution_id: item.executionId,
              error: item.historyError.value
            }
          }
          : { Orchestration: { instance: instanceId, execution_id: item.executionId } },
        message: Option.getOrElse(
          item.historyError,
          () => missingHandler() ?? `[${item.messages.map(WorkItem.encode).join(",")}]`
        )
      }
      return Effect.logError("An instance is poisoned: it was delivered too often").pipe(
        Effect.annotateLogs({ attemptCount, orchestration: item.orchestrationName }),
        Effect.andThen(store(failedTurn(item, batch, details)))
      )
    }

    return Effect.raceFirst(
      decide,
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

  // Code that goes on outside its turn awaits something that is not durable. It is told once per orchestration.
  const strays = new StrayReport()

  yield* slots.run({
    name: "orchestration-dispatcher",
    concurrency: settings.orchestrationConcurrency,
    shutdownTimeout: settings.shutdownTimeout,
    claim: provider.fetchOrchestrationItem({
      lockTimeout: settings.orchestrationLockTimeout,
      pollTimeout: settings.pollTimeout,
      versions: Option.some(coreVersion.supported)
    }),
    handle: (claimed) => Effect.andThen(handle(claimed), strays.flush)
  })
})

// internal

const unreadableHistoryPause = Duration.seconds(1)

// Only the payload can be at fault here; a schema that does not fit or a missing right is the operator's to mend.
const isRefusedData = ({ reason }: ProviderError) => reason._tag === "DataRefused" || reason._tag === "InvalidInput"

/** What code under replay inherits from its host: where logs go, nothing else. */
const hostServices = (context: Context.Context<never>): Context.Context<never> =>
  Context.empty().pipe(
    Context.add(References.CurrentLoggers, Context.get(context, References.CurrentLoggers)),
    Context.add(References.MinimumLogLevel, Context.get(context, References.MinimumLogLevel))
  )

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
