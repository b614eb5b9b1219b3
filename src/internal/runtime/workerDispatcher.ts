/**
 * Claims activities, runs their handlers, stores the results.
 */
import * as Deferred from "effect/Deferred"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Activity from "../../Activity.ts"
import type { ErrorDetails } from "../../ErrorDetails.ts"
import * as Metrics from "../../Metrics.ts"
import type { Claimed, Provider } from "../../Provider.ts"
import type { Settings } from "../../RuntimeConfig.ts"
import * as WorkItem from "../../WorkItem.ts"
import { failedStorePause, problem, storeRetries, unregisteredPause } from "./policies.ts"
import type { RunningActivities } from "./running.ts"
import * as sessionsOf from "./sessions.ts"
import * as slots from "./slots.ts"

type Completion = WorkItem.Of<"ActivityCompleted"> | WorkItem.Of<"ActivityFailed">

export const run = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly handlers: ReadonlyMap<string, Activity.HandlerService>
  readonly running: RunningActivities
  readonly settings: Settings
}): Effect.fn.Return<void, never, Scope.Scope> {
  const { handlers, provider, running, settings } = options
  const sessions = yield* sessionsOf.make(provider, settings)

  const handle = ({ attemptCount, item, lockToken }: Claimed<WorkItem.Of<"ActivityExecute">>): Effect.Effect<void> => {
    const abandon = (delay: Option.Option<Duration.Duration>, ignoreAttempt = false) =>
      provider.abandonWorkItem({ lockToken, delay, ignoreAttempt }).pipe(
        Effect.catch((error) => Effect.logWarning("An activity could not be given back").pipe(problem(error)))
      )

    const store = (completion: Completion) =>
      provider.ackWorkItem(lockToken, Option.some(completion)).pipe(
        Effect.retry({ schedule: storeRetries, while: (error) => error.isRetryable }),
        Effect.matchEffect({
          onSuccess: () => count(item, completion._tag === "ActivityCompleted" ? "success" : "app_error"),
          onFailure: (error) =>
            error.reason._tag === "LockLost"
              ? Effect.logWarning("The result of an activity is not wanted any more: cancelled, or run elsewhere")
              : Effect.andThen(
                Effect.logError("The result of an activity was not stored").pipe(problem(error)),
                abandon(Option.some(failedStorePause))
              )
        })
      )

    const handler = handlers.get(item.name)
    const work: Effect.Effect<void> = attemptCount > settings.maxAttempts
      ? Effect.andThen(
        Effect.logError("An activity is poisoned: it was delivered too often").pipe(
          Effect.annotateLogs({ attemptCount })
        ),
        store(failed(item, poisoned(item, attemptCount, settings.maxAttempts)))
      )
      : handler === undefined
      ? Effect.andThen(
        Effect.logWarning(`No handler for activity "${item.name}" in this process`).pipe(
          Effect.annotateLogs({ registered: [...handlers.keys()].join(", ") })
        ),
        abandon(Option.some(unregisteredPause(settings, attemptCount)))
      )
      : Effect.uninterruptibleMask((restore) =>
        Effect.gen(function*() {
          const one = yield* running.enter(item, lockToken)
          // Not a child: one that does not end when it is interrupted must not keep the slot, or a shutdown, waiting.
          const fiber = yield* Effect.forkDetach(
            provideCall(handler.run(item.input), item, attemptCount, sessions.ownerId)
          )
          const ended = yield* restore(Effect.raceFirst(
            Effect.asSome(Fiber.await(fiber)),
            Effect.as(Deferred.await(one.lost), Option.none<Exit.Exit<string, ErrorDetails>>())
          )).pipe(
            Effect.ensuring(Effect.sync(() => running.leave(one))),
            Effect.onInterrupt(() =>
              // Shutdown: the activity did nothing wrong, the next process starts it anew.
              Effect.andThen(interruptWithin(fiber, settings.activityGracePeriod), abandon(Option.none(), true))
            )
          )
          if (Option.isNone(ended)) {
            yield* Effect.logInfo("An activity was cancelled and is interrupted")
            yield* interruptWithin(fiber, settings.activityGracePeriod)
            return yield* count(item, "cancelled")
          }
          const completion = complete(item, ended.value)
          return yield* completion === undefined ? abandon(Option.none()) : store(completion)
        })
      )

    return work.pipe(
      Effect.catchDefect((defect) =>
        Effect.andThen(Effect.logError("An activity broke", defect), abandon(Option.some(failedStorePause)))
      ),
      Effect.annotateLogs({
        instanceId: item.instance,
        executionId: item.executionId,
        activityId: item.id,
        activityName: item.name
      })
    )
  }

  yield* slots.run({
    name: "worker-dispatcher",
    concurrency: settings.workerConcurrency,
    shutdownTimeout: settings.shutdownTimeout,
    claim: sessions.claim,
    handle: (claimed) => Effect.ensuring(handle(claimed), sessions.leave(claimed.item))
  })
})

// internal

const provideCall = <A, E>(
  run: Effect.Effect<A, E, Activity.Context>,
  item: WorkItem.Of<"ActivityExecute">,
  deliveryNumber: number,
  workerId: string
) =>
  Effect.provideService(run, Activity.Context, {
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
const keyOf = ({ executionId, firstTryId, id, instance, startedAtMs }: WorkItem.Of<"ActivityExecute">) =>
  [instance, executionId, ...(startedAtMs === undefined ? [] : [startedAtMs]), firstTryId ?? id].join("/")

const interruptWithin = (fiber: Fiber.Fiber<unknown, unknown>, gracePeriod: Duration.Duration) =>
  Effect.timeoutOption(Fiber.interrupt(fiber), gracePeriod).pipe(
    Effect.flatMap((ended) =>
      Option.isSome(ended)
        ? Effect.void
        : Effect.logWarning("An interrupted activity does not end; it is left alone")
    )
  )

/** Undefined when the handler was interrupted by itself: nothing is known of its outcome. */
const complete = (
  item: WorkItem.Of<"ActivityExecute">,
  exit: Exit.Exit<string, ErrorDetails>
): Completion | undefined => {
  if (Exit.isSuccess(exit)) {
    const { executionId, id, instance } = item
    return { _tag: "ActivityCompleted", instance, executionId, id, result: exit.value }
  }
  const reason = exit.cause.reasons.find((reason) => reason._tag === "Fail")
  return reason && failed(item, reason.error)
}

const failed = (item: WorkItem.Of<"ActivityExecute">, details: ErrorDetails): Completion => ({
  _tag: "ActivityFailed",
  instance: item.instance,
  executionId: item.executionId,
  id: item.id,
  details
})

const poisoned = (
  item: WorkItem.Of<"ActivityExecute">,
  attemptCount: number,
  maxAttempts: number
): ErrorDetails => ({
  _tag: "Poison",
  attemptCount,
  maxAttempts,
  messageType: {
    Activity: {
      instance: item.instance,
      execution_id: item.executionId,
      activity_name: item.name,
      activity_id: item.id
    }
  },
  message: WorkItem.encode(item)
})

const count = (item: WorkItem.Of<"ActivityExecute">, outcome: "success" | "app_error" | "cancelled") =>
  Metric.update(
    Metric.withAttributes(Metrics.activityExecutions, {
      activity_name: item.name,
      outcome,
      tag: item.tag ?? "default"
    }),
    1
  )
