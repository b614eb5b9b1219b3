/**
 * Claims activities, runs their handlers, stores the results.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { ErrorDetails } from "../model/ErrorDetails.ts"
import * as Metrics from "../model/Metrics.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import type { Claimed, Provider } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { Call } from "./activityCall.ts"
import { poisonedActivity, refusedByStore } from "./failing.ts"
import type { ActivityCode } from "./handlers.ts"
import { isRefusedData, longestStorePause, pauseAfter, Pauses, problem, unservedPause } from "./policies.ts"
import type { RunningActivities } from "./running.ts"
import * as sessionsOf from "./sessions.ts"
import type { Settings } from "./settings.ts"
import * as slots from "./slots.ts"
import type { Supervisor } from "./supervisor.ts"

type Activity = WorkItem.Of<"ActivityExecute">
type Completion = WorkItem.Of<"ActivityCompleted"> | WorkItem.Of<"ActivityFailed">

export const make = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly handlers: ReadonlyMap<string, ActivityCode>
  readonly running: RunningActivities
  readonly settings: Settings
  readonly supervisor: Supervisor
}): Effect.fn.Return<slots.Dispatcher, never, Scope.Scope> {
  const { handlers, provider, running, settings, supervisor } = options
  const looks = slots.looks(yield* Clock.Clock)
  const pauses = new Pauses()
  const sessions = yield* sessionsOf.make({
    provider,
    settings,
    supervisor,
    activities: [...handlers.keys()],
    onLook: looks.answered
  })

  const handle = ({ attemptCount, item, lockToken }: Claimed<Activity>): Effect.Effect<void> => {
    // From here on until its outcome is stored.
    const one = running.enter(item, lockToken)

    const giveBack = (options: { readonly delay: Option.Option<Duration.Duration>; readonly counts: boolean }) =>
      provider.abandonWorkItem({ lockToken, delay: options.delay, ignoreAttempt: !options.counts }).pipe(
        Effect.catch((error) =>
          error.reason._tag === "LockLost"
            ? Effect.void
            : Effect.logWarning(`${component}: activity not abandoned, it is delivered again when its lock expires`)
              .pipe(
                problem(error)
              )
        )
      )

    /** Tries until the store has the outcome, or its lock is lost: the handler is not run again for it. */
    const store = (completion: Completion, failures = 0): Effect.Effect<void> =>
      running.holdLock(one).pipe(
        Effect.andThen(provider.ackWorkItem(lockToken, Option.some(completion))),
        Effect.matchEffect({
          onSuccess: () => count(item, completion._tag === "ActivityCompleted" ? "success" : "app_error"),
          onFailure: (error) => {
            if (error.reason._tag === "LockLost") {
              return Effect.logWarning(
                `${component}: outcome not stored, its lock is lost: cancelled, run elsewhere, or stored by an earlier try`
              )
            }
            if (isRefusedData(error)) return storeRefusal(completion, error)
            const log = failures === 0
              ? Effect.logWarning(`${component}: outcome not stored yet`)
              : Effect.logDebug(`${component}: outcome not stored yet`)
            return log.pipe(
              problem(error),
              Effect.andThen(Effect.raceFirst(
                Effect.sleep(Duration.min(pauseAfter(failures), longestStorePause)),
                Deferred.await(one.lost)
              )),
              Effect.andThen(Effect.suspend(() => store(completion, failures + 1)))
            )
          }
        })
      )

    /** The database will never take the outcome, so running the handler again would only repeat that. */
    const storeRefusal = (completion: Completion, error: ProviderError): Effect.Effect<void> =>
      Effect.logError(`${component}: activity fails, the database refuses its outcome`).pipe(
        problem(error),
        Effect.andThen(
          completion._tag === "ActivityFailed" && completion.details._tag === "Infrastructure"
            ? Effect.suspend(() => giveBack({ delay: Option.some(pauses.next(one.key).pause), counts: true }))
            : store(failed(item, refusedByStore(error)))
        )
      )

    const call = (handler: ActivityCode) =>
      Effect.gen(function*() {
        // Not a child: one that does not end when it is interrupted must not keep the slot, or a shutdown, waiting.
        const fiber = yield* Effect.forkDetach(
          provideCall(handler.run(item.input), item, attemptCount, sessions.workerId)
        )
        const ended = yield* Effect.raceFirst(
          Effect.asSome(Fiber.await(fiber)),
          Effect.as(Deferred.await(one.lost), Option.none<Exit.Exit<string, ErrorDetails>>())
        ).pipe(Effect.onInterrupt(() => interruptWithin(fiber, settings.activityGracePeriod)))
        if (Option.isNone(ended)) {
          yield* Effect.logInfo(`${component}: activity cancelled, it is interrupted`)
          yield* interruptWithin(fiber, settings.activityGracePeriod)
          return yield* count(item, "cancelled")
        }
        const completion = complete(item, ended.value)
        return yield* completion === undefined
          ? giveBack({ delay: Option.none(), counts: true })
          : store(completion)
      })

    const handler = handlers.get(item.name)
    const deliveries = attemptCount - 1
    const work: Effect.Effect<void> = deliveries >= settings.maxAttempts
      ? Effect.logError(`${component}: activity fails as poison, no delivery ended with an outcome`).pipe(
        Effect.annotateLogs({ deliveries }),
        Effect.andThen(store(failed(item, poisonedActivity(item, deliveries, settings.maxAttempts))))
      )
      : handler === undefined
      ? giveBack({ delay: Option.some(unservedPause), counts: false })
      : call(handler)

    return work.pipe(
      Effect.catchDefect((defect) =>
        Effect.andThen(
          Effect.logError(`${component}: activity broke`, defect),
          Effect.suspend(() => giveBack({ delay: Option.some(pauses.next(one.key).pause), counts: true }))
        )
      ),
      // Shutdown: the activity is not at fault, the next process runs it again.
      Effect.onInterrupt(() => giveBack({ delay: Option.none(), counts: false })),
      Effect.ensuring(Effect.sync(() => running.leave(one))),
      Effect.ensuring(sessions.leave(item)),
      Effect.annotateLogs({
        instanceId: item.instance,
        executionId: item.executionId,
        activityId: item.id,
        activityName: item.name
      })
    )
  }

  return {
    name: component,
    concurrency: settings.workerConcurrency,
    looks,
    claim: Effect.map(Effect.andThen(running.inTouch, sessions.claim), Option.map(handle))
  }
})

// internal

const component = "Worker dispatcher"

const provideCall = <A, E>(
  run: Effect.Effect<A, E, Call>,
  item: Activity,
  deliveryNumber: number,
  workerId: string
) =>
  Effect.provideService(run, Call, {
    activityName: item.name,
    instanceId: item.instance,
    executionId: item.executionId,
    activityId: item.id,
    tryNumber: item.tryNumber ?? 1,
    deliveryNumber,
    idempotencyKey: keyOf(item),
    sessionId: Option.fromUndefinedOr(item.sessionId),
    tag: Option.fromUndefinedOr(item.tag),
    workerId
  })

/** Rust does not say when it started the execution. */
const keyOf = ({ executionId, firstTryId, id, instance, startedAtMs }: Activity) =>
  [instance, executionId, ...(startedAtMs === undefined ? [] : [startedAtMs]), firstTryId ?? id].join("/")

const interruptWithin = (fiber: Fiber.Fiber<unknown, unknown>, gracePeriod: Duration.Duration) =>
  Effect.timeoutOption(Fiber.interrupt(fiber), gracePeriod).pipe(
    Effect.flatMap((ended) =>
      Option.isSome(ended)
        ? Effect.void
        : Effect.logWarning(`${component}: an interrupted activity does not end, it is left alone`)
    )
  )

/** Undefined when the handler interrupted itself: its outcome is unknown. */
const complete = (
  item: Activity,
  exit: Exit.Exit<string, ErrorDetails>
): Completion | undefined => {
  if (Exit.isSuccess(exit)) {
    const { executionId, id, instance } = item
    return { _tag: "ActivityCompleted", instance, executionId, id, result: exit.value }
  }
  const reason = exit.cause.reasons.find((reason) => reason._tag === "Fail")
  return reason && failed(item, reason.error)
}

const failed = (item: Activity, details: ErrorDetails): Completion => ({
  _tag: "ActivityFailed",
  instance: item.instance,
  executionId: item.executionId,
  id: item.id,
  details
})

const count = (item: Activity, outcome: "success" | "app_error" | "cancelled") =>
  Metric.update(
    Metric.withAttributes(Metrics.activityExecutions, {
      activity_name: item.name,
      outcome,
      tag: item.tag ?? "default"
    }),
    1
  )
