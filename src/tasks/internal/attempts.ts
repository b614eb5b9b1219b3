/**
 * Runs the handlers of claimed tasks under leases, and settles the attempts.
 *
 * Claims and completions travel in sets. When a set fails because of one task, its tasks are sent one by one, so that
 * each succeeds or fails alone.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as FiberSet from "effect/FiberSet"
import * as Metric from "effect/Metric"
import * as References from "effect/References"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import { harmlessIn } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as tracing from "../../model/shared/tracing.ts"
import { growingMs } from "../../model/shared/trouble.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { shared } from "../../provider/shared/statement.ts"
import { problem, storePauseAfter, verdict } from "../../provider/shared/unstored.ts"
import { Topic, Topics } from "../../waking/Topics.ts"
import type { Failed, TaskCode } from "../shared/code.ts"
import { StaleAttempt } from "../shared/errors.ts"
import * as failures from "../shared/failure.ts"
import type { Failure } from "../shared/failure.ts"
import type { AttemptEnd, Claim, Claimed, Completed, Completion, Serves, TaskDriver } from "../TaskDriver.ts"
import { Attempt } from "./attempt.ts"
import * as claimings from "./claiming.ts"
import type { TaskClaiming } from "./claiming.ts"
import type { Watch } from "./claims.ts"
import * as leasesOf from "./leases.ts"

export interface Served {
  readonly code: TaskCode
  readonly leaseMs: number
}

/** An attempt whose handler runs, or has ended with `exit`. */
export interface Running {
  readonly claimed: Claimed
  readonly startMs: number
  endMs: number
  exit: Exit.Exit<string, Failed> | undefined
  /** The handler has sent the completion in its own transaction. */
  isCommitted: boolean
  /** A newer attempt has begun, or the task has ended: it was interrupted, and there is nothing to settle. */
  isLost: boolean
  /** A shutdown has interrupted it. */
  isStopped: boolean
  readonly stop: () => void
  /** Ends the heartbeat. */
  readonly release: () => void
}

export interface Attempts {
  /** Tasks that every claim is for. */
  readonly serves: Serves
  readonly watch: Watch
  /** Waits while the leases of running attempts are not renewed. Every claim waits for it first. */
  readonly inTouch: Effect.Effect<void>
  readonly claiming: Pick<TaskClaiming, "claimAll" | "claimSuspects" | "refused" | "returnClaim">
  /** Runs the handler of a claimed task. `ended` may be called before this returns. */
  readonly start: (claimed: Claimed, claimedMs: number, ended: (attempt: Running) => void) => Running
  /** Completes attempts whose handlers have succeeded. Only what is Done or Stale is settled. */
  readonly completeAll: (attempts: ReadonlyArray<Running>) => Effect.Effect<ReadonlyArray<Completed>, ProviderError>
  /** Settles an attempt that has ended, alone. Never fails. */
  readonly settle: (attempt: Running) => Effect.Effect<void>
  /** Gives back a task that was claimed, and whose handler did not run. */
  readonly giveBack: (claimed: Claimed) => Effect.Effect<void>
  /** After a wake-up that led to no attempt: the pause before it comes again; undefined if it is dropped. */
  readonly pass: (
    answer: Exclude<Claim, Claimed>,
    deliveryCount: number
  ) => Effect.Effect<Duration.Duration | undefined>
}

export const make = Effect.fnUntraced(function*({ driver, served, watch, workerId }: {
  readonly driver: TaskDriver["Service"]
  readonly served: ReadonlyMap<string, Served>
  readonly watch: Watch
  readonly workerId: string
}): Effect.fn.Return<Attempts, never, Topics | Scope.Scope> {
  const clock = yield* Clock.Clock
  const topics = yield* Topics
  const context = harmlessIn(yield* Effect.context<never>())
  const leases = yield* leasesOf.make(driver)
  const inBackground = yield* FiberSet.makeRuntime<never, void, never>()
  const serves = {
    names: [...served.keys()],
    leaseMs: [...served.values()].map(({ leaseMs }) => leaseMs),
    workerId
  }
  const sharing = { lanes: 2, maxBatch: 500, patience: Duration.seconds(30), repeats: true } as const
  const watchInTouch: Watch = (foundWork) => (claim) => Effect.andThen(leases.inTouch, watch(foundWork)(claim))
  const claiming = yield* claimings.make({ driver, serves, topics, watch: watchInTouch })
  const complete = yield* shared(
    "completeTasks",
    (items: ReadonlyArray<Completion>) => driver.complete(items),
    { ...sharing, sizeOf: ({ result }) => result?.length ?? 0 }
  )
  const fail = yield* shared("failTasks", (items: ReadonlyArray<AttemptEnd>) => driver.fail(items), {
    ...sharing,
    sizeOf: ({ error }) => error?.length ?? 0
  })
  // The end of a task that runs here may be a cancellation.
  yield* topics.subscribe(Topic.tasks, { received: (_, topic) => leases.check(Topic.taskId(topic)) })
  const unserved = new Set<string>()

  // -- settling ----------------------------------------------------------------------------------

  /** Repeats until the store answers, under the renewed lease. Fails with what it refuses for good, or once closed. */
  const settled = <A>(
    claimed: Claimed,
    settlement: Effect.Effect<A, ProviderError>,
    failures = 0
  ): Effect.Effect<A, ProviderError> =>
    Effect.catch(settlement, (error) => {
      if (verdict(error) !== "Kept" || isClosed(error)) return Effect.fail(error)
      const pause = Duration.min(
        storePauseAfter(failures),
        Duration.millis(leaseMsOf(claimed) / 10)
      )
      return (failures === 0
        ? Effect.logWarning("Task worker: attempt not settled yet; its lease is renewed")
        : Effect.logDebug("Task worker: attempt not settled yet")).pipe(
          problem(error),
          Effect.andThen(Effect.sleep(pause)),
          Effect.andThen(Effect.suspend(() => settled(claimed, settlement, failures + 1)))
        )
    })

  const leaseMsOf = (claimed: Claimed) => served.get(claimed.name)!.leaseMs

  const ended = (claimed: Claimed, outcome: AttemptEnd["outcome"], failure: Failure | undefined, options: {
    readonly retryAfter: Duration.Duration | undefined
    readonly counts: boolean
  }) =>
    settled(
      claimed,
      fail({
        taskId: claimed.id,
        attempt: claimed.attempt,
        outcome,
        error: failure === undefined ? null : failures.encode(failure),
        delayMs: options.retryAfter === undefined ? null : Math.ceil(Duration.toMillis(options.retryAfter)),
        counts: options.counts
      })
    ).pipe(
      Effect.tap((answer) => answer === "Retried" ? topics.announce([{ topic: Topic.outbox }]) : Effect.void)
    )

  const refused = Effect.logWarning("Task worker: a stale attempt was refused")

  /** Logs and counts a result that came too late. */
  const refusedLate = Effect.andThen(refused, Effect.as(Metric.update(Metrics.taskStaleCommits, 1), "stale"))

  const failed = (claimed: Claimed, { errorType, failure, retryAfter }: Failed) =>
    Effect.flatMap(
      ended(claimed, failure._tag as AttemptEnd["outcome"], failure, { retryAfter, counts: true }),
      (answer) =>
        answer === "Dead"
          ? Effect.as(Effect.logError("Task worker: task is dead; its last attempt failed"), outcomeOf(failure))
          : answer === "Stale"
          ? Effect.as(
            errorType === "StaleAttempt"
              ? refused
              : Effect.logInfo("Task worker: the task has ended, or a newer attempt has begun"),
            "stale"
          )
          : Effect.as(Effect.logInfo("Task worker: attempt failed; another one follows"), outcomeOf(failure))
    ).pipe(Effect.annotateLogs({ error_type: errorType }))

  const completed = ({ claimed }: Running, answer: Completed) => {
    switch (answer) {
      case "Done":
        return Effect.succeed("completed")
      case "Stale":
        return refusedLate
      case "Uncommitted":
        return failed(claimed, {
          failure: { _tag: "Died", problem: "the transaction that committed the task was rolled back" },
          errorType: "TaskDied",
          retryAfter: Duration.seconds(1)
        })
    }
  }

  /** The store will never take this end of the attempt, so running the handler again would only repeat that. */
  const refusedBy = (claimed: Claimed, error: ProviderError) =>
    Effect.logError("Task worker: attempt fails, the database refuses its result").pipe(
      problem(error),
      Effect.andThen(failed(claimed, {
        failure: { _tag: "Died", problem: `the database refuses its result: ${error.reason.message}` },
        errorType: error.reason._tag,
        retryAfter: undefined
      }))
    )

  /** The outcome, for the metrics. */
  const settle = (attempt: Running): Effect.Effect<string, ProviderError> => {
    const { claimed, exit, isLost, isStopped } = attempt
    if (isLost) {
      return Effect.as(
        Effect.logInfo("Task worker: attempt interrupted; it is lost, or its task was cancelled"),
        "lost"
      )
    }
    if (exit === undefined) return Effect.as(giveBack(claimed), "given_back")
    if (Exit.isSuccess(exit)) {
      return Effect.flatMap(settled(claimed, complete(completionOf(attempt))), (answer) => completed(attempt, answer))
    }
    if (isStopped && Cause.hasInterruptsOnly(exit.cause)) return Effect.as(giveBack(claimed), "given_back")
    const reason = exit.cause.reasons.find((reason) => reason._tag === "Fail")
    return failed(
      claimed,
      reason?.error ?? {
        failure: {
          _tag: "Died",
          problem: Cause.hasInterruptsOnly(exit.cause) ? "the handler interrupted itself" : "the handler died"
        },
        errorType: "TaskDied",
        retryAfter: Duration.seconds(1)
      }
    )
  }

  /** A shutdown has interrupted it: the attempt does not count. */
  const giveBack = (claimed: Claimed) =>
    ended(claimed, "GivenBack", undefined, { retryAfter: Duration.zero, counts: false }).pipe(
      Effect.timeout(farewellMs),
      Effect.catch((error) =>
        Effect.logWarning("Task worker: attempt not given back; another one follows after its lease").pipe(
          Effect.annotateLogs({ error: error.message })
        )
      ),
      Effect.asVoid
    )

  const described = ({ attempt, id, name }: Claimed) => ({ task_name: name, task_id: id, attempt })

  const count = ({ claimed, endMs, startMs }: Running, outcome: string, services: Context.Context<never>) => {
    attempts(claimed.name, outcome).updateUnsafe(1, services)
    duration(claimed.name, outcome).updateUnsafe((endMs - startMs) / 1000, services)
  }

  // -- running -----------------------------------------------------------------------------------

  const serviceOf = ({ attempt, id: taskId, name: taskName }: Claimed, committing: () => void) => {
    const stale = Effect.suspend(() =>
      Effect.andThen(Metric.update(Metrics.taskStaleCommits, 1), Effect.fail(new StaleAttempt({ taskId, attempt })))
    )
    return Attempt.of({
      taskName,
      taskId,
      attempt,
      idempotencyKey: taskId,
      workerId,
      commit: (connection, result) =>
        Effect.gen(function*() {
          const text = yield* served.get(taskName)!.code.encodeResult(result)
          committing()
          if ((yield* driver.within(connection).complete(taskId, attempt, text)) !== "Done") return yield* stale
        }),
      lock: (connection) =>
        Effect.flatMap(
          driver.within(connection).lockAttempt(taskId, attempt),
          (isNewest) => isNewest ? Effect.void : stale
        )
    })
  }

  const spanOf = (claimed: Claimed, services: Context.Context<never>) =>
    tracing.openUnsafe(services, () => ({
      name: `task ${claimed.name}`,
      traceparent: claimed.traceContext ?? undefined,
      kind: "consumer",
      describe: (span) => {
        span.attribute("duroxide.task_name", claimed.name)
        span.attribute("duroxide.task_id", claimed.id)
        span.attribute("duroxide.attempt", claimed.attempt)
      }
    }))

  const bases = new Map(
    [...served].map(([name, { code }]) => [name, Context.merge(context, code.services)])
  )

  const lose = (running: Running, fiber: Fiber.Fiber<unknown, unknown>) => {
    if (running.isCommitted) {
      // It has ended itself, unless the transaction in which it did was rolled back.
      return void inBackground(loseUnlessCommitted(running, fiber))
    }
    running.isLost = true
    fiber.interruptUnsafe()
  }

  const loseUnlessCommitted = (running: Running, fiber: Fiber.Fiber<unknown, unknown>) =>
    settled(running.claimed, complete(completionOf(running))).pipe(
      Effect.tap((answer) =>
        Effect.sync(() => {
          if (answer !== "Stale" || running.exit !== undefined) return
          running.isLost = true
          fiber.interruptUnsafe()
        })
      ),
      Effect.ignore
    )

  const start: Attempts["start"] = (claimed, claimedMs, ended) => {
    const { code, leaseMs } = served.get(claimed.name)!
    const base = bases.get(claimed.name)!
    const lease = leases.hold({
      taskId: claimed.id,
      attempt: claimed.attempt,
      leaseMs,
      onLost: () => lose(running, fiber)
    }, claimedMs)
    const running: Running = {
      claimed,
      startMs: monotonicMs(clock),
      endMs: 0,
      exit: undefined,
      isCommitted: false,
      isLost: false,
      isStopped: false,
      stop: () => {
        running.isStopped = true
        fiber.interruptUnsafe()
      },
      release: () => leases.release(lease)
    }
    const annotated = Context.add(base, References.CurrentLogAnnotations, {
      ...Context.get(base, References.CurrentLogAnnotations),
      ...described(claimed)
    })
    const span = spanOf(claimed, context)
    const services = Context.add(
      tracing.withSpan(annotated, span),
      Attempt,
      serviceOf(claimed, () => {
        running.isCommitted = true
      })
    )
    const fiber = Effect.runForkWith(services)(code.run(claimed.payload, claimed.counted))
    fiber.addObserver((exit) => {
      running.exit = exit
      claiming.release(claimed)
      running.endMs = monotonicMs(clock)
      if (span !== undefined) tracing.endUnsafe(span, running.isLost ? Exit.interrupt() : exit, clock)
      ended(running)
    })
    return running
  }

  // ----------------------------------------------------------------------------------------------

  return {
    serves,
    watch: watchInTouch,
    inTouch: leases.inTouch,
    claiming,
    start,
    completeAll: (all) =>
      Effect.tap(driver.complete(all.map(completionOf)), (outcomes) =>
        Effect.withFiber((fiber) => {
          const stale = all.filter((attempt, i) => {
            if (outcomes[i] === "Done") count(attempt, "completed", fiber.context)
            return outcomes[i] === "Stale"
          })
          return Effect.forEach(stale, (attempt) =>
            Effect.map(refusedLate, (outcome) => count(attempt, outcome, fiber.context)).pipe(
              Effect.annotateLogs(described(attempt.claimed))
            ), { discard: true })
        })),
    settle: (attempt) =>
      settle(attempt).pipe(
        Effect.catch((error) => isClosed(error) ? Effect.fail(error) : refusedBy(attempt.claimed, error)),
        Effect.flatMap((outcome) => Effect.withFiberSucceed((fiber) => count(attempt, outcome, fiber.context))),
        Effect.catch((error) =>
          Effect.logError("Task worker: attempt not settled; another one follows after its lease").pipe(
            Effect.annotateLogs({ error: error.message })
          )
        ),
        Effect.annotateLogs(described(attempt.claimed))
      ),
    giveBack: (claimed) =>
      Effect.suspend(() => {
        claiming.release(claimed)
        return Effect.annotateLogs(giveBack(claimed), described(claimed))
      }),
    pass: (answer, deliveryCount) => {
      switch (answer.outcome) {
        case "Locked":
          if (deliveryCount >= mostDeliveries) return Effect.succeed(undefined)
          return Effect.succeed(Duration.millis(growingMs(100, 30_000, deliveryCount - 1)))
        case "Suspect":
          // Others of this worker, or another worker, may have room for it soon.
          if (deliveryCount >= mostDeliveries) return Effect.succeed(undefined)
          return Effect.succeed(Duration.millis(growingMs(500, 30_000, deliveryCount - 1)))
        case "NotDue":
          // The wake-up came early. If the task is due much later, its row of the outbox wakes it then.
          return Effect.succeed(answer.dueMs <= soonMs ? Duration.millis(answer.dueMs) : undefined)
        case "Unserved": {
          const isKnown = unserved.has(answer.name)
          unserved.add(answer.name)
          return Effect.logWarning("Task worker: no handler for this task here; its wake-up is given back").pipe(
            Effect.when(Effect.succeed(!isKnown)),
            Effect.annotateLogs({ task_name: answer.name, task_id: answer.id }),
            Effect.as(deliveryCount >= mostDeliveries ? undefined : Duration.millis(unservedPauseMs(deliveryCount)))
          )
        }
        case "Exhausted":
          return Effect.logError("Task worker: task is dead; its last attempt was lost").pipe(
            Effect.annotateLogs({ task_name: answer.name, task_id: answer.id }),
            Effect.andThen(Metric.update(attempts(answer.name, "lost"), 1)),
            Effect.as(undefined)
          )
        default:
          return Effect.succeed(undefined)
      }
    }
  }
})

// internal

const attempts = seriesOf(Metrics.taskAttempts)

const duration = seriesOf(Metrics.taskDuration)

const isClosed = ({ reason }: ProviderError) => reason._tag === "Closed"

const soonMs = 10_000

const farewellMs = 5_000

/** Completion of an attempt whose handler has succeeded. */
const completionOf = ({ claimed, exit, isCommitted }: Running): Completion => ({
  taskId: claimed.id,
  attempt: claimed.attempt,
  result: isCommitted || exit === undefined || Exit.isFailure(exit) ? null : exit.value,
  isCommitted
})

/**
 * Pause of a wake-up for a task that this worker does not serve. Another worker of the queue gets it soon, even if this
 * one is faster a few times; without such a worker, it comes back ever more seldom.
 */
const unservedPauseMs = (deliveryCount: number) => deliveryCount === 1 ? 0 : 50 * 2 ** Math.max(deliveryCount - 5, 0)

/**
 * Deliveries after which a wake-up is dropped, so that a queue with the default of 20 does not make it a dead letter.
 * The sweep wakes the task again, and so does a worker that begins to serve it.
 */
const mostDeliveries = 15

const outcomeOf = ({ _tag }: Failure) => _tag === "TimedOut" ? "timed_out" : _tag.toLowerCase()
