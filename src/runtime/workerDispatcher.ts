/**
 * Claims activities, runs their handlers, and stores the outcomes.
 *
 * `decide.ts` says what a delivery comes to; this module carries it out.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { ErrorDetails } from "../model/ErrorDetails.ts"
import * as Metrics from "../model/Metrics.ts"
import type { Claimed, Provider } from "../provider/Provider.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { Call } from "./activityCall.ts"
import * as decide from "./decide.ts"
import type { Activity, Completion } from "./decide.ts"
import type { ActivityCode } from "./handlers.ts"
import type { StoreOutcome } from "./optimisticTurns.ts"
import { longestStorePause, pauseAfter, Pauses, problem } from "./policies.ts"
import type { Running, RunningActivities } from "./running.ts"
import * as sessionsOf from "./sessions.ts"
import type { Settings } from "./settings.ts"
import * as slots from "./slots.ts"
import type { Supervisor } from "./supervisor.ts"

export const make = Effect.fnUntraced(function*(options: {
  readonly provider: Provider["Service"]
  readonly handlers: ReadonlyMap<string, ActivityCode>
  readonly running: RunningActivities
  readonly settings: Settings
  readonly supervisor: Supervisor
  /** How an outcome is stored at the first try. Without it, alone. */
  readonly storeOutcome: StoreOutcome | undefined
}): Effect.fn.Return<slots.Dispatcher, never, Scope.Scope> {
  const { handlers, provider, running, settings, storeOutcome, supervisor } = options
  const looks = slots.looks(yield* Clock.Clock)
  const sessions = yield* sessionsOf.make({
    provider,
    settings,
    supervisor,
    activities: [...handlers.keys()],
    onLook: looks.answered
  })
  const parts: Parts = { provider, handlers, running, settings, sessions, pauses: new Pauses(), storeOutcome }
  return {
    name: component,
    concurrency: settings.workerConcurrency,
    looks,
    claim: Effect.map(
      Effect.andThen(running.inTouch, sessions.claim),
      Option.map((claimed) => handle(parts, claimed))
    )
  }
})

// internal

/** Shared by all deliveries. */
interface Parts {
  readonly provider: Provider["Service"]
  readonly handlers: ReadonlyMap<string, ActivityCode>
  readonly running: RunningActivities
  readonly settings: Settings
  readonly sessions: sessionsOf.Sessions
  readonly pauses: Pauses
  readonly storeOutcome: StoreOutcome | undefined
}

/** Handles a delivery, and settles its claim whatever happens. */
const handle = (parts: Parts, claimed: Claimed<Activity>): Effect.Effect<void> => {
  const { pauses, provider, running, sessions } = parts
  const { item, lockToken } = claimed
  const entry = running.enter(item, lockToken)

  const abandon = ({ counts, pause }: Pick<decide.Abandon<string>, "counts" | "pause">) =>
    Effect.suspend(() =>
      provider.abandonWorkItem({
        lockToken,
        delay: pause === "none"
          ? Option.none()
          : Option.some(pause === "growing" ? pauses.next(entry.key).pause : pause),
        ignoreAttempt: !counts
      })
    ).pipe(
      Effect.catch((error) =>
        error.reason._tag === "LockLost"
          ? Effect.void
          : Effect.logWarning(`${component}: activity not abandoned, it is delivered again when its lock expires`).pipe(
            problem(error)
          )
      )
    )

  return Effect.suspend(() => deliver(parts, claimed, entry, abandon)).pipe(
    Effect.catchDefect((defect) =>
      Effect.andThen(Effect.logError(`${component}: activity broke`, defect), abandon(decide.broken))
    ),
    // Shutdown: the activity is not at fault, and the next process runs it again.
    Effect.onInterrupt(() => abandon({ pause: "none", counts: false })),
    Effect.ensuring(Effect.sync(() => running.leave(entry))),
    Effect.ensuring(sessions.leave(item)),
    Effect.annotateLogs({
      instanceId: item.instance,
      executionId: item.executionId,
      activityId: item.id,
      activityName: item.name
    })
  )
}

/** Decides what the delivery comes to, and carries it out. */
const deliver = (
  parts: Parts,
  claimed: Claimed<Activity>,
  entry: Running,
  abandon: (decision: decide.Abandon<string>) => Effect.Effect<void>
): Effect.Effect<void> => {
  const { handlers, provider, running, sessions, settings, storeOutcome } = parts
  const { attemptCount, item, lockToken } = claimed

  /** Repeats the ack until the store has the outcome or the lock is lost. The handler does not run again for it. */
  const store = (completion: Completion, failures = 0): Effect.Effect<void> =>
    running.holdLock(entry).pipe(
      Effect.andThen(
        storeOutcome === undefined || failures > 0
          ? provider.ackWorkItem(lockToken, Option.some(completion))
          : storeOutcome(claimed, completion)
      ),
      Effect.matchEffect({
        onSuccess: () => count(item, completion._tag === "ActivityCompleted" ? "success" : "app_error"),
        onFailure: (error) => settleUnstored(error, completion, failures)
      })
    )

  const settleUnstored = (error: ProviderError, completion: Completion, failures: number): Effect.Effect<void> => {
    const decision = decide.unstoredOutcome(item, completion, error)
    switch (decision._tag) {
      case "Leave":
        return Effect.logWarning(
          `${component}: outcome not stored, its lock is lost: the activity was cancelled, another process runs it, or an earlier try stored the outcome`
        )
      case "Fail":
        return Effect.andThen(logRefusal(error), Effect.suspend(() => store(decision.completion)))
      case "Abandon":
        return Effect.andThen(logRefusal(error), abandon(decision))
      case "Retry":
        return (failures === 0
          ? Effect.logWarning(`${component}: outcome not stored yet`)
          : Effect.logDebug(`${component}: outcome not stored yet`)).pipe(
            problem(error),
            Effect.andThen(Effect.raceFirst(
              Effect.sleep(Duration.min(pauseAfter(failures), longestStorePause)),
              Deferred.await(entry.lost)
            )),
            Effect.andThen(Effect.suspend(() => store(completion, failures + 1)))
          )
    }
  }

  const call = Effect.fnUntraced(function*(handler: ActivityCode) {
    // Not a child: a handler that does not end when it is interrupted must not hold up the slot, or a shutdown.
    const fiber = yield* Effect.forkDetach(
      provideCall(handler.run(item.input), item, attemptCount, sessions.workerId)
    )
    const ended = yield* Effect.raceFirst(
      Effect.asSome(Fiber.await(fiber)),
      Effect.as(Deferred.await(entry.lost), Option.none<Exit.Exit<string, ErrorDetails>>())
    ).pipe(Effect.onInterrupt(() => interruptWithin(fiber, settings.activityGracePeriod)))
    if (Option.isNone(ended)) {
      yield* Effect.logInfo(`${component}: activity cancelled, it is interrupted`)
      yield* interruptWithin(fiber, settings.activityGracePeriod)
      return yield* count(item, "cancelled")
    }
    const decision = decide.handlerEnd(item, ended.value)
    return yield* decision._tag === "Store" ? store(decision.completion) : abandon(decision)
  })

  const decision = decide.activity({ attemptCount, item }, { handlers, maxAttempts: settings.maxAttempts })
  switch (decision._tag) {
    case "Run":
      return call(decision.handler)
    case "FailAsPoison":
      return Effect.logError(`${component}: activity fails as poison, no delivery ended with an outcome`).pipe(
        Effect.annotateLogs({ deliveries: decision.deliveries }),
        Effect.andThen(store(decision.completion))
      )
    case "Abandon":
      return abandon(decision)
  }
}

const component = "Worker dispatcher"

const logRefusal = (error: ProviderError) =>
  problem(error)(Effect.logError(`${component}: activity fails, the database refuses its outcome`))

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

/** Rust does not send the start time of the execution. */
const keyOf = ({ executionId, firstTryId, id, instance, startedAtMs }: Activity) =>
  [instance, executionId, ...(startedAtMs === undefined ? [] : [startedAtMs]), firstTryId ?? id].join("/")

const interruptWithin = (fiber: Fiber.Fiber<unknown, unknown>, gracePeriod: Duration.Duration) =>
  Effect.timeoutOption(Fiber.interrupt(fiber), gracePeriod).pipe(
    Effect.flatMap((ended) =>
      Option.isSome(ended)
        ? Effect.void
        : Effect.logWarning(
          `${component}: interrupted activity has not ended within its grace period, its slot is freed`
        )
    )
  )

const count = (item: Activity, outcome: "success" | "app_error" | "cancelled") =>
  Metric.update(
    Metric.withAttributes(Metrics.activityExecutions, {
      activity_name: item.name,
      outcome,
      tag: item.tag ?? "default"
    }),
    1
  )
