/**
 * Handles a wake-up: claims its task, runs the handler under a lease, and settles the attempt.
 *
 * Claims, completions and failures of the same time share statements. The wake-up is acknowledged last: until then another
 * worker may receive it, which costs a claim and does nothing.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { seriesOf } from "../../model/internal/labelled.ts"
import { monotonicMs } from "../../model/internal/monotonic.ts"
import * as tracing from "../../model/internal/tracing.ts"
import * as Metrics from "../../model/Metrics.ts"
import type { Database } from "../../prisma/Database.ts"
import { shared } from "../../provider/internal/statement.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { Later } from "../Consumer.ts"
import type { Delivery } from "../Consumer.ts"
import type { Payload } from "../Queue.ts"
import { Attempt } from "../Task.ts"
import { QueueSignals, Topic } from "./signals.ts"
import type { Failed, TaskCode } from "./taskCode.ts"
import { StaleAttempt } from "./taskErrors.ts"
import * as failures from "./taskFailure.ts"
import type { Failure } from "./taskFailure.ts"
import * as leasesOf from "./taskLeases.ts"
import * as stores from "./taskStore.ts"
import type { AttemptEnd, Claim, Completion, TaskStore } from "./taskStore.ts"

export interface Served {
  readonly code: TaskCode
  readonly leaseMs: number
}

type Claimed = Extract<Claim, { readonly out_outcome: "Claimed" }>

/** Handles a wake-up; fails if the store does not answer the claim. */
export type Handle = (wakeup: Payload, delivery: Delivery) => Effect.Effect<void | Later, ProviderError>

export const make = Effect.fnUntraced(function*({ database, served, store, workerId }: {
  readonly database: Database["Service"]
  readonly store: TaskStore
  readonly served: ReadonlyMap<string, Served>
  readonly workerId: string
}): Effect.fn.Return<Handle, never, QueueSignals | Scope.Scope> {
  const clock = yield* Clock.Clock
  const signals = yield* QueueSignals
  const serves = {
    names: [...served.keys()],
    leaseMs: [...served.values()].map(({ leaseMs }) => leaseMs),
    workerId
  }
  const sharing = { lanes: 2, maxBatch: 500, patience: Duration.seconds(30), repeats: true } as const
  const claim = yield* shared("claimTasks", (wakeups: ReadonlyArray<Payload>) => store.claim(wakeups, serves), sharing)
  const complete = yield* shared("completeTasks", (items: ReadonlyArray<Completion>) => store.complete(items), {
    ...sharing,
    sizeOf: ({ result }) => result?.length ?? 0
  })
  const fail = yield* shared("failTasks", (items: ReadonlyArray<AttemptEnd>) => store.fail(items), {
    ...sharing,
    sizeOf: ({ error }) => error?.length ?? 0
  })
  const leases = yield* leasesOf.make(store)
  const unserved = new Set<string>()

  // -- settling ----------------------------------------------------------------------------------

  /** Until the store answers; after another refusal the lease ends, and the task is claimed again. */
  const settled = <A>(claimed: Claimed, settlement: Effect.Effect<A, ProviderError>) =>
    Effect.retry(settlement, {
      schedule: Schedule.spaced(leaseMsOf(claimed) / 10),
      while: ({ isRetryable }) => isRetryable
    })

  const leaseMsOf = (claimed: Claimed) => served.get(claimed.out_name)!.leaseMs

  const ended = (claimed: Claimed, outcome: AttemptEnd["outcome"], failure: Failure | undefined, options: {
    readonly retryAfter: Duration.Duration | undefined
    readonly counts: boolean
  }) =>
    settled(
      claimed,
      fail({
        task_id: claimed.out_id,
        attempt: claimed.out_attempt,
        outcome,
        error: failure === undefined ? null : failures.encode(failure),
        delay_ms: options.retryAfter === undefined ? null : Math.ceil(Duration.toMillis(options.retryAfter)),
        counts: options.counts
      })
    ).pipe(
      Effect.tap((answer) => answer === "Retried" ? signals.announce([{ topic: Topic.outbox }]) : Effect.void)
    )

  const refused = Effect.logWarning("Task worker: a stale attempt was refused")

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

  const succeeded = (claimed: Claimed, result: string, isCommitted: boolean) =>
    settled(
      claimed,
      complete({
        task_id: claimed.out_id,
        attempt: claimed.out_attempt,
        result: isCommitted ? null : result,
        is_committed: isCommitted,
        is_first: false
      })
    ).pipe(
      Effect.flatMap((answer) => {
        switch (answer) {
          case "Done":
            return Effect.succeed("completed")
          case "Stale":
            return refused.pipe(
              Effect.andThen(Metric.update(Metrics.taskStaleCommits, 1)),
              Effect.as("stale")
            )
          case "Uncommitted":
            return failed(claimed, {
              failure: { _tag: "Died", problem: "the transaction that committed the task was rolled back" },
              errorType: "TaskDied",
              retryAfter: Duration.seconds(1)
            })
        }
      })
    )

  // -- running -----------------------------------------------------------------------------------

  /** Called where interruption waits; `restore` lets it in. */
  const perform = (
    claimed: Claimed,
    claimedMs: number,
    restore: <A, E, R>(self: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  ): Effect.Effect<void> => {
    const { code, leaseMs } = served.get(claimed.out_name)!
    const { out_attempt: attempt, out_id: taskId, out_name: taskName } = claimed
    const lost = Deferred.makeUnsafe<"Lost">()
    let isCommitted = false
    const stale = Effect.suspend(() =>
      Effect.andThen(Metric.update(Metrics.taskStaleCommits, 1), Effect.fail(new StaleAttempt({ taskId, attempt })))
    )
    const service = Attempt.of({
      taskName,
      taskId,
      attempt,
      idempotencyKey: taskId,
      workerId,
      commit: (connection, result) =>
        Effect.gen(function*() {
          const text = yield* code.encodeResult(result)
          isCommitted = true
          const [outcome] = yield* stores.within(connection, database.schema).complete([
            { task_id: taskId, attempt, result: text, is_committed: false, is_first: true }
          ])
          if (outcome !== "Done") return yield* stale
        }),
      lock: (connection) =>
        Effect.flatMap(
          stores.within(connection, database.schema).lockAttempt(taskId, attempt),
          (isNewest) => isNewest ? Effect.void : stale
        )
    })

    return Effect.gen(function*() {
      const lease = yield* leases.hold({
        taskId,
        attempt,
        leaseMs,
        onLost: () => {
          // It has ended itself.
          if (!isCommitted) Deferred.doneUnsafe(lost, Effect.succeed("Lost"))
        }
      }, claimedMs)
      // Its end may be a cancellation.
      yield* signals.subscribe(Topic.task(taskId), { received: () => leases.check(lease) })
      const span = yield* tracing.open(() => ({
        name: `task ${taskName}`,
        traceparent: claimed.out_trace_context ?? undefined,
        kind: "consumer",
        describe: (span) => {
          span.attribute("duroxide.task_name", taskName)
          span.attribute("duroxide.task_id", taskId)
          span.attribute("duroxide.attempt", attempt)
        }
      }))
      const startMs = monotonicMs(clock)
      const handler = Effect.exit(
        Effect.provideService(code.run(claimed.out_payload, claimed.out_counted), Attempt, service)
      )
      const exit = yield* restore(Effect.raceFirst(tracing.within(span)(handler), Deferred.await(lost))).pipe(
        Effect.exit
      )
      const ranMs = monotonicMs(clock) - startMs
      if (span !== undefined) {
        yield* tracing.end(span, Exit.isSuccess(exit) && exit.value !== "Lost" ? exit.value : Exit.interrupt())
      }
      const outcome = yield* Exit.isFailure(exit)
        ? Effect.as(Effect.timeoutOption(giveBack(claimed), farewellMs), "given_back")
        : exit.value === "Lost"
        ? Effect.as(Effect.logInfo("Task worker: attempt interrupted; it is lost, or its task was cancelled"), "lost")
        : restore(settle(claimed, exit.value, isCommitted))
      yield* Metric.update(attempts(taskName, outcome), 1)
      yield* Metric.update(duration(taskName, outcome), ranMs / 1000)
    }).pipe(
      Effect.scoped,
      Effect.catch((error) =>
        Effect.logError("Task worker: attempt not settled; another one follows after its lease").pipe(
          Effect.annotateLogs({ error: error.message })
        )
      ),
      Effect.annotateLogs({ task_name: taskName, task_id: taskId, attempt })
    )
  }

  const settle = (claimed: Claimed, exit: Exit.Exit<string, Failed>, isCommitted: boolean) => {
    if (Exit.isSuccess(exit)) return succeeded(claimed, exit.value, isCommitted)
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
    Effect.catch(
      ended(claimed, "GivenBack", undefined, { retryAfter: Duration.zero, counts: false }),
      (error) =>
        Effect.logWarning("Task worker: attempt not given back; another one follows after its lease").pipe(
          Effect.annotateLogs({ error: error.message })
        )
    )

  return (wakeup, { deliveryCount }) =>
    Effect.suspend(() => {
      const claimedMs = monotonicMs(clock)
      // A claim that is made must be settled.
      return Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(claim(wakeup), (answer): Effect.Effect<void | Later, ProviderError> => {
          switch (answer.out_outcome) {
            case "Claimed":
              return perform(answer, claimedMs, restore)
            case "Locked":
              return Effect.succeed(new Later({ delay: Math.min(100 * 2 ** (deliveryCount - 1), 30_000) }))
            case "NotDue": {
              // It came early. Further off, there is a row of the outbox for then, and the sweep.
              const dueMs = Number(answer.out_due_ms)
              return Effect.succeed(dueMs <= soonMs ? new Later({ delay: dueMs }) : undefined)
            }
            case "Unserved": {
              const isKnown = unserved.has(answer.out_name)
              unserved.add(answer.out_name)
              return Effect.logWarning("Task worker: no handler for this task here; its wake-up is given back").pipe(
                Effect.when(Effect.succeed(!isKnown)),
                Effect.annotateLogs({ task_name: answer.out_name, task_id: answer.out_id }),
                Effect.as(new Later({ delay: unservedPauseMs(deliveryCount) }))
              )
            }
            case "Exhausted":
              return Effect.logError("Task worker: task is dead; its last attempt was lost").pipe(
                Effect.annotateLogs({ task_name: answer.out_name, task_id: answer.out_id }),
                Effect.andThen(Metric.update(attempts(answer.out_name, "lost"), 1))
              )
            default:
              return Effect.void
          }
        })
      )
    })
})

// internal

const attempts = seriesOf(Metrics.taskAttempts)

const duration = seriesOf(Metrics.taskDuration)

const soonMs = 10_000

const farewellMs = 5_000

/**
 * A worker of the same queue that serves the task gets its wake-up soon, even if this one is faster a few times; without
 * such a worker, it comes back ever more seldom.
 */
const unservedPauseMs = (deliveryCount: number) =>
  deliveryCount === 1 ? 0 : Math.min(50 * 2 ** Math.max(deliveryCount - 5, 0), 60_000)

const outcomeOf = ({ _tag }: Failure) =>
  _tag === "Failed" ? "failed" : _tag === "TimedOut" ? "timed_out" : _tag === "Died" ? "died" : "lost"
