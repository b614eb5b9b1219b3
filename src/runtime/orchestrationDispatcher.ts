/**
 * Claims instances, runs one turn of each, stores what the turn decided.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as References from "effect/References"
import * as ErrorDetails from "../model/ErrorDetails.ts"
import * as Event from "../model/Event.ts"
import * as coreVersion from "../model/internal/coreVersion.ts"
import { harmless } from "../model/internal/logging.ts"
import * as Metrics from "../model/Metrics.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import * as renewal from "../provider/internal/renewal.ts"
import type { Claimed, OrchestrationItem, Provider, Turn } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { silentWhile } from "../replay/silence.ts"
import * as turns from "../replay/turn.ts"
import * as batches from "./batch.ts"
import type { EventLoop } from "./eventLoop.ts"
import { failedTurn, poisonedInstance, refusedByStore, withRefusals } from "./failing.ts"
import { isRefusedData, longestStorePause, pauseAfter, Pauses, problem, unservedPause } from "./policies.ts"
import type { Registry } from "./registry.ts"
import { report, reportWarm, StrayReport } from "./reports.ts"
import type { Settings } from "./settings.ts"
import * as slots from "./slots.ts"
import * as unreadMail from "./unreadMail.ts"
import { WarmInstances } from "./warmInstances.ts"

export const make = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly registry: Registry
  readonly settings: Settings
  readonly eventLoop: EventLoop
}): Effect.fn.Return<slots.Dispatcher> {
  const { eventLoop, provider, registry, settings } = options
  const { verifyReplay } = settings
  const clock = yield* Clock.Clock
  const looks = slots.looks(clock)
  const warm = new WarmInstances(settings)
  const pauses = new Pauses()
  const secondRun = { isUnderWay: false }
  const services = hostServices(yield* Effect.context<never>(), secondRun)

  // Code that goes on outside its turn awaits something that is not durable. Logged once per orchestration.
  const strays = new StrayReport()

  const handle = ({ attemptCount, item, lockToken }: Claimed<OrchestrationItem>): Effect.Effect<void> => {
    const { instanceId } = item
    const kept = warm.take(instanceId)

    /** Tries until the store has it: otherwise the lock expires, and the delivery counts. */
    const giveBack = (
      options: { readonly delay: Duration.Duration; readonly counts: boolean },
      failures = 0
    ): Effect.Effect<void> =>
      provider.abandonOrchestrationItem({
        lockToken,
        delay: Option.some(options.delay),
        ignoreAttempt: !options.counts
      }).pipe(
        Effect.catch((error) =>
          error.reason._tag === "LockLost"
            ? Effect.logDebug(`${component}: instance not abandoned, its lock is lost`)
            : Effect.logDebug(`${component}: instance not abandoned yet`).pipe(
              problem(error),
              Effect.andThen(Effect.sleep(Duration.min(pauseAfter(failures), longestStorePause))),
              Effect.andThen(Effect.suspend(() => giveBack(options, failures + 1)))
            )
        )
      )

    /** The work is not at fault: the delivery does not count, and each further pause is longer. */
    const setAside = (what: string, why: (log: Effect.Effect<void>) => Effect.Effect<void>) =>
      Effect.suspend(() => {
        const { isFirst, pause } = pauses.next(instanceId)
        return (isFirst ? Effect.logError(what) : Effect.logDebug(what)).pipe(
          why,
          Effect.andThen(giveBack({ delay: pause, counts: false }))
        )
      })

    const store = (turn: Turn, onRefusal: (error: ProviderError) => Effect.Effect<void>): Effect.Effect<boolean> =>
      provider.ackOrchestrationItem(lockToken, turn).pipe(
        Effect.map(() => (pauses.forget(instanceId), true)),
        Effect.catch((error) =>
          Effect.as(
            isRefusedData(error)
              ? onRefusal(error)
              : error.reason._tag === "LockLost"
              ? Effect.andThen(
                Effect.logWarning(
                  `${component}: turn not stored, its lock is lost: to another process, or to an earlier try that did store it`
                ),
                // If it only ran out, the delivery does not count.
                Effect.ignore(
                  provider.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: true })
                )
              )
              : setAside(`${component}: turn not stored`, problem(error)),
            false
          )
        )
      )

    /** Runs a program's turn, which does not yield, and warns if it blocked the event loop. */
    const atOnce = <A>(name: string, run: () => A): { readonly ran: A; readonly warning: Effect.Effect<void> } => {
      const { blockedMs, result } = eventLoop.turn(run)
      return {
        ran: result,
        warning: blockedMs === undefined
          ? Effect.void
          : Effect.logWarning(`${component}: a turn blocked the event loop; computing belongs in activities`).pipe(
            Effect.annotateLogs({ orchestration: name, milliseconds: blockedMs })
          )
      }
    }

    const commit = (
      name: string,
      ran: turns.Ran,
      batch: batches.Batch,
      onRefusal: (error: ProviderError) => Effect.Effect<void>
    ) =>
      Effect.forEach(ran.warnings, (warning) => Effect.logWarning(`${component}: ${warning}`)).pipe(
        Effect.andThen(store(withRefusals(ran.turn, batch), onRefusal)),
        Effect.flatMap((stored) => {
          if (!stored) return Effect.void
          if (ran.suspended !== undefined) warm.keep(instanceId, ran.suspended)
          return Effect.andThen(report(name, ran), reportWarm(warm))
        })
      )

    /** Resumes the warm program; undefined when the history must be replayed. */
    const goOn = (): Effect.Effect<void> | undefined => {
      if (kept === undefined || !item.isKnownHistory || attemptCount > settings.maxAttempts) return undefined
      const batch = batches.read(item, kept.started)
      if (batch._tag !== "Run") return undefined
      const { name } = kept.started
      const { ran, warning } = atOnce(name, () => kept.resume({ nowMs: item.nowMs, messages: batch.messages }))
      if (ran === undefined) return undefined
      // Only a replay can run the turn once more.
      const next = unreadMail.leavesMail(ran, item)
        ? replay(ran)
        // The database will refuse the replay's turn as well, and the replay can fail the instance.
        : commit(name, ran, batch, () => replay())
      return Effect.andThen(warning, next)
    }

    /** `ran` is the turn of the warm program, where it is known. */
    const replay = (ran?: turns.Ran): Effect.Effect<void> =>
      Effect.suspend(() =>
        item.isKnownHistory
          ? provider.readWithExecution(instanceId, item.executionId).pipe(
            Effect.matchEffect({
              onSuccess: (history) => decide({ ...item, history, isKnownHistory: false }, ran),
              onFailure: (error) => setAside(`${component}: history not read`, problem(error))
            })
          )
          : decide(item, ran)
      )

    const decide = (item: OrchestrationItem, warmRan?: turns.Ran): Effect.Effect<void> => {
      const batch = batches.read(item)
      // The database will never take what this turn wants to store, so running it again would only repeat that.
      const storeRefusal = (error: ProviderError) =>
        Effect.logError(`${component}: instance fails, the database refuses what its turn stores`).pipe(
          problem(error),
          Effect.andThen(provider.ackOrchestrationItem(lockToken, failedTurn(item, batch, refusedByStore(error)))),
          Effect.catch((second) => setAside(`${component}: failure of an instance not stored`, problem(second)))
        )
      // An instance that has ended stays as it ended, however often its messages were delivered.
      if (batch._tag === "Drop") return drop(batch.refusals)
      const deliveries = attemptCount - 1
      if (deliveries >= settings.maxAttempts) {
        const details = poisonedInstance(item, deliveries, settings.maxAttempts)
        return Effect.logError(`${component}: instance fails as poison, no delivery ended with a stored turn`).pipe(
          Effect.annotateLogs({ deliveries, orchestration: item.orchestrationName }),
          Effect.andThen(store(failedTurn(item, batch, details), storeRefusal)),
          Effect.asVoid
        )
      }
      if (Option.isSome(item.historyError)) {
        // Another release may be able to read it.
        return setAside(
          `${component}: history cannot be read`,
          Effect.annotateLogs({ problem: item.historyError.value })
        )
      }
      // Messages for an execution whose start is not visible yet wait for it.
      if (batch._tag === "Early") return giveBack({ delay: pauses.next(instanceId).pause, counts: false })
      const program = registry.resolve(batch.started.name, batch.version)
      if (program === undefined) {
        return Effect.logDebug(`${component}: instance abandoned, its version is not served here`).pipe(
          Effect.annotateLogs({ orchestration: batch.started.name, version: batch.started.version }),
          Effect.andThen(giveBack({ delay: unservedPause, counts: false }))
        )
      }
      const run = (messages: ReadonlyArray<WorkItem.WorkItem>) =>
        turns.run({
          instanceId,
          executionId: batch.executionId,
          nowMs: item.nowMs,
          history: batch.history,
          started: { ...batch.started, version: program.version },
          messages,
          keyValues: item.keyValues,
          version: coreVersion.current,
          code: program.code,
          services,
          onStray: () => strays.add(program.name, instanceId)
        })
      const { ran, warning } = atOnce(program.name, () => {
        const first = warmRan ?? run(batch.messages)
        return unreadMail.leave(
          verifyReplay ? verified(first, item, batch.messages) : first,
          item,
          (isLeft) => silently(() => run(batch.messages.filter((message) => !isLeft(message))))
        )
      })
      const counted = batch.history.length === 0
        ? Effect.void
        : Metric.update(Metric.withAttributes(Metrics.orchestrationReplays, { orchestration_name: program.name }), 1)
      return Effect.andThen(
        Effect.andThen(warning, counted),
        commit(program.name, ran, batch, storeRefusal)
      )
    }

    /** The turn, when the warm program has to agree with its replay. */
    const verified = (replayed: turns.Ran, item: OrchestrationItem, messages: ReadonlyArray<WorkItem.WorkItem>) => {
      if (kept === undefined || !kept.isSound() || !sameEnd(item.history, kept)) return replayed
      const ran = silently(() => kept.resume({ nowMs: item.nowMs, messages }))
      // Failures are left to replays.
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

    /** The second run of a turn logs nothing. */
    const silently = <A>(run: () => A): A => {
      secondRun.isUnderWay = true
      try {
        return run()
      } finally {
        secondRun.isUnderWay = false
      }
    }

    const drop = (refusals: ReadonlyArray<WorkItem.WorkItem>) =>
      Effect.logDebug(`${component}: messages for an instance that has ended are dropped`).pipe(
        // Sent again when the process dies in between; a parent takes the first answer only.
        Effect.andThen(Effect.forEach(refusals, (refusal) => provider.enqueueForOrchestrator(refusal, Option.none()))),
        Effect.andThen(provider.dropOrchestrationItem(lockToken)),
        Effect.map(() => pauses.forget(instanceId)),
        Effect.catch((error) =>
          error.reason._tag === "LockLost"
            ? Effect.void
            : setAside(`${component}: messages not dropped`, problem(error))
        )
      )

    return Effect.raceFirst(
      Effect.suspend(() => goOn() ?? replay()),
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
        Effect.andThen(
          Effect.logError(`${component}: turn broke`, defect),
          Effect.suspend(() => giveBack({ delay: pauses.next(instanceId).pause, counts: true }))
        )
      ),
      // Shutdown: if the turn was stored all the same, there is nothing left to give back.
      Effect.onInterrupt(() =>
        Effect.ignore(provider.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: true }))
      ),
      Effect.annotateLogs({ instanceId, executionId: item.executionId }),
      Effect.andThen(strays.flush)
    )
  }

  const usesWarm = settings.warmInstances > 0 && settings.warmInstanceBytes > 0
  return {
    name: component,
    concurrency: settings.orchestrationConcurrency,
    looks,
    claim: Effect.suspend(() =>
      provider.fetchOrchestrationItem({
        lockTimeout: settings.orchestrationLockTimeout,
        pollTimeout: settings.pollTimeout,
        versions: Option.some(coreVersion.supported),
        serves: registry.serves,
        isKnown: usesWarm && !verifyReplay ? (end) => warm.isKnown(end) : undefined,
        onLook: looks.answered
      })
    ).pipe(Effect.map(Option.map(handle)))
  }
})

// internal

const component = "Orchestration dispatcher"

/** What code under replay inherits from its host: where logs go, nothing else. */
const hostServices = (
  context: Context.Context<never>,
  secondRun: { readonly isUnderWay: boolean }
): Context.Context<never> => {
  const loggers = harmless(Context.get(context, References.CurrentLoggers))
  return Context.empty().pipe(
    Context.add(References.CurrentLoggers, silentWhile(loggers, () => secondRun.isUnderWay)),
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
