/**
 * Settles the attempts of a worker: stores what their handlers have made of the tasks, or gives the tasks back.
 *
 * Completions travel in sets. When a set fails because of one task, its tasks are sent one by one, so that each
 * succeeds or fails alone.
 */
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"
import type * as Scope from "effect/Scope"
import * as Metrics from "../../model/Metrics.ts"
import { seriesOf } from "../../model/shared/labelled.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { shared } from "../../provider/shared/statement.ts"
import { problem, storeDelayAfter, verdict } from "../../provider/shared/unstored.ts"
import type { Topics } from "../../waking/Topics.ts"
import { Topic } from "../../waking/Topics.ts"
import { failedUnscheduled } from "../shared/code.ts"
import type { Failed } from "../shared/code.ts"
import * as failures from "../shared/failure.ts"
import type { Failure } from "../shared/failure.ts"
import type { AttemptEnd, Claimed, Completed, Completion, TaskDriver } from "../TaskDriver.ts"

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

export interface Settlement {
  /** Completes attempts whose handlers have succeeded. Only what is Done or Stale is settled. */
  readonly completeAll: (attempts: ReadonlyArray<Running>) => Effect.Effect<ReadonlyArray<Completed>, ProviderError>
  /** Settles an attempt that has ended, alone. Never fails. */
  readonly settle: (attempt: Running) => Effect.Effect<void>
  /** Gives back a task that was claimed, and whose handler has not ended. */
  readonly giveBack: (claimed: Claimed) => Effect.Effect<void>
  /** Learns whether an attempt is lost that has sent its completion in its own transaction. */
  readonly isStale: (attempt: Running) => Effect.Effect<boolean, ProviderError>
}

export const make = Effect.fnUntraced(function*({ driver, leaseMsOf, topics }: {
  readonly driver: Pick<TaskDriver["Service"], "complete" | "fail">
  readonly leaseMsOf: (claimed: Claimed) => number
  readonly topics: Pick<Topics["Service"], "announce">
}): Effect.fn.Return<Settlement, never, Scope.Scope> {
  const sharing = { lanes: 2, maxBatch: 500, patience: Duration.seconds(30), repeats: true } as const
  const complete = yield* shared(
    "completeTasks",
    (items: ReadonlyArray<Completion>) => driver.complete(items),
    { ...sharing, sizeOf: ({ result }) => result?.length ?? 0 }
  )
  const fail = yield* shared("failTasks", (items: ReadonlyArray<AttemptEnd>) => driver.fail(items), {
    ...sharing,
    sizeOf: ({ error }) => error?.length ?? 0
  })

  /** Repeats until the store answers, under the renewed lease. Fails with what it refuses for good, or once closed. */
  const settled = <A>(
    claimed: Claimed,
    settlement: Effect.Effect<A, ProviderError>,
    failures = 0
  ): Effect.Effect<A, ProviderError> =>
    Effect.catch(settlement, (error) => {
      if (verdict(error) !== "Kept" || isClosed(error)) return Effect.fail(error)
      const pause = Duration.min(
        storeDelayAfter(failures),
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
      // A task that is dead may have left a slot of a limit to another one. Stale is also what a repetition is answered
      // whose first try has stored the next attempt.
      Effect.tap(topics.announce([{ topic: Topic.outbox }]))
    )

  /** Logs and counts a result that came too late. */
  const tooLate = Effect.andThen(logStale, Effect.as(Metric.update(Metrics.taskStaleCommits, 1), "stale"))

  const failed = (claimed: Claimed, { counts = true, errorType, failure, retryAfter }: Failed) =>
    Effect.flatMap(
      ended(claimed, failure._tag as AttemptEnd["outcome"], failure, { retryAfter, counts }),
      (answer) =>
        answer === "Dead"
          ? Effect.as(Effect.logError("Task worker: task is dead; its last attempt failed"), outcomeOf(failure))
          : answer === "Stale"
          ? Effect.as(
            errorType === "StaleAttempt"
              ? logStale
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
        return tooLate
      case "Uncommitted":
        return failed(claimed, failedUnscheduled("the transaction that committed the task was rolled back"))
    }
  }

  /** The store will never take this end of the attempt, so running the handler again would only repeat that. */
  const unstorable = (claimed: Claimed, error: ProviderError) =>
    Effect.logError("Task worker: attempt fails, the database refuses its result").pipe(
      problem(error),
      Effect.andThen(failed(claimed, {
        failure: { _tag: "Died", problem: `the database refuses its result: ${error.reason.message}` },
        errorType: error.reason._tag,
        retryAfter: undefined
      }))
    )

  /** The outcome, for the metrics. */
  const settleAs = (attempt: Running): Effect.Effect<string, ProviderError> => {
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
      reason?.error ?? failedUnscheduled(
        Cause.hasInterruptsOnly(exit.cause) ? "the handler interrupted itself" : "the handler died"
      )
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

  const count = ({ claimed, endMs, startMs }: Running, outcome: string, services: Context.Context<never>) => {
    attempts(claimed.name, outcome).updateUnsafe(1, services)
    duration(claimed.name, outcome).updateUnsafe((endMs - startMs) / 1000, services)
  }

  return {
    completeAll: (all) =>
      Effect.tap(driver.complete(all.map(completionOf)), (outcomes) =>
        Effect.withFiber((fiber) => {
          const stale = all.filter((attempt, i) => {
            if (outcomes[i] === "Done") count(attempt, "completed", fiber.context)
            return outcomes[i] === "Stale"
          })
          return Effect.forEach(stale, (attempt) =>
            Effect.map(tooLate, (outcome) => count(attempt, outcome, fiber.context)).pipe(
              Effect.annotateLogs(described(attempt.claimed))
            ), { discard: true })
        })),
    settle: (attempt) =>
      settleAs(attempt).pipe(
        Effect.catch((error) => isClosed(error) ? Effect.fail(error) : unstorable(attempt.claimed, error)),
        Effect.flatMap((outcome) => Effect.withFiberSucceed((fiber) => count(attempt, outcome, fiber.context))),
        Effect.catch((error) =>
          Effect.logError("Task worker: attempt not settled; another one follows after its lease").pipe(
            Effect.annotateLogs({ error: error.message })
          )
        ),
        Effect.annotateLogs(described(attempt.claimed))
      ),
    giveBack: (claimed) => Effect.annotateLogs(giveBack(claimed), described(claimed)),
    isStale: (attempt) =>
      Effect.map(settled(attempt.claimed, complete(completionOf(attempt))), (answer) => answer === "Stale")
  }
})

/** Time at the end of a worker for each of its last tasks: finalizers of handlers, results, and what is given back. */
export const farewellMs = 5_000

/** What log lines say about an attempt. */
export const described = ({ attempt, id, name }: Claimed) => ({ task_name: name, task_id: id, attempt })

// internal

const attempts = seriesOf(Metrics.taskAttempts)

const duration = seriesOf(Metrics.taskDuration)

const isClosed = ({ reason }: ProviderError) => reason._tag === "Closed"

const logStale = Effect.logWarning("Task worker: a stale attempt was refused")

/** Completion of an attempt whose handler has succeeded. */
const completionOf = ({ claimed, exit, isCommitted }: Running): Completion => ({
  taskId: claimed.id,
  attempt: claimed.attempt,
  result: isCommitted || exit === undefined || Exit.isFailure(exit) ? null : exit.value,
  isCommitted
})

const outcomeOf = ({ _tag }: Failure) => _tag === "TimedOut" ? "timed_out" : _tag.toLowerCase()
